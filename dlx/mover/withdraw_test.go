package mover

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// D69: with another dead-letter exchange, letters that a target has not taken go the new
// way. Each is withdrawn first, in its turn, and what was taken stays taken.
func TestWithdrawWhenSettingsChange(t *testing.T) {
	run(t, "full target", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2")
		want(t, r.take(5), "1:1", "2:2")
		r.answer(wire.TransferAnswer{Target: 5, Full: true})
		want(t, r.take(5))
		r.routes(Target{6, "b"})
		r.propose(settings(2, "y", false))
		r.die("3")
		want(t, r.take(5), "1:-", "2:-") // a full target is asked at once
		want(t, r.take(6))               // behind the older ones
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2, Withdrawn: []uint64{1, 2}})
		want(t, r.take(6), "1:1", "2:2", "3:3")
		if r.through != "y" {
			t.Errorf("sent through %q", r.through)
		}
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 3})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	})
	run(t, "taken before", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1", "2", "3")
		r.take(5)
		r.routes(Target{6, "b"})
		r.propose(settings(2, "y", false))
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		time.Sleep(answerTimeout)
		want(t, r.take(5), "2:-", "3:-")
		if r.answered != 1 {
			t.Errorf("recorded up to %d", r.answered)
		}
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 3, Withdrawn: []uint64{3}})
		want(t, r.take(6), "1:3")
	})
	run(t, "unreachable target", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		r.routes(Target{6, "b"})
		r.propose(settings(2, "y", false))
		r.die("2")
		want(t, r.take(6))
		time.Sleep(withdrawHold)
		want(t, r.take(6), "1:2") // does not wait for ever
		r.answer(wire.TransferAnswer{Target: 5, Gone: true})
		want(t, r.take(6), "2:1")
	})
	run(t, "no dead-letter exchange any more", func(t *testing.T) {
		r := newRig(t, true, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		r.answer(wire.TransferAnswer{Target: 5, Full: true})
		r.propose(settings(2, "", false))
		time.Sleep(time.Minute)
		if list := r.take(5); len(list) == 0 || list[len(list)-1] != "1:1" || r.through != "x" {
			t.Errorf("sent %v through %q", list, r.through)
		}
	})
	// One target has it: the others get it the new way, that one not again.
	run(t, "fan-out", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"}, Target{6, "b"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		r.take(6)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		r.routes(Target{5, "a"}, Target{6, "b"}, Target{8, "c"})
		r.propose(settings(2, "y", false))
		r.answer(wire.TransferAnswer{Target: 6, Full: true})
		want(t, r.take(6), "1:-")
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 1, Withdrawn: []uint64{1}})
		want(t, r.take(5))
		time.Sleep(2 * backoffMin)
		want(t, r.take(6), "2:1")
		want(t, r.take(8), "1:1")
	})
}

// A route that was decided under settings that are not in force any more is not taken.
func TestRouteUnderOldSettings(t *testing.T) {
	run(t, "decided again", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		once := false
		r.slip = func() {
			if !once {
				once = true
				r.propose(settings(2, "y", false))
				r.routes(Target{6, "b"})
			}
		}
		r.die("1")
		time.Sleep(routeAgainMax)
		want(t, r.take(5))
		want(t, distinct(r.take(6)), "1:1")
		if r.through != "y" {
			t.Errorf("sent through %q", r.through)
		}
	})
}

// The topology changes under letters that have been under way for a while.
func TestWithdrawWhenTopologyChanges(t *testing.T) {
	full := func(r *rig) {
		r.die("1", "2")
		r.take(5)
		r.answer(wire.TransferAnswer{Target: 5, Full: true})
		time.Sleep(3 * time.Second)
		r.answer(wire.TransferAnswer{Target: 5, Full: true})
		r.take(5)
	}
	run(t, "binding removed", func(t *testing.T) {
		r := newRig(t, true, Target{5, "a"})
		defer r.m.Stop()
		full(r)
		r.routes()
		r.m.Wake()
		want(t, r.take(5), "1:-", "2:-")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2, Withdrawn: []uint64{1, 2}})
		if n := r.count(dlx.ParkedUnrouted); n != 2 {
			t.Errorf("%d parked", n)
		}
	})
	run(t, "binding added", func(t *testing.T) {
		r := newRig(t, true, Target{5, "a"})
		defer r.m.Stop()
		full(r)
		r.routes(Target{5, "a"}, Target{6, "b"})
		r.m.Wake()
		want(t, r.take(5), "1:-", "2:-")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2, Withdrawn: []uint64{1, 2}})
		time.Sleep(answerTimeout / 2)
		want(t, r.take(5), "3:1", "4:2")
		want(t, distinct(r.take(6)), "1:1", "2:2")
	})
	run(t, "something else changed", func(t *testing.T) {
		r := newRig(t, true, Target{5, "a"})
		defer r.m.Stop()
		full(r)
		r.routes(Target{5, "a"})
		r.m.Wake()
		time.Sleep(10 * time.Second)
		for _, sent := range r.take(5) {
			if sent != "1:1" && sent != "2:2" {
				t.Errorf("sent %s", sent)
			}
		}
	})
	run(t, "quick moves are left alone", func(t *testing.T) {
		r := newRig(t, true, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.routes()
		r.m.Wake()
		want(t, r.take(5), "1:1")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		if n := r.len(); n != 0 {
			t.Errorf("%d items are left", n)
		}
	}) // All letters are looked at after a change, and not all again for each change of a
	// catalog that has many.
	run(t, "a backlog and many changes", func(t *testing.T) {
		const letters = 2 * reviewMax
		r := newRig(t, true, Target{5, "a"})
		defer r.m.Stop()
		r.die(make([]string, letters)...)
		r.take(5)
		r.answer(wire.TransferAnswer{Target: 5, Full: true})
		time.Sleep(3 * time.Second)
		r.mu.Lock()
		r.asked = 0
		r.mu.Unlock()
		for range 1000 {
			r.routes(Target{5, "a"})
			r.m.Wake()
			time.Sleep(time.Millisecond)
		}
		r.mu.Lock()
		asked := r.asked
		r.mu.Unlock()
		if passes := 1 + int(time.Second/(letters*reviewPauseEach)); asked < letters || asked > (passes+1)*letters {
			t.Errorf("asked %d times for the routes of %d letters", asked, letters)
		}
		r.take(5)
		r.routes(Target{6, "b"})
		r.m.Wake()
		time.Sleep(3 * time.Second)
		if list := r.take(5); !slices.Contains(list, "1:-") {
			t.Errorf("not withdrawn: %v", list)
		}
	})
}

// A letter that has a way gets there behind many that are parked, also while the catalog
// changes all the time.
func TestParkedLettersHoldUpNobody(t *testing.T) {
	run(t, "many parked", func(t *testing.T) {
		r := newRig(t, true, Target{5, "a"})
		defer r.m.Stop()
		r.only = "way"
		r.routes(Target{5, "a"})
		r.die(make([]string, 2*routeMax)...)
		if n := r.count(dlx.ParkedUnrouted); n != 2*routeMax {
			t.Fatalf("%d parked", n)
		}
		changes := 0
		r.slip = func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if changes++; changes < 100 {
				r.rev++
			}
		}
		r.enter(fsm.Publish{TTLMillis: -1}, fsm.Message{RoutingKeys: []string{"way"}, Properties: []byte{0, 0}, Body: []byte("w")})
		r.seq++
		r.propose(fsm.Stream{Origin: fsm.Origin{Node: 1, Incarnation: 1}, First: r.seq, Ops: []fsm.Op{
			fsm.Settle{Kind: fsm.Discard, Runs: []fsm.Run{{First: 2*routeMax + 1, Count: 1}}},
		}})
		r.m.Wake()
		want(t, r.take(5), "1:w")
		if changes > 10 {
			t.Errorf("after %d commands", changes)
		}
	})
}

// To decide on large letters each of them has to be read. Other letters of their queue move in between, and not all is read for each change of a
// catalog that changes all the time.
func TestLooksAtLargeLettersHoldUpNobody(t *testing.T) {
	const letters, each = 40, 4 << 20
	large := slices.Repeat([]string{string(make([]byte, each))}, letters)
	slow := func(t *testing.T) *rig {
		r := newRig(t, true, Target{5, "a"}, Target{6, "b"})
		r.onRead = func(bytes int) { time.Sleep(time.Duration(bytes>>20) * time.Millisecond) }
		return r
	}
	// next is how long the next letter takes to a target that takes letters at once.
	next := func(r *rig) time.Duration {
		r.take(6)
		begun := time.Now()
		r.die("small")
		for len(r.take(6)) == 0 {
			time.Sleep(time.Millisecond)
		}
		return time.Since(begun)
	}
	run(t, "under way", func(t *testing.T) {
		r := slow(t)
		defer r.m.Stop()
		for i := range large { // one entry each
			r.die(large[i])
		}
		time.Sleep(3 * time.Second)
		r.answer(wire.TransferAnswer{Target: 6, UpTo: letters})
		r.answer(wire.TransferAnswer{Target: 5, Full: true})
		time.Sleep(3 * time.Second)
		r.reads.Store(0)
		r.routes(Target{5, "a"}, Target{6, "b"})
		r.m.Wake()
		time.Sleep(time.Millisecond) // it looks
		if took := next(r); took > 50*time.Millisecond {
			t.Errorf("a letter waits for %v", took)
		}
		for range 1000 {
			r.routes(Target{5, "a"}, Target{6, "b"})
			r.m.Wake()
			time.Sleep(10 * time.Millisecond)
		}
		if n := r.reads.Load(); n < letters || n > 20*letters {
			t.Errorf("%d letters were read in ten seconds, and %d wait", n, letters)
		}
	})
	run(t, "without a route", func(t *testing.T) {
		r := slow(t)
		defer r.m.Stop()
		r.routes()
		for i := range large {
			r.die(large[i])
		}
		time.Sleep(3 * time.Second)
		if n := r.count(dlx.ParkedUnrouted); n != letters {
			t.Fatalf("%d parked", n)
		}
		// What is looked at again stands before the next letters: but what has a way is sent.
		r.routes(Target{6, "b"})
		r.propose(fsm.Release{Kind: fsm.ParkUnrouted})
		r.m.Wake()
		begun := time.Now()
		for len(r.take(6)) == 0 {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(begun); took > 50*time.Millisecond {
			t.Errorf("the first is sent after %v", took)
		}
	})
}
