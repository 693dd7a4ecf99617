package group

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
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
