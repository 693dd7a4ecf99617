package catalog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// reads coalesces read indexes: those asked for while one is on its way share the next.
type reads struct {
	mu      sync.Mutex
	running bool
	next    *read
}

// read is one answer that several wait for.
type read struct {
	done chan struct{} // closed when err is set
	err  error
}

// ReadIndex waits until this replica has applied everything that was committed
// anywhere when the call was made. Use it before a negative answer.
func (c *Catalog) ReadIndex(ctx context.Context) error {
	c.reads.mu.Lock()
	if c.reads.next == nil {
		c.reads.next = &read{done: make(chan struct{})}
	}
	r := c.reads.next
	if !c.reads.running {
		c.reads.running = c.spawn(c.runReads)
	}
	c.reads.mu.Unlock()
	return c.answer(ctx, r)
}

// answer waits for what was asked together with others.
func (c *Catalog) answer(ctx context.Context, r *read) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// runReads answers reads until none is asked for.
func (c *Catalog) runReads() {
	for {
		c.reads.mu.Lock()
		r := c.reads.next
		c.reads.next = nil
		if r == nil {
			c.reads.running = false
		}
		c.reads.mu.Unlock()
		if r == nil {
			return
		}
		r.err = c.readOnce()
		close(r.done)
	}
}

// readOnce asks the leader, again if leadership is on the move, and waits for the
// local copy.
func (c *Catalog) readOnce() error {
	ctx, cancel := context.WithTimeout(c.ctx, readMax)
	defer cancel()
	for {
		index, err := c.askReadIndex(ctx)
		if err == nil {
			return c.WaitApplied(ctx, index)
		}
		if !pause(ctx, 2*retryMin) {
			return fmt.Errorf("read index: %w", err)
		}
	}
}

func (c *Catalog) askReadIndex(ctx context.Context) (index uint64, err error) {
	err = c.askLeader(ctx, func(ctx context.Context, leader NodeID) error {
		if leader == c.cfg.Local {
			index, err = c.readIndexHere(ctx)
			return err
		}
		b, err := c.cfg.Mesh.Call(ctx, leader, MethodReadIndex, nil)
		if err != nil {
			return err
		}
		index, err = decodeIndex(b)
		return err
	})
	return index, err
}

func (c *Catalog) handleReadIndex(ctx context.Context, _ NodeID, _ []byte) ([]byte, error) {
	index, err := c.readIndexHere(ctx)
	if err != nil {
		return nil, err
	}
	return encodeIndex(index), nil
}

// readIndexHere returns the index of the newest command committed, as the leader. The
// commit index is taken before the leadership is verified, so it was the cluster's at some
// moment of the call.
func (c *Catalog) readIndexHere(ctx context.Context) (uint64, error) {
	term := c.raft.CurrentTerm()
	if c.raft.State() != raft.Leader {
		return 0, errNotLeader
	}
	if err := c.readyForTerm(ctx); err != nil {
		return 0, err
	}
	since := time.Now()
	committed := c.raft.CommitIndex()
	if err := c.verify(ctx, term, since); err != nil {
		return 0, fmt.Errorf("verify leadership: %w", err)
	}
	return c.lastCommand(committed)
}

// verify returns nil if most voters have taken this replica for the leader of a term at some moment since the given one. raft's own verification counts
// replicas that do not vote, too, and what comes in response to heartbeats that were sent before it was asked for: an answer that was on its way for long, because
// this process was stopped or a link was, would speak for a leader that the others have replaced since. One heartbeat to each is on its way at a time, so that
// another question is answered by a later one.
func (c *Catalog) verify(ctx context.Context, term uint64, since time.Time) error {
	for again := false; ; again = true {
		if err := c.await(ctx, c.raft.VerifyLeader().Error, nothing); err != nil {
			return err
		}
		config := c.raft.GetConfiguration()
		if err := config.Error(); err != nil {
			return err
		}
		if c.raft.State() != raft.Leader || c.raft.CurrentTerm() != term {
			return errNotLeader
		}
		if c.wire.supported(config.Configuration().Servers, raft.ServerID(c.cfg.Local), term, since) {
			return nil
		}
		if again && !pause(ctx, verifyPause) { // as when only nodes without a vote answer
			return ctx.Err()
		}
	}
}

// verifyPause is between questions to the voters whether this replica leads, but for the first two.
const verifyPause = time.Millisecond

// readyForTerm makes sure that the leader has committed an entry of its own term: before, its
// commit index may be behind what its predecessor has answered.
func (c *Catalog) readyForTerm(ctx context.Context) error {
	if err := c.oneTerm.lock(ctx); err != nil {
		return err
	}
	defer c.oneTerm.unlock()
	term := c.raft.CurrentTerm()
	if c.termReady == term {
		return nil
	}
	if err := c.await(ctx, c.raft.Barrier(attemptMax).Error, nothing); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	c.termReady = term
	return nil
}

// lastCommand returns the index of the newest command at or below committed. Replicas wait for
// views, and only commands make views. It ends at the local revision at the latest.
func (c *Catalog) lastCommand(committed uint64) (uint64, error) {
	var l raft.Log
	for revision := c.View().Revision(); committed > revision; committed-- {
		err := c.logs.GetLog(committed, &l)
		switch {
		case errors.Is(err, raft.ErrLogNotFound):
			// Compacted meanwhile, hence applied.
			return c.View().Revision(), nil
		case err != nil:
			return 0, fmt.Errorf("read the log at %d: %w", committed, err)
		case l.Type == raft.LogCommand:
			return committed, nil
		}
	}
	return c.View().Revision(), nil
}

// WaitEveryone waits until all live nodes have applied the command at index, for at most
// a second. It returns [ErrLagging] if some did not answer: the caller may go on.
func (c *Catalog) WaitEveryone(ctx context.Context, index uint64) error {
	ctx, cancel := context.WithTimeout(ctx, everyoneMax)
	defer cancel()
	var behind []NodeID
	for n := range c.View().Nodes() {
		if n.ID == c.cfg.Local || n.Superseded {
			continue
		}
		if peer := c.cfg.Mesh.Peer(n.ID); !peer.Up || c.knownApplied(n.ID, peer.Process) >= index {
			continue
		}
		behind = append(behind, n.ID)
	}
	results := make(chan error, len(behind))
	for _, id := range behind {
		if !c.spawn(func() { results <- c.awaitApplied(ctx, id, index) }) {
			return ErrClosed
		}
	}
	err := c.WaitApplied(ctx, index)
	for range behind {
		err = errors.Join(err, <-results)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLagging, err)
	}
	return nil
}

// progress is how far a process of a node is known to have applied. A restarted process
// begins lower.
type progress struct{ process, revision uint64 }

func (c *Catalog) knownApplied(id NodeID, process uint64) uint64 {
	c.everyoneMu.Lock()
	defer c.everyoneMu.Unlock()
	if p := c.everyone[id]; p.process == process {
		return p.revision
	}
	return 0
}

// asking are the questions to one node how far it has applied. One is on its way at a time: what is asked for
// meanwhile shares the next.
type asking struct {
	running bool
	wanted  uint64 // the highest index that next is to reach
	next    *read
}

// awaitApplied waits until a node has applied the command at index.
func (c *Catalog) awaitApplied(ctx context.Context, id NodeID, index uint64) error {
	c.everyoneMu.Lock()
	a := c.asking[id]
	if a == nil {
		a = new(asking)
		c.asking[id] = a
	}
	a.wanted = max(a.wanted, index)
	if a.next == nil {
		a.next = &read{done: make(chan struct{})}
	}
	r := a.next
	if !a.running {
		a.running = c.spawn(func() { c.runAsking(id, a) })
	}
	c.everyoneMu.Unlock()
	return c.answer(ctx, r)
}

// runAsking asks a node until nobody waits for it.
func (c *Catalog) runAsking(id NodeID, a *asking) {
	for {
		c.everyoneMu.Lock()
		r, index := a.next, a.wanted
		a.next = nil
		if r == nil {
			a.running = false
			delete(c.asking, id)
		}
		c.everyoneMu.Unlock()
		if r == nil {
			return
		}
		r.err = c.askApplied(id, index)
		close(r.done)
	}
}

// askApplied asks a node unless it is known to have applied the command at index.
func (c *Catalog) askApplied(id NodeID, index uint64) error {
	process := c.cfg.Mesh.Peer(id).Process
	if c.knownApplied(id, process) >= index {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, everyoneMax)
	defer cancel()
	b, err := c.cfg.Mesh.Call(ctx, id, MethodWaitApplied, encodeIndex(index))
	if err != nil {
		if errors.Is(err, transport.ErrPeerDown) {
			return nil // not a live node any more
		}
		return fmt.Errorf("node %s: %w", id, err)
	}
	revision, err := decodeIndex(b)
	if err != nil {
		return fmt.Errorf("node %s: %w", id, err)
	}
	c.hasApplied(id, process, revision)
	return nil
}

// hasApplied notes what a process said of itself.
func (c *Catalog) hasApplied(id NodeID, process, revision uint64) {
	c.everyoneMu.Lock()
	defer c.everyoneMu.Unlock()
	if old := c.everyone[id]; old.process != process || old.revision < revision {
		c.everyone[id] = progress{process, revision}
	}
}

func (c *Catalog) handleWaitApplied(ctx context.Context, _ NodeID, req []byte) ([]byte, error) {
	index, err := decodeIndex(req)
	if err != nil {
		return nil, err
	}
	if c.writes.outstanding() >= hungWarning && c.View().Revision() < index {
		return nil, errHung // whoever asks may go on without this node, as if it had waited for it
	}
	if err := c.WaitApplied(ctx, index); err != nil {
		return nil, err
	}
	return encodeIndex(c.View().Revision()), nil
}

// catchUp runs until the replica has caught up with a leader once.
func (c *Catalog) catchUp() {
	for c.ctx.Err() == nil {
		if err := c.ReadIndex(c.ctx); err == nil && c.View().ClusterID() != "" {
			c.caughtUp.Store(true)
			return
		}
		pause(c.ctx, 2*retryMin)
	}
}
