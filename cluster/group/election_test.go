package group

import (
	"testing"
	"time"
)

// TestElectionIsRemembered: a leader knows after whom it was elected, and whether that one could be reached.
func TestElectionIsRemembered(t *testing.T) {
	bubble(t, 3, silent, func(t *testing.T, c *memCluster) {
		check := func(g *Group, want Election) {
			t.Helper()
			e := g.Describe().Election
			if e.Term == 0 || time.Since(e.At) > 10*time.Second || e.From != want.From || e.FromUp != want.FromUp {
				t.Errorf("%s: %+v, want %+v", g.host.cfg.Local, e, want)
			}
		}
		c.found(Spec{ID: queueA, Preferred: "n0"})
		first := c.waitLeader(queueA, time.Second)
		check(first, Election{})
		c.waitCommit(queueA, 3*time.Second, "the first entry is not known to be committed")
		if err := first.TransferTo(t.Context(), "n1"); err != nil {
			t.Fatal(err)
		}
		second := c.waitLeader(queueA, 5*time.Second, "n0")
		check(second, Election{From: "n0", FromUp: true})
		if e := first.Describe().Election; e != (Election{}) {
			t.Errorf("a follower has %+v", e)
		}
		c.waitCommit(queueA, 5*time.Second, "not committed everywhere")
		c.kill("n1")
		check(c.waitLeader(queueA, 10*time.Second, "n1"), Election{From: "n1"})
	})
}
