package leader

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not seen: " + what)
		}
	}
}

// relead begins another session whose log holds every entry back and whose catalog has
// only the queues for which exists is true.
func (r *rig) relead(exists func(uint64) bool) *slowLog {
	slow := &slowLog{MemLog: r.log, held: make(chan []byte, 16)}
	r.l.Stop()
	r.session++
	cfg := r.l.cfg
	cfg.Log, cfg.Session, cfg.SourceExists = slow, r.session, exists
	r.l = Lead(r.replica, cfg)
	slow.let(1)
	return slow
}

// A leader that is deposed does not know what a later one has routed: that a target is
// not known is no answer to its end, only the log is.
func TestUnknownTargetsEndIsRecordedFirst(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	r.l.Receive(a.ID, &wire.TargetClosed{Source: 7, Target: 5, Watermark: 3})
	eventually(t, "the entry", func() bool { return len(slow.held) == 1 })
	r.mu.Lock()
	for _, s := range r.out {
		if _, ok := s.m.(*wire.TargetForgotten); ok {
			t.Error("answered before it is committed")
		}
	}
	r.mu.Unlock()
	slow.let(1)
	eventually(t, "the answer", func() bool {
		r.l.Receive(a.ID, &wire.TargetClosed{Source: 7, Target: 5, Watermark: 3})
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.out {
			if _, ok := s.m.(*wire.TargetForgotten); ok {
				return true
			}
		}
		return false
	})
}

// While moves are held a target's end is neither recorded nor answered: it tells again.
func TestTargetsEndWaitsForTheGate(t *testing.T) {
	a := node(1)
	r := newQueueRig(t, a)
	var held atomic.Bool
	r.change = func(c *Config) {
		c.Pass = func(f func()) bool {
			if held.Load() {
				return false
			}
			f()
			return true
		}
	}
	r.lead()
	r.answerRoll(a)
	recorded := func() (gone bool) {
		r.replica.View(func(m *fsm.Machine) { _, gone = m.Outbox().Known(5) })
		return gone
	}
	held.Store(true)
	r.l.Receive(a.ID, &wire.TargetClosed{Source: 7, Target: 5, Watermark: 3})
	r.publish(a, "1") // behind it
	r.attach(a, 1, 1)
	r.items(a, 1)
	if recorded() {
		t.Error("it passed a closed gate")
	}
	held.Store(false)
	r.l.Receive(a.ID, &wire.TargetClosed{Source: 7, Target: 5, Watermark: 3})
	eventually(t, "the record", recorded)
}

// The queue ends while letters wait to be proposed: the log may have forgotten source
// and target since.
func TestEndedQueuesAreLookedUpAgain(t *testing.T) {
	a := node(1)
	set := plain()
	set.DeadLetter = true
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1")
	r.attach(a, 1, 1)
	r.settle(a, fsm.Discard, r.items(a, 1)...)
	eventually(t, "the dead letter", func() (dead bool) {
		r.replica.View(func(m *fsm.Machine) { dead = m.Outbox().Len() == 1 })
		return dead
	})
	var ended atomic.Bool
	slow := r.relead(func(uint64) bool { return !ended.Load() })
	r.answerRoll(a)
	// The log is slow, so that these have to wait for company.
	for range eagerEntries {
		n := len(slow.held)
		r.l.Propose(fsm.Release{Kind: fsm.ParkUnrouted}, false, nil)
		eventually(t, "an entry", func() bool { return len(slow.held) == n+1 })
	}
	r.l.Receive(a.ID, transfer(9, 1, "again"))
	taken := make(chan struct{})
	r.l.Propose(fsm.Route{Items: []fsm.Routed{{Item: 1, Targets: []uint64{5}}}}, false, func() { close(taken) })
	r.l.Receive(a.ID, transfer(9, 2, "again")) // handled behind the route
	eventually(t, "the events handled", func() bool {
		reply := make(chan string, 1)
		r.l.post(inspect{reply})
		<-reply
		return true
	})
	ended.Store(true)
	slow.let(eagerEntries)
	slow.let(1)
	select {
	case <-taken:
	case <-time.After(30 * time.Second):
		t.Fatal("the entry is not applied")
	}
	r.replica.View(func(m *fsm.Machine) {
		if known, _ := m.Outbox().Known(5); known {
			t.Error("routed to a queue that has left the catalog")
		}
		if _, known := m.SourceWatermark(fsm.Source{Queue: 9}); known || m.Queue().Len() > 0 {
			t.Error("took a dead letter from a queue that has left the catalog")
		}
	})
}

// Who asks a queue that has ended for a message, before or after its end, hears that, and not that it is empty.
func TestGetFromAQueueThatHasEnded(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.l.Receive(a.ID, &wire.Get{Queue: 7, Origin: a.Origin, Req: 8, After: 1 << 40}) // behind an operation that does not come any more
	r.l.BeginClose()
	r.l.Receive(a.ID, &wire.Get{Queue: 7, Origin: a.Origin, Req: 9})
	told := map[wire.ConsumerNo]bool{}
	eventually(t, "the answers", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.out {
			switch m := s.m.(type) {
			case *wire.Got:
				if m.Req == 8 {
					t.Error("it is empty")
				}
				told[wire.ConsumerNo(m.Req)] = true // before the end
			case *wire.Detached:
				told[m.No] = told[m.No] || m.Gone
			}
		}
		return told[8] && told[9]
	})
}
