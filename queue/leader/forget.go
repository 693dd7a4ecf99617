package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
)

// forgetting drops, from the queue's log, what it knows of queues that the catalog no
// longer has: watermarks of sources and records of closed targets. Neither can grow
// without a new source or a closed target, so only these ask for a look; an idle queue
// has no timer.
type forgetting struct {
	wanted bool
	after  time.Time // not before
}

// forgetPause is the least time between two looks, which cost a lookup for each source
// and target.
const forgetPause = time.Minute

func (l *Leader) succeeded(queue uint64) bool {
	return l.cfg.Succeeded != nil && l.cfg.Succeeded(queue)
}

// forgetGone proposes to forget the queues that are gone for good. Identifiers are never
// used again, and one the catalog copy does not have although it is recent enough for it
// has been deleted. What a deposed leader of such a queue still sends is refused: by
// onTransfer, which does not find it either, and in the log by the entry's catalog
// revision.
func (l *Leader) forgetGone() {
	if !l.forgets.wanted || l.phase != phaseActive || l.closing.begun() {
		return
	}
	if left := time.Until(l.forgets.after); left > 0 {
		l.wakeForUpkeep(left)
		return
	}
	l.forgets = forgetting{after: time.Now().Add(forgetPause)}
	revision := l.cfg.CatalogRevision() // before the lookups
	gone := func(queue uint64) bool { return queue <= revision && !l.cfg.SourceExists(queue) }
	var list []fsm.Source
	l.replica.View(func(m *fsm.Machine) {
		for s := range m.Sources() {
			if gone(s.Queue) {
				list = append(list, s)
			}
		}
		for _, t := range m.Outbox().Targets() {
			switch {
			case !t.Gone:
			case l.succeeded(t.Queue): // who does not know that yet may name it
			case gone(t.Queue):
				list = append(list, fsm.Source{Queue: t.Queue})
			default: // told of its end while it is being deleted
				l.forgets.wanted = true
			}
		}
	})
	for _, s := range list {
		delete(l.taken, s.Queue) // as a target
		if t := l.transfers[s]; t != nil {
			l.supply.drop(t)
			delete(l.transfers, s)
		}
	}
	if len(list) > 0 {
		l.pending.add(fsm.ForgetSources{Sources: list}, false)
	}
	if l.forgets.wanted {
		l.wakeForUpkeep(forgetPause)
	}
}
