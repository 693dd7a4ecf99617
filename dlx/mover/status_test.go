package mover

import (
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// The newest trouble is lost when the leader changes. The next leader meets what is not over within seconds;
// it releases what is parked when it begins.
func TestNextLeaderMeetsTheTrouble(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		targets    []Target
		meet       func(r *rig)
	}{
		{"full target", "the target is full", []Target{{5, "a"}}, func(r *rig) { r.answer(wire.TransferAnswer{Target: 5, Full: true}) }},
		{"unreachable target", "does not answer", []Target{{5, "a"}}, func(*rig) { time.Sleep(2 * answerTimeout) }},
		{"no route", "routes a dead letter nowhere", nil, func(*rig) {}},
	} {
		run(t, tc.name, func(t *testing.T) {
			r := newRig(t, true, tc.targets...)
			r.die("1")
			check := func() {
				t.Helper()
				r.take(5)
				tc.meet(r)
				if s := r.m.Status(); !strings.Contains(s.LastError, tc.text) {
					t.Errorf("last error: %q", s.LastError)
				}
			}
			check()
			r.m.Stop()
			r.m = Start(r.m.cfg)
			defer r.m.Stop()
			if s := r.m.Status(); s.LastError != "" {
				t.Errorf("at the beginning: %q", s.LastError)
			}
			if r.count(dlx.ParkedUnrouted) > 0 {
				r.propose(fsm.Release{Kind: fsm.ParkUnrouted})
				r.m.Wake()
			}
			check()
		})
	}
}
