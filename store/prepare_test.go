package store

import (
	"testing"
	"time"
)

// TestSegmentsGrowWithTheLoad: what fills fast is followed by something larger, and early; what fills slowly by the same
// size, when it is needed.
func TestSegmentsGrowWithTheLoad(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		size, off int64
		took      time.Duration
		next      int64
		soon      bool
	}{
		"at once":               {mib, mib / 4, 0, 4 * mib, true},
		"fast":                  {mib, mib / 4, 500 * time.Millisecond, 4 * mib, true},
		"slow":                  {mib, mib / 4, 1100 * time.Millisecond, mib, false},
		"slow, nearly full":     {mib, mib * 9 / 10, 9 * time.Second, mib, true},
		"fast, large":           {64 * mib, 16 * mib, 500 * time.Millisecond, 64 * mib, true},
		"slow, large":           {64 * mib, 16 * mib, 10 * time.Second, 64 * mib, false},
		"fast, not much larger": {32 * mib, 16 * mib, time.Second, 64 * mib, true},
		"larger than wanted":    {100 * mib, 16 * mib, time.Hour, 64 * mib, false},
	} {
		w := wal{active: &segment{size: c.size}, off: c.off, segmentBytes: 64 * mib, began: time.Now().Add(-c.took)}
		if got := w.nextSize(); got != c.next {
			t.Errorf("%s: next of %d bytes, want %d", name, got, c.next)
		}
		if got := w.soon(); got != c.soon {
			t.Errorf("%s: soon %v", name, got)
		}
	}
}
