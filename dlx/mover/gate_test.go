package mover

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue/wire"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		passes := func() bool { return g.Pass(func() {}) }
		if !passes() || g.Opens() != nil || g.Release("a") {
			t.Error("a gate that nobody holds is not open")
		}
		if err := g.Hold("a", time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		opens := g.Opens()
		if passes() || opens == nil || !g.HeldBy("a") || g.HeldBy("b") {
			t.Error("it is open")
		}
		if err := g.Hold("b", time.Now().Add(time.Minute)); err == nil {
			t.Error("two hold it")
		}
		if g.Release("b") || passes() {
			t.Error("somebody else opens it")
		}
		if !g.Release("a") || !passes() {
			t.Error("its holder does not open it, or not all the time")
		}
		<-opens

		// A holder that does not come back: it opens by itself, and nobody had it all the time.
		if err := g.Hold("a", time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		opens = g.Opens()
		began := time.Now()
		<-opens
		if d := time.Since(began); d != time.Second {
			t.Errorf("it opens after %v", d)
		}
		if !passes() || g.HeldBy("a") || g.Release("a") {
			t.Error("it is still held")
		}
		// An old timer does not end a newer hold.
		if err := g.Hold("a", time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := g.Hold("a", time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if passes() || !g.Release("a") {
			t.Error("the former hold's end has ended this one")
		}
		var open *Gate
		if !open.Pass(func() {}) || open.Opens() != nil {
			t.Error("no gate is not open")
		}
	})
}

// TestNothingMovesWhileHeld: behind a closed gate nothing is sent, no answer is taken and no target's end is concluded; all of that comes when it opens. What dies
// meanwhile is decided on.
func TestNothingMovesWhileHeld(t *testing.T) {
	hold := func(r *rig) {
		r.t.Helper()
		if err := r.gate.Hold("backup", time.Now().Add(time.Hour)); err != nil {
			r.t.Fatal(err)
		}
	}
	opens := func(r *rig) {
		r.gate.Release("backup")
		synctest.Wait()
	}
	run(t, "sending", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		hold(r)
		r.die("1")
		time.Sleep(2 * answerTimeout)
		want(t, r.take(5))
		if r.count(dlx.Routed) != 1 {
			t.Error("its targets are not decided")
		}
		opens(r)
		want(t, r.take(5), "1:1")
	})
	run(t, "answers", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		hold(r)
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		time.Sleep(2 * answerTimeout)
		if r.len() != 1 {
			t.Error("a letter was dropped")
		}
		opens(r)
		if r.len() != 0 {
			t.Error("the answer was forgotten")
		}
	})
	run(t, "ends", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.take(5)
		hold(r)
		r.mu.Lock()
		r.exists[5], r.exists[6], r.targets = false, true, []Target{{6, "a"}}
		r.mu.Unlock()
		time.Sleep(2 * answerTimeout)
		want(t, r.ends())
		opens(r)
		time.Sleep(2 * answerTimeout)
		want(t, r.ends(), "5 at 0")
	})
	run(t, "lives", func(t *testing.T) {
		r := newRig(t, false, Target{8, "dead"})
		defer r.m.Stop()
		r.die("a", "b")
		r.take(8)
		r.recovered()
		hold(r)
		r.answer(wire.TransferAnswer{Target: 20, Source: 7, Epoch: 1, UpTo: 1})
		time.Sleep(2 * answerTimeout)
		if r.len() != 2 {
			t.Errorf("%d letters are left", r.len())
		}
		r.take(20)
		opens(r)
		want(t, r.take(20), "1:b")
	})
}
