package workload

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/history"
)

const (
	priorityPlain  = "priority.plain"
	priorityQuorum = "priority.quorum"
	priorityLeft   = "priority.left" // nobody consumes it

	priorityMax = 5
)

// priority publishes with priorities to queues of both types that are consumed, and to one that
// is only drained.
type priority struct{ opts Options }

func newPriority(opts Options) Workload { return &priority{opts} }

// Name implements Workload.
func (w *priority) Name() string { return "priority" }

// Queues implements Workload.
func (w *priority) Queues() []string { return []string{priorityPlain, priorityQuorum, priorityLeft} }

// Setup implements Workload.
func (w *priority) Setup(c *client.Client) error {
	plain := amqp.Table{"x-max-priority": int32(priorityMax)}
	return c.Do("declare", func(ch *amqp.Channel) error {
		for name, args := range map[string]amqp.Table{
			priorityPlain: plain, priorityLeft: plain,
			priorityQuorum: {"x-queue-type": "quorum", "x-delivery-limit": int32(100000)},
		} {
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				return err
			}
		}
		return nil
	})
}

// Processes implements Workload.
func (w *priority) Processes() []Process {
	var n atomic.Uint64
	next := func() client.Message {
		name := w.Queues()[n.Add(1)%3]
		p := rand.IntN(priorityMax + 1)
		return client.Message{Key: name, Queue: name, Priority: uint8(p), Extra: map[string]string{history.Priority: strconv.Itoa(p)}}
	}
	publish := publisher(float64(w.opts.Rate)/3, next)
	decide := mostly(0, 0.05)
	list := []Process{{Role: "publisher", Live: publish}, {Role: "publisher", Live: publish}}
	for _, q := range []string{priorityPlain, priorityQuorum} {
		list = append(list,
			Process{Role: "consumer", Live: consumer(q, decide)},
			Process{Role: "getter", Live: getter(q, 20*time.Millisecond, decide)})
	}
	return list
}

// Settle implements Workload.
func (w *priority) Settle(context.Context, *Env) error { return nil }

// Final implements Workload.
func (w *priority) Final(ctx context.Context, e *Env) error {
	return countAndDrain(ctx, e, w.Queues()...)
}

// Checkers implements Workload.
func (w *priority) Checkers() []checker.Checker {
	var chains []checker.Chain
	for _, q := range w.Queues() {
		chains = append(chains, checker.Chain{From: q, Stay: []string{q}, Consumed: q != priorityLeft})
	}
	return []checker.Checker{
		checker.Lost(), checker.Duplicates(), checker.Order(w.Queues()...), checker.Priorities(priorityPlain, priorityLeft),
		checker.Places(chains...), checker.Counts(),
	}
}
