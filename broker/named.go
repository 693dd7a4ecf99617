package broker

import (
	"context"
	"errors"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// exchange finds an exchange in the local copy, or else in a fresh one.
func (c *Conn) exchange(ctx context.Context, name string) (*catalog.Exchange, error) {
	x, _, err := c.exchangeIn(ctx, c.b.cat.View(), name)
	return x, err
}

// exchangeIn is exchange for who goes on with a view: the one that has the exchange is returned.
func (c *Conn) exchangeIn(ctx context.Context, view *catalog.View, name string) (*catalog.Exchange, *catalog.View, error) {
	if x := view.Exchange(c.vhost, name); x != nil {
		return x, view, nil
	}
	view, err := c.b.fresh(ctx)
	if err != nil {
		return nil, nil, err
	}
	if x := view.Exchange(c.vhost, name); x != nil {
		return x, view, nil
	}
	return nil, nil, Errorf(NotFound, "no exchange '%s' in vhost '%s'", name, c.vhost)
}

// find finds a queue in the local copy, or else in a fresh one, and checks
// that it is not another connection's: what this copy still has may have been deleted, and nobody is refused for that.
func (c *Conn) find(ctx context.Context, name string) (*catalog.Queue, error) {
	if q := c.b.cat.View().Queue(c.vhost, name); q != nil && c.checkOwner(q) == nil {
		return q, nil
	}
	view, err := c.b.fresh(ctx)
	if err != nil {
		return nil, err
	}
	return c.findIn(view, name)
}

// findIn is find in a view.
func (c *Conn) findIn(view *catalog.View, name string) (*catalog.Queue, error) {
	q := view.Queue(c.vhost, name)
	if q == nil {
		return nil, Errorf(NotFound, "no queue '%s' in vhost '%s'", name, c.vhost)
	}
	return q, c.checkOwner(q)
}

// livesTried bounds how many queues of one name, each of which ends as it is asked, something is tried with.
const livesTried = 20

// asks does something that asks the leader of a queue which was found. If that queue has ended, the one that has its name now is asked: this copy may
// have been older than the client's word.
func (c *Conn) asks(ctx context.Context, q *catalog.Queue, do func(*catalog.Queue) error) error {
	for try := 1; ; try++ {
		err := do(q)
		if !errors.Is(err, errQueueGone) || try == livesTried {
			return c.queueError(err, q.Name)
		}
		view, err := c.b.fresh(ctx)
		if err != nil {
			return err
		}
		ended := q.ID
		if q, err = c.findIn(view, q.Name); err != nil {
			return err
		}
		if q.ID == ended { // its leader knew first
			return c.queueError(errQueueGone, q.Name)
		}
	}
}

func (c *Conn) checkOwner(q *catalog.Queue) error {
	if q.Exclusive && q.Owner != c.owner {
		return c.locked(q)
	}
	return nil
}

func (c *Conn) locked(q *catalog.Queue) error {
	return Errorf(ResourceLocked, "cannot obtain exclusive access to locked queue '%s' in vhost '%s'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.", q.Name, c.vhost)
}

// queue finds a queue for an operation that needs a permission on it.
func (c *Conn) queue(ctx context.Context, name string, a auth.Action) (*catalog.Queue, error) {
	if err := c.allowed(ctx, c.b.cat.View(), a, queueResource(name)); err != nil {
		return nil, err
	}
	return c.find(ctx, name)
}
