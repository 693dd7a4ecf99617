package group

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/transport"
)

// chaos is one run of random faults against one group with a client that writes through
// whoever leads.
type chaos struct {
	*memCluster
	rnd   *rand.Rand
	first transport.NodeID // see Spec.FirstLeader

	mu      sync.Mutex
	sent    int
	acked   []string // committed, said the leader
	refused []string // never appended, said the leader
}

func (c *chaos) spec() Spec {
	return Spec{ID: queueA, Members: c.ids, Preferred: "n0", FirstLeader: c.first, Bootstrap: true}
}

// write proposes once wherever somebody believes to lead, which may be two nodes.
func (c *chaos) write() {
	for _, n := range c.nodes {
		g, ok := n.host.Group(queueA)
		if !ok || !g.IsLeader() {
			continue
		}
		c.mu.Lock()
		c.sent++
		text := fmt.Sprintf("%s-%d", n.id, c.sent)
		c.mu.Unlock()
		g.Propose([]byte(text), func(_ any, err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case err == nil:
				c.acked = append(c.acked, text)
			case !errors.Is(err, ErrUnknown):
				c.refused = append(c.refused, text)
			}
		})
	}
}

// fault does one random thing to the cluster.
func (c *chaos) fault() {
	id := c.ids[c.rnd.IntN(len(c.ids))]
	n := c.nodes[id]
	switch c.rnd.IntN(9) {
	case 0:
		if n != nil && len(c.nodes) == len(c.ids) {
			c.kill(id)
		}
	case 1, 2:
		for _, o := range c.ids {
			if c.nodes[o] == nil {
				c.boot(o).start(c.t, c.spec())
			}
		}
	case 3:
		c.net.isolate(id, true)
	case 4:
		c.heal()
	case 5:
		if n != nil {
			c.net.change(func() { n.link.frozen = true })
		}
	case 6:
		o := c.ids[c.rnd.IntN(len(c.ids))]
		c.net.change(func() { c.net.cut[pair(id, o)] = id != o })
	case 7:
		if g := c.leader(queueA); g != nil {
			_ = g.TransferTo(c.t.Context(), id)
		}
	case 8:
		if n != nil {
			if g, ok := n.host.Group(queueA); ok {
				if c.rnd.IntN(2) == 0 {
					_ = g.Snapshot()
				} else {
					_ = g.running.Load().wire.InjectTimeoutNow()
				}
			}
		}
	}
}

func (c *chaos) heal() {
	c.net.change(func() {
		clear(c.net.cut)
		for _, n := range c.nodes {
			n.link.frozen = false
		}
	})
}

// check verifies what the client was told against what the replicas hold.
func (c *chaos) check(seed uint64) {
	c.heal()
	for _, o := range c.ids {
		if c.nodes[o] == nil {
			c.boot(o).start(c.t, c.spec())
		}
	}
	g := c.waitLeader(queueA, time.Minute)
	waitFor(c.t, time.Minute, "the last word is not committed", func() bool {
		if g = c.leader(queueA); g == nil {
			return false
		}
		_, err := propose(g, "end")
		return err == nil
	})
	want := c.nodes[g.host.cfg.Local].machines[queueA].all()
	c.agree(queueA, want)
	c.mu.Lock()
	defer c.mu.Unlock()
	count := make(map[string]int)
	for _, it := range want {
		count[it]++
		if it != "end" && count[it] > 1 {
			c.t.Errorf("seed %d: %s was applied twice", seed, it)
		}
	}
	for _, it := range c.acked {
		if count[it] == 0 {
			c.t.Errorf("seed %d: %s was confirmed and is lost", seed, it)
		}
	}
	for _, it := range c.refused {
		if count[it] != 0 {
			c.t.Errorf("seed %d: %s was refused and is there", seed, it)
		}
	}
	c.t.Logf("seed %d: %d sent, %d confirmed, %d refused, %d applied", seed, c.sent, len(c.acked), len(c.refused), len(want))
}

// run writes and breaks things for a while, then checks.
func (c *chaos) run(seed uint64, limit time.Duration) {
	c.rnd = rand.New(rand.NewPCG(seed, 7))
	if seed%2 == 0 {
		c.first = "n0"
	}
	c.found(c.spec())
	next := time.Now()
	for end := time.Now().Add(limit); time.Now().Before(end); {
		c.write()
		time.Sleep(time.Duration(c.rnd.IntN(40)) * time.Millisecond)
		if time.Now().After(next) {
			c.fault()
			next = time.Now().Add(time.Duration(c.rnd.IntN(2500)) * time.Millisecond)
		}
	}
	c.check(seed)
}

// eagerSnapshots compacts often and keeps nothing behind a snapshot, so that
// followers that lag need one.
func eagerSnapshots(h *HostConfig) { h.TrailingBytes, h.SnapshotBytes = 1, 4000 }

// A minute of faults in each seed: nothing confirmed is lost, nothing refused appears,
// nothing appears twice, and all replicas agree. Seed 63: a follower that holds a newer
// snapshot than its leader. GROUP_SEEDS=400 tries more.
func TestChaos(t *testing.T) {
	seeds := []uint64{63}
	most, err := strconv.ParseUint(cmp.Or(os.Getenv("GROUP_SEEDS"), "12"), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range most {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &chaos{memCluster: newMemCluster(t, 3, eagerSnapshots)}
				defer c.close()
				c.run(seed, time.Minute)
			})
		})
	}
}

// The same over segment logs on disk; time is virtual, the syncs are not.
func TestChaosOverDisk(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			open := diskStorage(t)
			synctest.Test(t, func(t *testing.T) {
				c := &chaos{memCluster: newClusterOver(t, open, 3, eagerSnapshots)}
				defer c.close()
				c.run(seed, 20*time.Second)
			})
		})
	}
}

// A group with five voters loses two nodes at once.
func TestFiveVotersTwoDeaths(t *testing.T) {
	bubble(t, 5, nil, func(t *testing.T, c *memCluster) {
		const groups = 10
		for i := range groups {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%5]})
		}
		for i := range groups {
			if _, err := propose(c.waitLeader(queueA+transport.GroupID(i), 2*time.Second), "a"); err != nil {
				t.Fatal(err)
			}
		}
		c.net.change(func() {
			c.nodes["n0"].link.down = true
			c.nodes["n1"].link.down = true
		})
		began := time.Now()
		for i := range groups {
			g := c.waitLeader(queueA+transport.GroupID(i), 3*time.Second, "n0", "n1")
			if !slices.Contains([]transport.NodeID{"n2", "n3", "n4"}, g.host.cfg.Local) {
				t.Errorf("group %d is led by %s", i, g.host.cfg.Local)
			}
			if _, err := propose(g, "b"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("all groups write after %v", took)
		}
	})
}

// A deposed leader with a tail that nobody else has gets a snapshot that ends before,
// in, at the end of or behind that tail, leads afterwards and feeds a follower that lags
// (hashicorp/raft#697). Where the snapshot ends exactly with the tail, raft compares the
// leader's entries with the old term until the instance is made anew.
func TestDivergentTailUnderASnapshot(t *testing.T) {
	for kind, open := range kinds {
		for _, lost := range []int{3, 12, 13, 14, 40} {
			t.Run(fmt.Sprintf("%s/%d", kind, lost), func(t *testing.T) { divergentTail(t, open(t), lost) })
		}
	}
}

func divergentTail(t *testing.T, storage opener, lost int) {
	tune := func(h *HostConfig) { h.TrailingBytes, h.SnapshotBytes = 1, 1<<40 }
	synctest.Test(t, func(t *testing.T) {
		c := newClusterOver(t, storage, 3, tune)
		defer c.close()
		c.found(Spec{ID: queueA, Preferred: "n0"})
		old := c.waitLeader(queueA, time.Second)
		var want []string
		commit := func(g *Group, n int) { want = commitMore(t, g, want, n) }
		commit(old, 5)
		c.net.isolate("n0", true)
		for i := range lost {
			old.Propose([]byte(fmt.Sprint("lost ", i)), nil)
		}
		g := c.waitLeader(queueA, 5*time.Second, "n0")
		commit(g, 15)
		if err := g.Snapshot(); err != nil {
			t.Fatal(err)
		}
		commit(g, 3)
		c.net.isolate("n0", false)
		c.agree(queueA, want)
		lag := c.ids[1]
		if lag == g.host.cfg.Local {
			lag = c.ids[2]
		}
		c.kill(lag)
		if err := g.TransferTo(t.Context(), "n0"); err != nil {
			t.Fatal(err)
		}
		g = c.waitLeader(queueA, 2*time.Second)
		commit(g, 10)
		if err := g.Snapshot(); err != nil {
			t.Fatal(err)
		}
		commit(g, 1)
		c.boot(lag).start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		c.agree(queueA, want)
	})
}
