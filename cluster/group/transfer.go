package group

import (
	"context"
	"fmt"
	"time"

	"github.com/warrenmq/warren/transport"
)

const (
	// transferCatchUp bounds how long proposals are held back for a target that lags.
	transferCatchUp = 2 * time.Second
	// transferPatience is how long an injected target may take to be elected.
	transferPatience = 500 * time.Millisecond
	transferTick     = 5 * time.Millisecond
)

// TransferTo moves the leadership to another voter and returns when this replica has
// seen it lead. Proposals wait in the backlog meanwhile and are refused with
// ErrNotLeader once the leadership is gone. ErrTransfer means that nothing has changed.
//
// raft's own transfer is not used: it refuses proposals for up to an election timeout
// and can stay in progress for ever (hashicorp/raft#696).
func (g *Group) TransferTo(ctx context.Context, n transport.NodeID) error {
	if err := g.moveTo(ctx, n, transferCatchUp); err != nil {
		g.host.counters.transfersFailed.Add(1)
		return fmt.Errorf("move leader of group %d to %s: %w", g.spec.ID, n, err)
	}
	g.host.counters.transfers.Add(1)
	return nil
}

// moveTo does it; proposals are held back for catchUp at most while the target's log is behind.
func (g *Group) moveTo(ctx context.Context, n transport.NodeID, catchUp time.Duration) error {
	if n == g.host.cfg.Local {
		if g.leading.Load() {
			return nil
		}
		return ErrNotLeader
	}
	if !g.hasVoter(n) {
		return ErrNotMember
	}
	if !g.host.reachable(n) {
		return fmt.Errorf("%w: the node is not reachable", ErrTransfer)
	}
	select {
	case g.transfer <- struct{}{}:
		defer func() { <-g.transfer }()
	case <-g.stopped:
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("%w: another move is under way: %w", ErrTransfer, ctx.Err())
	}
	if err := g.lead(ctx); err != nil {
		return err
	}
	if !g.leading.Load() {
		return ErrNotLeader
	}
	resume := g.pause()
	defer resume()
	if err := g.awaitMatch(ctx, n, catchUp); err != nil {
		return err
	}
	if err := g.host.cfg.Mesh.InjectAt(ctx, g.replicaAt(n), g.spec.ID); err != nil {
		return fmt.Errorf("%w: %w", ErrTransfer, err)
	}
	return g.awaitLeader(ctx, n)
}

// awaitMatch waits until nothing is in flight and the target's log ends where ours does.
func (g *Group) awaitMatch(ctx context.Context, n transport.NodeID, catchUp time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	began, nudged := time.Now(), false
	generation, _ := g.replicaAt(n).Generation()
	tick := time.NewTicker(transferTick)
	defer tick.Stop()
	for {
		if g.inFlightCount() == 0 {
			all, err := g.host.askStatus(ctx, n, 0, []transport.GroupID{g.spec.ID})
			if err != nil {
				return fmt.Errorf("%w: %w", ErrTransfer, err)
			}
			if all[0].flags&statusUnwilling != 0 {
				return fmt.Errorf("%w: the node wants to lead nothing now", ErrTransfer)
			}
			term, index := g.lastEntry()
			if s := all[0]; s.known() && s.voter() && s.generation == generation && s.lastTerm == term && s.lastIndex == index {
				return nil
			}
			if !nudged && time.Since(began) > g.host.cfg.Stagger {
				// An idle leader sends again only when its commit timer fires.
				nudged = true
				g.replica().Barrier(transferTick)
			}
		}
		select {
		case <-tick.C:
			if !g.leading.Load() {
				return ErrNotLeader
			}
		case <-g.stopped:
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("%w: the target lags: %w", ErrTransfer, ctx.Err())
		}
	}
}

// awaitLeader waits until this replica follows the target.
func (g *Group) awaitLeader(ctx context.Context, n transport.NodeID) error {
	ctx, cancel := context.WithTimeout(ctx, transferPatience)
	defer cancel()
	tick := time.NewTicker(transferTick)
	defer tick.Stop()
	for {
		if l, _, ok := g.Leader(); ok && l == n {
			return nil
		}
		select {
		case <-tick.C:
		case <-g.stopped:
			return ErrStopped
		case <-ctx.Done():
			if g.leading.Load() {
				return fmt.Errorf("%w: the target was not elected: %w", ErrTransfer, ctx.Err())
			}
			return fmt.Errorf("leadership was given up, the target is not known to have it: %w", ctx.Err())
		}
	}
}
