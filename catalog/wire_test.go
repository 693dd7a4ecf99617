package catalog_test

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// TestNodeThatWasAwayForLongHasTheCatalogAtOnce starts a node again after an absence in which raft, had it seen each failed attempt, would have come to
// pause for seconds: the node has what it missed as soon as its replica runs, which is some time after its link is back.
func TestNodeThatWasAwayForLongHasTheCatalogAtOnce(t *testing.T) {
	t.Parallel()
	c := newNodesOf(t, 3, &nodes{program: func(m *transport.Config, _ *catalog.Config) { m.StreamWait = 20 * time.Millisecond }})
	c.ready()
	away := c.follower()
	c.kill(away.id)
	propose(t, c.leader(), &catalog.PutVhost{Vhost: catalog.Vhost{Name: "missed"}})
	time.Sleep(6 * time.Second) // raft's pauses are 10 ms to 2.6 s by then, and the next is 5.1 s

	c.early = func() {
		until(t, "the leader reaches it", func() bool { return c.leader().mesh.Peer(away.id).Up })
	}
	begun := time.Now()
	back := c.start(away.id, away.dir, true)
	until(t, "it is ready", back.catalog.Ready)
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("it was ready after %v", took)
	}
	if back.catalog.View().Vhost("missed") == nil {
		t.Error("it lacks what it missed")
	}
}
