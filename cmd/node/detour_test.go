package main

import (
	"testing"
	"time"
)

// TestDetours: a node with two addresses is looked for at each in turn, and reached at the one that has served as long as it serves.
func TestDetours(t *testing.T) {
	var d detours
	now := time.Now()
	for i, s := range []struct {
		gossip, catalog string
		linked          bool
		after           time.Duration
		want            string
	}{
		{"a", "a", false, 0, "a"},
		{"g", "c", false, 0, "g"},
		{"g", "c", false, detourEvery / 2, "g"},
		{"g", "c", false, detourEvery, "c"},
		{"g", "c", false, detourEvery / 2, "c"},
		{"g", "c", true, 0, "c"}, // a snapshot takes the way of the link
		{"g", "c", true, time.Hour, "c"},
		{"g", "c", false, time.Hour, "c"}, // the link was lost just now
		{"g", "c", false, detourEvery, "g"},
		{"g", "c", false, detourEvery, "c"},
		{"h", "c", false, 0, "h"}, // news
		{"h", "h", false, 0, "h"},
		{"g", "h", false, time.Hour, "g"},
	} {
		now = now.Add(s.after)
		if got := d.choose("n/1", s.gossip, s.catalog, s.linked, now); got != s.want {
			t.Errorf("step %d: %s, want %s", i, got, s.want)
		}
	}
	if len(d.ways) != 1 {
		t.Errorf("%d nodes have two addresses", len(d.ways))
	}
}
