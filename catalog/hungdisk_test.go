package catalog_test

import (
	"context"
	"fmt"
	"sync"
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

// TestLeadershipLeavesAHungDisk: the disk under the catalog's leader hangs, and others have their commands applied after two seconds, by another leader. What the old
// one had in hand is applied once.
func TestLeadershipLeavesAHungDisk(t *testing.T) {
	h, c := newHanging(t)
	old := c.leader()
	h.hang(old.id)
	var all sync.WaitGroup
	begun := time.Now()
	for id, n := range c.all {
		all.Go(func() {
			r := propose(t, n, replicated(fmt.Sprint("q-", n.id), c.ids...))
			took := time.Since(begun)
			t.Logf("%s: after %v", id, took)
			if !r.Changed {
				t.Errorf("%s: what was declared there was declared before: %+v", id, r)
			}
			if id != old.id && took > 4*time.Second {
				t.Errorf("%s waited for %v", id, took)
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
}

// TestLeadershipStaysWhereNoDiskIsBetter: all disks hang, or too many for an election, and the leadership is where it was when they answer.
func TestLeadershipStaysWhereNoDiskIsBetter(t *testing.T) {
	for _, well := range []int{0, 1} {
		t.Run(fmt.Sprint(well, " well"), func(t *testing.T) {
			t.Parallel()
			h, c := newHanging(t)
			old := c.leader()
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
			go func() {
				_, err := c.follower().catalog.Propose(ctx, replicated("q", c.ids...))
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
			if now := c.leader(); now != old {
				t.Errorf("%s leads, where %s did", now.id, old.id)
			}
		})
	}
}
