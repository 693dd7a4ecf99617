package mover

import (
	"testing"
	"testing/synctest"
	"time"
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
