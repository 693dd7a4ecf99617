package main

import (
	"context"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/recovery"
	"github.com/warrenmq/warren/transport"
)

// recoverable is this node as recovery sees it.
type recoverable struct{ n *running }

func (r recoverable) View() *catalog.View { return r.n.catalog.Load().View() }

func (r recoverable) Propose(ctx context.Context, c catalog.Command) (catalog.Result, error) {
	return r.n.catalog.Load().Propose(ctx, c)
}

func (r recoverable) Positions(ctx context.Context, node catalog.NodeID, ids []uint64) ([]recovery.Position, error) {
	groups := make([]transport.GroupID, len(ids))
	for i, id := range ids {
		groups[i] = transport.GroupID(id)
	}
	all, err := r.n.host.Positions(ctx, node, groups)
	if err != nil {
		return nil, err
	}
	list := make([]recovery.Position, len(all))
	for i, p := range all {
		list[i] = recovery.Position{Known: p.Known, LastTerm: p.LastTerm, LastIndex: p.LastIndex, Voter: p.Voter, Damaged: p.Damaged, Leader: p.Leader}
	}
	return list, nil
}

// RecoverQueues lets queues go on that have lost most of their replicas. What the catalog knows is brought up to date before.
func (n *running) RecoverQueues(ctx context.Context, r *recovery.Request) (*recovery.Report, error) {
	if err := n.catalog.Load().ReadIndex(ctx); err != nil {
		return nil, err
	}
	return recovery.Run(ctx, recoverable{n}, r)
}
