package leader

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// What consumers hold beyond its time is passed over once, not by each look for what is due; when it comes back it expires.
func TestHeldMessagesAreNotLookedAtAgain(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.attach(a, 1, 2)
	r.batch(a, living("held", 50), living("comes back", 50))
	items := r.items(a, 2)
	time.Sleep(60 * time.Millisecond)
	r.batch(a, living("nobody takes it", 1))
	r.countReady(a, 0)
	looked := func() (due, again int) {
		r.replica.View(func(m *fsm.Machine) {
			now := int64(1) << 60
			m.Queue().Due(now, func(queue.Message) bool { due++; return true })
			m.Queue().DueAfter(r.l.limits.passed, now, func(queue.Message) bool { again++; return true })
		})
		return due, again
	}
	left := func(want int) {
		t.Helper()
		for range 5000 {
			n := 0
			r.replica.View(func(m *fsm.Machine) { n = m.Queue().Len() })
			if n == want {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
		t.Fatalf("not %d messages left", want)
	}
	left(2)
	r.settle(a, fsm.RequeueFailed, items[1])
	left(1)
	r.l.Stop() // from here on the test may look at it
	if due, again := looked(); due != 1 || again != 0 {
		t.Fatalf("%d due, of them %d to be looked at again, want 1 and 0", due, again)
	}
}
