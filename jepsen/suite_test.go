package jepsen

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/jepsen/nemesis"
)

// TestCombinations: every nemesis gets its turn alone, whatever the seed, and the others are
// several at once.
func TestCombinations(t *testing.T) {
	for seed := range uint64(3) {
		alone := map[string]bool{}
		for i := range 2*len(nemesis.All()) + 1 {
			names := combination([]string{"all"}, true, i, seed)
			switch {
			case i == 0:
				if !slices.Equal(names, []string{"all"}) {
					t.Errorf("seed %d begins with %v", seed, names)
				}
			case i%2 == 1 && len(names) == 1:
				alone[names[0]] = true
			case i%2 == 0 && len(names) >= 2:
			default:
				t.Errorf("seed %d, round %d: %v", seed, i, names)
			}
		}
		if len(alone) != len(nemesis.All()) {
			t.Errorf("seed %d: alone were %v", seed, alone)
		}
	}
	if got := combination([]string{"kill"}, true, 5, 1); !slices.Equal(got, []string{"kill"}) {
		t.Errorf("of one nemesis: %v", got)
	}
}
