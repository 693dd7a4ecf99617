package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// closing drives a queue's end: its Close entry, the final watermarks told to
// every source, the outbox drained. Then the group may go.
type closing struct {
	wanted, proposed, closed, reported bool
	// itself: nobody uses the queue, or it is to go if it is empty, so that this leader ends it; told: the catalog was told so.
	itself, told bool
	behind       map[fsm.Origin]uint64 // the operations below come before the end
	waiting      []func()              // answers that would be wrong before the end is in the log
	informed     map[ending]bool       // sources that have recorded the end
	tellAt       time.Time
	burying      bool // a Bury is not applied yet
}

const tellAgain = 500 * time.Millisecond

// ending is the end of this queue, or of one of its former lives, for a source.
type ending struct{ source, target uint64 }

func (c *closing) forgotten(source, target uint64) {
	if c.informed != nil {
		c.informed[ending{source, target}] = true
	}
}

// begun tells whether the queue has ended or is to.
func (c *closing) begun() bool { return c.wanted || c.itself || c.closed }

// endItself ends a queue that nobody uses, or that is to go if it is empty. That is decided here, in the queue's own log: who
// attaches or publishes later hears that it is gone, and no answer of the catalog, however late, can overtake a consumer or a message.
func (l *Leader) endItself() {
	c := &l.closing
	if c.begun() {
		return
	}
	c.itself = true
	c.behind = make(map[fsm.Origin]uint64, len(l.peers))
	for _, p := range l.peers {
		c.behind[p.origin] = max(p.next, p.announced+1)
	}
}

// heardOut tells whether what clients said before the queue ended by itself is in entries: a letter
// that was rejected then dies as such.
func (l *Leader) heardOut() bool {
	for _, p := range l.peers {
		if p.next-uint64(len(p.pending)) < l.closing.behind[p.origin] {
			return false
		}
	}
	return true
}

// afterEnd answers at once, or when the end that was decided here is in the log: nobody hears of an end that
// the next leader does not know.
func (l *Leader) afterEnd(answer func()) {
	if c := &l.closing; c.itself && !c.closed {
		c.waiting = append(c.waiting, answer)
		return
	}
	answer()
}

// lived is the id under which this queue has taken transfers of a source.
func (l *Leader) lived(s fsm.Source) uint64 {
	if s.Epoch == 0 || l.cfg.Former == nil {
		return l.cfg.Queue
	}
	return l.cfg.Former(s.Epoch)
}

func (l *Leader) stepClosing() {
	c := &l.closing
	if !c.begun() || l.phase == phaseOpen || c.reported {
		return
	}
	if !c.closed {
		l.replica.View(func(m *fsm.Machine) { c.closed = m.Closed() })
	}
	if !c.closed {
		if !c.proposed && (c.wanted || l.heardOut()) {
			c.proposed = true
			l.pending.add(fsm.Close{}, false)
		}
		return
	}
	l.dismiss()
	if !c.wanted {
		l.tellCatalog()
		return // nothing is left to others before these know it
	}
	l.bury()
	if l.sourcesTold() && l.drained() {
		c.reported = true
		l.cfg.Closed()
		return
	}
	l.wake(tellAgain)
}

// tellCatalog has a queue that ended by itself taken out of the catalog, also if a former leader ended it: that one
// may not have come to it.
func (l *Leader) tellCatalog() {
	if !l.closing.told {
		l.closing.told = true
		l.cfg.Unused()
	}
}

// dismiss ends the consumers and answers what waits.
func (l *Leader) dismiss() {
	for _, answer := range l.closing.waiting {
		answer()
	}
	l.closing.waiting = nil
	l.letIn() // nobody is: they hear so
	for _, c := range l.consumers.byKey {
		l.out.send(c.peer, &wire.Detached{Queue: l.cfg.Queue, No: c.no, Gone: true})
	}
	l.consumers.init()
	l.endGets()
}

// endGets tells who asks for messages that the queue has ended, and not that it is empty: another one may have its name. A node with an older program takes it for that.
func (l *Leader) endGets() {
	for _, g := range l.gets {
		l.out.send(l.getsFrom[g], &wire.Detached{Queue: l.cfg.Queue, No: wire.ConsumerNo(g.Req), Gone: true})
	}
	clear(l.gets)
	l.gets = l.gets[:0]
	clear(l.getsFrom)
}

func (l *Leader) drained() (ok bool) {
	l.replica.View(func(m *fsm.Machine) { ok = m.Outbox().Len() == 0 && m.Queue().Len() == 0 })
	return ok
}

// Bounds of dead-lettering what a removed queue leaves: messages of one command, and of the outbox.
const (
	buryMax   = 1024
	buryAhead = 8 * buryMax
)

// bury names the next messages of a closed queue that die with it, one command at a time
// and as many as the outbox may hold. What consumers have settled goes first, also what a new
// leader hears of when it calls the roll.
func (l *Leader) bury() {
	if l.closing.burying || l.phase != phaseActive || l.pendingBytes() > 0 {
		return // until the newest command is applied
	}
	var upTo queue.MessageID
	l.replica.View(func(m *fsm.Machine) {
		room := min(buryMax, buryAhead-m.Outbox().Len())
		for x, ok := m.Queue().NextLive(0); ok && room > 0; x, ok = m.Queue().NextLive(x.ID) {
			upTo = x.ID
			room--
		}
	})
	if upTo > 0 {
		l.closing.burying = true
		l.pending.add(fsm.Bury{UpTo: upTo}, false)
		l.pending.applied = append(l.pending.applied, func() { l.closing.burying = false })
	}
}

// sourcesTold tells every source that has sent dead letters where the final
// watermark lies, until each has it in its own log.
func (l *Leader) sourcesTold() bool {
	c := &l.closing
	if c.informed == nil {
		c.informed = map[ending]bool{}
	}
	now := time.Now()
	tell := !now.Before(c.tellAt)
	if tell {
		c.tellAt = now.Add(tellAgain)
	}
	all := true
	l.replica.View(func(m *fsm.Machine) {
		if l.cfg.CatalogRevision() < m.CatalogRev() {
			all = false // a source that is not in this copy may exist
			return
		}
		for s, w := range m.Sources() {
			target := l.lived(s)
			if c.informed[ending{s.Queue, target}] || s.Queue == l.cfg.Queue || !l.cfg.SourceExists(s.Queue) {
				continue
			}
			all = false
			if tell {
				l.out.send("", &wire.TargetClosed{Source: s.Queue, Epoch: s.Epoch, Target: target, Watermark: w, Withdrawn: m.Withdrawn(s)})
			}
		}
	})
	return all
}

// onTargetClosed records, in this queue's log, that a target is gone. A target that is not
// known here is recorded like any other: only what is committed may be answered, because
// this leader may be deposed, and a later one may have routed to the target.
func (l *Leader) onTargetClosed(from string, m *wire.TargetClosed) {
	if l.phase == phaseOpen {
		return
	}
	// While it does not pass it is neither recorded nor answered: the target tells again.
	l.cfg.Pass(func() {
		var gone bool
		l.replica.View(func(f *fsm.Machine) { _, gone = f.Outbox().Known(m.Target) })
		if !gone {
			l.forgets.wanted = true
			l.pending.add(fsm.TargetGone{Target: m.Target, Watermark: m.Watermark, Withdrawn: m.Withdrawn}, false)
			return // told again, and answered then
		}
		l.out.send(from, &wire.TargetForgotten{Target: m.Target, Source: l.cfg.Queue})
	})
}
