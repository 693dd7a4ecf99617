package amqp

import (
	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// replyUnless answers a request unless it failed or asked for no answer.
func (ch *channel) replyUnless(err error, noWait bool, ok wire.Method) error {
	if err == nil && !noWait {
		ch.reply(ok)
	}
	return err
}

func (ch *channel) exchangeMethod(m wire.Method) error {
	b := ch.c.broker
	ctx, cancel := ch.c.operation()
	defer cancel()
	switch m := m.(type) {
	case *wire.ExchangeDeclare:
		err := b.DeclareExchange(ctx, broker.ExchangeDeclare{
			Name: stripLines(m.Exchange), Type: m.Type, Passive: m.Passive, Durable: m.Durable,
			AutoDelete: m.AutoDelete, Internal: m.Internal, Arguments: m.Arguments,
		})
		return ch.replyUnless(err, m.NoWait, &wire.ExchangeDeclareOk{})
	case *wire.ExchangeDelete:
		err := b.DeleteExchange(ctx, stripLines(m.Exchange), m.IfUnused)
		return ch.replyUnless(err, m.NoWait, &wire.ExchangeDeleteOk{})
	case *wire.ExchangeBind:
		err := b.Bind(ctx, broker.Binding{
			Source: stripLines(m.Source), Destination: stripLines(m.Destination), ToExchange: true,
			Key: m.RoutingKey, Arguments: m.Arguments,
		})
		return ch.replyUnless(err, m.NoWait, &wire.ExchangeBindOk{})
	case *wire.ExchangeUnbind:
		err := b.Unbind(ctx, broker.Binding{
			Source: stripLines(m.Source), Destination: stripLines(m.Destination), ToExchange: true,
			Key: m.RoutingKey, Arguments: m.Arguments,
		})
		return ch.replyUnless(err, m.NoWait, &wire.ExchangeUnbindOk{})
	}
	return unexpectedMethod(m.ID())
}

func (ch *channel) queueMethod(m wire.Method) error {
	switch m := m.(type) {
	case *wire.QueueDeclare:
		return ch.declareQueue(m)
	case *wire.QueueBind:
		err := ch.bindQueue(m.ID(), m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
		return ch.replyUnless(err, m.NoWait, &wire.QueueBindOk{})
	case *wire.QueueUnbind:
		err := ch.bindQueue(m.ID(), m.Queue, m.Exchange, m.RoutingKey, m.Arguments)
		return ch.replyUnless(err, false, &wire.QueueUnbindOk{})
	case *wire.QueuePurge:
		queue, err := ch.queueName(m.Queue, m.ID())
		if err != nil {
			return err
		}
		ctx, cancel := ch.c.operation()
		defer cancel()
		n, err := ch.c.broker.PurgeQueue(ctx, queue)
		return ch.replyUnless(err, m.NoWait, &wire.QueuePurgeOk{MessageCount: n})
	case *wire.QueueDelete:
		queue, err := ch.queueName(m.Queue, m.ID())
		if err != nil {
			return err
		}
		ctx, cancel := ch.c.operation()
		defer cancel()
		return ch.whileDeleting(func() error {
			n, err := ch.c.broker.DeleteQueue(ctx, queue, m.IfUnused, m.IfEmpty)
			return ch.replyUnless(err, m.NoWait, &wire.QueueDeleteOk{MessageCount: n})
		})
	}
	return unexpectedMethod(m.ID())
}

func (ch *channel) declareQueue(m *wire.QueueDeclare) error {
	name := stripLines(m.Queue)
	if m.Passive && name == "" {
		return notFoundf(m.ID(), "no queue '' in vhost '%s'", ch.c.vhost)
	}
	ctx, cancel := ch.c.operation()
	defer cancel()
	ok, err := ch.c.broker.DeclareQueue(ctx, broker.QueueDeclare{
		Name: name, Passive: m.Passive, Durable: m.Durable, Exclusive: m.Exclusive,
		AutoDelete: m.AutoDelete, Arguments: m.Arguments,
	})
	if err != nil {
		return err
	}
	ch.lastQueue = ok.Name
	return ch.replyUnless(nil, m.NoWait, &wire.QueueDeclareOk{
		Queue: ok.Name, MessageCount: ok.Messages, ConsumerCount: ok.Consumers,
	})
}

// bindQueue binds or unbinds, by id. Without queue and key both are the queue
// declared last.
func (ch *channel) bindQueue(id wire.MethodID, queue, exchange, key string, args wire.Table) error {
	name, err := ch.queueName(queue, id)
	if err != nil {
		return err
	}
	if queue == "" && key == "" {
		key = name
	}
	ctx, cancel := ch.c.operation()
	defer cancel()
	binding := broker.Binding{Source: stripLines(exchange), Destination: name, Key: key, Arguments: args}
	if id == wire.MethodQueueBind {
		return ch.c.broker.Bind(ctx, binding)
	}
	return ch.c.broker.Unbind(ctx, binding)
}

// queueName resolves "" to the queue declared last on the channel.
func (ch *channel) queueName(name string, id wire.MethodID) (string, error) {
	if name != "" {
		return stripLines(name), nil
	}
	if ch.lastQueue == "" {
		return "", notFoundf(id, "no previously declared queue")
	}
	return ch.lastQueue, nil
}
