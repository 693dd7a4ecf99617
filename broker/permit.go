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

// rights are what a user may do: what the login brought, or else what a view of the catalog says. Nothing else in this package asks for permissions.
type rights struct {
	brought auth.Rights
	view    *catalog.View
	user    string
}

func (u User) rights(view *catalog.View) rights { return rights{u.Rights, view, u.Name} }

// enters tells whether the user may be in a virtual host.
func (r rights) enters(vhost string) bool {
	if r.brought != nil {
		return r.brought.Enters(vhost)
	}
	return r.view.Permission(vhost, r.user) != nil
}

func (r rights) allows(vhost string, a auth.Action, on resource) bool {
	if r.brought != nil {
		return r.brought.Allows(vhost, a, on.kind, on.name)
	}
	return r.view.Permission(vhost, r.user).Allows(a, on.kind, on.name)
}

// keys limits the routing keys that the user may use with a topic exchange; nil allows any.
func (r rights) keys(vhost, exchange string) auth.Keys {
	if r.brought != nil {
		return r.brought.Keys(vhost, exchange)
	}
	if p := r.view.TopicPermission(vhost, r.user, exchange); p != nil {
		return p
	}
	return nil // and not a *TopicPermission that is
}

// lasting tells whether what the user may do stays as long as the view and the login do.
func (u User) lasting() bool { return u.Rights == nil || u.Rights.Lasting() }

// waiting is the user with something that is to be done before another server is waited for.
func (u User) waiting(before func()) User {
	if r, ok := u.Rights.(auth.Patient); ok {
		u.Rights = r.Waiting(before)
	}
	return u
}

// RightsFrom says in words for refusals where it is from what the user may do: "a user's permissions", which are the catalog's, or what brought the rights.
func (u User) RightsFrom() string {
	if u.Rights == nil {
		return "a user's permissions"
	}
	return u.Rights.Source()
}

// enters tells why a user may not be in a virtual host.
func (u User) enters(view *catalog.View, vhost string) error {
	if u.rights(view).enters(vhost) {
		return nil
	}
	return asError(auth.RefuseVhost(vhost, u.Name))
}

// permits tells whether a user may do something with a resource of a virtual host according to a view.
func permits(view *catalog.View, u User, vhost string, a auth.Action, r resource) error {
	if u.rights(view).allows(vhost, a, r) {
		return nil
	}
	return asError(auth.Refuse(a, r.kind, r.name, vhost, u.Name))
}

// allows is permits for who has no connection, and looks into an up-to-date catalog before it refuses. Errors are those of Conn.allowed.
func (b *Broker) allows(ctx context.Context, u User, vhost string, a auth.Action, r resource) error {
	if err := permits(b.cat.View(), u, vhost, a, r); err == nil || u.Rights != nil {
		return err // what the login brought is not in the catalog
	}
	view, err := b.freshAccess(ctx)
	if err != nil {
		return err
	}
	return permits(view, u, vhost, a, r)
}

// permits tells whether the connection's user may do something with a resource according to a view.
func (c *Conn) permits(view *catalog.View, a auth.Action, r resource) error {
	return permits(view, c.user, c.vhost, a, r)
}

// checkKeys checks the keys of a message or a binding against what the user may use with a topic exchange.
func (c *Conn) checkKeys(allowed auth.Keys, a auth.Action, exchange string, keys ...string) error {
	if allowed == nil {
		return nil
	}
	for _, key := range keys {
		if !allowed.Allows(a, key) {
			return asError(auth.RefuseKey(a, key, exchange, c.vhost, c.user.Name))
		}
	}
	return nil
}

// allowed is permits, and looks into an up-to-date catalog before it refuses. The error is AccessRefused, or TimedOut if that cannot be had.
func (c *Conn) allowed(ctx context.Context, view *catalog.View, a auth.Action, r resource) error {
	return c.allowedAs(ctx, c.user, view, a, r)
}

// allowedAs is allowed for the connection's user as the caller has it.
func (c *Conn) allowedAs(ctx context.Context, u User, view *catalog.View, a auth.Action, r resource) error {
	if err := permits(view, u, c.vhost, a, r); err == nil || u.Rights != nil {
		return err // what the login brought is not in the catalog
	}
	view, err := c.b.freshAccess(ctx)
	if err != nil {
		return err
	}
	return permits(view, u, c.vhost, a, r)
}

// allowedAny refuses whoever has no permission at all on the resource, not even to learn that it is there. Errors are those of allowed.
func (c *Conn) allowedAny(ctx context.Context, r resource) error {
	some := func(view *catalog.View) bool { // in RabbitMQ's order: another server may be asked each time
		return c.permits(view, auth.Read, r) == nil || c.permits(view, auth.Write, r) == nil || c.permits(view, auth.Configure, r) == nil
	}
	view := c.b.cat.View()
	if some(view) {
		return nil
	}
	if c.user.Rights == nil {
		var err error
		if view, err = c.b.freshAccess(ctx); err != nil {
			return err
		}
		if some(view) {
			return nil
		}
	}
	return asError(auth.Refuse(auth.Configure, r.kind, r.name, c.vhost, c.user.Name))
}
