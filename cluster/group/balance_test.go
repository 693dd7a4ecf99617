package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

func homing(h *HostConfig) { h.MovesPerSecond = 10 }

// led counts the groups of each node among the first n of the tests' groups.
func (c *memCluster) led(n int) map[transport.NodeID]int {
	count := make(map[transport.NodeID]int)
	for i := range n {
		if g := c.leader(queueA + transport.GroupID(i)); g != nil {
			count[g.host.cfg.Local]++
		}
	}
	return count
}

// TestLeadersGoHome: leaders that left a dead node are given back when it is alive again, no
// faster than allowed, and each only once; what is proposed meanwhile is not lost.
func TestLeadersGoHome(t *testing.T) {
	bubble(t, 3, homing, func(t *testing.T, c *memCluster) {
		const groups = 60
		spec := func(i int) Spec {
			return Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%3]}
		}
		for i := range groups {
			c.found(spec(i))
			c.waitLeader(spec(i).ID, 2*time.Second)
		}
		c.kill("n0")
		for i := range groups {
			c.waitLeader(spec(i).ID, 2*time.Second, "n0")
		}
		n := c.boot("n0")
		began := time.Now()
		for i := range groups {
			s := spec(i)
			s.Members, s.Bootstrap = c.ids, true
			n.start(t, s)
		}
		want := make([]string, 0, 400)
		for time.Since(began) < 9*time.Second { // it must settle first
			if got := c.led(groups); got["n0"] > 0 {
				t.Fatalf("after %v the node that came back leads %d", time.Since(began), got["n0"])
			}
			time.Sleep(time.Second)
		}
		for c.led(groups)["n0"] < groups/3 {
			if took := time.Since(began); took > 14*time.Second {
				t.Fatalf("after %v: %v", took, c.led(groups))
			}
			text := fmt.Sprint(len(want))
			if _, err := propose(c.waitLeader(queueA, time.Second), text); err == nil {
				want = append(want, text)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(began); took < 10*time.Second+900*time.Millisecond {
			t.Errorf("%d leaders went home in %v, faster than ten a second from each node", groups/3, took)
		}
		time.Sleep(time.Minute)
		for id, n := range c.led(groups) {
			if n != groups/3 {
				t.Errorf("%s leads %d of %d groups", id, n, groups)
			}
		}
		moved := uint64(0)
		for _, n := range c.nodes {
			s := n.host.Stats()
			if moved += s.MovedHome; s.Away != 0 {
				t.Errorf("%s leads %d groups that are at home elsewhere", n.id, s.Away)
			}
		}
		if moved != groups/3 {
			t.Errorf("%d moves for %d groups", moved, groups/3)
		}
		c.agree(queueA, want)
	})
}

// TestNothingGoesHomeToANodeThatStops: what a node hands over before it stops stays away, as long as
// it takes.
func TestNothingGoesHomeToANodeThatStops(t *testing.T) {
	bubble(t, 3, homing, func(t *testing.T, c *memCluster) {
		const groups = 12
		for i := range groups {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: "n0"})
			c.waitLeader(queueA+transport.GroupID(i), 2*time.Second)
		}
		time.Sleep(20 * time.Second)
		if d := c.nodes["n0"].host.Drain(t.Context(), nil); d != (Drained{Moved: groups}) {
			t.Fatalf("%+v", d)
		}
		for range 120 {
			time.Sleep(time.Second)
			if got := c.led(groups); got["n0"] != 0 {
				t.Fatalf("the node that is being stopped leads again: %v", got)
			}
		}
	})
}

// TestReplicaThatLagsStaysAway: a group does not go home before its log has.
func TestReplicaThatLagsStaysAway(t *testing.T) {
	bubble(t, 3, homing, func(t *testing.T, c *memCluster) {
		s := Spec{ID: queueA, Preferred: "n0"}
		c.found(s)
		c.waitLeader(queueA, time.Second)
		c.kill("n0")
		g := c.waitLeader(queueA, 2*time.Second, "n0")
		for i := range 200 {
			if _, err := propose(g, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		n := c.boot("n0") // the node is well, but does not run the group yet
		time.Sleep(time.Minute)
		if !g.IsLeader() || g.host.Stats().MovedHome != 0 {
			t.Fatal("the leader left for a node that does not run the group")
		}
		s.Members, s.Bootstrap = c.ids, true
		n.start(t, s)
		waitFor(t, 6*time.Minute, "the leader does not go home", func() bool {
			l := c.leader(queueA)
			return l != nil && l.host.cfg.Local == "n0"
		})
	})
}
