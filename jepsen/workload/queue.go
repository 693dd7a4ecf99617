package workload

import (
	"context"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
)

const (
	queuePlain  = "queue.plain"
	queueQuorum = "queue.quorum"
	queueDead   = "queue.dead"
)

// queue publishes with confirms to two queues, of which consumers and getters ack
// most, reject some into a dead-letter queue, and requeue some. What is left is drained.
type queue struct{ opts Options }

func newQueue(opts Options) Workload { return &queue{opts} }

// Name implements Workload.
func (w *queue) Name() string { return "queue" }

// Queues implements Workload.
func (w *queue) Queues() []string { return []string{queuePlain, queueQuorum} }

// Setup implements Workload.
func (w *queue) Setup(c *client.Client) error {
	dead := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queueDead}
	quorum := amqp.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queueDead,
		"x-queue-type": "quorum", "x-delivery-limit": int32(100000), // out of the way
	}
	return c.Do("declare", func(ch *amqp.Channel) error {
		for name, args := range map[string]amqp.Table{queuePlain: dead, queueQuorum: quorum, queueDead: nil} {
			if _, err := ch.QueueDeclare(name, true, false, false, false, w.opts.args(args)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Processes implements Workload.
func (w *queue) Processes() []Process {
	var n atomic.Uint64
	next := func() client.Message {
		name := queuePlain
		if n.Add(1)%2 == 0 {
			name = queueQuorum
		}
		return client.Message{Key: name, Queue: name}
	}
	decide := mostly(0.04, 0.04)
	publish := publisher(float64(w.opts.Rate)/3, next)
	return []Process{
		{Role: "publisher", Live: publish},
		{Role: "publisher", Live: publish},
		{Role: "publisher", Live: publish},
		{Role: "consumer", Live: consumer(queuePlain, decide)},
		{Role: "consumer", Live: consumer(queuePlain, decide)},
		{Role: "consumer", Live: consumer(queueQuorum, decide)},
		{Role: "getter", Live: getter(queuePlain, 50*time.Millisecond, decide)},
		{Role: "getter", Live: getter(queueQuorum, 50*time.Millisecond, decide)},
	}
}

// Settle implements Workload.
func (w *queue) Settle(context.Context, *Env) error { return nil }

// Final implements Workload.
func (w *queue) Final(ctx context.Context, e *Env) error {
	return countAndDrain(ctx, e, queuePlain, queueQuorum, queueDead)
}

// Checkers implements Workload.
func (w *queue) Checkers() []checker.Checker {
	chain := func(q string) checker.Chain {
		return checker.Chain{From: q, To: []string{queueDead}, Stay: []string{q}, Consumed: true, Cause: "reject"}
	}
	return []checker.Checker{
		checker.Lost(), checker.Duplicates(), checker.Order(w.Queues()...),
		checker.Places(chain(queuePlain), chain(queueQuorum)), checker.Counts(),
	}
}
