package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// TestYield gives the leadership away under load: each proposal takes effect once, none waits for long, and the
// replica that gave it away does not get it back while another one can have it.
func TestYield(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var work sync.WaitGroup
	var stop atomic.Bool
	var longest atomic.Int64
	for id, n := range c.all {
		work.Go(func() {
			for i := 0; !stop.Load(); i++ {
				begun := time.Now()
				r, err := n.catalog.Propose(ctx, replicated(fmt.Sprintf("q-%s-%d", id, i), c.ids...))
				if err != nil || !r.Changed {
					t.Errorf("%s: %+v, %v", id, r, err)
					return
				}
				if took := int64(time.Since(begun)); took > longest.Load() {
					longest.Store(took)
				}
			}
		})
	}
	old := c.leader()
	time.Sleep(100 * time.Millisecond)
	begun := time.Now()
	if err := old.catalog.Yield(ctx, nil); err != nil {
		t.Error(err)
	}
	took := time.Since(begun)
	next := c.leader()
	if next == old {
		t.Error("the leader is the same")
	}
	third := transport.NodeID("")
	for id := range c.all {
		if id != old.id && id != next.id {
			third = id
		}
	}
	if err := next.catalog.Yield(ctx, func(id transport.NodeID) bool { return id == old.id }); err != nil {
		t.Error(err)
	}
	if now := c.leader(); now.id != third {
		t.Errorf("%s leads, not %s", now.id, third)
	}
	time.Sleep(100 * time.Millisecond)
	stop.Store(true)
	work.Wait()
	t.Logf("given away in %v, longest proposal %v", took, time.Duration(longest.Load()))
	if longest := time.Duration(longest.Load()); longest > 3*time.Second {
		t.Errorf("a proposal took %v", longest)
	}
	// On a busy machine it may have moved by itself meanwhile: then there is nothing to give away.
	last := c.leader()
	err := last.catalog.Yield(ctx, func(transport.NodeID) bool { return true })
	for err == nil && ctx.Err() == nil {
		last = c.leader()
		err = last.catalog.Yield(ctx, func(transport.NodeID) bool { return true })
	}
	if !errors.Is(err, catalog.ErrNoSuccessor) {
		t.Errorf("given to nobody: %v", err)
	}
	propose(t, last, register(last)) // it goes on
	for _, n := range c.all {
		n.catalog.Willing()
	}
}

// TestYieldOfTheOnlyNode: there is nobody to lead in its place.
func TestYieldOfTheOnlyNode(t *testing.T) {
	c := newNodes(t, 1)
	c.ready()
	n := c.all[nodeID(1)]
	if err := n.catalog.Yield(t.Context(), nil); !errors.Is(err, catalog.ErrNoSuccessor) || !n.catalog.Leading() {
		t.Errorf("%v, leads: %t", err, n.catalog.Leading())
	}
	propose(t, n, register(n))
}
