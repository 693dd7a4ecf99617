package steward

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/repair"
	"github.com/warrenmq/warren/cluster/replicas"
)

// rebalancing bounds the proposals under way of one rebalance.
const rebalancing = 16

// Share is how many of the queues in question a node should lead.
type Share struct {
	Node   string `json:"node"`
	Queues int    `json:"queues"`
}

// Balance says which members should lead the queues of a kind (all, classic, quorum; there are no streams) that match, so that the nodes lead alike, and returns what each should lead then. Leaders follow at
// the pace of --leader-moves. A queue that changes at the same time stays as it is. moved is how many were given another home.
func (s *Steward) Balance(ctx context.Context, kind string, which replicas.Match) (shares []Share, moved int, err error) {
	// An old view would lack queues, and have others where they are no more: nothing would be done for them.
	if err := cmp.Or(s.cfg.Catalog.ReadIndex(ctx), ctx.Err()); err != nil {
		return nil, 0, err
	}
	view := s.cfg.Catalog.View()
	var queues []repair.Queue
	at := map[uint64]catalog.NodeID{}
	for q := range view.AllQueues() {
		if q.Kind == catalog.Replicated && q.State == catalog.Running && which.Has(q) && (kind == "all" || kind == kindOf(q)) {
			r := queueOf(q)
			queues = append(queues, r)
			at[q.ID] = r.Preferred
		}
	}
	nodes := Nodes(view, s.cfg.Alive, func(catalog.NodeID) time.Duration { return 1 })
	homes := repair.Homes(nodes, queues)
	done := make([]bool, len(homes))
	g, all := errgroup.WithContext(ctx)
	g.SetLimit(rebalancing)
	for i, h := range homes {
		g.Go(func() error {
			_, err := s.cfg.Catalog.Propose(all, &catalog.SetPreferred{ID: h.Queue, Node: h.Node, IfSettings: h.IfSettings})
			if _, changed := errors.AsType[*amqp.Error](err); changed {
				return nil
			}
			done[i] = err == nil
			return err
		})
	}
	err = g.Wait()
	for i, h := range homes {
		if done[i] {
			at[h.Queue] = h.Node
			moved++
		}
	}
	count := map[catalog.NodeID]int{}
	for _, n := range at {
		count[n]++
	}
	for i := range nodes {
		if n := &nodes[i]; !n.Superseded {
			name, _, _ := strings.Cut(string(n.ID), "/")
			shares = append(shares, Share{Node: name, Queues: count[n.ID]})
		}
	}
	slices.SortFunc(shares, func(a, b Share) int { return cmp.Compare(a.Node, b.Node) })
	return shares, moved, ofCatalog(err)
}

// kindOf is the type that a queue was declared with.
func kindOf(q *catalog.Queue) string {
	if v, _ := q.Arguments.Get("x-queue-type"); v == "quorum" {
		return "quorum"
	}
	return "classic"
}
