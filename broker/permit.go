package broker

import (
	"context"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// resource names what a permission is checked against.
type resource struct {
	kind auth.Kind
	name string
}

func exchangeResource(name string) resource { return resource{auth.Exchange, name} }
func queueResource(name string) resource    { return resource{auth.Queue, name} }

// permits tells whether a user may do something with a resource of a virtual host according to a view.
func permits(view *catalog.View, user, vhost string, a auth.Action, r resource) error {
	p := view.Permission(vhost, user)
	if p.Allows(a, r.kind, r.name) {
		return nil
	}
	return asError(p.Check(a, r.kind, r.name, vhost, user))
}

// allows is permits for who has no connection, and looks into an up-to-date catalog before it refuses. Errors are those of Conn.allowed.
func (b *Broker) allows(ctx context.Context, user, vhost string, a auth.Action, r resource) error {
	if permits(b.cat.View(), user, vhost, a, r) == nil {
		return nil
	}
	view, err := b.freshAccess(ctx)
	if err != nil {
		return err
	}
	return permits(view, user, vhost, a, r)
}

// permits tells whether the connection's user may do something with a resource according to a view.
func (c *Conn) permits(view *catalog.View, a auth.Action, r resource) error {
	return permits(view, c.user.Name, c.vhost, a, r)
}

// allowed is permits, and looks into an up-to-date catalog before it refuses. The error is AccessRefused, or TimedOut if that cannot be had.
func (c *Conn) allowed(ctx context.Context, view *catalog.View, a auth.Action, r resource) error {
	if c.permits(view, a, r) == nil {
		return nil
	}
	view, err := c.b.freshAccess(ctx)
	if err != nil {
		return err
	}
	return c.permits(view, a, r)
}

// allowedAny refuses whoever has no permission at all on the resource, not even to learn that it is there. Errors are those of allowed.
func (c *Conn) allowedAny(ctx context.Context, r resource) error {
	some := func(view *catalog.View) bool {
		return c.permits(view, auth.Configure, r) == nil || c.permits(view, auth.Write, r) == nil || c.permits(view, auth.Read, r) == nil
	}
	if some(c.b.cat.View()) {
		return nil
	}
	view, err := c.b.freshAccess(ctx)
	if err != nil {
		return err
	}
	if some(view) {
		return nil
	}
	return c.permits(view, auth.Configure, r)
}
