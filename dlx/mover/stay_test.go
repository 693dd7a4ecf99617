package mover

import (
	"testing"
	"testing/synctest"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// stopping sets the queue's settings to those of a source whose expired messages may stay.
func (r *rig) stopping(revision uint64, stop bool, hops int64) {
	set := settings(revision, "x", false)
	set.Settings.StopTTL, set.Settings.MaxHops = stop, hops
	r.propose(set)
}

// expires puts a message with a history into the queue and lets it expire.
func (r *rig) expires(deaths ...dlx.Death) {
	var id queue.MessageID
	r.m.cfg.View(func(m *fsm.Machine) { id = m.Queue().Tail() + 1 })
	r.enter(fsm.Publish{TTLMillis: 5}, fsm.Message{RoutingKeys: []string{"k"}, Properties: []byte{0, 0}, Body: []byte("m"), Deaths: deaths})
	r.now += 5
	r.propose(fsm.Expire{IDs: []queue.IDRange{{First: id, Last: id}}})
	r.m.Wake()
	synctest.Wait()
}

func (r *rig) live() (n int) {
	r.m.cfg.View(func(m *fsm.Machine) { n = m.Queue().Len() - len(m.Leaving()) })
	return n
}

// An expired message that could only go round stays, other deaths follow the strategy. What had
// left its place before is kept.
func TestCyclesStopTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, Target{7, "q"}, Target{8, "r"})
		defer r.m.Stop()
		r.stopping(2, true, 0)
		r.expires()
		if got := r.take(8); len(got) != 1 || r.live() != 0 {
			t.Fatalf("sent %v, %d live", got, r.live())
		}
		r.routes(Target{7, "q"})
		r.expires()
		if r.live() != 1 || r.m.Status().LastError != "" {
			t.Fatalf("%d live, error %q", r.live(), r.m.Status().LastError)
		}
		// The letter under way to r goes nowhere else any more, when r has gone.
		r.answer(wire.TransferAnswer{Target: 8, Gone: true})
		if r.count(dlx.ParkedCycle) != 1 {
			t.Fatalf("%d parked", r.count(dlx.ParkedCycle))
		}
		var m fsm.Counters
		r.propose(fsm.DropHeads{IDs: []queue.IDRange{{First: 1, Last: 9}}})
		r.m.Wake()
		synctest.Wait()
		r.m.cfg.View(func(f *fsm.Machine) { m = f.Counters() })
		if m.Dropped[dlx.MaxLen][fsm.DropCycle] != 1 || m.Stayed != 1 || m.Died[dlx.Expired] != 1 {
			t.Fatalf("%+v", m)
		}
		// A queue at its end keeps none: nobody could release them.
		r.expires()
		r.propose(fsm.Close{}, fsm.Release{Kind: fsm.ParkCycle})
		r.m.Wake()
		synctest.Wait()
		r.m.cfg.View(func(f *fsm.Machine) { m = f.Counters() })
		if m.Dropped[dlx.Expired][fsm.DropCycle] != 1 || m.Closed != 1 {
			t.Fatalf("%+v", m)
		}
	})
}

// A message whose hops are used up does not move on, by whatever way; a rejected one does.
func TestHopsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, Target{8, "r"})
		defer r.m.Stop()
		r.stopping(2, false, 3)
		dead := func(queue string, reason dlx.Reason, n uint64) dlx.Death {
			return dlx.Death{Queue: queue, Reason: reason, Count: n, RoutingKeys: []string{"k"}}
		}
		r.expires(dead("a", dlx.Rejected, 9), dead("a", dlx.Expired, 2))
		if got := r.take(8); len(got) != 1 {
			t.Fatalf("sent %v", got)
		}
		r.expires(dead("a", dlx.Rejected, 9), dead("a", dlx.Expired, 2), dead("b", dlx.DeliveryLimit, 1))
		if got := r.take(8); len(got) != 0 || r.live() != 1 {
			t.Fatalf("sent %v, %d live", got, r.live())
		}
		r.propose(fsm.Return{Kind: fsm.Discard, Runs: []fsm.Run{{First: 2, Count: 1}}})
		r.m.Wake()
		if got := r.take(8); len(got) != 1 || r.live() != 0 {
			t.Fatalf("sent %v, %d live", got, r.live())
		}
	})
}

// Targets are told what is a dead letter.
func TestDeadLettersAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, Target{8, "r"})
		defer r.m.Stop()
		r.die("m")
		if it, _ := r.sentMessage(); !it.Dead {
			t.Fatalf("%+v", it)
		}
		set := settings(2, "x", false)
		set.Settings.Delayed = true
		r.propose(set)
		for _, deaths := range [][]dlx.Death{nil, {{Queue: "a", Reason: dlx.Expired, Count: 1}}, {{Queue: "a", Reason: dlx.Expired, Count: 1, Redriven: true}}} {
			r.expires(deaths...)
			if it, m := r.sentMessage(); it.Dead != (len(m.Deaths) > 0 && !m.Deaths[0].Redriven) {
				t.Fatalf("%+v of %+v", it.Dead, m.Deaths)
			}
		}
	})
}
