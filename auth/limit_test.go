package auth

import (
	"math"
	"testing"
)

func TestLimit(t *testing.T) {
	for _, tc := range []struct {
		limit   Limit
		n       uint64
		reached bool
	}{
		{Limit{}, math.MaxUint64, false},
		{LimitOf(-1), math.MaxUint64, false},
		{LimitOf(math.MinInt64), 0, false},
		{LimitOf(0), 0, true},
		{LimitOf(2), 1, false},
		{LimitOf(2), 2, true},
		{LimitOf(2), 3, true},
		{LimitOf(math.MaxInt64), math.MaxInt64 - 1, false},
	} {
		if got := tc.limit.Reached(tc.n); got != tc.reached {
			t.Errorf("%+v reached by %d: %v", tc.limit, tc.n, got)
		}
	}
}
