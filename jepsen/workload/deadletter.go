package workload

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/history"
)

// Queues of the workload: four sources that die in different ways into a fan-out, and a
// retry loop.
const (
	deadRejected = "dead.rejected"
	deadExpired  = "dead.expired"
	deadLimited  = "dead.limited"
	deadLong     = "dead.long"
	deadFan      = "dead.fan"
	deadTarget1  = "dead.target1"
	deadTarget2  = "dead.target2"
	deadWork     = "dead.work"
	deadWait     = "dead.wait"

	deadLength = 20 // of deadLong
	// deadRounds is how many deaths a message of the loop has before it is acked: two a
	// round.
	deadRounds = 4
)

// deadletter publishes into queues whose messages all die: by rejection, by expiry, by the
// delivery limit and by the maximum length, each into both targets of a fan-out; and into a loop of
// a work queue and a wait queue. At the end each message must be in one place of its
// chain, by content.
type deadletter struct{ opts Options }

func newDeadletter(opts Options) Workload { return &deadletter{opts} }

// Name implements Workload.
func (w *deadletter) Name() string { return "deadletter" }

// Queues implements Workload.
func (w *deadletter) Queues() []string {
	return []string{deadRejected, deadExpired, deadLimited, deadLong, deadTarget1, deadTarget2, deadWork, deadWait}
}

// Setup implements Workload.
func (w *deadletter) Setup(c *client.Client) error {
	to := func(exchange, key string, args amqp.Table) amqp.Table {
		args["x-dead-letter-exchange"] = exchange
		if key != "" {
			args["x-dead-letter-routing-key"] = key
		}
		return args
	}
	return c.Do("declare", func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(deadFan, "fanout", true, false, false, false, nil); err != nil {
			return err
		}
		for name, args := range map[string]amqp.Table{
			deadTarget1: nil, deadTarget2: {"x-queue-type": "quorum"},
			deadRejected: to(deadFan, "", amqp.Table{}),
			deadExpired:  to(deadFan, "", amqp.Table{"x-message-ttl": int32(700)}),
			deadLimited:  to(deadFan, "", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(2)}),
			deadLong:     to(deadFan, "", amqp.Table{"x-max-length": int32(deadLength)}),
			deadWork:     to("", deadWait, amqp.Table{}),
			deadWait:     to("", deadWork, amqp.Table{"x-message-ttl": int32(300)}),
		} {
			if _, err := ch.QueueDeclare(name, true, false, false, false, w.opts.args(args)); err != nil {
				return err
			}
		}
		for _, target := range []string{deadTarget1, deadTarget2} {
			if err := ch.QueueBind(target, "", deadFan, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// Processes implements Workload.
func (w *deadletter) Processes() []Process {
	sources := []string{deadRejected, deadExpired, deadLimited, deadLong, deadWork}
	var n atomic.Uint64
	next := func() client.Message {
		name := sources[n.Add(1)%uint64(len(sources))]
		m := client.Message{Key: name, Queue: name}
		if name == deadExpired && rand.IntN(2) == 0 {
			m.Expiration = strconv.Itoa(rand.IntN(600))
		}
		return m
	}
	always := func(f string) func(client.Delivery) string {
		return func(client.Delivery) string { return f }
	}
	retry := func(d client.Delivery) string {
		if d.Deaths < deadRounds {
			return history.Reject
		}
		return history.Ack
	}
	publish := publisher(float64(w.opts.Rate)/3, next)
	return []Process{
		{Role: "publisher", Live: publish},
		{Role: "publisher", Live: publish},
		{Role: "publisher", Live: publish},
		{Role: "rejecter", Live: consumer(deadRejected, nil, always(history.Reject)), Stays: true},
		{Role: "rejecter", Live: consumer(deadRejected, nil, always(history.Reject)), Stays: true},
		{Role: "requeuer", Live: consumer(deadLimited, nil, always(history.Requeue)), Stays: true},
		{Role: "worker", Live: consumer(deadWork, nil, retry), Stays: true},
		{Role: "worker", Live: consumer(deadWork, nil, retry), Stays: true},
	}
}

// Settle implements Workload: all sources run empty but for what a length limit leaves.
func (w *deadletter) Settle(ctx context.Context, e *Env) error {
	if err := await(ctx, e, []string{deadRejected, deadExpired, deadLimited, deadWork, deadWait}, empty); err != nil {
		return err
	}
	return await(ctx, e, w.Queues(), resting)
}

// Final implements Workload.
func (w *deadletter) Final(ctx context.Context, e *Env) error {
	return countAndDrain(ctx, e, w.Queues()...)
}

// Checkers implements Workload.
func (w *deadletter) Checkers() []checker.Checker {
	both := []string{deadTarget1, deadTarget2}
	return []checker.Checker{
		checker.Lost(), checker.Duplicates(),
		checker.Places(
			checker.Chain{From: deadRejected, To: both, Cause: history.Reject},
			checker.Chain{From: deadExpired, To: both},
			checker.Chain{From: deadLimited, To: both, Cause: history.Requeue},
			checker.Chain{From: deadLong, To: both, Stay: []string{deadLong}},
			checker.Chain{From: deadWork, Stay: []string{deadWork, deadWait}, Consumed: true},
		),
		checker.Counts(), checker.Availability(pauseLimit),
	}
}
