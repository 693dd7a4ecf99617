package client

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/history"
)

// Message is a publish.
type Message struct {
	Exchange, Key string
	// Queue is the queue that it goes to, for the history.
	Queue      string
	Headers    amqp.Table
	Expiration string // ms
	Priority   uint8
	// Extra is for the history.
	Extra map[string]string
}

// confirm is the result of a publish.
type confirm interface {
	Done() <-chan struct{}
	Acked() bool
}

// Pending is a publish that waits for its confirm.
type Pending struct {
	// ID is the message's.
	ID history.MessageID
	// Confirmed is set by Wait.
	Confirmed bool

	c       *Client
	op      history.Op
	confirm confirm
	late    time.Time
}

// errUnknown tells that the outcome of a publish is not known, and that the client is
// of no more use.
var errUnknown = errors.New("no confirm")

// Send publishes a message under a new ID. Its outcome must be asked for, by Wait, in the order
// of Send.
func (c *Client) Send(ctx context.Context, m Message) (*Pending, error) {
	c.seq++
	p := &Pending{c: c, ID: history.MessageID{Process: c.Process, Life: c.Life, Seq: c.seq}, late: time.Now().Add(c.cfg.Timeout)}
	p.op = c.Op(history.Invoke, history.Publish)
	p.op.Queue, p.op.Value, p.op.Extra = m.Queue, p.ID.String(), m.Extra
	p.op.Of = c.Record(p.op)
	content := body(p.ID.String(), c.cfg.BodyBytes)
	if c.rpc != nil {
		late := time.AfterFunc(c.cfg.Timeout, c.Cut)
		defer late.Stop()
		confirm, err := c.rpc.send(m, p.ID.String(), content)
		if p.confirm = confirm; err != nil {
			return nil, p.end(history.Info, err)
		}
		return p, nil
	}
	err := c.Do("publish", func(ch *amqp.Channel) (err error) {
		p.confirm, err = ch.PublishWithDeferredConfirmWithContext(ctx, m.Exchange, m.Key, false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: p.ID.String(), Headers: m.Headers,
			Expiration: m.Expiration, Priority: m.Priority, Body: content,
		})
		return err
	})
	if err != nil {
		return nil, p.end(history.Info, err)
	}
	return p, nil
}

// Wait waits for the confirm. An error means that the client is of no more use; a
// message that was refused is none.
func (p *Pending) Wait(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, p.late)
	defer cancel()
	select {
	case <-p.confirm.Done():
	case <-ctx.Done():
		return p.end(history.Info, errUnknown)
	}
	if p.confirm.Acked() {
		p.Confirmed = true
		return p.end(history.OK, nil)
	}
	if r, ok := p.confirm.(*rpcConfirm); ok {
		if r.result == nil {
			return p.end(history.Info, errUnknown)
		}
		p.op.Error = r.result.GetOutcome().String() + " " + r.result.GetError().GetMessage()
		return p.end(history.Fail, nil)
	}
	if p.c.ch.IsClosed() { // the library calls what is open then refused
		return p.end(history.Info, errUnknown)
	}
	p.op.Error = "basic.nack"
	return p.end(history.Fail, nil)
}

// end records how the publish ended and returns err.
func (p *Pending) end(t history.Type, err error) error {
	p.op.Type = t
	if err != nil {
		p.op.Error = err.Error()
	}
	p.c.Record(p.op)
	return err
}

// Publish sends a message and waits for its confirm.
func (c *Client) Publish(ctx context.Context, m Message) error {
	p, err := c.Send(ctx, m)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

// Queue is where the message goes, as Message said.
func (p *Pending) Queue() string { return p.op.Queue }
