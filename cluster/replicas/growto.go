package replicas

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/warrenmq/warren/catalog"
)

// GrowTo gives each queue that is meant and has fewer replicas so many, or one on each node that runs and does not go away if these are
// fewer. Nodes in zones where the queue has none come first, then those with the fewest replicas. It returns as Grow does.
func (o *Operator) GrowTo(ctx context.Context, count int, which Match) ([]Result, error) {
	if err := cmp.Or(o.Catalog.ReadIndex(ctx), ctx.Err()); err != nil {
		return nil, err
	}
	view := o.Catalog.View()
	g := &growing{o: o, base: view, given: map[catalog.NodeID]int{}}
	return bulk(view, func(q *catalog.Queue) bool {
		return q.State == catalog.Running && len(target(q)) < count && which.Has(q) && g.next(view, q, nil, false) != nil
	}, func(q *catalog.Queue) Result { return g.grow(ctx, q, count) }), nil
}

// growing is one request. The mutex guards given.
type growing struct {
	o    *Operator
	base *catalog.View // as it was at the beginning
	mu   sync.Mutex
	// given counts what this request has given each node since.
	given map[catalog.NodeID]int
}

// grow adds replicas to one queue until it has so many, there is no node left, or one cannot be added.
func (g *growing) grow(ctx context.Context, q *catalog.Queue, count int) Result {
	r := Result{VHost: q.Vhost, Name: nameOf(q), Size: len(target(q))}
	var tried []catalog.NodeID
	for r.Size < count {
		view := g.o.Catalog.View()
		now := view.QueueByID(q.ID)
		if now == nil {
			r.Err = errorf(NoQueue, "the queue was deleted meanwhile")
			return r
		}
		if r.Size = len(target(now)); r.Size >= count {
			return r
		}
		n := g.next(view, now, tried, true)
		if n == nil {
			return r
		}
		tried = append(tried, n.ID)
		if r = g.o.one(ctx, now, n, true); r.Err != nil {
			return r
		}
	}
	return r
}

// next is the node that a queue's next replica goes to, nil if there is none. With take it counts as given.
func (g *growing) next(view *catalog.View, q *catalog.Queue, tried []catalog.NodeID, take bool) *catalog.Node {
	zones := map[string]bool{}
	for _, m := range target(q) {
		if n := view.Node(m); n != nil && n.Zone != "" {
			zones[n.Zone] = true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var best *catalog.Node
	rank := func(n *catalog.Node) (sameZone, holds int) {
		if zones[n.Zone] {
			sameZone = 1
		}
		return sameZone, g.base.Replicas(n.ID) + g.given[n.ID]
	}
	for n := range view.Nodes() {
		if n.Superseded || n.State != catalog.NodeRegular || !g.o.Running(n.ID) || slices.Contains(target(q), n.ID) || slices.Contains(tried, n.ID) {
			continue
		}
		if best == nil {
			best = n
			continue
		}
		zone, holds := rank(n)
		bestZone, bestHolds := rank(best)
		if cmp.Or(cmp.Compare(zone, bestZone), cmp.Compare(holds, bestHolds), cmp.Compare(n.ID, best.ID)) < 0 {
			best = n
		}
	}
	if best != nil && take {
		g.given[best.ID]++
	}
	return best
}
