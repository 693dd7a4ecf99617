package group

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestDrainAvoidsNodesThatStop: of two nodes that are being stopped, neither gives the other its leaders; with nobody
// else to take them they stay, at once. A revived node gets its own back.
func TestDrainAvoidsNodesThatStop(t *testing.T) {
	bubble(t, 3, homing, func(t *testing.T, c *memCluster) {
		const groups = 12
		for i := range groups {
			id := queueA + transport.GroupID(i)
			c.found(Spec{ID: id, Preferred: []transport.NodeID{"n0", "n1"}[i%2]})
			c.waitLeader(id, 2*time.Second)
		}
		time.Sleep(20 * time.Second)
		drain := func(id transport.NodeID, avoid func(transport.NodeID) bool) Drained {
			return c.nodes[id].host.Drain(t.Context(), avoid)
		}
		if n := c.nodes["n0"].host.Critical(); n != 0 {
			t.Fatalf("%d groups need n0", n)
		}
		if d := drain("n0", func(id transport.NodeID) bool { return id == "n1" }); d != (Drained{Moved: groups / 2}) {
			t.Fatalf("n0: %+v", d)
		}
		if got := c.led(groups); got["n2"] != groups/2 || got["n1"] != groups/2 {
			t.Fatalf("%v", got)
		}
		if d := drain("n1", nil); d != (Drained{Moved: groups / 2}) {
			t.Fatalf("n1: %+v", d)
		}
		if got := c.led(groups); got["n2"] != groups {
			t.Fatalf("%v", got)
		}
		began := time.Now()
		if d := drain("n2", nil); d != (Drained{Stayed: groups}) || time.Since(began) > time.Second {
			t.Fatalf("n2: %+v in %v", d, time.Since(began))
		}
		c.nodes["n2"].host.Revive()
		c.nodes["n0"].host.Revive()
		time.Sleep(time.Minute)
		if got := c.led(groups); got["n0"] != groups/2 || got["n1"] != 0 {
			t.Fatalf("after n0 was revived: %v", got)
		}
		if n := c.nodes["n0"].host.Missing() + c.nodes["n1"].host.Missing() + c.nodes["n2"].host.Missing(); n != 0 {
			t.Fatalf("%d groups miss a replica", n)
		}
		c.kill("n2")
		waitFor(t, 10*time.Second, "no group needs n0 beside a dead node", func() bool { return c.nodes["n0"].host.Critical() == groups })
		waitFor(t, 30*time.Second, "not every group misses n2", func() bool {
			return c.nodes["n0"].host.Missing()+c.nodes["n1"].host.Missing() == groups
		})
	})
}

// TestReplicaBeingFilledIsNoQuorum: while one of three replicas does not vote, or is not there yet, both others are needed. Without it the two of
// a group of two are not counted.
func TestReplicaBeingFilledIsNoQuorum(t *testing.T) {
	bubble(t, 3, homing, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		leader := c.waitLeader(queueA, 2*time.Second)
		critical := func(want int) {
			t.Helper()
			for _, id := range []transport.NodeID{"n0", "n1"} {
				waitFor(t, 10*time.Second, "what needs a node", func() bool { return c.nodes[id].host.Critical() == want })
			}
		}
		third := transport.Replica("n2", 0)
		critical(0)
		if err := leader.DemoteVoter(t.Context(), third, 0); err != nil {
			t.Fatal(err)
		}
		critical(1)
		if n := c.nodes["n2"].host.Critical(); n != 0 {
			t.Errorf("%d groups need the one that does not vote", n)
		}
		if err := leader.RemoveServer(t.Context(), third, 0); err != nil {
			t.Fatal(err)
		}
		critical(0)
		for _, id := range []transport.NodeID{"n0", "n1"} { // with a plan by which nothing can be done yet
			g, _ := c.nodes[id].host.Group(queueA)
			g.Want(&Membership{Wanted: []transport.ReplicaID{transport.Replica("n0", 0), transport.Replica("n1", 0), transport.Replica("n2", 7)}, Revision: 5})
		}
		critical(1)
	})
}
