package sim

import (
	"context"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// sharedCatalog is the committed log of the catalog.
type sharedCatalog struct {
	w *World

	mu  sync.Mutex
	log []catalog.Command // entry i has index i+1
	// copy and views are what the oracle has asked about so far.
	copy  *catalog.Copy
	views []*catalog.View
}

func newSharedCatalog(w *World) *sharedCatalog { return &sharedCatalog{w: w} }

func (c *sharedCatalog) append(cmd catalog.Command) (index uint64) {
	c.mu.Lock()
	c.log = append(c.log, cmd)
	index = uint64(len(c.log))
	c.mu.Unlock()
	for _, n := range c.w.nodes {
		n.copy.kick()
	}
	return index
}

func (c *sharedCatalog) committed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return uint64(len(c.log))
}

func (c *sharedCatalog) entry(index uint64) catalog.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index > uint64(len(c.log)) {
		return nil
	}
	return c.log[index-1]
}

// nodeCatalog is one node's copy. It implements broker.Catalog and outlives the
// node's incarnations.
type nodeCatalog struct {
	w    *World
	n    *node
	copy *catalog.Copy

	applyMu sync.Mutex // serialises application

	mu          sync.Mutex
	results     map[uint64]catalogResult // of the newest entries
	changed     chan struct{}            // closed and replaced at each entry
	subscribers []func(old, new *catalog.View)

	wake chan struct{}
	done chan struct{}
	once sync.Once
}

type catalogResult struct {
	res catalog.Result
	err error
}

func newNodeCatalog(w *World, n *node) *nodeCatalog {
	c := &nodeCatalog{
		w: w, n: n, copy: catalog.NewCopy(), results: map[uint64]catalogResult{},
		changed: make(chan struct{}), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.work.Go(c.run)
	return c
}

func (c *nodeCatalog) close() { c.once.Do(func() { close(c.done) }) }

func (c *nodeCatalog) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run applies entries at the node's own pace.
func (c *nodeCatalog) run() {
	for {
		select {
		case <-c.done:
			return
		case <-c.wake:
		}
		lag := c.w.between(0, 3*time.Millisecond)
		if c.w.fails(20) {
			lag = c.w.between(0, 300*time.Millisecond)
			if c.w.oneIn(10) {
				lag = c.w.between(0, 3*time.Second)
			}
		}
		if !c.w.sleep(lag) {
			return
		}
		c.catchUp()
	}
}

func (c *nodeCatalog) catchUp() {
	for c.applyNext() {
	}
}

func (c *nodeCatalog) applyNext() bool {
	c.applyMu.Lock()
	defer c.applyMu.Unlock()
	old := c.View()
	cmd := c.w.cat.entry(old.Revision() + 1)
	if cmd == nil {
		return false
	}
	index := old.Revision() + 1
	res, err := c.copy.Apply(index, cmd)
	c.mu.Lock()
	c.results[index] = catalogResult{res, err}
	close(c.changed)
	c.changed = make(chan struct{})
	subs := c.subscribers
	c.mu.Unlock()
	for _, f := range subs {
		f(old, c.View())
	}
	return true
}

// wait waits until the copy has applied index.
func (c *nodeCatalog) wait(ctx context.Context, index uint64) error {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if c.View().Revision() >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return catalog.ErrClosed
		}
	}
}

// View implements broker.Catalog.
func (c *nodeCatalog) View() *catalog.View { return c.copy.View() }

// Propose implements broker.Catalog.
func (c *nodeCatalog) Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	if !pause(ctx, c.w.between(0, 4*time.Millisecond)) {
		return catalog.Result{}, catalog.ErrUnknownOutcome
	}
	index := c.w.cat.append(cmd)
	if err := c.wait(ctx, index); err != nil {
		return catalog.Result{}, catalog.ErrUnknownOutcome
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.results[index]
	return r.res, r.err
}

// ReadIndex implements broker.Catalog.
func (c *nodeCatalog) ReadIndex(ctx context.Context) error {
	if !pause(ctx, c.w.between(0, 2*time.Millisecond)) {
		return ctx.Err()
	}
	return c.wait(ctx, c.w.cat.committed())
}

// WaitEveryone implements broker.Catalog.
func (c *nodeCatalog) WaitEveryone(ctx context.Context, index uint64) error {
	for _, n := range c.w.nodes {
		if n.isUp() {
			if err := n.copy.wait(ctx, index); err != nil {
				return catalog.ErrLagging
			}
		}
	}
	return nil
}

// Subscribe implements broker.Catalog.
func (c *nodeCatalog) Subscribe(f func(old, new *catalog.View)) {
	c.mu.Lock()
	c.subscribers = append(c.subscribers, f)
	c.mu.Unlock()
	f(nil, c.View())
}

// detach forgets the subscribers of an incarnation that has ended.
func (c *nodeCatalog) detach() {
	c.mu.Lock()
	c.subscribers = nil
	c.mu.Unlock()
}
