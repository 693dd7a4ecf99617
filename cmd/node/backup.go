package main

import (
	"context"
	"slices"
	"time"

	"github.com/warrenmq/warren/backup"
	"github.com/warrenmq/warren/backup/cut"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/transport"
)

// openBackups lets this node take part in backups of the cluster.
func (n *running) openBackups() {
	node := cut.NewNode(cut.NodeConfig{
		Gate: &n.gate,
		Led: func() []cut.Queue {
			var list []cut.Queue
			for _, l := range n.broker.Led() {
				list = append(list, cut.Queue{ID: l.Queue, Term: l.Term})
			}
			return list
		},
		Capture: func(q cut.Queue) (cut.State, uint64, error) {
			c, err := n.broker.Capture(q.ID, q.Term)
			if err != nil {
				return nil, 0, err
			}
			return c, c.Index, nil
		},
		Logger: n.log,
	})
	n.mesh.HandleCall(cut.Method, func(ctx context.Context, _ transport.NodeID, req []byte) ([]byte, error) {
		return node.Answer(ctx, req)
	})
	n.onClose("backups", func() error {
		node.Close()
		return nil
	})
}

// Backup takes a consistent cut of the cluster.
func (n *running) Backup(ctx context.Context, hold time.Duration) (management.Backup, error) {
	c, err := cut.Take(ctx, cut.Cluster{
		Nodes: func() []string { return append(n.livePeers(), string(n.identity.NodeID())) },
		Call: func(ctx context.Context, node string, req []byte) ([]byte, error) {
			return n.mesh.Call(ctx, transport.NodeID(node), cut.Method, req)
		},
		Catalog: n.catalogNow,
		Hold:    hold, Program: buildVersion(), Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// catalogNow reads the catalog up to date.
func (n *running) catalogNow(ctx context.Context) (c cut.Catalog, err error) {
	cat := n.catalog.Load()
	if err := cat.ReadIndex(ctx); err != nil {
		return c, err
	}
	view := cat.View()
	c = cut.Catalog{
		ClusterID: view.ClusterID(), Level: view.Level(), Revision: view.Revision(), Write: view.WriteSnapshot,
		Members: func(queue uint64) (nodes []string) {
			q := view.QueueByID(queue)
			for _, m := range slices.Concat(q.Members, q.Wanted) {
				nodes = append(nodes, string(m))
			}
			return nodes
		},
		GoesOn: func(queue uint64) bool {
			next, _ := view.Successor(queue)
			return next != nil
		},
	}
	for q := range view.AllQueues() {
		if q.Kind == catalog.Replicated {
			c.Queues = append(c.Queues, backup.Queue{ID: q.ID, VHost: q.Vhost, Name: q.Name})
		}
	}
	return c, nil
}
