package broker

import (
	"context"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
)

// Route is where a message would go.
type Route struct {
	// Queues are the names of those that would take it, each once.
	Queues []string
	// DelayMillis is how long a delayed exchange would keep it before. The bindings of that moment count then.
	DelayMillis int64
}

// RouteOnce says where a message would go that a user published now; nothing is. What publishing would refuse is refused. Exchanges
// that choose by chance choose anew each time. Errors are *Error.
func (b *Broker) RouteOnce(ctx context.Context, u User, vhost string, p Publish) (r Route, err error) {
	err = b.withConn(ctx, u, vhost, func(c *Conn) error {
		sink := onceSink{confirmed: make(chan Confirm, 1), failed: make(chan *Error, 1)}
		ch, err := c.OpenChannel(ctx, &sink)
		if err != nil {
			return err
		}
		if err := b.UpToDate(ctx); err != nil {
			return err
		}
		view, err := ch.checkPublish(ctx, &p)
		if err != nil {
			return err
		}
		m, _, err := ch.message(&p)
		if err != nil {
			return err
		}
		if err := ch.conn.checkKeys(ch.topics, auth.Write, p.Exchange, m.RoutingKeys...); err != nil {
			return err
		}
		msg := ch.routing(m)
		// As it is routed when it is due; exchanges that are not delayed ones do not look at the delay.
		delayed, err := view.RouteMessage(vhost, p.Exchange, msg, nil)
		if err != nil {
			return asError(err)
		}
		for _, q := range delayed {
			if q.DelayOf != "" {
				r.DelayMillis = exchange.Delay(msg.Headers)
			}
		}
		if r.DelayMillis > 0 {
			msg.Headers = msg.Headers.Clone()
			msg.Headers.Delete(exchange.HeaderDelay)
		}
		targets, err := view.RouteMessage(vhost, p.Exchange, msg, nil)
		if err != nil {
			return asError(err)
		}
		r.Queues = make([]string, len(targets))
		for i, q := range targets {
			r.Queues[i] = q.Name
		}
		return nil
	})
	return r, err
}
