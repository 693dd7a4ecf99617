package leader

import (
	"slices"

	"github.com/warrenmq/warren/queue/wire"
)

// parkedAttach is a consumer that waits to be let in.
type parkedAttach struct {
	from   string
	attach *wire.Attach
}

// attachWaits tells whether a consumer that is not attached has to wait for what nodes have to say. One of them may have the queue for itself: before
// the roll call is over nobody is let in. Who wants the queue for itself waits also for nodes that did not answer in time, until they do or are gone.
func (l *Leader) attachWaits(c *wire.Consumer) bool {
	return l.phase == phaseRoll || c.Exclusive && len(l.missing) > 0
}

// letIn lets in those that waited long enough, in the order of coming.
func (l *Leader) letIn() {
	waited := l.attaches
	l.attaches = nil
	for _, a := range waited {
		l.onAttach(a.from, a.attach)
	}
}

// dropAttach forgets a consumer that waits: nobody waits for it any more.
func (l *Leader) dropAttach(node uint32, no wire.ConsumerNo) {
	l.attaches = slices.DeleteFunc(l.attaches, func(a parkedAttach) bool {
		return a.attach.Origin.Node == node && a.attach.Consumer.No == no
	})
}

// contradictions ends consumers that cannot be there together, because one of them has the queue for itself. Each was let in when none that stood in its
// way was known; nodes that were taken for dead, or did not answer the roll call in time, may be back with theirs. The newest was let in when the others
// were gone, and stays.
func (l *Leader) contradictions() {
	cs := &l.consumers
	if l.phase != phaseActive || cs.exclusive == 0 || cs.len() < 2 {
		return
	}
	list := make([]*consumer, 0, cs.len())
	for _, c := range cs.byKey {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *consumer) int { return b.Turn.Compare(a.Turn) })
	alone := list[0].Exclusive
	for _, c := range list[1:] {
		if alone || c.Exclusive {
			cs.remove(c)
			l.out.send(c.peer, &wire.Attached{Queue: l.cfg.Queue, No: c.no, Refusal: refusedExclusive})
			l.out.send(c.peer, &wire.Detached{Queue: l.cfg.Queue, No: c.no, Gone: true}) // an older program goes by this one
		}
	}
}
