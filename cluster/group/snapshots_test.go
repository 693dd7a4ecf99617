package group

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

func TestSnapshotAndLaggingFollower(t *testing.T) {
	tune := func(h *HostConfig) { h.TrailingBytes = 1; h.SnapshotBytes = 1 << 40 }
	bubble(t, 3, tune, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		c.kill("n2")
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint(i))
			if _, err := propose(g, want[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Snapshot(); err != nil {
			t.Fatal(err)
		}
		var l raft.Log
		if err := g.log.GetLog(10, &l); !errors.Is(err, raft.ErrLogNotFound) {
			t.Fatalf("entry 10 after the snapshot: %v, want it compacted", err)
		}
		n := c.boot("n2")
		n.start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		c.agree(queueA, want)
		// And the follower recovers from the snapshot that it was sent.
		c.kill("n2")
		c.boot("n2").start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		c.agree(queueA, want)
	})
}

// An instance may end between the publication of a snapshot that it was sent and its
// restoring; the machine must not go on above what it never saw.
func TestRecycleBeforeASnapshotIsRestored(t *testing.T) {
	tune := func(h *HostConfig) { h.TrailingBytes = 1; h.SnapshotBytes = 1 << 40 }
	bubble(t, 3, tune, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		c.net.isolate("n2", true)
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint(i))
			if _, err := propose(g, want[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Snapshot(); err != nil {
			t.Fatal(err)
		}
		list, err := g.log.Snapshots().List()
		if err != nil || len(list) != 1 {
			t.Fatalf("snapshots %v, %v", list, err)
		}
		meta, r, err := g.log.Snapshots().Open(list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		lagging, _ := c.nodes["n2"].host.Group(queueA)
		sink, err := lagging.log.Snapshots().Create(meta.Version, meta.Index, meta.Term, meta.Configuration, meta.ConfigurationIndex, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(sink, r); err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		if err := lagging.recycle("the test says so"); err != nil {
			t.Fatal(err)
		}
		// Another leader finds the replica's log as long as the snapshot says.
		c.kill("n0")
		c.net.isolate("n2", false)
		g = c.waitLeader(queueA, 10*time.Second)
		want = append(want, "last")
		if _, err := propose(g, "last"); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, want)
	})
}

// TestSnapshotsByBytes: a snapshot is taken for what it frees, and for the log that a start would apply again.
func TestSnapshotsByBytes(t *testing.T) {
	t.Run("freed", func(t *testing.T) {
		testSnapshots(t, func(h *HostConfig) { h.TrailingBytes = 1; h.SnapshotBytes = 10_000 })
	})
	t.Run("replayed", func(t *testing.T) {
		testSnapshots(t, func(h *HostConfig) { h.TrailingBytes = 1; h.SnapshotBytes = 1 << 40; h.ReplayBytes = 10_000 })
	})
}

func testSnapshots(t *testing.T, tune func(*HostConfig)) {
	t.Helper()
	bubble(t, 3, tune, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		for range 200 {
			if _, err := propose(g, string(make([]byte, 100))); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, 5*time.Second, "no snapshot", func() bool {
			metas, err := g.log.Snapshots().List()
			return err == nil && len(metas) > 0
		})
		waitFor(t, 5*time.Second, "nothing reclaimed", func() bool { return g.Stats().ReclaimableBytes < 10_000 })
	})
}

// TestTailAboveANewerSnapshot: a deposed leader has a tail that nobody else has right above a snapshot that is newer than its successor's. The two have the entry at that snapshot in
// common, though it is in no log of the one any more, and that is where they go on: there is no snapshot to wait for.
func TestTailAboveANewerSnapshot(t *testing.T) {
	for kind, open := range kinds {
		t.Run(kind, func(t *testing.T) {
			storage := open(t)
			synctest.Test(t, func(t *testing.T) {
				c := newClusterOver(t, storage, 3, func(h *HostConfig) { h.TrailingBytes, h.SnapshotBytes = 1, 1<<40 })
				defer c.close()
				c.found(Spec{ID: queueA, Preferred: "n0"})
				old := c.waitLeader(queueA, time.Minute)
				id := old.host.cfg.Local
				var want []string
				commit := func(g *Group, n int) {
					want = commitMore(t, g, want, n)
					c.agree(queueA, want)
				}
				snapshot := func(n transport.NodeID) {
					g, _ := c.nodes[n].host.Group(queueA)
					if err := g.Snapshot(); err != nil {
						t.Fatal(err)
					}
				}
				commit(old, 5)
				for _, n := range c.ids {
					if n != id {
						snapshot(n)
					}
				}
				commit(old, 3)
				snapshot(id)
				c.net.isolate(id, true)
				for range 4 {
					old.Propose([]byte("lost"), nil)
				}
				next := c.waitLeader(queueA, time.Minute, id)
				want = commitMore(t, next, want, 2)
				before := next.host.Stats().Snapshots
				c.net.isolate(id, false)
				c.agree(queueA, want)
				if now := next.host.Stats().Snapshots; now != before {
					t.Errorf("it took %d snapshots more", now-before)
				}
			})
		})
	}
}

// TestSnapshotForAFollowerDoesNotRest: a group whose snapshot took long rests for a while, but not when a follower has no use for the one there is.
func TestSnapshotForAFollowerDoesNotRest(t *testing.T) {
	bubble(t, 3, func(h *HostConfig) { h.SnapshotBytes = 1 << 40 }, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Minute)
		if _, err := propose(g, "a"); err != nil {
			t.Fatal(err)
		}
		w := g.host.watch
		w.mu.Lock()
		w.snaps[g] = time.Now().Add(time.Hour)
		w.mu.Unlock()
		w.outdated(g, 1)
		waitFor(t, 10*time.Second, "no snapshot is taken", func() bool { return g.host.Stats().Snapshots > 0 })
	})
}
