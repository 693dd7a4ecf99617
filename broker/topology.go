package broker

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/policy"
)

// ExchangeInfo describes an exchange for tools.
type ExchangeInfo struct {
	VHost, Name, Type             string // the default exchange's name is ""
	Durable, AutoDelete, Internal bool
	Arguments                     amqp.Table
	Policy                        string // the one that applies, "" if none does
}

// BindingInfo describes a binding for tools.
type BindingInfo struct {
	VHost string
	Binding
}

// Exchanges describes the exchanges of a virtual host, or of all with "", in the order of vhost and name.
func (b *Broker) Exchanges(vhost string) []ExchangeInfo {
	view := b.cat.View()
	list := []ExchangeInfo{}
	for h := range view.Vhosts() {
		if vhost == "" || h.Name == vhost {
			for x := range view.Exchanges(h.Name) {
				list = append(list, exchangeInfo(view, x))
			}
		}
	}
	return list
}

// FindExchange describes one exchange. The error is an *Error, NotFound if there is none.
func (b *Broker) FindExchange(ctx context.Context, vhost, name string) (ExchangeInfo, error) {
	view := b.cat.View()
	x := view.Exchange(vhost, name)
	if x == nil {
		var err error
		if view, err = b.fresh(ctx); err != nil {
			return ExchangeInfo{}, err
		}
		if x = view.Exchange(vhost, name); x == nil {
			return ExchangeInfo{}, Errorf(NotFound, "no exchange '%s' in vhost '%s'", name, vhost)
		}
	}
	return exchangeInfo(view, x), nil
}

func exchangeInfo(view *catalog.View, x *catalog.Exchange) ExchangeInfo {
	info := ExchangeInfo{
		VHost: x.Vhost, Name: x.Name, Type: x.Type.String(), Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: x.Arguments,
	}
	if set := view.Policies(x.Vhost); set != nil {
		if p, _ := set.Match(policy.Exchange, x.Name); p != nil {
			info.Policy = p.Name
		}
	}
	return info
}

// Bindings describes the bindings of a virtual host, or of all with "", those by which the default exchange reaches
// every queue first.
func (b *Broker) Bindings(vhost string) []BindingInfo {
	view := b.cat.View()
	list := []BindingInfo{}
	for h := range view.Vhosts() {
		if vhost == "" || h.Name == vhost {
			for q := range view.Queues(h.Name) {
				list = append(list, byName(q))
			}
			list = appendBindings(list, view.Bindings(h.Name))
		}
	}
	return list
}

// BindingsFrom describes the bindings of which an exchange is the source.
func (b *Broker) BindingsFrom(vhost, source string) []BindingInfo {
	view := b.cat.View()
	list := []BindingInfo{}
	if source == "" {
		for q := range view.Queues(vhost) {
			list = append(list, byName(q))
		}
	}
	return appendBindings(list, view.BindingsFrom(vhost, source))
}

// BindingsTo describes the bindings that lead to a queue, or to an exchange.
func (b *Broker) BindingsTo(vhost, destination string, toExchange bool) []BindingInfo {
	view := b.cat.View()
	list := []BindingInfo{}
	if q := view.Queue(vhost, destination); q != nil && !toExchange {
		list = append(list, byName(q))
	}
	return appendBindings(list, view.BindingsTo(vhost, destination, toExchange))
}

// byName is the binding of a queue to the default exchange.
func byName(q *catalog.Queue) BindingInfo {
	return BindingInfo{q.Vhost, Binding{Destination: q.Name, Key: q.Name}}
}

func appendBindings(list []BindingInfo, bindings iter.Seq[*catalog.Binding]) []BindingInfo {
	start := len(list)
	for s := range bindings {
		list = append(list, BindingInfo{s.Vhost, Binding{Source: s.Source, Destination: s.Destination, ToExchange: s.ToExchange, Key: s.Key, Arguments: s.Arguments}})
	}
	slices.SortStableFunc(list[start:], func(a, b BindingInfo) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Destination, b.Destination), strings.Compare(a.Key, b.Key))
	})
	return list
}

// What follows is done for a user who has no connection, as a client of RabbitMQ's management API. The permissions are
// asked for that a connection of the user would need, and the limits of the vhost and the user hold. Errors are *Error.

// withConn opens a vhost for one piece of work and closes it afterwards.
func (b *Broker) withConn(ctx context.Context, u User, vhost string, work func(c *Conn) error) error {
	c, err := b.Open(ctx, u, vhost, ConnInfo{Protocol: "HTTP", Kick: func(*Error) {}})
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	return work(c)
}

// PutExchange declares an exchange; created is false if it was there.
func (b *Broker) PutExchange(ctx context.Context, u User, vhost string, d ExchangeDeclare) (created bool, err error) {
	err = b.withConn(ctx, u, vhost, func(c *Conn) error {
		var err error
		created, err = c.makeExchange(ctx, d)
		return err
	})
	return created && err == nil, err
}

// DropExchange deletes an exchange; NotFound if there is none.
func (b *Broker) DropExchange(ctx context.Context, u User, vhost, name string, ifUnused bool) error {
	return b.withConn(ctx, u, vhost, func(c *Conn) error {
		if name != "" {
			if _, err := b.FindExchange(ctx, vhost, name); err != nil {
				return err
			}
		}
		return c.DeleteExchange(ctx, name, ifUnused)
	})
}

// PutBinding makes a binding.
func (b *Broker) PutBinding(ctx context.Context, u User, vhost string, bd Binding) error {
	return b.withConn(ctx, u, vhost, func(c *Conn) error { return c.Bind(ctx, bd) })
}

// DropBinding removes a binding.
func (b *Broker) DropBinding(ctx context.Context, u User, vhost string, bd Binding) error {
	return b.withConn(ctx, u, vhost, func(c *Conn) error { return c.Unbind(ctx, bd) })
}

// PutQueue declares a queue; created is false if it was there.
func (b *Broker) PutQueue(ctx context.Context, u User, vhost string, d QueueDeclare) (created bool, err error) {
	err = b.withConn(ctx, u, vhost, func(c *Conn) error {
		var err error
		_, created, err = c.makeQueue(ctx, d)
		return err
	})
	return created && err == nil, err
}

// DropQueue deletes a queue and tells how many messages went with it; NotFound if there is none.
func (b *Broker) DropQueue(ctx context.Context, u User, vhost, name string, ifUnused, ifEmpty bool) (n uint32, err error) {
	err = b.withConn(ctx, u, vhost, func(c *Conn) error {
		// DeleteQueue says what of an exclusive one.
		if q, err := c.find(ctx, name); q == nil {
			return err
		}
		var err error
		n, err = c.DeleteQueue(ctx, name, ifUnused, ifEmpty)
		return err
	})
	return n, err
}

// Purge removes the ready messages of a queue and tells how many they were.
func (b *Broker) Purge(ctx context.Context, u User, vhost, name string) (n uint32, err error) {
	err = b.withConn(ctx, u, vhost, func(c *Conn) error {
		n, err = c.PurgeQueue(ctx, name)
		return err
	})
	return n, err
}
