package broker

import (
	"context"

	"github.com/warrenmq/warren/amqp"
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
func (b *Broker) MayEnter(u User, vhost string) bool {
	return u.rights(b.cat.View()).enters(vhost)
}

// FindQueue describes one queue. The error is an *Error, NotFound if there is none.
func (b *Broker) FindQueue(ctx context.Context, vhost, name string) (QueueInfo, error) {
	q := b.cat.View().Queue(vhost, name)
	for try := 1; ; try++ {
		if q != nil {
			if info, there := b.describe(ctx, q); there {
				return info, nil
			}
		}
		view, err := b.fresh(ctx)
		if err != nil {
			return QueueInfo{}, err
		}
		ended := q
		if q = view.Queue(vhost, name); q == nil || ended != nil && ended.ID == q.ID || try == livesTried { // its leader may know of its end first
			return QueueInfo{}, Errorf(NotFound, "no queue '%s' in vhost '%s'", name, vhost)
		}
	}
}

// queueType is what RabbitMQ calls the type of a queue.
func queueType(args amqp.Table) string {
	if isQuorum(args) {
		return "quorum"
	}
	return "classic"
}
