package group

import (
	"context"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestReplacedLeaderHasNoLease: a leader that is replaced while it writes, and does not hear of
// it, loses its lease although every voter goes on answering its pings. What else it leads, with
// the same voters, keeps its lease.
func TestReplacedLeaderHasNoLease(t *testing.T) {
	stores := memStorage(t)
	c := newRealCluster(t, stores, eager())
	const taken, kept = queueA, queueA + 3 // both prefer the first node
	c.found(4)
	old := c.nodes[c.ids[0]]
	g, _ := old.host.Group(taken)
	other, _ := old.host.Group(kept)
	waitFor(t, 30*time.Second, "the first node leads both with a lease", func() bool { return g.HasLease() && other.HasLease() })
	_, term, _ := g.Leader()

	s, _ := stores(c.ids[0])
	disk := s.Group(taken).(*memLog)
	disk.mu.Lock() // a write that takes long
	blocked := true
	defer func() {
		if blocked {
			disk.mu.Unlock()
		}
	}()
	g.Propose([]byte("stuck"), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := c.nodes[c.ids[1]]
	successor, _ := next.host.Group(taken)
	var asked time.Time
	waitFor(t, 30*time.Second, "there is no successor", func() bool {
		_, now, _ := successor.Leader()
		if successor.IsLeader() && now > term {
			return true
		}
		// Only the first election after it is one in which voters leave a leader that they hear of, and a starved one comes to nothing.
		if time.Since(asked) > 2*time.Second {
			if err := old.mesh.InjectAt(ctx, transport.Replica(next.id, 0), taken); err != nil {
				t.Fatal(err)
			}
			asked = time.Now()
		}
		return false
	})
	elected := time.Now()
	waitFor(t, 30*time.Second, "the lease of the replaced leader does not end", func() bool { return !g.HasLease() })
	if late := time.Since(elected); late > old.host.cfg.Lease+10*time.Second {
		t.Errorf("the lease ended %v after the election, want at most %v", late, old.host.cfg.Lease)
	}
	for began := time.Now(); time.Since(began) < old.host.cfg.Lease+time.Second; time.Sleep(20 * time.Millisecond) {
		if g.HasLease() {
			t.Fatal("the replaced leader has a lease again")
		}
	}
	// A starved process may have been without it for a moment.
	waitFor(t, 30*time.Second, "the other group has lost its lease", other.HasLease)
	if !g.IsLeader() {
		t.Error("the replaced leader has heard of it: this test shows nothing")
	}
	disk.mu.Unlock()
	blocked = false
	waitFor(t, 30*time.Second, "the replaced leader does not hear of it", func() bool { return !g.IsLeader() })
}
