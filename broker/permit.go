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

// permits tells whether the connection's user may do something with a resource according to a view.
func (c *Conn) permits(view *catalog.View, a auth.Action, r resource) error {
	p := view.Permission(c.vhost, c.user.Name)
	if p.Allows(a, r.kind, r.name) {
		return nil
	}
	return asError(p.Check(a, r.kind, r.name, c.vhost, c.user.Name))
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
