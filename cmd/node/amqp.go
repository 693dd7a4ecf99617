package main

import (
	"context"
	"net"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/auth/attempts"
	"github.com/warrenmq/warren/broker"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	"github.com/warrenmq/warren/transport"
)

// amqpBroker is the broker as the AMQP gateway sees it.
type amqpBroker struct {
	b *broker.Broker
	n *running // for logins
}

func (a amqpBroker) Login(ctx context.Context, mechanism string, response []byte, client net.Addr) (broker.User, error) {
	if user, inner := innerUser(response, client); inner {
		return a.b.LoginToken(ctx, auth.MechanismExternal, broker.Token{User: user}, nil, true) // of the catalog, whatever backends there are
	}
	u, _, err := a.n.logIn(ctx, attempts.AMQP, mechanism, response, from(client))
	return u, err
}

func (a amqpBroker) LoginExternal(ctx context.Context, peer string, response []byte, client net.Addr) (broker.User, error) {
	return a.b.LoginExternal(ctx, peer, response, a.n.caller(from(client)))
}

func (a amqpBroker) Open(ctx context.Context, u broker.User, vhost string, info broker.ConnInfo) (gateway.Conn, error) {
	c, err := a.b.Open(ctx, u, vhost, info)
	if err != nil {
		return nil, err
	}
	return amqpConn{c}, nil
}

type amqpConn struct{ *broker.Conn }

func (c amqpConn) OpenChannel(ctx context.Context, s gateway.Sink) (gateway.Channel, error) {
	ch, err := c.Conn.OpenChannel(ctx, amqpSink{s})
	if err != nil {
		return nil, err
	}
	ch.Names(s.Number())
	return amqpChannel{ch}, nil
}

type amqpChannel struct{ *broker.Channel }

func (c amqpChannel) Consume(ctx context.Context, spec broker.Consume) (gateway.Consumer, error) {
	consumer, err := c.Channel.Consume(ctx, spec)
	if err != nil {
		return nil, err
	}
	return consumer, nil
}

type amqpSink struct{ gateway.Sink }

func (s amqpSink) Deliver(d *broker.Delivery)   { s.Sink.Deliver(d.Consumer, d) }
func (s amqpSink) Cancelled(c *broker.Consumer) { s.Sink.Cancelled(c) }

func (s amqpSink) TimedOut(c *broker.Consumer, after time.Duration) {
	if c == nil {
		s.Sink.TimedOut(nil, after)
		return
	}
	s.Sink.TimedOut(c, after)
}

// replyLink is the mesh as direct replies use it.
type replyLink struct{ mesh *transport.Mesh }

func (l replyLink) Send(node string, payload []byte) error {
	return l.mesh.Send(transport.NodeID(node), broker.ReplyKind, payload)
}

func (l replyLink) Ask(ctx context.Context, node string, payload []byte) ([]byte, error) {
	return l.mesh.Call(ctx, transport.NodeID(node), broker.MethodReply, payload)
}
