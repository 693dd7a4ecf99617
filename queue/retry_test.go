package queue

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The delays of SEMANTICS B01, B02 and B04.
func TestRetryDelay(t *testing.T) {
	linear := RetryDelay{On: RetryAll, MinMillis: 1000, MaxMillis: 2500}
	double := RetryDelay{On: RetryAll, MinMillis: 1000, MaxMillis: 10_000, Factor: 2000}
	slow := RetryDelay{On: RetryAll, MinMillis: 5, MaxMillis: 1000, Factor: 1100}
	huge := RetryDelay{On: RetryAll, MinMillis: RetryMillisMax, MaxMillis: RetryMillisMax, Factor: RetryFactorMax}
	failed, returned := linear, linear
	failed.On, returned.On = RetryFailed, RetryReturned
	for _, c := range []struct {
		name            string
		r               RetryDelay
		asFailed        bool
		attempt, failed uint32
		want            int64
	}{
		{"linear, first", linear, true, 1, 1, 1000},
		{"linear, second", linear, true, 2, 2, 2000},
		{"linear, at the maximum", linear, true, 3, 3, 2500},
		{"linear, far beyond", linear, true, math.MaxUint32, math.MaxUint32, 2500},
		{"linear, never failed", linear, false, 5, 0, 1000},
		{"doubling, first", double, true, 1, 1, 1000},
		{"doubling, third", double, false, 3, 0, 4000},
		{"doubling, at the maximum", double, true, 5, 5, 10_000},
		{"doubling, far beyond", double, true, math.MaxUint32, 9, 10_000},
		{"a short delay grows", slow, true, 11, 1, 12},
		{"the largest", huge, true, 9, 9, RetryMillisMax},
		{"disabled", RetryDelay{MinMillis: 5, MaxMillis: 5}, true, 1, 1, 0},
		{"failed only, failed", failed, true, 1, 1, 1000},
		{"failed only, returned", failed, false, 1, 0, 0},
		{"returned only, failed", returned, true, 1, 1, 0},
		{"returned only, returned", returned, false, 1, 0, 1000},
	} {
		if got := c.r.For(c.asFailed, 7, c.attempt, c.failed); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	double.JitterPercent = 20
	seen := map[int64]bool{}
	for id := range MessageID(1000) {
		d := double.For(true, id, 2, 2)
		if d < 1600 || d > 2000 {
			t.Fatalf("jitter of 20 %% gives %d of 2000", d)
		}
		seen[d] = true
	}
	if len(seen) < 200 {
		t.Errorf("jitter gives %d different delays of 401", len(seen))
	}
}

func TestDelays(t *testing.T) {
	var d Delays
	model := map[MessageID]int64{}
	rnd := rand.New(rand.NewPCG(1, 2))
	for now := range int64(20_000) {
		id := MessageID(rnd.IntN(300))
		switch rnd.IntN(6) {
		case 0, 1, 2:
			at := now + 1 + rnd.Int64N(500)
			d.Set(id, at)
			model[id] = at
		case 3:
			d.Remove(id)
			delete(model, id)
		case 4:
			r := IDRange{id, id + MessageID(rnd.IntN(400))}
			if rnd.IntN(20) == 0 {
				d.RemoveRange(r)
				for id := r.First; id <= r.Last; id++ {
					delete(model, id)
				}
			}
		}
		next := int64(0)
		for id, at := range model {
			if at <= now {
				delete(model, id)
			} else if next == 0 || at < next {
				next = at
			}
		}
		d.Lapse(now)
		if d.Len() != len(model) || d.Next() != next || d.Until(id) != model[id] {
			t.Fatalf("%d delays, next %d, %d until %d; want %d, %d, %d", d.Len(), d.Next(), id, d.Until(id), len(model), next, model[id])
		}
		if len(d.heap) > 70+2*len(model)+2 {
			t.Fatalf("%d entries for %d delays", len(d.heap), len(model))
		}
	}
	all := d.All()
	if len(all) != len(model) || !slices.IsSortedFunc(all, func(a, b Delay) int { return int(a.ID) - int(b.ID) }) {
		t.Errorf("%v", all)
	}
}
