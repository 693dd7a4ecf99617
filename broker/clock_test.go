package broker

import (
	"testing"
	"time"
)

func TestClockError(t *testing.T) {
	const h, ms = time.Hour, time.Millisecond
	for name, tc := range map[string]struct {
		others []time.Duration
		want   int64
	}{
		"alone":                  {nil, 0},
		"in the middle":          {[]time.Duration{400 * ms, -300 * ms}, 0},
		"a little ahead of both": {[]time.Duration{-400 * ms, -300 * ms}, 300},
		"a little behind both":   {[]time.Duration{400 * ms, 300 * ms}, -300},
		"ahead of both":          {[]time.Duration{-h, -h - ms}, h.Milliseconds()},
		"behind both":            {[]time.Duration{h, h + ms}, -h.Milliseconds()},
		"another is ahead":       {[]time.Duration{h, ms}, -1},
		"another is behind":      {[]time.Duration{-h, ms}, 0},
		"ahead of the only one":  {[]time.Duration{-h}, h.Milliseconds()},
		"behind the only one":    {[]time.Duration{h}, 0},
		"two of five are ahead":  {[]time.Duration{h, h, ms, -ms}, -1},
		"ahead with one of five": {[]time.Duration{0, -h, -h, -h}, h.Milliseconds()},
	} {
		b := &Broker{cfg: Config{ClockOffsets: func() []time.Duration { return tc.others }}}
		if got := b.clockError(); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
