package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

func TestDescribe(t *testing.T) {
	tune := func(h *HostConfig) { h.TrailingBytes = 1; h.SnapshotBytes = 1 << 40 }
	bubble(t, 3, tune, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		for i := range 20 {
			if _, err := propose(g, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Snapshot(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		lead := g.Describe()
		if lead.State != "leader" || lead.Leader != "n0" || !lead.Voter || !lead.Member || lead.Term == 0 || lead.Snapshot == 0 || lead.Snapshot > lead.Applied ||
			lead.Applied != lead.Commit || lead.Commit != lead.Last || lead.Generation != 0 {
			t.Errorf("the leader is %+v", lead)
		}
		for _, id := range []transport.NodeID{"n1", "n2"} {
			other, _ := c.nodes[id].host.Group(queueA)
			want := lead
			want.State, want.Snapshot, want.Election = "follower", 0, Election{}
			if got := other.Describe(); got != want {
				t.Errorf("%s is %+v, want %+v", id, got, want)
			}
		}
		c.kill("n0")
		c.kill("n1")
		time.Sleep(time.Minute)
		last, _ := c.nodes["n2"].host.Group(queueA)
		if got := last.Describe(); got.State == "leader" || !got.Voter || got.Last != lead.Last {
			t.Errorf("without a majority n2 is %+v", got)
		}
	})
}
