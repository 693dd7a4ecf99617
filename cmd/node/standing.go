package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// Bounds of telling the catalog again what this node does.
const (
	standingWait  = 5 * time.Second // for one proposal
	standingRetry = time.Second     // before the next one
)

// standing is whether this node drains, as the catalog is to have it, so that nothing new is placed here. Without a leader of the catalog the
// node drains, or is revived, all the same; the catalog is told when it can be. A proposal whose outcome nobody knew may come into force after a
// later one was answered: so what the catalog has is looked at whenever it changes.
type standing struct {
	id      catalog.NodeID
	now     func() catalog.NodeState // as this node's copy has it
	propose func(context.Context, catalog.Command) error
	log     *slog.Logger

	drains atomic.Bool
	wake   chan struct{} // the catalog may have something else; capacity 1
}

func newStanding(id catalog.NodeID, now func() catalog.NodeState, propose func(context.Context, catalog.Command) error, log *slog.Logger) *standing {
	return &standing{id: id, now: now, propose: propose, log: log, wake: make(chan struct{}, 1)}
}

// tell tells the catalog whether this node drains. What it does not take in time is told later.
func (s *standing) tell(ctx context.Context, drains bool) {
	s.drains.Store(drains)
	if err := s.settle(ctx); err != nil {
		s.log.Warn("the catalog does not know yet whether this node drains", "drains", drains, "err", err)
	}
	s.poke()
}

// poke has keep look.
func (s *standing) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keep sees to it that the catalog has it right, until ctx ends.
func (s *standing) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for s.settle(ctx) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(standingRetry):
			}
		}
	}
}

// settle tells the catalog if it has something else. What operators have decided about a node that leaves the cluster is not changed, and a
// cluster of an older level knows no such states.
func (s *standing) settle(ctx context.Context) error {
	wanted := catalog.NodeRegular
	if s.drains.Load() {
		wanted = catalog.NodeDraining
	}
	if now := s.now(); now == wanted || now == catalog.NodeLeaving {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, standingWait)
	defer cancel()
	err := s.propose(ctx, &catalog.SetNodeState{ID: s.id, State: wanted})
	if errors.Is(err, catalog.ErrLevel) {
		return nil
	}
	return err
}
