package mover

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// goOn has the target 8 go on as 20. Caller holds mu.
func (r *rig) goOn() {
	r.goesOn, r.targets = map[uint64]uint64{8: 20}, []Target{{20, "dead"}}
	r.exists = map[uint64]bool{20: true}
}

// recovered is goOn, which the mover is told of.
func (r *rig) recovered() {
	r.mu.Lock()
	r.goOn()
	r.mu.Unlock()
	r.m.Wake()
	synctest.Wait()
}

// asksFormer counts the questions for what the first life of 20 has taken.
func (r *rig) asksFormer() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.sent {
		if m.Target == 20 && m.In.Source == (fsm.Source{Queue: 7, Epoch: 1}) && len(m.In.Items) == 0 && m.In.First == 1 {
			n++
		}
	}
	return n
}

// TestTargetGoesOn moves letters to the next life of a queue that has lost its majority: what the kept replica has is not sent
// again, and what only the lost ones had is counted.
func TestTargetGoesOn(t *testing.T) {
	run(t, "some were taken", func(t *testing.T) {
		r := newRig(t, false, Target{8, "dead"})
		defer r.m.Stop()
		r.die("a", "b", "c")
		want(t, r.take(8), "1:a", "2:b", "3:c")
		r.recovered()
		if r.asksFormer() != 1 {
			t.Fatalf("asked %d times", r.asksFormer())
		}
		time.Sleep(time.Second) // without an answer it asks again
		if n := r.asksFormer(); n < 2 || n > 10 {
			t.Errorf("asked %d times within a second", n)
		}
		want(t, r.take(8))
		r.answer(wire.TransferAnswer{Target: 8, Source: 7, UpTo: 3}) // of a leader of the former life, too late
		r.answer(wire.TransferAnswer{Target: 20, Source: 7, Epoch: 1, UpTo: 2})
		want(t, r.take(20), "1:c")
		r.answer(wire.TransferAnswer{Target: 20, Source: 7, UpTo: 1})
		if r.len() != 0 || r.m.cfg.Totals.Lost.Load() != 0 {
			t.Errorf("%d letters are left, %d lost", r.len(), r.m.cfg.Totals.Lost.Load())
		}
	})
	run(t, "more had been taken than is left", func(t *testing.T) {
		r := newRig(t, false, Target{8, "dead"})
		defer r.m.Stop()
		r.die("a", "b", "c")
		r.answer(wire.TransferAnswer{Target: 8, Source: 7, UpTo: 2})
		r.take(8)
		r.recovered()
		r.answer(wire.TransferAnswer{Target: 20, Source: 7, Epoch: 1})
		want(t, r.take(20), "1:c")
		if n := r.m.cfg.Totals.Lost.Load(); n != 2 {
			t.Errorf("%d are counted as lost", n)
		}
	})
	run(t, "more than was sent", func(t *testing.T) {
		r := newRig(t, false, Target{8, "dead"})
		defer r.m.Stop()
		r.die("a", "b")
		r.take(8)
		r.recovered()
		r.answer(wire.TransferAnswer{Target: 20, Source: 7, Epoch: 1, UpTo: 9, Withdrawn: []uint64{2, 5}})
		time.Sleep(answerTimeout)
		want(t, distinct(r.take(20)), "1:b")
	})
	// It went on since the mover looked for its successor: it has not left the catalog for good, and what it has taken is not sent again.
	run(t, "while it is looked for", func(t *testing.T) {
		r := newRig(t, false, Target{8, "dead"})
		defer r.m.Stop()
		r.die("a", "b")
		r.take(8)
		r.mu.Lock()
		r.onMoved = sync.OnceFunc(r.goOn)
		r.mu.Unlock()
		time.Sleep(answerTimeout)
		synctest.Wait()
		want(t, r.ends())
		time.Sleep(2 * backoffMax)
		if r.asksFormer() == 0 {
			t.Fatal("nobody asks what the former life has taken")
		}
		r.take(20)
		r.answer(wire.TransferAnswer{Target: 20, Source: 7, Epoch: 1, UpTo: 1})
		want(t, r.take(20), "1:b")
	})
	run(t, "it is being deleted", func(t *testing.T) {
		r := newRig(t, true, Target{8, "dead"})
		defer r.m.Stop()
		r.die("a", "b")
		r.recovered()
		r.routes(Target{30, "other"})
		r.answer(wire.TransferAnswer{Target: 20, Source: 7, Epoch: 1, UpTo: 1, Gone: true})
		want(t, r.take(30), "1:b")
	})
	run(t, "letters that it has taken wait for another one", func(t *testing.T) {
		r := newRig(t, true, Target{5, "slow"}, Target{8, "dead"})
		defer r.m.Stop()
		r.die("a", "b")
		want(t, r.take(8), "1:a", "2:b")
		r.answer(wire.TransferAnswer{Target: 8, Source: 7, UpTo: 2})
		r.take(5)
		full := wire.TransferAnswer{Target: 5, Source: 7, Full: true}
		r.answer(full)
		r.mu.Lock()
		r.goOn()
		r.mu.Unlock()
		r.routes(Target{5, "slow"}, Target{20, "dead"})
		r.m.Wake()
		time.Sleep(3 * reviewAfter)
		r.answer(full)
		for _, sent := range r.take(5) { // their way is what it was
			if sent != "1:a" && sent != "2:b" {
				t.Errorf("sent %s", sent)
			}
		}
		r.routes(Target{5, "slow"}, Target{6, "more"}, Target{20, "dead"})
		r.m.Wake()
		time.Sleep(3 * reviewAfter)
		want(t, distinct(r.take(5)), "1:-", "2:-")
		r.answer(wire.TransferAnswer{Target: 5, Source: 7, UpTo: 2, Withdrawn: []uint64{1, 2}})
		time.Sleep(answerTimeout / 2)
		want(t, distinct(r.take(5)), "3:a", "4:b")
		want(t, distinct(r.take(6)), "1:a", "2:b")
		want(t, r.take(20)) // it has them
		// Another change, of which nothing is left but what it has.
		r.routes(Target{20, "dead"})
		r.m.Wake()
		time.Sleep(3 * reviewAfter)
		r.answer(wire.TransferAnswer{Target: 5, Source: 7, UpTo: 4, Withdrawn: []uint64{3, 4}})
		r.answer(wire.TransferAnswer{Target: 6, Source: 7, UpTo: 2, Withdrawn: []uint64{1, 2}})
		time.Sleep(answerTimeout)
		want(t, r.take(20))
		if n := r.len(); n != 0 {
			t.Errorf("%d letters are left", n)
		}
	})
}

// TestLettersTakenBeforeByAnOldCatalog has the next leader of the source decide with a copy of the catalog that does not know yet under which
// id a target goes on, while the log does: what that target has taken is not sent to it again.
func TestLettersTakenBeforeByAnOldCatalog(t *testing.T) {
	for name, knows := range map[string]map[uint64]uint64{"nothing": nil, "one of two lives": {8: 20}} {
		run(t, "which knows "+name, func(t *testing.T) {
			r := newRig(t, false, Target{5, "slow"}, Target{8, "dead"})
			defer r.m.Stop()
			r.die("a")
			want(t, r.take(8), "1:a")
			r.answer(wire.TransferAnswer{Target: 8, Source: 7, UpTo: 1})
			want(t, distinct(r.take(5)), "1:a")
			r.propose(fsm.TargetMoved{Target: 8, To: 20}, fsm.TargetMoved{Target: 20, To: 30})
			r.mu.Lock()
			r.goesOn = knows
			r.mu.Unlock()
			r.routes(Target{6, "more"}, Target{8, "dead"})
			r.m.Wake()
			time.Sleep(3 * reviewAfter)
			r.answer(wire.TransferAnswer{Target: 5, Source: 7, UpTo: 1, Withdrawn: []uint64{1}})
			time.Sleep(answerTimeout)
			want(t, distinct(r.take(6)), "1:a")
			want(t, r.take(20))
			want(t, r.take(30))
		})
	}
}
