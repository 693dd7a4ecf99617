package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// Codes of errors between catalogs.
const (
	codeNotLeader = transport.CodeFirstFree + iota
	codeBadCommand
	codeUnknownOutcome
	codeNameInUse
	codeForgotten
)

var errNotLeader = &transport.RemoteError{Code: codeNotLeader, Text: "this node does not lead the catalog"}

// Propose has a command applied, from any node, and returns its outcome once this
// replica has applied it too. Attempts are repeated across lost leaders under one
// request id, so the command takes effect at most once.
//
// The error is an [*amqp.Error] if the machine refused (the Result's Index is set then),
// [ErrLevel] if the cluster is not at the command's level yet, and [ErrUnknownOutcome] when ctx ended or 30 s passed.
func (c *Catalog) Propose(ctx context.Context, cmd Command) (Result, error) {
	if err := cmd.validate(); err != nil {
		return Result{}, err
	}
	if err := gate(cmd, c.View().Level()); err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, proposeMax)
	defer cancel()
	var id requestID
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	entry := encodeEntry(id, cmd)
	if _, _, err := decodeEntry(entry); err != nil {
		return Result{}, fmt.Errorf("a command that could not be read: %w", err) // in the log it would stop every replica
	}
	outcome := c.waits.expect(id)
	defer c.waits.forget(id)

	// The attempts run beside the wait: the outcome may show up in the local log
	// although the attempt that caused it was lost.
	failed := make(chan error, 1)
	tried, stop := context.WithCancel(ctx)
	defer stop()
	if !c.spawn(func() { failed <- c.attempts(tried, id, cmd, entry) }) {
		return Result{}, ErrClosed
	}
	for {
		select {
		case a := <-outcome:
			return a.result(c.View())
		case err := <-failed:
			if err != nil {
				return Result{}, err
			}
			failed = nil // committed; the local copy will have it soon
		case <-ctx.Done():
			return Result{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
		case <-c.waits.closed:
			return Result{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, ErrClosed)
		}
	}
}

// attempts tries until a leader has committed entry (nil), refused to propose it, or ctx ends
// (nil: the caller knows).
func (c *Catalog) attempts(ctx context.Context, id requestID, cmd Command, entry []byte) error {
	wait, since, unsure := retryMin, c.View().Revision(), false
	for {
		var err error
		if unsure {
			err = c.surely(ctx, id, since)
		}
		if errors.Is(err, ErrUnknownOutcome) {
			return err
		}
		if err == nil {
			err = c.attempt(ctx, cmd, entry)
			unsure = unsure || mayBeInLog(err)
		}
		if remote, ok := errors.AsType[*transport.RemoteError](err); ok && (remote.Code == codeBadCommand || remote.Code == codeNameInUse) {
			return fmt.Errorf("the catalog's leader refused the command: %w", err)
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, errFinished) {
			return nil
		}
		c.log.Debug("a proposal is tried again", "err", err)
		if !pause(ctx, wait/2+mathrand.N(wait/2)) {
			return nil
		}
		wait = min(2*wait, retryMax)
	}
}

// errFinished says that the outcome has come while an attempt was to be repeated.
var errFinished = errors.New("the outcome is here")

// mayBeInLog tells whether an attempt that ended so may have brought its command into the log.
func mayBeInLog(err error) bool {
	if remote, ok := errors.AsType[*transport.RemoteError](err); ok && remote.Code == codeNotLeader {
		return false
	}
	return err != nil && !errors.Is(err, ErrNoLeader) && !errors.Is(err, transport.ErrBusy)
}

// surely returns nil when no earlier attempt of a request that this replica saw begin at revision since is in the log. The replicas
// remember a number of requests, not a time: what they have forgotten they would apply again. So this one looks at all that was
// committed first. If it has got a part of that as a snapshot which does not reach back so far, nobody can tell, and the error is ErrUnknownOutcome.
func (c *Catalog) surely(ctx context.Context, id requestID, since uint64) error {
	if err := c.ReadIndex(ctx); err != nil {
		return err
	}
	if !c.waits.expects(id) {
		return errFinished
	}
	if c.machine.unseen.Load() > since {
		return fmt.Errorf("%w: the node was away for too many others", ErrUnknownOutcome)
	}
	return nil
}

// attempt hands entry to the leader once and waits for its commit.
func (c *Catalog) attempt(ctx context.Context, cmd Command, entry []byte) error {
	return c.askLeader(ctx, func(ctx context.Context, leader NodeID) error {
		if leader == c.cfg.Local {
			if err := c.mayPropose(cmd); err != nil {
				return err
			}
			return c.applyHere(ctx, entry)
		}
		process := c.cfg.Mesh.Peer(leader).Process
		b, err := c.cfg.Mesh.Call(ctx, leader, MethodPropose, bytes.Clone(entry))
		if err != nil {
			return err
		}
		// The leader has applied it: WaitEveryone need not ask there.
		revision, err := decodeIndex(b)
		if err == nil {
			c.hasApplied(leader, process, revision)
		}
		return err
	})
}

// handlePropose is the leader's side of attempt.
func (c *Catalog) handlePropose(ctx context.Context, _ NodeID, entry []byte) ([]byte, error) {
	_, cmd, err := decodeEntry(entry)
	if err == nil {
		err = cmd.validate()
	}
	if err == nil {
		err = gate(cmd, c.View().Level())
	}
	if err != nil {
		// Nothing that this replica could not apply may enter the log.
		return nil, &transport.RemoteError{Code: codeBadCommand, Text: err.Error()}
	}
	if err := c.mayPropose(cmd); err != nil {
		return nil, err
	}
	if err := c.applyHere(ctx, entry); err != nil {
		return nil, err
	}
	return encodeIndex(c.View().Revision()), nil
}

// applyHere commits and applies entry on this replica, which should be the leader. Any
// error leaves the outcome unknown.
func (c *Catalog) applyHere(ctx context.Context, entry []byte) error {
	for {
		if err := c.whileHeld(ctx); err != nil {
			return err
		}
		if c.raft.State() != raft.Leader {
			return errNotLeader
		}
		select {
		case c.slots <- struct{}{}:
		default:
			return transport.ErrBusy
		}
		if c.held.Load() == nil {
			break
		}
		<-c.slots // Yield may have seen that none is taken
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(attemptMax)
	}
	future := c.raft.Apply(entry, time.Until(deadline))
	return c.await(ctx, func() error {
		err := future.Error()
		if err == nil {
			// Also when ctx has ended: a proposer of this node is content once the entry is applied here.
			c.spread()
		}
		return err
	}, func() { <-c.slots })
}

// spread has the followers told of a commit now rather than after CommitTimeout, which is long so that idle nodes
// cost little. They learn of it with the next append only, and raft sends none for it, so one without entries goes
// out beside it: it says nothing that raft's own next one would not say. A follower that cannot take it, because
// what it verifies is still on its way, gets an entry.
func (c *Catalog) spread() {
	future := c.raft.GetConfiguration()
	if future.Error() != nil {
		return
	}
	index := c.raft.CommitIndex()
	if told := c.spreadTo.Load(); told >= index || !c.spreadTo.CompareAndSwap(told, index) {
		return // somebody else does, or has just done it
	}
	for _, s := range future.Configuration().Servers {
		if NodeID(s.ID) != c.cfg.Local {
			c.spreadAt(NodeID(s.ID))
		}
	}
}

// spreadAt tells one follower of the newest commit, unless it has not answered the last such word: then it is
// told once it has, so that a slow one is not buried in them.
func (c *Catalog) spreadAt(node NodeID) {
	s := &c.spreader
	s.mu.Lock()
	if s.telling == nil {
		s.telling = make(map[NodeID]bool)
	}
	_, busy := s.telling[node]
	s.telling[node] = busy // busy: again
	s.mu.Unlock()
	if busy {
		return
	}
	if err := c.sendCommit(node); err != nil {
		s.mu.Lock()
		delete(s.telling, node)
		s.mu.Unlock()
		c.log.Debug("a commit was not spread at once", "node", string(node), "err", err)
	}
}

func (c *Catalog) sendCommit(node NodeID) error {
	term, index := c.raft.CurrentTerm(), c.raft.CommitIndex()
	var last raft.Log
	if err := c.logs.GetLog(index, &last); err != nil {
		return err
	}
	if c.raft.State() != raft.Leader || c.raft.CurrentTerm() != term {
		return errNotLeader // what was read need not be this node's to say
	}
	return c.transport.SpreadCommit(transport.Replica(node, 0), term, index, last.Term, func(_, refused bool) {
		s := &c.spreader
		s.mu.Lock()
		again := s.telling[node]
		delete(s.telling, node)
		s.mu.Unlock()
		if refused {
			c.spreadEntry()
		} else if again {
			c.spawn(func() { c.spreadAt(node) })
		}
	})
}

// spreader lets one barrier at a time follow the commands that were committed meanwhile.
type spreader struct {
	mu      sync.Mutex
	running bool
	again   bool
	healing bool // spreadAgain's goroutine runs
	// telling are the nodes that have not answered spreadAt's word; true: there is a newer one.
	telling map[NodeID]bool
}

// spreadEntry appends a barrier, which raft replicates with everything that a follower misses.
func (c *Catalog) spreadEntry() {
	if future := c.raft.GetConfiguration(); future.Error() != nil || len(future.Configuration().Servers) < 2 {
		return
	}
	s := &c.spreader
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = true
	if !s.running {
		s.running = c.spawn(c.runSpread)
	}
}

// healPause is the time in which raft takes note of a broken stream.
const healPause = 50 * time.Millisecond

// spreadAgain has a leader send what a follower may have missed, when its link is back or an append failed: raft
// tries again only with the next entry, or when CommitTimeout has passed. An entry of this moment may go
// the way of the broken stream, so there is one after a pause.
func (c *Catalog) spreadAgain() {
	s := &c.spreader
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healing || !c.Leading() {
		return
	}
	s.healing = c.spawn(func() {
		pause(c.ctx, healPause)
		s.mu.Lock()
		s.healing = false
		s.mu.Unlock()
		if c.Leading() {
			c.spreadEntry()
		}
	})
}

func (c *Catalog) runSpread() {
	s := &c.spreader
	for {
		s.mu.Lock()
		if !s.again {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.again = false
		s.mu.Unlock()
		if err := c.raft.Barrier(attemptMax).Error(); err != nil {
			c.log.Debug("a commit was not spread at once", "err", err) // CommitTimeout will
		}
	}
}

// await runs a wait that cannot be cancelled, such as raft's futures, on a goroutine of
// its own and returns its error or ctx's. after runs when the wait itself is over.
func (c *Catalog) await(ctx context.Context, wait func() error, after func()) error {
	done := make(chan error, 1)
	if !c.spawn(func() {
		defer after()
		done <- wait()
	}) {
		after()
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func nothing() {}

func encodeIndex(i uint64) []byte { return binary.AppendUvarint(nil, i) }

func decodeIndex(b []byte) (uint64, error) {
	i, n := binary.Uvarint(b)
	if n <= 0 || n != len(b) {
		return 0, fmt.Errorf("%w: index of %d bytes", ErrMalformed, len(b))
	}
	return i, nil
}
