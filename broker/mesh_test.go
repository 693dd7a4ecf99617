package broker

import (
	"testing"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
)

// TestEndedNodeIsHeardAgain: a process that was taken for ended, because its port refused connections, and is heard after all, has not ended:
// what it does is waited for again when it falls silent.
func TestEndedNodeIsHeardAgain(t *testing.T) {
	b := newBroker(t)
	propose(t, b, &catalog.RegisterNode{ID: secondNode})
	n := b.cat.View().Node(secondNode)
	o := fsm.Origin{Node: n.Number, Incarnation: n.Incarnation}
	check := func(what string, want bool) {
		t.Helper()
		if got := b.processGone(o); got != want {
			t.Errorf("%s: gone is %t", what, got)
		}
	}
	check("at first", false)
	b.NodeDead(secondNode, false, true)
	check("refused", true)
	b.NodeAlive(secondNode)
	check("heard again", false)
	b.NodeDead(secondNode, false, false)
	check("silent", false)
	b.NodeDead(secondNode, false, true)
	propose(t, b, &catalog.RegisterNode{ID: secondNode})
	b.NodeAlive(secondNode)
	check("another process", true)
}
