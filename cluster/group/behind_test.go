package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestBehind: a replica that has just been started anew is behind, or does not know its leader, until it has what
// the leader has; one without the others cannot tell.
func TestBehind(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		s := Spec{ID: queueA, Preferred: "n1"}
		c.found(s)
		c.waitLeader(queueA, time.Second)
		c.kill("n0")
		g := c.waitLeader(queueA, 2*time.Second, "n0")
		for i := range 200 {
			if _, err := propose(g, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		n := c.boot("n0")
		s.Members, s.Bootstrap = c.ids, true
		n.start(t, s)
		if l := n.host.Behind(t.Context(), 64); l.Behind+l.Unreached+l.Leaderless != 1 {
			t.Errorf("right after its start: %+v", l)
		}
		waitFor(t, 10*time.Second, "n0 does not catch up", func() bool { return n.host.Behind(t.Context(), 64) == (Lag{}) })
		c.kill("n1")
		c.kill("n2")
		// A replica that nobody leads any more is not a slow one: alerts tell them apart.
		if l := n.host.Behind(t.Context(), 64); l.Unreached+l.Leaderless != 1 || l.Behind != 0 {
			t.Errorf("without the others: %+v", l)
		}
	})
}

// TestChase: a replica has caught up once it got what its leader had within a round, however few entries it lacked before; then what comes later does not count.
func TestChase(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		s := Spec{ID: queueA, Preferred: "n1"}
		c.found(s)
		c.waitLeader(queueA, time.Second)
		c.kill("n0")
		g := c.waitLeader(queueA, 2*time.Second, "n0")
		put := func(text string) {
			if _, err := propose(g, text); err != nil {
				t.Fatal(err)
			}
		}
		put("a")
		c.net.mu.Lock()
		c.net.withheld = map[transport.NodeID]bool{"n0": true}
		c.net.mu.Unlock()
		n := c.boot("n0")
		s.Members, s.Bootstrap = c.ids, true
		n.start(t, s)
		chase := n.host.Chase()
		look := func() int {
			l := chase.Look(t.Context())
			return l.Behind + l.Unreached + l.Leaderless
		}
		for i := range 40 {
			put(fmt.Sprint(i))
			if look() != 1 {
				t.Fatal("n0 has nothing and has caught up")
			}
			time.Sleep(200 * time.Millisecond)
		}
		c.net.mu.Lock()
		c.net.withheld = nil
		c.net.mu.Unlock()
		waitFor(t, 10*time.Second, "n0 does not catch up", func() bool {
			put("and one more")
			return look() == 0
		})
		c.net.mu.Lock()
		c.net.withheld = map[transport.NodeID]bool{"n0": true}
		c.net.mu.Unlock()
		put("b")
		if look() != 0 {
			t.Error("n0 had caught up, and has not any more")
		}
	})
}
