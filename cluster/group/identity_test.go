package group

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// reborn ends a node's replica for good and starts one of a generation there, with an empty log.
func (c *memCluster) reborn(id transport.NodeID, generation uint64) {
	c.t.Helper()
	n := c.nodes[id]
	if generation == 0 { // what a name without generations comes to
		if err := n.host.Delete(queueA); err != nil {
			c.t.Fatal(err)
		}
	} else if err := n.host.Stop(queueA); err != nil {
		c.t.Fatal(err)
	}
	n.mu.Lock()
	delete(n.machines, queueA)
	n.mu.Unlock()
	n.start(c.t, Spec{ID: queueA, Generation: generation, Members: c.ids, Preferred: "n0"})
}

// twoReborn has n0 lead five nodes, n1 cut off and n3 and n4 removed, wiped and added again, where they
// are now cut off from all but n1. It returns the replicas of n0 and n1.
func twoReborn(t *testing.T, c *memCluster, generations [2]uint64) (leader, lonely *Group) {
	c.found(Spec{ID: queueA, Preferred: "n0"})
	leader = c.waitLeader(queueA, 5*time.Second)
	if leader.host.cfg.Local != "n0" {
		t.Fatalf("%s leads", leader.host.cfg.Local)
	}
	if _, err := propose(leader, "a"); err != nil {
		t.Fatal(err)
	}
	c.agree(queueA, []string{"a"})
	lonely, _ = c.nodes["n1"].host.Group(queueA)
	c.net.isolate("n1", true)
	for _, id := range []transport.NodeID{"n3", "n4"} {
		if err := leader.RemoveServer(t.Context(), transport.Replica(id, 0), 0); err != nil {
			t.Fatal(err)
		}
	}
	c.net.change(func() {
		for _, id := range []transport.NodeID{"n3", "n4"} {
			c.net.cut[pair(id, "n0")], c.net.cut[pair(id, "n2")] = true, true
		}
	})
	for i, id := range []transport.NodeID{"n3", "n4"} {
		c.reborn(id, generations[i])
		if err := leader.AddNonvoter(t.Context(), transport.Replica(id, generations[i]), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := propose(leader, "b"); err != nil {
		t.Fatal(err)
	}
	c.net.change(func() { c.net.cut[pair("n1", "n3")], c.net.cut[pair("n1", "n4")] = false, false })
	if err := lonely.running.Load().wire.InjectTimeoutNow(); err != nil {
		t.Fatal(err)
	}
	return leader, lonely
}

// TestRebornReplicaDoesNotVote: a stale member asks two that were removed, wiped and added again. Under
// their old names they would vote for it, because they know nothing, and a second leader
// would lack what was confirmed since.
func TestRebornReplicaDoesNotVote(t *testing.T) {
	t.Run("with generations", func(t *testing.T) {
		bubble(t, 5, nil, func(t *testing.T, c *memCluster) {
			leader, lonely := twoReborn(t, c, [2]uint64{812, 814})
			for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
				if lonely.IsLeader() {
					t.Fatal("the stale member leads by the votes of replicas that know nothing")
				}
			}
			if got, err := propose(leader, "c"); err != nil {
				t.Fatal(got, err)
			}
			c.net.change(func() { clear(c.net.cut) })
			leader = nil
			waitFor(t, time.Minute, "nobody leads", func() bool { leader = c.leader(queueA); return leader != nil && leader.HasLease() })
			for _, r := range []transport.ReplicaID{"n3#812", "n4#814"} {
				waitFor(t, time.Minute, "no promotion", func() bool {
					l := c.leader(queueA)
					return l != nil && l.AddVoter(t.Context(), r, 0) == nil
				})
			}
			if _, err := propose(c.waitLeader(queueA, time.Minute), "d"); err != nil {
				t.Fatal(err)
			}
			c.agree(queueA, []string{"a", "b", "c", "d"})
			if n := len(c.leader(queueA).voters()); n != 5 {
				t.Fatalf("%d voters", n)
			}
		})
	})
	// The same with one name for both lives, to know that the case above has teeth.
	t.Run("without", func(t *testing.T) {
		bubble(t, 5, nil, func(t *testing.T, c *memCluster) {
			leader, lonely := twoReborn(t, c, [2]uint64{})
			waitFor(t, time.Minute, "the stale member is not elected", lonely.IsLeader)
			if !leader.IsLeader() {
				t.Fatal("the leader before has gone")
			}
		})
	})
}

func TestGenerationOfATrace(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		leader := c.waitLeader(queueA, 5*time.Second)
		if _, err := propose(leader, "a"); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, []string{"a"})
		if err := leader.RemoveServer(t.Context(), "n2", 0); err != nil {
			t.Fatal(err)
		}
		n := c.nodes["n2"]
		c.reborn("n2", 7)
		store := n.host.cfg.Store
		if kept, err := traceGeneration(store.Group(queueA), "n2"); err != nil || kept != 7 {
			t.Fatalf("the trace is of generation %d (%v)", kept, err)
		}
		if last, err := store.Group(queueA).LastIndex(); err != nil || last != 0 {
			t.Fatalf("an entry at %d is left of the former replica (%v)", last, err)
		}
		if err := leader.AddNonvoter(t.Context(), "n2#7", 0); err != nil {
			t.Fatal(err)
		}
		if err := leader.AddVoter(t.Context(), "n2#7", 0); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, []string{"a"})
		if err := leader.TransferTo(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
		// The same generation keeps its log, and is founded never.
		if err := n.host.Stop(queueA); err != nil {
			t.Fatal(err)
		}
		g := n.start(t, Spec{ID: queueA, Generation: 7, Members: c.ids, Bootstrap: true})
		if last, err := g.log.LastIndex(); err != nil || last == 0 {
			t.Fatalf("its log ends at %d (%v)", last, err)
		}
		if err := n.host.Stop(queueA); err != nil {
			t.Fatal(err)
		}
		if _, err := n.host.Start(Spec{ID: queueA, Generation: 6, Members: c.ids}, &ledger{}, nil); !errors.Is(err, errGeneration) {
			t.Fatalf("an earlier generation started: %v", err)
		}
		if last, err := store.Group(queueA).LastIndex(); err != nil || last == 0 {
			t.Fatalf("and wiped the log: it ends at %d (%v)", last, err)
		}
		if err := store.Group(queueA).Set(keyReplica, []byte("n1#7")); err != nil {
			t.Fatal(err)
		}
		if _, err := n.host.Start(Spec{ID: queueA, Generation: 9, Members: c.ids}, &ledger{}, nil); !errors.Is(err, errGeneration) {
			t.Fatalf("a log of another node was taken: %v", err)
		}
	})
}

// TestChangeIfConfiguration: a change that was decided on an older configuration is refused.
func TestChangeIfConfiguration(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		leader := c.waitLeader(queueA, 5*time.Second)
		index := func(g *Group) uint64 {
			members, i, err := g.Configuration()
			if err != nil || i == 0 || !slices.Equal(members, g.Members()) {
				t.Fatalf("configuration %v at %d (%v), raft has %v", members, i, err, g.Members())
			}
			return i
		}
		at := index(leader)
		if err := leader.DemoteVoter(t.Context(), "n2", at); err != nil {
			t.Fatal(err)
		}
		if err := leader.RemoveServer(t.Context(), "n1", at); err == nil {
			t.Fatal("a change of an older configuration was made")
		}
		// A replica that starts finds it in its log, and in a snapshot.
		at = index(leader)
		if err := c.nodes["n0"].host.Stop(queueA); err != nil {
			t.Fatal(err)
		}
		leader = c.nodes["n0"].start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0"})
		if again := index(leader); again != at {
			t.Fatalf("configuration at %d, before the restart at %d", again, at)
		}
		leader = c.waitLeader(queueA, time.Minute)
		if _, err := propose(leader, "a"); err != nil {
			t.Fatal(err)
		}
		if err := leader.Snapshot(); err != nil {
			t.Fatal(err)
		}
		if again := index(leader); again != at {
			t.Fatalf("configuration at %d, before the snapshot at %d", again, at)
		}
		if m := leader.Members(); len(m) != 3 || m[2] != (Member{Node: "n2", Replica: "n2"}) {
			t.Fatalf("members %v", m)
		}
	})
}
