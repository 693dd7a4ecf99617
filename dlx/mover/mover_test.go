package mover

import (
	"bytes"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

func TestMove(t *testing.T) {
	run(t, "every target has to take it", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"}, Target{6, "b"})
		defer r.m.Stop()
		r.die("1", "2")
		want(t, r.take(5), "1:1", "2:2")
		want(t, r.take(6), "1:1", "2:2")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2})
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 1})
		if n := r.len(); n != 1 {
			t.Errorf("%d items are left, want 1", n)
		}
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 2})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "no answer", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		want(t, r.take(5), "1:1")
		time.Sleep(answerTimeout)
		if n := r.asks(5); n < quietRepeats {
			t.Errorf("asked %d times", n)
		}
		want(t, r.take(5))
		if r.moved != 1 {
			t.Errorf("looked for the target %d times", r.moved)
		}
	})
	run(t, "a target that slept", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		want(t, r.take(5), "1:1")
		time.Sleep(quietTimeout)
		if n := r.asks(5); n != 1 {
			t.Errorf("asked %d times", n)
		}
		r.answer(wire.TransferAnswer{Target: 5})
		want(t, r.take(5), "1:1")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "a target that has it and is slow", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		want(t, r.take(5), "1:1")
		for range 300 {
			time.Sleep(quietTimeout)
			if r.asks(5) > 0 {
				r.answer(wire.TransferAnswer{Target: 5, Gap: true})
			}
		}
		want(t, r.take(5))
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		r.die("2")
		want(t, r.take(5), "2:2") // at once
	})
	run(t, "an answer for what was never sent", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2")
		want(t, r.take(5), "1:1", "2:2")
		for _, upTo := range []uint64{3, math.MaxInt64, math.MaxUint64} {
			r.answer(wire.TransferAnswer{Target: 5, UpTo: upTo, Gap: upTo == 3})
		}
		if n := r.len(); n != 2 {
			t.Errorf("%d items are left, want 2", n)
		}
		r.die("3")
		want(t, r.take(5), "3:3")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "gap", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2", "3")
		r.take(5)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1, Gap: true})
		want(t, r.take(5), "2:2", "3:3")
		// The same again: it does not help to be quick.
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1, Gap: true})
		want(t, r.take(5))
		time.Sleep(2 * backoffMin)
		want(t, r.take(5), "2:2", "3:3")
	})
	run(t, "full", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		for i := range 20 {
			if n := r.asks(5); n+len(r.take(5)) == 0 {
				t.Fatalf("not tried again after %d answers", i)
			}
			r.answer(wire.TransferAnswer{Target: 5, Full: true})
			want(t, r.take(5))
			time.Sleep(2 * backoffMax)
		}
	})
}

// Parts of a transaction go to their targets as they were written, in one sequence
// with dead letters.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		part := fsm.EncodePart(nil, fsm.Settle{Kind: fsm.Ack, Runs: []fsm.Run{{First: 8, Count: 2, Attempt: 1}}})
		r.seq++
		r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq, Ops: []fsm.Op{
			fsm.Tx{Parts: []fsm.TxPart{{Targets: []uint64{5, 6}, Part: part}}},
		}})
		r.m.Wake()
		synctest.Wait()
		r.mu.Lock()
		var got []string
		for _, m := range r.sent {
			for i, it := range m.In.Items {
				got = append(got, fmt.Sprint(m.Target, " ", m.In.First+uint64(i), " ", bytes.Equal(it.Part, part)))
			}
		}
		r.mu.Unlock()
		want(t, got, "5 1 false", "5 2 true", "6 1 true")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2})
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 0, Gone: true})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
}

// A full target is sent what waits for room there at once when a part of a transaction comes behind it, and is told so; also if the target has
// refused so often that it was only asked how it stands, and has not answered.
func TestPartsDoNotWaitForRoom(t *testing.T) {
	for name, refusals := range map[string]int{"refused once": 1, "refused all the time": 100} {
		run(t, name, func(t *testing.T) {
			r := newRig(t, false, Target{5, "a"})
			defer r.m.Stop()
			r.die("1")
			want(t, r.take(5), "1:1")
			for i := range refusals {
				if i > 0 {
					time.Sleep(2 * backoffMin)
				}
				r.answer(wire.TransferAnswer{Target: 5, Full: true})
			}
			if refusals > 1 {
				r.take(5)
				for r.asks(5) == 0 {
					time.Sleep(backoffMin)
				}
			}
			r.seq++
			r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq, Ops: []fsm.Op{
				fsm.Tx{Parts: []fsm.TxPart{{Targets: []uint64{5}, Part: fsm.EncodePart(nil, fsm.Settle{})}}},
			}})
			r.mu.Lock()
			r.sent = nil
			r.mu.Unlock()
			r.m.Wake()
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.sent) != 1 || !r.sent[0].Urgent || r.sent[0].In.First != 1 || len(r.sent[0].In.Items) != 2 {
				t.Errorf("sent %+v", r.sent)
			}
		})
	}
}

func TestTargetGone(t *testing.T) {
	run(t, "closed", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2")
		r.take(5)
		r.mu.Lock()
		r.targets = []Target{{6, "a"}}
		r.mu.Unlock()
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1, Gone: true})
		want(t, r.take(6), "1:2") // the first one was taken
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 1})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "left the catalog", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		r.mu.Lock()
		r.exists[5] = false
		r.targets = []Target{{6, "a"}}
		r.mu.Unlock()
		time.Sleep(answerTimeout)
		want(t, r.take(6), "1:1")
	})
	// The target tells its end, is told that it is recorded, and leaves the catalog, while the
	// mover looks at that: what it saw before says nothing of what was taken.
	run(t, "left the catalog after it told its end", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2")
		r.take(5)
		r.onFresh = sync.OnceFunc(func() { r.propose(fsm.TargetGone{Target: 5, Watermark: 1}) })
		r.mu.Lock()
		r.exists[5] = false
		r.targets = []Target{{6, "a"}}
		r.mu.Unlock()
		time.Sleep(answerTimeout)
		want(t, r.take(6), "1:2")
		want(t, r.ends(), "5 at 1")
	})
	// Routing from an old catalog names a closed target: the log does not take it,
	// and the item is decided on again, not at once and not for ever later.
	run(t, "routed there again", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		r.answer(wire.TransferAnswer{Target: 5, Gone: true})
		synctest.Wait()
		entries := r.entries()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := r.entries() - entries; n < 5 || n > 40 {
			t.Errorf("%d decisions in 10 s", n)
		}
		r.mu.Lock()
		r.targets = []Target{{6, "a"}}
		r.mu.Unlock()
		time.Sleep(2 * routeAgainMax)
		want(t, distinct(r.take(6)), "1:1")
	})
}

func TestParked(t *testing.T) {
	run(t, "released below newer ones", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		r.die("1", "2")
		if n := r.count(dlx.ParkedUnrouted); n != 2 || r.fresh == 0 {
			t.Fatalf("%d parked, catalog asked %d times", n, r.fresh)
		}
		r.mu.Lock()
		r.targets = []Target{{5, "a"}}
		r.exists[5] = true
		r.mu.Unlock()
		r.die("3")
		want(t, r.take(5), "1:3")
		r.propose(fsm.Release{Kind: fsm.ParkUnrouted})
		r.m.Wake()
		want(t, r.take(5), "2:1", "3:2")
	})
	// What died later must not overtake what waited for the same way.
	run(t, "go first when there is a way", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		r.die("1", "2")
		r.mu.Lock()
		r.targets = []Target{{5, "a"}}
		r.exists[5] = true
		r.rev++
		r.mu.Unlock()
		r.die("3")
		want(t, r.take(5), "1:1", "2:2", "3:3")
	})
	// The way comes between the decisions on two that died together.
	run(t, "keep their order when the way comes", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		looks := 0
		r.mu.Lock()
		r.onAsk = func() {
			if looks++; looks == 2 { // the first one was looked up twice, in vain
				r.targets, r.exists[5] = []Target{{5, "a"}}, true
				r.rev++
			}
		}
		r.mu.Unlock()
		r.die("1", "2", "3")
		want(t, r.take(5), "1:1", "2:2", "3:3")
	})
	// The route came while the letter was on its way to be parked.
	run(t, "by an old catalog", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		r.die("1")
		if r.again != 0 {
			t.Errorf("looked again %d times without a change", r.again)
		}
		r.slip = func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.rev++
		}
		r.die("2")
		if n := r.count(dlx.ParkedUnrouted); n != 2 || r.again != 1 {
			t.Errorf("%d parked, looked again %d times", n, r.again)
		}
	})
	run(t, "not in a queue that is gone", func(t *testing.T) {
		r := newRig(t, true)
		defer r.m.Stop()
		r.die("1")
		r.propose(fsm.Close{}, fsm.Release{Kind: fsm.ParkUnrouted})
		r.m.Wake()
		synctest.Wait()
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
}
