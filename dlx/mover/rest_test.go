package mover

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/queue/wire"
)

// What was read last of the log is not kept when nothing is to be sent, and not for long when that is not taken.
func TestEntryIsLetGo(t *testing.T) {
	letGo := func(t *testing.T, r *rig) {
		t.Helper()
		r.m.Stop()
		if n := len(r.m.cache); n > 0 {
			t.Errorf("%d bytes of an entry are kept", n)
		}
	}
	run(t, "nothing is left", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		r.die("1")
		want(t, r.take(5), "1:1")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
		letGo(t, r)
	})
	run(t, "the target is full", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		r.die("1")
		for len(r.take(5)) > 0 || time.Until(r.m.flights[5].notBefore) < cacheRest {
			r.answer(wire.TransferAnswer{Target: 5, Full: true})
			time.Sleep(backoffMin)
		}
		time.Sleep(cacheRest)
		letGo(t, r)
	})
}
