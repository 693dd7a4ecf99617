package mover

import (
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue/wire"
)

// A target that takes nothing for hours is not sent the same letters all the time, which would be read from the log each time: it is asked how it
// stands, and sent them when it would take some.
func TestTargetThatTakesNothingIsAsked(t *testing.T) {
	refusals := map[string]*wire.TransferAnswer{
		"full": {Target: 5, UpTo: 1, Full: true}, "busy": {Target: 5, UpTo: 1, Gap: true}, "silent": nil,
	}
	for name, refusal := range refusals {
		run(t, name, func(t *testing.T) {
			r := newRig(t, false, Target{5, "a"})
			defer r.m.Stop()
			r.die("1", "2", "3")
			want(t, r.take(5), "1:1", "2:2", "3:3")
			r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
			refuse := func(times int) {
				for range times {
					if refusal != nil {
						r.answer(*refusal)
					}
					time.Sleep(2 * backoffMin)
				}
			}
			refuse(int(2 * answerTimeout / (2 * backoffMin)))
			r.take(5)
			before := r.reads.Load()
			refuse(int(time.Minute / (2 * backoffMin)))
			if n := r.asks(5); n < 20 || n > 120 {
				t.Errorf("asked %d times in a minute", n)
			}
			want(t, r.take(5))
			if n := r.reads.Load() - before; n != 0 {
				t.Errorf("%d entries are read", n)
			}
			r.die("4")
			r.answer(wire.TransferAnswer{Target: 5, UpTo: 1})
			time.Sleep(2 * backoffMax)
			got := distinct(r.take(5))
			want(t, got, "2:2", "3:3", "4:4")
			r.answer(wire.TransferAnswer{Target: 5, UpTo: 4})
			if n := r.len(); n != 0 {
				t.Errorf("%d letters are left", n)
			}
		})
	}
}

// What was read of the log is not kept beside what is sent if it is one large message: a thousand movers would keep that of each.
func TestLargeEntryIsLetGo(t *testing.T) {
	run(t, "under way", func(t *testing.T) {
		r := newRig(t, false, Target{5, "a"})
		r.die(strings.Repeat("x", cacheMax))
		if n := len(r.take(5)); n == 0 {
			t.Fatal("nothing is sent")
		}
		r.m.Stop()
		if n := len(r.m.cache); n > 0 {
			t.Errorf("%d bytes of an entry are kept", n)
		}
	})
}
