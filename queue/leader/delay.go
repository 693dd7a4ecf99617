package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// A message that waits out its retry delay is live in the machine, and no consumer gets
// it. The machine knows until when; the leader keeps its own list, because a delay ends
// by time and needs no entry: machine time passes by the leader's clock.

// loadDelays takes over the delays that an earlier leader's entries began.
func (l *Leader) loadDelays() {
	l.delays = queue.Delays{}
	l.replica.View(func(m *fsm.Machine) {
		for _, d := range m.Delays().List() {
			l.delays.Set(d.ID, d.Until)
		}
	})
}

// returned makes m ready again, at once or after its delay. f is the machine that it was
// read from.
func (l *Leader) returned(f *fsm.Machine, m queue.Message) {
	if until := f.Delays().Until(m.ID); until > l.now() {
		l.delays.Set(m.ID, until)
		return
	}
	l.delays.Remove(m.ID)
	l.ready.putBack(m)
}

// endDelays makes messages ready whose delay is over, and sets the timer for the next.
func (l *Leader) endDelays() {
	if l.delays.Len() == 0 {
		return
	}
	now := l.now()
	l.replica.View(func(f *fsm.Machine) {
		for id, ok := l.delays.Pop(now); ok; id, ok = l.delays.Pop(now) {
			if m, live := f.Queue().Get(id); live && l.reachable(id) {
				l.ready.putBack(m)
			}
		}
	})
	if next := l.delays.Next(); next > 0 {
		l.wake(time.Duration(min(next-now, expireSleepMax)) * time.Millisecond)
	}
}

// readyCount is readyNow without the messages that wait out a delay: what clients are
// told. Limits count these too.
func (l *Leader) readyCount() (n, delayed int64) {
	n, _ = l.readyNow()
	delayed = int64(l.delays.Len())
	return max(0, n-delayed), delayed
}
