package deep

import (
	"testing"
	"time"
)

// TestOverlapsAreThoseOfPairs: leaders that follow each other, each of which overlaps with the next, make no overlap as long as all of them.
func TestOverlapsAreThoseOfPairs(t *testing.T) {
	a, b, c := tenure{3, "a"}, tenure{4, "b"}, tenure{5, "c"}
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	var o overlaps
	for _, tc := range []struct {
		ms      int
		holders []tenure
		want    int
		two     [2]tenure
	}{
		{0, []tenure{a, b}, 0, [2]tenure{a, b}},
		{1200, []tenure{a, b, c}, 1200, [2]tenure{a, b}},
		{1500, []tenure{b, c}, 300, [2]tenure{b, c}},
		{2400, []tenure{b, c}, 1200, [2]tenure{b, c}},
		{2500, []tenure{c}, -25, [2]tenure{}},
		{2600, []tenure{b, c}, 0, [2]tenure{b, c}},
	} {
		got, two := o.note(tc.holders, at(tc.ms))
		if want := time.Duration(tc.want)*time.Millisecond + leasePeriod; got != want || two != tc.two {
			t.Errorf("at %d ms: %v of %v, want %v of %v", tc.ms, got, two, want, tc.two)
		}
	}
	if !o.first([2]tenure{a, b}) || o.first([2]tenure{a, b}) {
		t.Error("a pair is not told of once")
	}
}
