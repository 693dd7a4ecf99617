package leader

import "github.com/warrenmq/warren/fsm"

// atRest tells whether nothing is under way and nothing becomes due: without a message from a node, or a change in the catalog, this leader
// would never do anything. It is asked at the end of a step.
func (l *Leader) atRest() bool {
	return l.phase == phaseActive && !l.over && !l.pressing && l.consumers.len() == 0 &&
		len(l.inFlight)+len(l.pending.commands)+len(l.held)+len(l.gets)+len(l.queries)+len(l.asks)+len(l.missing)+len(l.supply.sources) == 0 &&
		!l.redriving && !l.closing.begun()
}

// MayRest tells whether the queue can do without a leader at work until somebody asks for it: nobody consumes, holds or waits for anything, no
// message is due at some time and no dead letter is on its way. It may be called by anybody.
func (l *Leader) MayRest() bool {
	l.mu.Lock()
	idle := len(l.inbox) == 0 && l.resting
	l.mu.Unlock()
	letters := 0
	l.replica.View(func(m *fsm.Machine) { letters = m.Outbox().Len() })
	return idle && letters == 0
}
