package transport

import (
	"testing"
	"time"
)

func TestClockSampleOfTheFastestAnswer(t *testing.T) {
	const ms = time.Millisecond
	at := time.Now()
	sample := func(after, doubt time.Duration, process uint64) clockSample {
		return clockSample{taken: at.Add(after), doubt: doubt, process: process}
	}
	first := sample(0, 2*ms, 1)
	for name, tc := range map[string]struct {
		old, newer clockSample
		taken      bool
	}{
		"the first":            {clockSample{}, sample(0, time.Hour, 1), true},
		"a faster one":         {first, sample(250*ms, ms, 1), true},
		"one as fast":          {first, sample(250*ms, 2*ms, 1), true},
		"a slow one":           {first, sample(250*ms, 30*ms, 1), false},
		"a slow one, later":    {first, sample(time.Minute, 30*ms, 1), true},
		"of another process":   {first, sample(250*ms, 30*ms, 2), true},
		"a little slower soon": {first, sample(time.Second, 4*ms, 1), false},
	} {
		if got := tc.old.better(tc.newer) == tc.newer; got != tc.taken {
			t.Errorf("%s: taken %v, want %v", name, got, tc.taken)
		}
	}
}
