package leader

import (
	"slices"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// Redriver carries on the redrive of a queue.
type Redriver interface {
	// Wake tells that the redrive's state changed.
	Wake()
	// Stop ends the redriver and waits for its goroutine.
	Stop()
}

// wakeRedriver starts the redriver when there is something to redrive.
func (l *Leader) wakeRedriver() {
	if l.phase != phaseActive {
		return // who holds what is not known yet
	}
	if l.cfg.StartRedriver == nil {
		return
	}
	l.replica.View(func(m *fsm.Machine) {
		job := m.Redriving()
		l.redriving = job.Searching()
	})
	switch {
	case l.redriver != nil:
		l.redriver.Wake() // it has nothing to do behind the end of a redrive, and may be kept for the next
	case l.redriving:
		l.redriver = l.cfg.StartRedriver(l)
	}
}

// loadLeaving keeps the messages from consumers that an earlier leader's redrive has sent.
func (l *Leader) loadLeaving() {
	l.replica.View(func(m *fsm.Machine) {
		for _, id := range m.Leaving() {
			if x, ok := m.Queue().Get(id); ok {
				l.condemn(x)
			}
		}
	})
}

// nameRedrive takes the messages of a decision out of reach of consumers. Those that are not
// free stay, and count as busy.
func (l *Leader) nameRedrive(c fsm.TakeRedrive) fsm.TakeRedrive {
	if l.phase != phaseActive || c.Number == l.stopped {
		// Who holds what is not known yet, or the redrive is over: nothing is decided.
		return fsm.TakeRedrive{Number: c.Number, After: c.After, Through: c.After}
	}
	now := l.now()
	items := c.Items
	c.Items = nil
	l.replica.View(func(f *fsm.Machine) {
		for _, it := range items {
			m, ok := f.Queue().Get(it.ID)
			switch {
			case !ok:
				continue // gone
			case m.Attempt != it.Attempt, m.ID > l.seen.tail, m.ID <= l.ready.purging, !l.reachable(m.ID), l.delays.Until(m.ID) > 0,
				m.ExpiresAt != 0 && m.ExpiresAt <= now:
				c.Passed.Busy++
				continue
			}
			l.condemn(m)
			c.Items = append(c.Items, it)
		}
	})
	return c
}

// dropStaleTargets takes queues that have left the catalog out of a decision: the outbox may have
// forgotten that they are gone.
func (l *Leader) dropStaleTargets(c fsm.TakeRedrive) fsm.TakeRedrive {
	for i := range c.Items {
		c.Items[i].Targets = slices.DeleteFunc(c.Items[i].Targets, func(t uint64) bool { return !l.cfg.SourceExists(t) })
	}
	return c
}

// onFreed makes messages ready again that a redrive does not send.
func (l *Leader) onFreed(ranges []queue.IDRange) {
	for _, r := range ranges {
		for id := r.First; id <= r.Last; id++ {
			l.forget(id)
			l.replica.View(func(f *fsm.Machine) {
				if m, ok := f.Queue().Get(id); ok {
					l.returned(f, m)
					l.mayExpire(m)
				}
			})
		}
	}
}
