package main

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// lateCatalog has the state of a node. While it has no leader, proposals wait in vain.
type lateCatalog struct {
	mu     sync.Mutex
	state  catalog.NodeState
	leader bool
	tried  []catalog.NodeState
	told   func()
}

func (c *lateCatalog) now() catalog.NodeState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *lateCatalog) set(leader bool, state catalog.NodeState) {
	c.mu.Lock()
	c.leader, c.state = leader, state
	c.mu.Unlock()
	c.told()
}

func (c *lateCatalog) propose(ctx context.Context, cmd catalog.Command) error {
	state := cmd.(*catalog.SetNodeState).State
	c.mu.Lock()
	c.tried = append(c.tried, state)
	leader := c.leader
	c.mu.Unlock()
	if !leader {
		<-ctx.Done()
		return ctx.Err()
	}
	c.set(true, state)
	return nil
}

// TestStandingIsToldLater drains and revives a node while the catalog has no leader; when it has one, it has that the node drains, or that
// it does not, whatever became of what was proposed meanwhile.
func TestStandingIsToldLater(t *testing.T) {
	for name, tc := range map[string]struct {
		tells []bool
		then  catalog.NodeState // what the catalog has when it has a leader again
		want  catalog.NodeState
	}{
		"drained":                           {[]bool{true}, catalog.NodeRegular, catalog.NodeDraining},
		"drained, which came late":          {[]bool{true}, catalog.NodeDraining, catalog.NodeDraining},
		"drained and revived":               {[]bool{true, false}, catalog.NodeRegular, catalog.NodeRegular},
		"drained, which came late, revived": {[]bool{true, false}, catalog.NodeDraining, catalog.NodeRegular},
		"leaves the cluster":                {[]bool{true, false}, catalog.NodeLeaving, catalog.NodeLeaving},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &lateCatalog{state: catalog.NodeRegular}
				s := newStanding("a/1", c.now, c.propose, slog.New(slog.DiscardHandler))
				c.told = s.poke
				ctx, cancel := context.WithCancel(t.Context())
				var work sync.WaitGroup
				work.Go(func() { s.keep(ctx) })
				for _, drains := range tc.tells {
					step, end := context.WithTimeout(t.Context(), time.Second)
					s.tell(step, drains)
					end()
				}
				c.set(true, tc.then)
				time.Sleep(time.Minute)
				if got := c.now(); got != tc.want {
					t.Errorf("the catalog has %v, want %v; proposed were %v", got, tc.want, c.tried)
				}
				cancel()
				work.Wait()
			})
		})
	}
}
