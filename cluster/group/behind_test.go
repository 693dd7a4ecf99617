package group

import (
	"fmt"
	"testing"
	"time"
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
