package leader

import (
	"testing"
)

// A limit that makes no sense finds nothing, for every standing, and ends no leader.
func TestListOfLessThanNothing(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "2")
	for s := Ready; s <= Parked; s++ {
		for _, limit := range []int{0, -1, -1 << 62} {
			got, err := r.l.List(t.Context(), s, Place{}, limit)
			if err != nil || len(got.Messages) != 0 {
				t.Errorf("standing %d, limit %d: %d messages, %v", s, limit, len(got.Messages), err)
			}
		}
	}
}
