package broker

import (
	"context"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/exchange"
)

// What an import of definitions asks of the broker: many changes one after the other or side by side, that hold on
// every node when [Broker.Everywhere] has returned. No user is asked for permissions. Errors are *Error.

// CheckQueue tells why a queue cannot be declared, whatever is there.
func CheckQueue(vhost string, d QueueDeclare) error {
	switch {
	case d.Name == "":
		return Errorf(PreconditionFailed, "queue name is empty")
	case len(d.Name) > nameBytesMax:
		return Errorf(PreconditionFailed, "queue name is longer than %d bytes", nameBytesMax)
	case stripLines(d.Name) != d.Name:
		return Errorf(PreconditionFailed, "queue name has line breaks, which clients' declarations lose")
	}
	return checkArguments(d, vhost)
}

// CheckExchange tells why an exchange cannot be declared, whatever is there, or its type.
func CheckExchange(vhost string, d ExchangeDeclare) (exchange.Type, error) {
	if len(d.Name) > nameBytesMax {
		return 0, Errorf(PreconditionFailed, "exchange name is longer than %d bytes", nameBytesMax)
	}
	if stripLines(d.Name) != d.Name {
		return 0, Errorf(PreconditionFailed, "exchange name has line breaks, which clients' declarations lose")
	}
	typ, err := exchange.ParseType(d.Type)
	if err == nil {
		err = exchange.Validate(typ, d.Arguments)
	}
	if err != nil {
		return 0, asError(err)
	}
	return typ, checkAlternateType(vhost, d)
}

// View is the node's copy of the catalog.
func (b *Broker) View() *catalog.View { return b.cat.View() }

// Fresh is the catalog with everything that was committed when the call was made.
func (b *Broker) Fresh(ctx context.Context) (*catalog.View, error) { return b.fresh(ctx) }

// UpToDate waits until this node's copy of the catalog has everything that was committed when the call was made. The error is an *Error with TimedOut.
func (b *Broker) UpToDate(ctx context.Context) error {
	_, err := b.fresh(ctx)
	return err
}

// Define makes a change and does not wait for other nodes.
func (b *Broker) Define(ctx context.Context, cmd catalog.Command) (catalog.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	res, err := b.propose(ctx, cmd)
	return res, asError(err)
}

// Everywhere waits a moment until all living nodes know what is in force here.
func (b *Broker) Everywhere(ctx context.Context) {
	waiting, cancel := context.WithTimeout(ctx, everyoneWait)
	defer cancel()
	_ = b.cat.WaitEveryone(waiting, b.cat.View().Revision()) // a slow node sees it later
}

// DefineQueue makes a queue unless there is one of the name, which stays as it is: that is returned, nil if it is gone again. One that is not durable lives on
// this node. It waits a moment for the queue's first leader, so that queues do not come faster than they can be led.
func (b *Broker) DefineQueue(ctx context.Context, vhost string, d QueueDeclare) (made bool, was *catalog.Queue, err error) {
	if err := CheckQueue(vhost, d); err != nil {
		return false, nil, err
	}
	res, err := b.Define(ctx, &catalog.DeclareQueue{Queue: b.entryOf(b.cat.View(), vhost, d), NodeIncarnation: b.origin().Incarnation})
	if err != nil || !res.Changed {
		return false, res.Queue, err
	}
	if res.Queue == nil {
		return true, nil, nil // made, and deleted since
	}
	b.churn.created.Add(1)
	waiting, cancel := context.WithTimeout(ctx, everyoneWait)
	defer cancel()
	_, _ = b.status(waiting, res.Queue, false) // it is there whoever leads it
	return true, nil, nil
}

// DefineExchange makes an exchange unless there is one of the name, which stays as it is: that is returned, nil if it is gone again.
func (b *Broker) DefineExchange(ctx context.Context, vhost string, d ExchangeDeclare) (made bool, was *catalog.Exchange, err error) {
	typ, err := CheckExchange(vhost, d)
	if err != nil {
		return false, nil, err
	}
	res, err := b.Define(ctx, b.exchangeOf(vhost, d, typ))
	if err != nil || res.Changed {
		return res.Changed, nil, err
	}
	return false, b.cat.View().Exchange(vhost, d.Name), nil
}

// entryOf is what the catalog is told of a new queue, but for its owner.
func (b *Broker) entryOf(view *catalog.View, vhost string, d QueueDeclare) catalog.Queue {
	q := catalog.Queue{
		Vhost: vhost, Name: d.Name, Durable: d.Durable, AutoDelete: d.AutoDelete, Exclusive: d.Exclusive, Arguments: d.Arguments.Clone(),
	}
	if d.Exclusive || !d.Durable {
		q.Kind = catalog.Transient
		q.Members = []catalog.NodeID{catalog.NodeID(b.cfg.Node)}
		q.Preferred = q.Members[0]
		q.Incarnation = b.origin().Incarnation
		return q
	}
	q.Kind = catalog.Replicated
	b.placeQueue(view, &q)
	return q
}

// exchangeOf is what the catalog is told of a new exchange.
func (b *Broker) exchangeOf(vhost string, d ExchangeDeclare, typ exchange.Type) *catalog.DeclareExchange {
	cmd := &catalog.DeclareExchange{Exchange: catalog.Exchange{
		Vhost: vhost, Name: d.Name, Type: typ,
		Durable: d.Durable, AutoDelete: d.AutoDelete, Internal: d.Internal, Arguments: d.Arguments.Clone(),
	}}
	if typ == exchange.Delayed {
		b.placeDelays(cmd)
	}
	return cmd
}

// checkAlternateType checks the argument that names an alternate exchange.
func checkAlternateType(vhost string, d ExchangeDeclare) error {
	if v, ok := d.Arguments.Get("alternate-exchange"); ok {
		if _, ok := v.(string); !ok {
			return Errorf(PreconditionFailed, "invalid type '%s' for arg 'alternate-exchange' in exchange '%s' in vhost '%s'", amqp.TypeName(v), d.Name, vhost)
		}
	}
	return nil
}

// ReservedName tells whether names of queues and exchanges like that are the broker's to give.
func ReservedName(name string) bool { return strings.HasPrefix(name, "amq.") }

// QueueTypes are the types of queues, as x-queue-type has them.
func QueueTypes() []string { return []string{typeClassic, typeQuorum} }

// TypeOf is the type that queues with those arguments have.
func TypeOf(args amqp.Table) string { return queueType(args) }

// WithType returns arguments that make a queue of that type whatever the default of its vhost is.
func WithType(args amqp.Table, typ string) amqp.Table {
	if _, named := args.Get("x-queue-type"); named {
		return args
	}
	return append(slices.Clone(args), amqp.Field{Name: "x-queue-type", Value: typ})
}

// WithDefaultType names the default type of a vhost in the arguments of a queue that names none and can have it.
func WithDefaultType(d QueueDeclare, h *catalog.Vhost) amqp.Table { return withDefaultType(d, h) }
