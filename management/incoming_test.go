package management

import (
	"testing"
	"time"
)

// TestIncomingRates: rates are those since a look some seconds ago, however often somebody looks in between; there is none without one, after a
// restart of counts, or after a long while.
func TestIncomingRates(t *testing.T) {
	var i incomingSeen
	now := time.Unix(1000, 0)
	look := func(after time.Duration, n uint64) float64 {
		now = now.Add(after)
		return i.rates(7, now, map[string]uint64{"x": n})["x"]
	}
	for step, s := range []struct {
		after time.Duration
		n     uint64
		want  float64
	}{
		{0, 100, 0},
		{500 * time.Millisecond, 150, 0},
		{4500 * time.Millisecond, 200, 20},
		{time.Second, 206, 106.0 / 6},
		{4 * time.Second, 250, 10},
		{5 * time.Second, 250, 0},
		{5 * time.Second, 10, 0},
		{5 * time.Second, 20, 2},
		{time.Hour, 1000, 0},
	} {
		if got := look(s.after, s.n); got < s.want-0.01 || got > s.want+0.01 {
			t.Errorf("look %d: %v, want %v", step, got, s.want)
		}
	}
	for q := range uint64(3 * incomingSeenMax) {
		i.rates(q, now, nil)
	}
	if len(i.seen) > incomingSeenMax+1 {
		t.Errorf("%d queues are remembered", len(i.seen))
	}
}
