package broker

import (
	"context"
	"slices"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue/wire"
)

// mayRemove refuses the deletion of a queue that is to keep its messages. st is nil if nobody tells
// how many it has. The error is an *Error.
func (b *Broker) mayRemove(ctx context.Context, q *catalog.Queue, st *wire.Status) error {
	if st != nil && st.Ready+st.Unacked+st.Delayed == 0 || !b.keepsMessages(q) {
		return nil
	}
	if _, err := b.freshForRoute(ctx); err != nil {
		return asError(err)
	}
	if !b.keepsMessages(q) {
		return nil
	}
	exchange := settingsOf(q, b.inEffect(q).arguments).DeadLetterExchange
	if st == nil {
		return Errorf(PreconditionFailed, "queue '%s' in vhost '%s' has no leader to say whether it has messages for exchange '%s', which has no route for them; an administrator may delete it by force",
			q.Name, q.Vhost, exchange)
	}
	return Errorf(PreconditionFailed, "queue '%s' in vhost '%s' has messages for exchange '%s', which has no route for them; bind a queue to it, or purge this one first",
		q.Name, q.Vhost, exchange)
}

// wouldLose tells whether messages would go with the queue: ready ones, those of consumers, those that wait for a retry, and dead letters that are to be kept
// until there is a way for them. That there is none shows a moment after their death, so all that are still on their way count.
func (b *Broker) wouldLose(q *catalog.Queue, st *wire.Status) bool {
	if st.Ready+st.Unacked+st.Delayed+st.Parked > 0 {
		return true
	}
	return st.Outbox > 0 && b.keepsOutbox(q)
}

// keepsOutbox tells whether dead letters on their way are not to go with the queue.
func (b *Broker) keepsOutbox(q *catalog.Queue) bool {
	return settingsOf(q, b.inEffect(q).arguments).AtLeastOnce
}

// keepsMessages tells whether a queue is to lose nothing when it is removed (dead letters on removal,
// strategy at-least-once) and its messages have nowhere to go, by this node's copy of the catalog: nobody could
// find them a way when the queue is gone.
func (b *Broker) keepsMessages(q *catalog.Queue) bool {
	s := settingsOf(q, b.inEffect(q).arguments)
	return s.DeadLetter && s.DeadLetterOnRemoval && s.AtLeastOnce && !s.Delayed &&
		!b.mayRoute(q, s.DeadLetterExchange, s.DeadLetterRoutingKey, s.DeadLetterKeySet)
}

// mayRoute tells whether an exchange may have a way for the messages of a queue that is removed, as far as
// that can be told without looking at them.
func (b *Broker) mayRoute(q *catalog.Queue, name, key string, keySet bool) bool {
	view := b.cat.View()
	if name == "" && !keySet {
		return true // each goes by its own key
	}
	if keySet {
		targets, _ := b.routeDead(q.Vhost, name, &mover.Letter{Keys: []string{key}})
		if slices.ContainsFunc(targets, func(t mover.Target) bool { return t.ID != q.ID }) {
			return true
		}
	}
	x := view.Exchange(q.Vhost, name)
	if name == "" || x == nil {
		return false
	}
	if x.Alternate() != "" {
		return true
	}
	byKey := keySet && (x.Type == exchange.Direct || x.Type == exchange.Fanout || x.Type == exchange.Topic)
	for bd := range view.BindingsFrom(q.Vhost, name) {
		if !byKey || bd.ToExchange {
			return true // the headers may decide
		}
	}
	return false
}
