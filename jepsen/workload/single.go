package workload

import (
	"context"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/history"
)

const (
	singlePlain  = "single.plain"
	singleQuorum = "single.quorum"
)

// single publishes to two queues with a single active consumer. Consumers that come and go wait for
// their turn; all is acked in the order in which it comes.
type single struct{ opts Options }

func newSingle(opts Options) Workload { return &single{opts} }

// Name implements Workload.
func (w *single) Name() string { return "single" }

// Queues implements Workload.
func (w *single) Queues() []string { return []string{singlePlain, singleQuorum} }

// Setup implements Workload.
func (w *single) Setup(c *client.Client) error {
	plain := amqp.Table{"x-single-active-consumer": true}
	quorum := amqp.Table{"x-single-active-consumer": true, "x-queue-type": "quorum", "x-delivery-limit": int32(100000)}
	return c.Do("declare", func(ch *amqp.Channel) error {
		for name, args := range map[string]amqp.Table{singlePlain: plain, singleQuorum: quorum} {
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				return err
			}
		}
		return nil
	})
}

// Processes implements Workload.
func (w *single) Processes() []Process {
	var n atomic.Uint64
	next := func() client.Message {
		name := w.Queues()[n.Add(1)%2]
		return client.Message{Key: name, Queue: name}
	}
	publish := publisher(float64(w.opts.Rate)/2, next)
	list := []Process{{Role: "publisher", Live: publish}, {Role: "publisher", Live: publish}}
	for range 3 {
		for _, q := range w.Queues() {
			consume := consumer(q, func(client.Delivery) string { return history.Ack })
			list = append(list, Process{Role: "consumer", Live: consume})
		}
	}
	return list
}

// Settle implements Workload.
func (w *single) Settle(context.Context, *Env) error { return nil }

// Final implements Workload.
func (w *single) Final(ctx context.Context, e *Env) error {
	return countAndDrain(ctx, e, w.Queues()...)
}

// Checkers implements Workload.
func (w *single) Checkers() []checker.Checker {
	return []checker.Checker{
		checker.Turns(w.Queues()...), checker.Lost(), checker.Duplicates(), checker.Order(w.Queues()...),
		checker.Counts(),
	}
}
