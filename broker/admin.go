package broker

import (
	"context"
	"slices"
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

// What management tools ask of the broker, beside what clients do.

// HasVhost reports whether there is a virtual host of that name. That there is none is
// said only of an up-to-date catalog.
func (b *Broker) HasVhost(ctx context.Context, name string) (bool, error) {
	if b.cat.View().Vhost(name) != nil {
		return true, nil
	}
	view, err := b.fresh(ctx)
	return err == nil && view.Vhost(name) != nil, err
}

// MayEnter reports whether a user has any permission in a virtual host.
func (b *Broker) MayEnter(user, vhost string) bool {
	return b.cat.View().Permission(vhost, user) != nil
}

// describing bounds how many queues are asked for their counts at once.
const describing = 64

// ListQueues describes the queues of a virtual host, or of all with "", in the order of
// vhost and name. The queues of delayed exchanges are not among them.
func (b *Broker) ListQueues(ctx context.Context, vhost string) []QueueInfo {
	view := b.cat.View()
	var queues []*catalog.Queue
	for h := range view.Vhosts() {
		if vhost == "" || h.Name == vhost {
			queues = slices.AppendSeq(queues, view.Queues(h.Name))
		}
	}
	list := make([]QueueInfo, len(queues))
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(describing, len(queues)) {
		wg.Go(func() {
			for i := range next {
				list[i] = b.describe(ctx, queues[i])
			}
		})
	}
	for i := range queues {
		next <- i
	}
	close(next)
	wg.Wait()
	return list
}

// FindQueue describes one queue. The error is an *Error, NotFound if there is none.
func (b *Broker) FindQueue(ctx context.Context, vhost, name string) (QueueInfo, error) {
	q := b.cat.View().Queue(vhost, name)
	if q == nil {
		view, err := b.fresh(ctx)
		if err != nil {
			return QueueInfo{}, err
		}
		if q = view.Queue(vhost, name); q == nil {
			return QueueInfo{}, Errorf(NotFound, "no queue '%s' in vhost '%s'", name, vhost)
		}
	}
	return b.describe(ctx, q), nil
}

// queueType is what RabbitMQ calls the type of a queue.
func queueType(args amqp.Table) string {
	if isQuorum(args) {
		return "quorum"
	}
	return "classic"
}
