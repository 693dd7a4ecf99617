package group

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

const queueA transport.GroupID = 100

// bubble runs a test over an in-memory cluster in virtual time.
func bubble(t *testing.T, size int, tune func(*HostConfig), f func(t *testing.T, c *memCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, size, tune)
		defer c.close()
		f(t, c)
	})
}

func TestPreferredNodeLeadsFirst(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		began := time.Now()
		c.found(Spec{ID: queueA, Preferred: "n1"})
		g := c.waitLeader(queueA, time.Second)
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("first leader after %v", took)
		}
		if g.host.cfg.Local != "n1" {
			t.Errorf("%s leads, want the preferred n1", g.host.cfg.Local)
		}
	})
}

func TestNextRankLeadsWithoutThePreferred(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.kill("n1")
		c.found(Spec{ID: queueA, Preferred: "n1"})
		c.waitLeader(queueA, 2*time.Second)
	})
}

func TestOrderAndResults(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA})
		g := c.waitLeader(queueA, time.Second)
		const n = 1000
		var mu sync.Mutex
		var got []int
		var want []string
		left := n
		done := make(chan struct{})
		for i := range n {
			want = append(want, fmt.Sprint(i))
			g.Propose([]byte(want[i]), func(v any, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("proposal %d: %v", i, err)
				} else if v != i+1 {
					t.Errorf("proposal %d: result %v", i, v)
				}
				got = append(got, i)
				if left--; left == 0 {
					close(done)
				}
			})
		}
		<-done
		if !slices.IsSorted(got) || len(got) != n {
			t.Errorf("%d answers, sorted %v", len(got), slices.IsSorted(got))
		}
		c.agree(queueA, want)
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, 3, func(h *HostConfig) { h.BacklogMax = 4 }, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		other, _ := c.nodes["n2"].host.Group(queueA)
		if _, err := propose(other, "x"); !errors.Is(err, ErrNotLeader) {
			t.Errorf("follower: got %v, want ErrNotLeader", err)
		}
		if _, err := propose(g, ""); !errors.Is(err, ErrEmpty) {
			t.Errorf("empty: got %v, want ErrEmpty", err)
		}
		resume := g.pause()
		for range 4 {
			g.Propose([]byte("waits"), nil)
		}
		if _, err := propose(g, "too much"); !errors.Is(err, ErrOverloaded) {
			t.Errorf("full backlog: got %v, want ErrOverloaded", err)
		}
		resume()
		if _, err := propose(g, "again"); err != nil {
			t.Errorf("after the pause: %v", err)
		}
		if err := c.nodes["n0"].host.Stop(queueA); err != nil {
			t.Fatal(err)
		}
		if _, err := propose(g, "late"); !errors.Is(err, ErrStopped) {
			t.Errorf("stopped: got %v, want ErrStopped", err)
		}
	})
}

func TestLeaderKilled(t *testing.T) {
	for _, groups := range []int{1, 100} {
		t.Run(fmt.Sprint(groups), func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
				for i := range groups {
					c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%3]})
				}
				for i := range groups {
					if _, err := propose(c.waitLeader(queueA+transport.GroupID(i), 2*time.Second), "before"); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				c.kill("n0")
				for i := range groups {
					id := queueA + transport.GroupID(i)
					g := c.waitLeader(id, 2*time.Second, "n0")
					if _, err := propose(g, "after"); err != nil {
						t.Fatalf("group %d: %v", id, err)
					}
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("all groups write again after %v, want at most 1s", took)
				}
				for i := range groups {
					c.agree(queueA+transport.GroupID(i), []string{"before", "after"})
				}
			})
		})
	}
}

func TestFrozenLeaderIsReplacedAndStepsDown(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		old := c.waitLeader(queueA, time.Second)
		waitFor(t, time.Second, "no lease", old.HasLease)
		began := time.Now()
		c.net.change(func() { c.nodes["n0"].link.frozen = true })
		waitFor(t, 3*time.Second, "lease outlives the link", func() bool { return !old.HasLease() })
		if took := time.Since(began); took > 2100*time.Millisecond {
			t.Errorf("lease ended after %v", took)
		}
		g := c.waitLeader(queueA, 3*time.Second, "n0")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("new leader after %v", took)
		}
		if _, err := propose(g, "new"); err != nil {
			t.Fatal(err)
		}
		c.net.change(func() { c.nodes["n0"].link.frozen = false })
		waitFor(t, 15*time.Second, "the old leader does not follow", func() bool {
			l, _, _ := old.Leader()
			return l == g.host.cfg.Local
		})
		c.agree(queueA, []string{"new"})
	})
}

func TestLostLeadershipAnswersUnknown(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		old := c.waitLeader(queueA, time.Second)
		if _, err := propose(old, "a"); err != nil {
			t.Fatal(err)
		}
		c.net.isolate("n0", true)
		errs := make(chan error, 60)
		for i := range 60 { // 48 in flight, the rest never handed over
			old.Propose([]byte(fmt.Sprintf("lost%d", i)), func(_ any, err error) { errs <- err })
		}
		g := c.waitLeader(queueA, 5*time.Second, "n0")
		if _, err := propose(g, "b"); err != nil {
			t.Fatal(err)
		}
		c.net.isolate("n0", false)
		for i := range 60 {
			want := ErrUnknown
			if i >= inFlightCeiling {
				want = ErrNotLeader
			}
			if err := <-errs; !errors.Is(err, want) {
				t.Errorf("proposal %d: got %v, want %v", i, err, want)
			}
		}
		c.agree(queueA, []string{"a", "b"})
	})
}

func TestRestartOfEveryNode(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		const groups = 20
		for i := range groups {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%3]})
		}
		for i := range groups {
			if _, err := propose(c.waitLeader(queueA+transport.GroupID(i), 2*time.Second), "one"); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range c.ids {
			c.kill(id)
		}
		for _, id := range c.ids {
			c.boot(id)
		}
		began := time.Now()
		for i := range groups {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%3]})
		}
		for i := range groups {
			if _, err := propose(c.waitLeader(queueA+transport.GroupID(i), 3*time.Second), "two"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("all groups write after %v", took)
		}
		for i := range groups {
			c.agree(queueA+transport.GroupID(i), []string{"one", "two"})
		}
	})
}

func TestRestartedFollowerDoesNotDeposeTheLeader(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		_, term, _ := g.Leader()
		c.kill("n2")
		n := c.boot("n2")
		back := n.start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		waitFor(t, time.Second, "the restarted node does not learn the leader", func() bool {
			l, _, ok := back.Leader()
			return ok && l == "n0"
		})
		time.Sleep(time.Minute)
		if l, now, _ := back.Leader(); l != "n0" || now != term {
			t.Errorf("leader %s in term %d, want n0 in %d", l, now, term)
		}
	})
}

func TestLeaderRestartedUnnoticed(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
			t.Fatal(err)
		}
		// The process comes back before anybody has judged it: the others still follow it.
		c.nodes["n0"].close(t)
		c.boot("n0").start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		g := c.waitLeader(queueA, 2*time.Second)
		if _, err := propose(g, "b"); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, []string{"a", "b"})
	})
}

func TestTransfer(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var acked []string
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprint(i)
				if _, err := propose(g, text); err == nil {
					acked = append(acked, text)
				} else if !errors.Is(err, ErrNotLeader) {
					t.Errorf("proposal %d: %v, want success or ErrNotLeader", i, err)
				}
				time.Sleep(time.Millisecond)
			}
		})
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := g.TransferTo(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
		t.Logf("transfer took %v", time.Since(began))
		close(stop)
		wg.Wait()
		if now := c.waitLeader(queueA, time.Second); now.host.cfg.Local != "n2" {
			t.Errorf("%s leads, want n2", now.host.cfg.Local)
		}
		c.agree(queueA, acked)
		if err := g.TransferTo(t.Context(), "n1"); !errors.Is(err, ErrNotLeader) {
			t.Errorf("transfer from a follower: %v", err)
		}
	})
}

func TestTransferToAFrozenNodeChangesNothing(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		if err := g.TransferTo(t.Context(), "stranger"); !errors.Is(err, ErrNotMember) {
			t.Errorf("stranger: %v, want ErrNotMember", err)
		}
		c.net.change(func() { c.nodes["n2"].link.frozen = true })
		if err := g.TransferTo(t.Context(), "n2"); !errors.Is(err, ErrTransfer) {
			t.Errorf("frozen: %v, want ErrTransfer", err)
		}
		if _, err := propose(g, "still here"); err != nil {
			t.Errorf("after a failed transfer: %v", err)
		}
	})
}

func TestTwoSurvivorsInjectedAtOnce(t *testing.T) {
	for _, noFree := range []bool{false, true} {
		t.Run(fmt.Sprintf("recycle=%v", noFree), func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
				c.found(Spec{ID: queueA, Preferred: "n0"})
				if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second) // everybody knows the commit index
				g1, _ := c.nodes["n1"].host.Group(queueA)
				g2, _ := c.nodes["n2"].host.Group(queueA)
				for _, n := range c.nodes {
					n.link.noFree = noFree
				}
				c.net.change(func() { c.nodes["n0"].link.down = true })
				for _, g := range []*Group{g1, g2} {
					if err := g.running.Load().wire.InjectTimeoutNow(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(20 * time.Millisecond)
				if s1, s2 := g1.replica().State(), g2.replica().State(); s1 != raft.Candidate || s2 != raft.Candidate {
					t.Fatalf("states %v and %v, want a split vote", s1, s2)
				}
				g := c.waitLeader(queueA, 4*time.Second, "n0")
				if _, err := propose(g, "b"); err != nil {
					t.Fatal(err)
				}
				var freed, recycled uint64
				for _, n := range c.nodes {
					s := n.host.Stats()
					freed, recycled = freed+s.CandidatesFreed, recycled+s.InstancesRecycled
				}
				if noFree && recycled == 0 || !noFree && (freed == 0 || recycled != 0) {
					t.Errorf("%d freed, %d recycled", freed, recycled)
				}
				c.kill("n0")
				c.agree(queueA, []string{"a", "b"})
			})
		})
	}
}

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

// The leader's node restarts before anybody misses it, and does not run the group any
// more: damaged, or not its turn yet. The others must not wait for raft's timers.
func TestLeaderRestartsWithoutTheGroup(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // everybody knows everybody
		c.kill("n0")
		c.boot("n0")
		g := c.waitLeader(queueA, 2*time.Second, "n0")
		if _, err := propose(g, "b"); err != nil {
			t.Fatal(err)
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
