package leader

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
)

// A message that comes back after its time dies at once, in the order of the instants, and nothing that consumers hold yet is looked at for it:
// they may hold very many, whose time is over too.
func TestReturnedAfterItsTime(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	var ahead atomic.Int64
	r.nowMS = func() int64 { return time.Now().UnixMilli() + ahead.Load() }
	r.lead()
	r.answerRoll(a)
	r.attach(a, 1, 0)
	hour := time.Hour.Milliseconds()
	r.batch(a, living("first back", 3*hour), living("early", hour), living("later", 2*hour), living("stays", 9*hour))
	items := r.items(a, 4)
	ahead.Add(4 * hour)
	r.status(a, 1) // a step, which passes over what is held
	r.settle(a, fsm.RequeueCounted, items[0])
	r.countReady(a, 0)
	if s := r.status(a, 2); s.Unacked != 3 || s.Dropped != 1 {
		t.Fatalf("status %+v", s)
	}
	r.l.Stop() // from here on the test runs it
	l := r.l
	passed := l.limits.passed
	for _, it := range items[:3] {
		l.letGo(it.ID)
		l.replica.View(func(m *fsm.Machine) {
			if x, ok := m.Queue().Get(it.ID); ok {
				l.mayExpire(x)
			}
		})
	}
	l.limits.late.Add(99) // it is gone
	if l.limits.passed < passed || l.limits.expireAt > passed {
		t.Fatalf("what is held is looked at again: passed %d, %d before; the next look is at %d", l.limits.passed, passed, l.limits.expireAt)
	}
	l.pending = batch{}
	l.expireDue()
	named, _ := l.pending.commands[0].(fsm.Expire)
	if len(named.IDs) != 1 || named.IDs[0].First != items[1].ID || named.IDs[0].Last != items[2].ID || l.limits.late.Len() != 0 {
		t.Fatalf("named %v, %d left", named.IDs, l.limits.late.Len())
	}
}
