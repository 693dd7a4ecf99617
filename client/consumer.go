package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// ConsumerConfig says how a consumer works. The zero value is good.
type ConsumerConfig struct {
	// Concurrency is how many handlers run at once. Default 1: one message after the other, in the queue's order.
	Concurrency int
	// Prefetch is how many deliveries the consumer may have, those in handlers included. Default twice Concurrency, and at least 16. At most 65,535.
	Prefetch int
	// OnError settles what a handler returns an error for, unless it has settled it. Default Requeue: without a delivery limit, or a
	// delay, a message that always fails comes again at once.
	OnError Settle
	// AutoAck: deliveries are settled by being sent, and are lost with the stream or the program. Errors of handlers have no effect.
	AutoAck bool
	// Exclusive is refused while there are other consumers, and keeps others away.
	Exclusive bool
	// Priority: consumers with a higher one get messages first.
	Priority int32
	// Tag names the consumer to operators. Default: the node makes one up.
	Tag string
	// Arguments are others of AMQP's for consumers, as x-consumer-timeout.
	Arguments Table
	// Declare is a queue to declare first, each time that the stream begins; Consume's queue is then "". An exclusive one ends with the
	// stream, and a name of the node's is another one each time. Bindings are what it is bound to; their Queue stays empty.
	Declare  *Queue
	Bindings []Binding
	// ShutdownTimeout is how long handlers may go on when the consumer's context has ended, until theirs ends, too. Default 30 s.
	ShutdownTimeout time.Duration
}

const (
	prefetchDefault = 16
	prefetchMost    = 65535
	shutdownTimeout = 30 * time.Second
	// exclusiveWait is how long an exclusive consumer, or one of an exclusive queue, that lost its stream tries to be the only one again: the
	// cluster may not know yet that the stream is gone.
	exclusiveWait = time.Minute
)

// Handler handles a delivery. When it returns, the delivery is settled unless the handler has done so: no error is Ack, an error what
// ConsumerConfig.OnError says. Its context has the values of the consumer's and the span. It ends when the delivery cannot be settled any more,
// context.Cause being ErrDeliveryLost, or ShutdownTimeout after the consumer's.
type Handler func(ctx context.Context, d *Delivery) error

// Consume hands the messages of a queue to a handler until ctx ends. Then it lets handlers end, gives back what has not been handled, waits until the queue has
// that on disk, but no more than 5 s, and returns nil.
// A stream that breaks is opened again, at another node if need be, once the handlers of the former one have returned: their
// messages come again. What cannot be mended so is an error, such as ErrNotFound, also when the queue is deleted later.
func (c *Client) Consume(ctx context.Context, queue string, cfg ConsumerConfig, handler Handler) error {
	x := &consumer{c: c, queue: queue, cfg: cfg, handler: handler}
	if err := x.prepare(); err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	c.consumers.Add(1)
	c.mu.Unlock()
	defer c.consumers.Done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(c.ctx, stop)()
	return x.run(ctx)
}

// consumer is one call of Consume.
type consumer struct {
	c       *Client
	queue   string
	cfg     ConsumerConfig
	handler Handler
	open    *warrenv1.ConsumeOpen
}

// prepare checks the configuration and makes the opening of streams of it.
func (x *consumer) prepare() error {
	cfg := &x.cfg
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 1
	}
	if cfg.Prefetch == 0 {
		cfg.Prefetch = min(max(prefetchDefault, 2*cfg.Concurrency), prefetchMost)
	}
	if cfg.OnError == 0 {
		cfg.OnError = Requeue
	}
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = shutdownTimeout
	}
	switch {
	case x.handler == nil:
		return errors.New("warren: no handler")
	case cfg.Concurrency < 0 || cfg.Prefetch < 0 || cfg.Prefetch > prefetchMost || cfg.Concurrency > cfg.Prefetch:
		return fmt.Errorf("warren: Concurrency %d and Prefetch %d are not from 1 to %d, the first at most the second", cfg.Concurrency, cfg.Prefetch, prefetchMost)
	case cfg.OnError < Ack || cfg.OnError > Release:
		return fmt.Errorf("warren: OnError %d is no way to settle", cfg.OnError)
	case cfg.ShutdownTimeout < 0:
		return errors.New("warren: ShutdownTimeout is negative")
	}
	x.open = &warrenv1.ConsumeOpen{
		Vhost: x.c.cfg.VHost, Queue: x.queue, ConsumerTag: cfg.Tag, AutoAck: cfg.AutoAck, Exclusive: cfg.Exclusive, Priority: cfg.Priority,
	}
	var err error
	if cfg.Arguments != nil {
		if x.open.Arguments, err = cfg.Arguments.proto(); err != nil {
			return err
		}
	}
	if cfg.Declare != nil {
		if x.open.Declare, err = cfg.Declare.proto(); err != nil {
			return err
		}
	}
	for _, b := range cfg.Bindings {
		binding, err := b.proto()
		if err != nil {
			return err
		}
		x.open.Bindings = append(x.open.Bindings, binding)
	}
	if _, err := proto.Marshal(x.open); err != nil {
		return invalid("the queue, the tag or a binding cannot be sent: %v", err)
	}
	return nil
}

// run consumes by one stream after the other.
func (x *consumer) run(ctx context.Context) error {
	w := waits{c: x.c}
	var lost time.Time // when the last stream that was open ended
	for {
		n := x.c.node()
		opened, err := x.stream(ctx, n)
		if opened {
			w.reset()
			lost = time.Now()
		}
		if ctx.Err() != nil {
			if opened && err != nil {
				x.c.log.Warn("the end of a consumer was cut short: what it had goes back to the queue", "queue", x.queue, "node", n.addr, "err", err)
			}
			return nil
		}
		stillTaken := !lost.IsZero() && time.Since(lost) < exclusiveWait && x.taken(err)
		if !passing(err) && !stillTaken {
			return err
		}
		x.c.failed(n)
		x.c.log.Warn("consuming stream lost, trying again", "queue", x.queue, "node", n.addr, "err", err)
		if w.pause(ctx) != nil {
			return nil
		}
	}
}

// taken tells whether a stream is refused because another one has the queue for itself, as the one that was lost had.
func (x *consumer) taken(err error) bool {
	switch {
	case x.cfg.Declare != nil && x.cfg.Declare.Exclusive && errors.Is(err, ErrResourceLocked):
		return true
	case x.cfg.Exclusive:
		return errors.Is(err, ErrAccessRefused) || errors.Is(err, ErrResourceLocked)
	}
	return false
}
