package main

import (
	"context"
	"fmt"

	"github.com/warrenmq/warren/cluster/replicas"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/transport"
)

// operator changes queues' replicas for the management API, and tells of those that run here.
type operator struct {
	*replicas.Operator
	n *running
}

func (n *running) operator() operator {
	return operator{&replicas.Operator{Catalog: n.catalog.Load(), Running: n.runs}, n}
}

// Replica implements management.Replicas.
func (o operator) Replica(queue uint64) (r management.Replica, ok bool) {
	g, ok := o.n.host.Group(transport.GroupID(queue))
	if !ok {
		return r, false
	}
	d := g.Describe()
	r = management.Replica{
		State: d.State, Leader: string(d.Leader), Term: d.Term, Last: d.Last, Commit: d.Commit, Applied: d.Applied, Snapshot: d.Snapshot,
		Generation: d.Generation, Level: o.n.Level(),
	}
	if e := d.Election; !e.At.IsZero() {
		r.Elected, r.ElectedFrom, r.ElectedFromUp = e.At.UnixMilli(), string(e.From), e.FromUp
	}
	switch {
	case d.Voter:
		r.Membership = "voter"
	case d.Member:
		r.Membership = "promotable"
	}
	return r, true
}

// MoveLeader implements management.Replicas.
func (o operator) MoveLeader(ctx context.Context, queue uint64, to string) error {
	g, ok := o.n.host.Group(transport.GroupID(queue))
	if !ok {
		return fmt.Errorf("no replica of queue %d runs here", queue)
	}
	return g.TransferTo(ctx, transport.NodeID(to))
}
