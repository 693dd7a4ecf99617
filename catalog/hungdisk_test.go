package catalog_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// hanging holds the writes of nodes back.
type hanging struct {
	mu   sync.Mutex
	held map[transport.NodeID]chan struct{}
}

func (h *hanging) program(_ *transport.Config, cfg *catalog.Config) {
	id := cfg.Local
	cfg.BeforeWrite = func() {
		h.mu.Lock()
		held := h.held[id]
		h.mu.Unlock()
		if held != nil {
			<-held
		}
	}
}

func (h *hanging) hang(ids ...transport.NodeID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.held[id] = make(chan struct{})
	}
}

func (h *hanging) heal() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, held := range h.held {
		close(held)
		delete(h.held, id)
	}
}

func newHanging(t *testing.T) (*hanging, *nodes) {
	h := &hanging{held: make(map[transport.NodeID]chan struct{})}
	c := newNodesOf(t, 3, &nodes{program: h.program})
	t.Cleanup(h.heal)
	c.ready()
	return h, c
}

// hungRounds is how often a scene with a hung disk is tried: a machine that is somebody else's may be late in one.
const hungRounds = 6

// TestLeadershipLeavesAHungDisk: the disk under the catalog's leader hangs, and others have their commands applied after two seconds, by another leader. What the old
// one had in hand is applied once. The time is kept in one of a few rounds, the rest in each.
func TestLeadershipLeavesAHungDisk(t *testing.T) {
	const most = 4 * time.Second
	for round := 1; ; round++ {
		waited := leaveHungDisk(t)
		if waited <= most || t.Failed() {
			return
		}
		if round == hungRounds {
			t.Fatalf("others waited for %v", waited)
		}
	}
}

// leaveHungDisk returns for how long the others waited.
func leaveHungDisk(t *testing.T) time.Duration {
	t.Helper()
	h, c := newHanging(t)
	old := c.leader()
	h.hang(old.id)
	var all sync.WaitGroup
	var longest atomic.Int64
	begun := time.Now()
	for id, n := range c.all {
		all.Go(func() {
			r, err := proposed(n, replicated(fmt.Sprint("q-", n.id), c.ids...))
			took := time.Since(begun)
			t.Logf("%s: after %v", id, took)
			if err != nil {
				t.Error(err)
				return
			}
			if !r.Changed {
				t.Errorf("%s: what was declared there was declared before: %+v", id, r)
			}
			for now := longest.Load(); id != old.id && int64(took) > now && !longest.CompareAndSwap(now, int64(took)); now = longest.Load() {
			}
			if id != old.id && !old.catalog.Leading() {
				t.Errorf("%s hears of its successor before its disk answers", old.id)
			}
		})
	}
	for id, n := range c.all {
		if id != old.id {
			until(t, "another one leads", func() bool { return n.catalog.LeaderID() != "" && n.catalog.LeaderID() != old.id })
			until(t, "it is declared", func() bool { return n.catalog.View().Queue("/", fmt.Sprint("q-", id)) != nil })
		}
	}
	h.heal()
	all.Wait()
	for id, n := range c.all {
		for _, of := range c.ids {
			until(t, fmt.Sprintf("%s has the queue of %s", id, of), func() bool { return n.catalog.View().Queue("/", fmt.Sprint("q-", of)) != nil })
		}
	}
	until(t, "the old leader follows", func() bool { return !old.catalog.Leading() && old.catalog.LeaderID() != old.id })
	return time.Duration(longest.Load())
}

// TestLeadershipStaysWhereNoDiskIsBetter: all disks hang, or too many for an election, and the leadership is where it was when they answer: in one of a few
// rounds, as a process that is stopped for a moment misses heartbeats, too. What was asked for meanwhile is applied then, and not before, in each.
func TestLeadershipStaysWhereNoDiskIsBetter(t *testing.T) {
	for _, well := range []int{0, 1} {
		t.Run(fmt.Sprint(well, " well"), func(t *testing.T) {
			t.Parallel()
			for round := 1; ; round++ {
				old, now := leadersAroundHungDisks(t, well)
				if now == old {
					return
				}
				t.Logf("round %d: %s leads, where %s did", round, now.id, old.id)
				if round == hungRounds {
					t.Fatal("it did not stay in any round")
				}
			}
		})
	}
}

// leadersAroundHungDisks has all disks hang but for so many, and returns who led before and who does when they answer.
func leadersAroundHungDisks(t *testing.T, well int) (old, now *node) {
	t.Helper()
	h, c := newHanging(t)
	old = c.leader()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hung := []transport.NodeID{old.id}
	for id := range c.all {
		if id != old.id && len(hung) < 3-well {
			hung = append(hung, id)
		}
	}
	h.hang(hung...)
	done := make(chan error, 1)
	follower := c.follower()
	go func() {
		_, err := follower.catalog.Propose(ctx, replicated("q", c.ids...))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("a command was applied without a disk: %v", err)
	case <-time.After(4500 * time.Millisecond):
	}
	h.heal()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return old, c.leader()
}
