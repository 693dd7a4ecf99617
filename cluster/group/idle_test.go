package group

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestYoungGroupElectsAtOnce shows that the first leader of a group that was just made does not
// wait for a round of questions.
func TestYoungGroupElectsAtOnce(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		began := time.Now()
		c.found(Spec{ID: queueA, Preferred: "n1", Young: true})
		g := c.nodes["n1"].host
		for took := time.Duration(0); ; took = time.Since(began) {
			if r, ok := g.Group(queueA); ok && r.IsLeader() {
				break
			}
			if took > electionTick {
				t.Fatalf("no leader after %v", took)
			}
			time.Sleep(time.Millisecond / 10)
		}
		if n := g.Stats().ElectionsInjected; n != 1 {
			t.Errorf("%d elections", n)
		}
	})
}

// TestYoungGroupWithoutItsPreferredNode: the others elect by rank.
func TestYoungGroupWithoutItsPreferredNode(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.kill("n1")
		c.found(Spec{ID: queueA, Preferred: "n1", Young: true})
		c.waitLeader(queueA, 2*time.Second)
	})
}

// TestIdleGroupsAreNotLookedAt shows that the watchdogs of a host visit no group that has
// nothing to do, and come back to one that has.
func TestIdleGroupsAreNotLookedAt(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		for i := range 20 {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: "n0"})
		}
		awake := func(id transport.NodeID) int {
			w := c.nodes[id].host.watch
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.awake)
		}
		g := c.waitLeader(queueA, time.Second)
		time.Sleep(5 * time.Minute)
		for _, id := range c.ids {
			if n := awake(id); n != 0 {
				t.Errorf("%s looks after %d idle groups", id, n)
			}
		}
		done := make(chan error, 1)
		g.Propose([]byte("x"), func(_ any, err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := awake("n0"); n != 1 {
			t.Errorf("%d groups are looked after, want the one that has applied something", n)
		}
		time.Sleep(5 * time.Minute)
		if n := awake("n0"); n != 0 {
			t.Errorf("%d groups are looked after for ever", n)
		}
	})
}

// TestIdleGroupsAppendSeldom: appends of nothing wake two processes each, one by one, so they are rare.
func TestIdleGroupsAppendSeldom(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		const groups = 20
		for i := range groups {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%len(c.ids)]})
		}
		for i := range groups {
			c.waitLeader(queueA+transport.GroupID(i), 10*time.Second)
		}
		time.Sleep(time.Minute)
		before := c.net.nothings.Load()
		time.Sleep(time.Hour)
		if n := c.net.nothings.Load() - before; n > 2*groups*6 {
			t.Errorf("%d appends of nothing in an hour, for %d idle groups", n, groups)
		}
	})
}

// TestBeats shows that heartbeats that become due one after the other leave together.
func TestBeats(t *testing.T) {
	bubble(t, 1, nil, func(t *testing.T, _ *memCluster) {
		b := newBeats(QueueProfile())
		began := time.Now()
		first := b.wait()
		time.Sleep(b.every / 2)
		second := b.wait()
		<-first
		<-second
		if took := time.Since(began); took != b.every {
			t.Errorf("left after %v, want %v", took, b.every)
		}
		if p := QueueProfile(); b.every > p.Heartbeat/20 {
			t.Error(fmt.Errorf("a heartbeat may be %v late, of %v", b.every, p.Heartbeat))
		}
		third := b.wait()
		<-third
		if took := time.Since(began); took != 2*b.every {
			t.Errorf("the next left after %v", took)
		}
	})
}

// TestLeadersHaveNoGauge shows that a leader has no goroutine that wakes up for a gauge of raft's.
func TestLeadersHaveNoGauge(t *testing.T) {
	gauges := func() int {
		stacks := make([]byte, 16<<20)
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "raft.emitLogStoreMetrics(")
	}
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		if n := gauges(); n == 0 {
			t.Fatal("raft has none any more: FirstIndex need not end it")
		}
		time.Sleep(time.Minute)
		if n := gauges(); n != 0 {
			t.Errorf("%d", n)
		}
		// Snapshots ask for the first index, too.
		for i := range 3 {
			done := make(chan error, 1)
			g.Propose([]byte("x"), func(_ any, err error) { done <- err })
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if err := g.Snapshot(); err != nil {
				t.Fatal(i, err)
			}
		}
	})
}
