package leader

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warrenmq/warren/queue"
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

// What is held is listed in order and whole, whatever the size of the pages, but for what an entry has named already.
func TestHeldInPages(t *testing.T) {
	l := &Leader{held: map[queue.MessageID]hold{}}
	var want []queue.MessageID
	for range 3000 {
		id := queue.MessageID(rand.N(10_000) + 1)
		l.held[id] = hold{named: id%5 == 0}
		if id%5 > 0 {
			want = append(want, id)
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	for _, count := range []int{1, 2, 7, 100, len(want), len(want) + 1, 20_000} {
		var got []queue.MessageID
		for after := (Place{}); ; {
			page := l.heldBehind(after, count)
			got = append(got, page...)
			if len(page) < count {
				break
			}
			after = Place{Begun: true, ID: uint64(page[count-1])}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %d of %d, not the same ones in order", count, len(got), len(want))
		}
	}
}
