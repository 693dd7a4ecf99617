package mover

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// plan is one for the present settings.
func (r *rig) plan(targets ...uint64) *fsm.Plan {
	p := &fsm.Plan{Automatic: true, Targets: targets}
	r.m.cfg.View(func(m *fsm.Machine) { p.Settings = m.SettingsRevision() })
	return p
}

// Letters whose way a plan has named are sent without a look at them before, and need no
// Route.
func TestPlannedLetters(t *testing.T) {
	run(t, "no route", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"}, Target{6, "b"})
		defer r.m.Stop()
		before := r.entries()
		r.planned = r.plan(5, 6)
		r.die("1", "2")
		want(t, r.take(5), "1:1", "2:2")
		want(t, r.take(6), "1:1", "2:2")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2})
		r.answer(wire.TransferAnswer{Target: 6, UpTo: 2})
		if n, asked := r.entries()-before, r.asked; n != 3 || asked != 0 || r.len() > 0 {
			t.Errorf("%d entries, asked %d times where they go, %d left", n, asked, r.len())
		}
		time.Sleep(2 * time.Second)
		if r.asked != 0 {
			t.Errorf("asked %d times", r.asked)
		}
	})
	run(t, "mixed", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		defer r.m.Stop()
		r.die("1")
		r.planned = r.plan(5)
		r.die("2")
		r.planned = nil
		r.die("3")
		r.planned = r.plan(5)
		r.die("4")
		want(t, r.take(5), "1:1", "2:2", "3:3", "4:4")
	})
	run(t, "the target is gone", func(t *testing.T) {
		r := newRig(t, false, Target{6, "b"})
		defer r.m.Stop()
		r.planned = r.plan(5)
		r.die("1", "2", "3")
		want(t, r.take(5), "1:1", "2:2", "3:3")
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1, Gone: true})
		r.die("4") // planned for it all the same
		want(t, r.take(6), "1:2", "2:3", "3:4")
		want(t, r.take(5))
	})
	run(t, "the binding changes", func(t *testing.T) {
		r := newRig(t, true, Target{6, "b"})
		defer r.m.Stop()
		r.planned = r.plan(5)
		r.exists[5] = true
		r.die("1", "2")
		want(t, r.take(5), "1:1", "2:2")
		r.routes(Target{6, "b"})
		r.m.Wake()
		time.Sleep(3 * time.Second) // so long letters are on their way before they are reviewed
		got := r.take(5)
		if len(got) < 2 || got[len(got)-2] != "1:-" || got[len(got)-1] != "2:-" {
			t.Errorf("sent %v, want both called back", got)
		}
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 2, Withdrawn: []uint64{2}}) // the first was taken
		want(t, r.take(6), "1:2")
	})
	run(t, "the settings change", func(t *testing.T) {
		r := newRig(t, false, Target{6, "b"})
		defer r.m.Stop()
		stale := r.plan(5)
		r.planned = stale
		r.die("1")
		want(t, r.take(5), "1:1")
		r.answer(wire.TransferAnswer{Target: 5, Full: true})
		r.propose(settings(2, "y", false))
		r.die("2") // by a plan of before
		want(t, r.take(5), "1:-")
		want(t, r.take(6)) // waits for the older one
		r.answer(wire.TransferAnswer{Target: 5, UpTo: 1, Withdrawn: []uint64{1}})
		want(t, r.take(6), "1:1", "2:2")
		if r.through != "y" {
			t.Errorf("came through %q", r.through)
		}
	})
	run(t, "the next leader", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		r.planned = r.plan(5)
		r.die("1", "2")
		want(t, r.take(5), "1:1", "2:2")
		r.m.Stop()
		r.m = Start(r.m.cfg)
		defer r.m.Stop()
		want(t, r.take(5), "1:1", "2:2")
		r.die("3")
		want(t, r.take(5), "3:3")
		if n := r.count(dlx.Unrouted); n > 0 {
			t.Errorf("%d wait for targets", n)
		}
	})
}
