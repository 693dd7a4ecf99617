package broker

import (
	"context"
	"sync"

	"github.com/warrenmq/warren/catalog"
)

// forsakeAtOnce bounds the proposals of Forsake that are under way.
const forsakeAtOnce = 32

// Forsake deletes the queues in this node's memory: the node stops, and they end with it. Clients that went elsewhere may declare
// them there, and publishers do not wait for the node. What is not deleted when ctx ends goes when the others find the node dead, or when it is back.
func (b *Broker) Forsake(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	room := make(chan struct{}, forsakeAtOnce)
	for q := range b.cat.View().InMemoryOf(catalog.NodeID(b.cfg.Node)) {
		if q.State != catalog.Running {
			continue
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		working.Go(func() {
			defer func() { <-room }()
			if _, err := b.cat.Propose(ctx, &catalog.DeleteQueue{Vhost: q.Vhost, Name: q.Name, ID: q.ID}); err != nil {
				b.cfg.Logger.Info("a queue in memory is not deleted before its node stops", "queue", q.ID, "name", q.Name, "err", err)
			}
		})
	}
}
