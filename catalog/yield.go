package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warrenmq/warren/transport"
)

// Times of giving the leadership away.
const (
	yieldCatchUp = time.Second            // for the best follower to have the newest entry
	yieldElect   = 500 * time.Millisecond // for an injected election
	yieldTick    = 5 * time.Millisecond
	reluctance   = time.Second // how much longer a node that is to stop waits before it stands for election
)

// ErrNoSuccessor reports that no other voter could take the leadership.
var ErrNoSuccessor = errors.New("no other voter can lead the catalog")

// Yield gives the leadership of the catalog away if this replica has it: to the voter with the longest log among
// those that can be reached and for which avoid, if it is not nil, is false. From now on this replica stands for
// election only after the others, until Willing. While those under way end and the successor gets the last entries, proposals wait here;
// then they go to it. An error means that nothing has changed.
//
// raft's own transfer is not used: it refuses proposals for up to an election timeout and can stay in progress for
// ever (hashicorp/raft#696).
func (c *Catalog) Yield(ctx context.Context, avoid func(NodeID) bool) error {
	c.reluctant.Store(true)
	if !c.Leading() {
		return nil
	}
	hold := make(chan struct{})
	if !c.held.CompareAndSwap(nil, &hold) {
		return fmt.Errorf("%w: it is being given away already", ErrNoSuccessor)
	}
	defer func() {
		c.held.Store(nil)
		close(hold)
	}()
	candidates := slices.DeleteFunc(c.voters(), func(id NodeID) bool {
		return id == c.cfg.Local || c.isDead(id) || !c.cfg.Mesh.Peer(id).Up || avoid != nil && avoid(id)
	})
	all := slices.DeleteFunc(c.positions(candidates), func(p position) bool { return p.id == c.cfg.Local })
	slices.SortFunc(all, byLog)
	err := ErrNoSuccessor
	for _, p := range all {
		if err = c.yieldTo(ctx, p.id); err == nil {
			c.log.Info("the catalog's leadership is given away", "to", string(p.id))
			return nil
		}
		if !c.Leading() {
			return nil // somebody has it, or will
		}
		c.log.Warn("a node does not take the catalog's leadership", "node", string(p.id), "err", err)
	}
	return err
}

// Willing ends what Yield began: this replica stands for election like any other.
func (c *Catalog) Willing() { c.reluctant.Store(false) }

// yieldTo waits until a voter has the whole log and lets it be elected.
func (c *Catalog) yieldTo(ctx context.Context, id NodeID) error {
	catchUp, cancel := context.WithTimeout(ctx, yieldCatchUp)
	defer cancel()
	for spread := false; ; {
		quiet := c.quiet() // before the look: else what is appended between the two makes the successor's log the shorter one
		own := c.position()
		ask, cancel := context.WithTimeout(catchUp, positionWait)
		p := c.askPosition(ask, id)
		cancel()
		if quiet && p != nil && p.term == own.term && p.last == own.last {
			break
		}
		if quiet && !spread {
			spread = true
			c.spreadEntry() // raft sends again only with the next entry
		}
		if !pause(catchUp, yieldTick) {
			return fmt.Errorf("%w: its log is behind", ErrNoSuccessor)
		}
		if !c.Leading() {
			return errNotLeader
		}
	}
	elect, cancel := context.WithTimeout(ctx, yieldElect)
	defer cancel()
	if err := c.cfg.Mesh.InjectAt(elect, transport.Replica(id, 0), transport.CatalogGroup); err != nil {
		return fmt.Errorf("%w: %w", ErrNoSuccessor, err)
	}
	for c.LeaderID() != id {
		if !pause(elect, yieldTick) {
			return fmt.Errorf("%w: it was not elected", ErrNoSuccessor)
		}
	}
	return nil
}

// quiet tells, of a leader whose proposals are held back, that none of earlier ones is on its way into the log.
func (c *Catalog) quiet() bool {
	s := &c.spreader
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(c.slots) == 0 && !s.running
}

// whileHeld waits while Yield holds proposals back.
func (c *Catalog) whileHeld(ctx context.Context) error {
	held := c.held.Load()
	if held == nil {
		return nil
	}
	select {
	case <-*held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
}
