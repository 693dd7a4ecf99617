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
	told                               map[ending]bool // sources that have recorded the end
	tellAt                             time.Time
	burying                            bool // a Bury is not applied yet
}

const tellAgain = 500 * time.Millisecond

// ending is the end of this queue, or of one of its former lives, for a source.
type ending struct{ source, target uint64 }

func (c *closing) forgotten(source, target uint64) {
	if c.told != nil {
		c.told[ending{source, target}] = true
	}
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
	if !c.wanted && !c.closed || l.phase == phaseOpen || c.reported {
		return
	}
	if !c.closed {
		l.replica.View(func(m *fsm.Machine) { c.closed = m.Closed() })
	}
	if !c.closed {
		if !c.proposed {
			c.proposed = true
			l.pending.add(fsm.Close{}, false)
		}
		return
	}
	l.dismiss()
	l.bury()
	if l.sourcesTold() && l.drained() {
		c.reported = true
		l.cfg.Closed()
		return
	}
	l.wake(tellAgain)
}

// dismiss ends the consumers and answers what waits.
func (l *Leader) dismiss() {
	for _, c := range l.consumers.byKey {
		l.out.send(c.peer, &wire.Detached{Queue: l.cfg.Queue, No: c.no, Gone: true})
	}
	l.consumers.init()
	l.answerEmptyGets(false)
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
	if c.told == nil {
		c.told = map[ending]bool{}
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
			if c.told[ending{s.Queue, target}] || s.Queue == l.cfg.Queue || !l.cfg.SourceExists(s.Queue) {
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
