package store

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

// TestDeletedGroupsAreForgotten makes and deletes groups beside others that keep an entry forever: neither memory nor space
// grows with the deleted ones, and none of them comes back.
func TestDeletedGroupsAreForgotten(t *testing.T) {
	const round, segmentBytes = 200, 256 << 10
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: segmentBytes, TailCacheBytes: 1})
	store := func(g *Group, i uint64) {
		t.Helper()
		if err := g.StoreLog(&raft.Log{Index: i, Term: 1, Data: big(i)}); err != nil {
			t.Fatal(err)
		}
	}
	next, kept := GroupID(1), []GroupID{}
	keep := func() {
		store(s.Group(next), 1)
		kept = append(kept, next)
		next++
	}
	remembered := func() (n int) {
		for _, g := range s.all() {
			if !g.hasTrace() {
				n++
			}
		}
		return n
	}
	churn := func() {
		t.Helper()
		for range round {
			g := s.Group(next)
			store(g, 1)
			store(g, 2)
			if err := s.DeleteGroup(next); err != nil {
				t.Fatal(err)
			}
			next++
		}
	}
	check := func() {
		t.Helper()
		// A round is some six segments; those that a few of the newest hold may still be remembered.
		eventually(t, fmt.Sprintf("%d groups are forgotten", int(next)-1-len(kept)), func() bool {
			return remembered() < round/2 && s.Stats().SegmentBytes < 12*segmentBytes
		})
		if ids := s.Groups(); !slices.Equal(ids, kept) {
			t.Fatalf("groups %v, want %v", ids, kept)
		}
		for _, id := range kept {
			wantBig(t, s.Group(id), 1)
		}
	}
	keep()
	for range 3 {
		churn()
		check()
		keep() // and from now on there is something old to gather
	}
	s = reopen(t, s)
	check()
	churn()
	check()
}

func (g *Group) hasTrace() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.trace
}
