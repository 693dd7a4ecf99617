package group

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

func TestMembership(t *testing.T) {
	bubble(t, 4, nil, func(t *testing.T, c *memCluster) {
		s := Spec{ID: queueA, Members: c.ids[:3], Preferred: "n0", Bootstrap: true}
		for _, id := range c.ids[:3] {
			c.nodes[id].start(t, s)
		}
		g := c.waitLeader(queueA, time.Second)
		if _, err := propose(g, "a"); err != nil {
			t.Fatal(err)
		}
		c.kill("n2")
		c.nodes["n3"].start(t, Spec{ID: queueA})
		for _, err := range []error{
			g.AddNonvoter(t.Context(), transport.Replica("n3", 0), 0), g.RemoveServer(t.Context(), transport.Replica("n2", 0), 0), g.AddVoter(t.Context(), transport.Replica("n3", 0), 0),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []Member{{"n0", "n0", true}, {"n1", "n1", true}, {"n3", "n3", true}}
		waitFor(t, 10*time.Second, "membership does not arrive", func() bool {
			got, _ := c.nodes["n3"].host.Group(queueA)
			m := got.Members()
			slices.SortFunc(m, func(a, b Member) int { return int(a.Node[1]) - int(b.Node[1]) })
			return slices.Equal(m, want)
		})
		c.agree(queueA, []string{"a"})
		if err := g.DemoteVoter(t.Context(), transport.Replica("n3", 0), 0); err != nil {
			t.Fatal(err)
		}
		follower, _ := c.nodes["n1"].host.Group(queueA)
		if err := follower.AddVoter(t.Context(), transport.Replica("n3", 0), 0); !errors.Is(err, ErrNotLeader) {
			t.Errorf("change on a follower: %v", err)
		}
	})
}

func TestLazyStartByAFrame(t *testing.T) {
	var c *memCluster
	tune := func(h *HostConfig) {
		local := h.Local
		h.OnUnknown = func(g transport.GroupID, from transport.NodeID, _ uint64) {
			c.nodes[local].start(c.t, Spec{ID: g, Members: c.ids, Bootstrap: true})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c = newMemCluster(t, 3, tune)
		defer c.close()
		c.nodes["n1"].start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n1", Bootstrap: true})
		g := c.waitLeader(queueA, 2*time.Second)
		if _, err := propose(g, "a"); err != nil {
			t.Fatal(err)
		}
		waitFor(t, 10*time.Second, "not every member runs", func() bool {
			for _, n := range c.nodes {
				if _, ok := n.host.Group(queueA); !ok {
					return false
				}
			}
			return true
		})
		c.agree(queueA, []string{"a"})
	})
}

func TestStartStopDelete(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, c *memCluster) {
		n := c.nodes["n0"]
		s := Spec{ID: queueA, Members: c.ids, Bootstrap: true}
		g := n.start(t, s)
		if again := n.start(t, s); again != g {
			t.Error("a second start is another group")
		}
		c.waitLeader(queueA, time.Second)
		if _, err := propose(g, "a"); err != nil {
			t.Fatal(err)
		}
		if b, err := g.Read(g.Stats().Applied); err != nil || string(b) != "a" {
			t.Errorf("read: %q, %v", b, err)
		}
		if err := n.host.Stop(queueA); err != nil {
			t.Fatal(err)
		}
		if _, ok := n.host.Group(queueA); ok {
			t.Error("the group is still there")
		}
		delete(n.machines, queueA)
		n.start(t, s)
		c.waitLeader(queueA, time.Second)
		c.agree(queueA, []string{"a"})
		if err := n.host.Delete(queueA); err != nil {
			t.Fatal(err)
		}
		delete(n.machines, queueA)
		n.start(t, s)
		g = c.waitLeader(queueA, time.Second)
		if _, err := propose(g, "b"); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, []string{"b"})
		if err := n.host.Delete(queueA + 1); err != nil {
			t.Errorf("deleting what is not there: %v", err)
		}
	})
}

// rotten is a storage in which one entry of one node cannot be read any more.
type rotten struct {
	Storage
	at uint64
}

func (r rotten) Group(id transport.GroupID) Log { return rottenLog{r.Storage.Group(id), r.at} }

type rottenLog struct {
	Log
	at uint64
}

func (l rottenLog) GetLog(at uint64, to *raft.Log) error {
	if at == l.at {
		return &store.CorruptError{Reason: "body does not match its checksum"}
	}
	return l.Log.GetLog(at, to)
}

// A replica with a damaged entry does not start, and says so; its node and the rest of the
// group go on.
func TestDamagedReplicaDoesNotStart(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		for range 5 {
			if _, err := propose(g, "a"); err != nil {
				t.Fatal(err)
			}
		}
		c.kill("n2")
		whole := c.open
		c.open = func(id transport.NodeID) (Storage, io.Closer) {
			s, disk := whole(id)
			return rotten{s, 4}, disk
		}
		n := c.boot("n2")
		var damage *store.CorruptError
		if _, err := n.host.Start(Spec{ID: queueA, Members: c.ids}, &ledger{}, nil); !errors.As(err, &damage) {
			t.Errorf("start over a damaged log: %v", err)
		}
		n.start(t, Spec{ID: queueA + 1, Members: c.ids, Preferred: "n2", Bootstrap: true})
		if _, err := propose(g, "b"); err != nil {
			t.Fatal(err)
		}
	})
}
