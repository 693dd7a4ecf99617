package broker

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/catalog"
)

// TestPlacedWhereLinksLead: a node that no link leads to gets no replica of a new queue, although nobody has found it dead yet. It does if there are too
// few others.
func TestPlacedWhereLinksLead(t *testing.T) {
	b := newBroker(t)
	for _, id := range []catalog.NodeID{secondNode, thirdNode, "fourth/4"} {
		propose(t, b, &catalog.RegisterNode{ID: id})
	}
	b.cfg.Online = func(node string) bool { return node != string(secondNode) }
	for size, want := range map[int]bool{3: false, 4: true} {
		members, preferred, _ := b.place("/", "q", size, false)
		if got := slices.Contains(members, secondNode); len(members) != size || got != want || preferred == secondNode {
			t.Errorf("%d replicas are on %v, led by %s", size, members, preferred)
		}
	}
}
