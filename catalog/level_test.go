package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// stamps are the levels of folders.
type stamps struct {
	mu   sync.Mutex
	of   map[transport.NodeID]int
	fail map[transport.NodeID]bool
	slow time.Duration
}

func newStamps() *stamps {
	return &stamps{of: map[transport.NodeID]int{}, fail: map[transport.NodeID]bool{}}
}

func (s *stamps) stamp(id transport.NodeID, n int) error {
	time.Sleep(s.slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail[id] {
		return errors.New("disk")
	}
	s.of[id] = n
	return nil
}

func (s *stamps) set(id transport.NodeID, fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[id] = fail
}

func (s *stamps) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.of)
}

// program makes the nodes run programs of the given levels, 2 where none is given.
func (s *stamps) program(levels map[transport.NodeID]int, settle time.Duration) func(*transport.Config, *catalog.Config) {
	return func(m *transport.Config, c *catalog.Config) {
		m.Level = 2
		if n := levels[c.Local]; n != 0 {
			m.Level = n
		}
		c.Stamp = func(n int) error { return s.stamp(c.Local, n) }
		c.Settle = settle
	}
}

func (c *nodes) untilLevel(n int) {
	c.t.Helper()
	for id, node := range c.all {
		until(c.t, fmt.Sprintf("%s sees level %d", id, n), func() bool { return node.catalog.View().Level() == n })
	}
}

// TestNewClusterTakesTheNewestLevel founds a cluster of new programs: all folders are stamped before it has the level, and it has the level before a node is
// ready.
func TestNewClusterTakesTheNewestLevel(t *testing.T) {
	s := newStamps()
	s.slow = 100 * time.Millisecond
	c := newNodesOf(t, 3, &nodes{program: s.program(nil, -1)})
	for id, n := range c.all {
		until(t, fmt.Sprintf("%s is ready", id), n.catalog.Ready)
		if at := n.catalog.View().Level(); at != 2 {
			t.Errorf("%s is ready at level %d", id, at)
		}
	}
	for _, id := range c.ids {
		if s.of[id] != 2 {
			t.Errorf("stamped are %v", s)
		}
	}
	// One that joins is stamped before it is let in, and has the level.
	joined := c.start(nodeID(4), filepath.Join(t.TempDir(), "catalog"), false)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.set(joined.id, true)
	short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
	defer stop()
	if err := joined.catalog.Join(short, func() []transport.NodeID { return c.ids }); err == nil {
		t.Error("joined without a stamp")
	}
	s.set(joined.id, false)
	if err := joined.catalog.Join(ctx, func() []transport.NodeID { return c.ids }); err != nil {
		t.Fatal(err)
	}
	c.untilLevel(2)
	if s.of[joined.id] != 2 {
		t.Errorf("stamped are %v", s)
	}
	// An older program is not let in.
	c.program = s.program(map[transport.NodeID]int{nodeID(5): 1}, -1)
	older := c.start(nodeID(5), filepath.Join(t.TempDir(), "catalog"), false)
	short, stop = context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	err := older.catalog.Join(short, func() []transport.NodeID { return c.ids })
	if err == nil || s.of[older.id] != 0 {
		t.Errorf("joined: %v", err)
	}
}

// TestFoundedWithoutAMember: a founding member that stays away keeps nobody from being served, and the cluster takes the level when it comes.
func TestFoundedWithoutAMember(t *testing.T) {
	s := newStamps()
	c := newNodesOf(t, 2, &nodes{program: s.program(nil, -1), away: 1})
	c.ready()
	c.untilLevel(1)
	c.start(nodeID(3), filepath.Join(t.TempDir(), "catalog"), true)
	c.untilLevel(2)
}

// TestLevelWaitsForAll keeps the first level while one program is old, says so to whoever asks, and takes
// the next one when told to, or after the time to settle.
func TestLevelWaitsForAll(t *testing.T) {
	for name, settle := range map[string]time.Duration{"asked for": -1, "settled": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			s := newStamps()
			old := nodeID(2)
			c := newNodesOf(t, 3, &nodes{program: s.program(map[transport.NodeID]int{old: 1}, settle)})
			c.ready()
			asker := c.all[nodeID(1)]
			// The old program has to be seen before it is gone: else the cluster is as if founded without it.
			for _, n := range c.all {
				until(t, "links are up", func() bool { return n.mesh.Peer(old).Up || n.id == old })
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			until(t, "the question is refused", func() bool {
				err := asker.catalog.RaiseLevel(ctx, 2)
				var refused *amqp.Error
				return errors.As(err, &refused) && strings.Contains(refused.Text, "the program of node 'n2' knows level 1") ||
					err != nil && strings.Contains(err.Error(), "level 2, this program knows level 1") // the old one leads
			})
			c.untilLevel(1)
			dir := c.all[old].dir
			c.kill(old)
			c.program = s.program(nil, settle)
			c.start(old, dir, true)
			c.ready()
			if settle < 0 {
				until(t, "the level is taken", func() bool { return asker.catalog.RaiseLevel(ctx, 2) == nil })
			}
			c.untilLevel(2)
			if err := asker.catalog.RaiseLevel(ctx, 2); err != nil {
				t.Errorf("asked again: %v", err)
			}
			if err := asker.catalog.RaiseLevel(ctx, 3); err == nil {
				t.Error("a level that nobody knows was taken")
			}
		})
	}
}

// TestLevelNeedsEveryStamp does not take a level while a folder cannot be stamped.
func TestLevelNeedsEveryStamp(t *testing.T) {
	s := newStamps()
	s.set(nodeID(3), true)
	c := newNodesOf(t, 3, &nodes{program: s.program(nil, 0)})
	c.ready()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	until(t, "the disk is complained about", func() bool {
		err := c.leader().catalog.RaiseLevel(ctx, 2)
		return err != nil && strings.Contains(err.Error(), "does not stamp its folder for level 2")
	})
	c.untilLevel(1)
	s.set(nodeID(3), false)
	c.untilLevel(2)
}
