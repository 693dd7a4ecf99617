package catalog

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestSupported: voters count, in the leader's term, by what was sent since.
func TestSupported(t *testing.T) {
	servers := []raft.Server{
		{ID: "a", Suffrage: raft.Voter},
		{ID: "b", Suffrage: raft.Voter},
		{ID: "c", Suffrage: raft.Voter},
		{ID: "d", Suffrage: raft.Nonvoter},
		{ID: "e", Suffrage: raft.Nonvoter},
	}
	since := time.Now()
	before, after := since.Add(-time.Second), since.Add(time.Millisecond)
	for name, test := range map[string]struct {
		heard map[raft.ServerID]accepted
		want  bool
	}{
		"nobody":                           {nil, false},
		"another voter":                    {map[raft.ServerID]accepted{"b": {3, after}}, true},
		"another voter at the same moment": {map[raft.ServerID]accepted{"b": {3, since}}, true},
		"of what was sent before":          {map[raft.ServerID]accepted{"b": {3, before}, "c": {3, before}}, false},
		"in an earlier term":               {map[raft.ServerID]accepted{"b": {2, after}, "c": {2, after}}, false},
		"those without a vote":             {map[raft.ServerID]accepted{"d": {3, after}, "e": {3, after}}, false},
	} {
		w := &wire{}
		for id, a := range test.heard {
			w.note(id, a)
			w.note(id, accepted{a.term, before.Add(-time.Second)}) // an older one that is answered late
		}
		if got := w.supported(servers, "a", 3, since); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if w := new(wire); !w.supported(servers[:1], "a", 3, since) {
		t.Error("the only voter does not lead")
	}
}
