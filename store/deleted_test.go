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

// TestDeletionUnderTheKeepersHand: the keeper has listed the groups, and one of them is deleted before it comes to it. What says that it was is written
// again all the same before its segment goes.
func TestDeletionUnderTheKeepersHand(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 64 << 10})
	put := func(id GroupID, i uint64) {
		t.Helper()
		if err := s.Group(id).StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 4<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	put(1, 1)
	put(2, 1) // keeps the segment
	listed := s.existing(1)
	if err := s.DeleteGroup(1); err != nil {
		t.Fatal(err)
	}
	dead := s.wal.segment()
	for i := uint64(2); s.wal.segment() == dead; i++ {
		put(2, i)
	}
	s.segMu.RLock()
	seg := s.segs[dead]
	s.segMu.RUnlock()
	if held, err := listed.checkpoint([]*segment{seg}); held || err != nil {
		t.Fatalf("held %v, %v", held, err)
	}
	if s.existing(1).holds(dead) {
		t.Error("the deletion is nowhere but in a segment that goes")
	}
}

func (g *Group) hasTrace() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.trace
}
