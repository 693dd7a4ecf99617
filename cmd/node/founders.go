package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// Bounds of waiting for those that found a cluster together with this node.
const (
	foundersWait     = 30 * time.Second // for those that run
	foundersPatience = 5 * time.Second  // for those that do not
	foundersPoll     = 10 * time.Millisecond
)

// founders are the nodes that found a cluster together.
type founders struct {
	members []transport.NodeID
	known   func(transport.NodeID) bool
	linked  func(transport.NodeID) bool
	waiting func(why string)
	log     *slog.Logger
}

// awaitFounders keeps clients of a new cluster, and its definitions, waiting until its founding members are in the catalog.
func (n *running) awaitFounders(ctx context.Context) error {
	view := n.catalog.Load().View
	return founders{
		members: n.founders, log: n.log,
		known:   func(id transport.NodeID) bool { return described(view(), id) },
		linked:  func(id transport.NodeID) bool { return n.mesh.Peer(id).Up },
		waiting: func(why string) { n.starting.Store(&why) },
	}.await(ctx)
}

// described tells whether a node is in the catalog with its zone, of which the first level knows nothing.
func described(view *catalog.View, id transport.NodeID) bool {
	node := view.Node(id)
	return node != nil && (view.Level() < 2 || node.Level > 0)
}

// await returns when all are known: the replicas of a queue are placed on nodes of the catalog, in different zones as far as these are known. A queue that is
// declared earlier has fewer of them, so that what is confirmed is on fewer disks until it has the others, or two in a zone, where they stay.
// A member that has died meanwhile keeps clients away for foundersPatience.
func (f founders) await(ctx context.Context) error {
	begun := time.Now()
	for {
		missing := slices.DeleteFunc(slices.Clone(f.members), f.known)
		if len(missing) == 0 {
			return nil
		}
		names := make([]string, len(missing))
		for i, id := range missing {
			names[i] = nodeName(id)
		}
		limit := foundersPatience
		if slices.ContainsFunc(missing, f.linked) {
			limit = foundersWait
		}
		if waited := time.Since(begun); waited > limit {
			f.log.Warn("clients are let in before all founding members have registered: queues get the replicas there when they have", "missing", names, "after", waited)
			return nil
		}
		f.waiting("waiting for founding members: " + strings.Join(names, ", "))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(foundersPoll):
		}
	}
}
