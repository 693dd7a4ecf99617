package workload

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/history"
)

// Queues of the workload: four sources that die in different ways into a fan-out, a
// retry loop, and two whose letters are sent back: into a third queue, or to where they died.
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
	deadSent     = "dead.sent"
	deadParked   = "dead.parked"
	deadBack     = "dead.back"
	deadAgain    = "dead.again"
	deadParked2  = "dead.parked2"

	deadLength = 20 // of deadLong
	// deadRounds is how many deaths a message of the loop has before it is acked: two a
	// round.
	deadRounds = 4
	// redriveEach is how often letters are sent back.
	redriveEach = 600 * time.Millisecond
)

// deadletter publishes into queues whose messages all die: by rejection, by expiry, by the
// delivery limit and by the maximum length, each into both targets of a fan-out; and into a loop of
// a work queue and a wait queue; and into two queues from whose dead-letter queues they are sent back by
// the management API's redrive. At the end each message must be in one place of its chain, by content.
type deadletter struct{ opts Options }

func newDeadletter(opts Options) Workload { return &deadletter{opts} }

// Name implements Workload.
func (w *deadletter) Name() string { return "deadletter" }

// Queues implements Workload.
func (w *deadletter) Queues() []string {
	queues := []string{deadRejected, deadExpired, deadLimited, deadLong, deadTarget1, deadTarget2, deadWork, deadWait}
	if w.opts.Quorum { // RabbitMQ has no redrive
		return queues
	}
	return append(queues, deadSent, deadParked, deadBack, deadAgain, deadParked2)
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
			deadSent:     to("", deadParked, amqp.Table{}),
			deadAgain:    to("", deadParked2, amqp.Table{}),
			deadParked:   nil, deadBack: nil, deadParked2: {"x-queue-type": "quorum"},
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
	if !w.opts.Quorum {
		sources = append(sources, deadSent, deadAgain)
	}
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
	perhaps := func(client.Delivery) string { return []string{history.Ack, history.Reject}[rand.IntN(2)] }
	retry := func(d client.Delivery) string {
		if d.Deaths < deadRounds {
			return history.Reject
		}
		return history.Ack
	}
	publish := publisher(float64(w.opts.Rate)/3, next)
	list := []Process{
		{Role: "publisher", Live: publish},
		{Role: "publisher", Live: publish},
		{Role: "publisher", Live: publish},
		{Role: "rejecter", Live: consumer(deadRejected, always(history.Reject)), Stays: true},
		{Role: "rejecter", Live: consumer(deadRejected, always(history.Reject)), Stays: true},
		{Role: "requeuer", Live: consumer(deadLimited, always(history.Requeue)), Stays: true},
		{Role: "worker", Live: consumer(deadWork, retry), Stays: true},
		{Role: "worker", Live: consumer(deadWork, retry), Stays: true},
	}
	if w.opts.Quorum {
		return list
	}
	return append(list, []Process{
		{Role: "rejecter", Live: consumer(deadSent, always(history.Reject)), Stays: true},
		{Role: "worker", Live: consumer(deadAgain, perhaps), Stays: true},
		{Role: "redriver", Live: redriver(deadParked, map[string]any{"to": "queue", "queue": deadBack}), Stays: true},
		{Role: "redriver", Live: redriver(deadParked2, map[string]any{"to": "last"}), Stays: true},
	}...)
}

// redriver returns a Live that asks for a redrive of a queue again and again.
func redriver(queue string, request map[string]any) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		for ctx.Err() == nil {
			op := c.Op(history.Invoke, history.Redrive)
			op.Queue = queue
			op.Of = c.Record(op)
			status, err := c.HTTP(ctx, http.MethodPost, "/api/warren/queues/%2F/"+queue+"/redrive", request, nil)
			switch {
			case err != nil:
				op.Type, op.Error = history.Info, err.Error()
			case status >= http.StatusMultipleChoices:
				op.Type, op.Error = history.Fail, strconv.Itoa(status) // one is under way, mostly
			default:
				op.Type = history.OK
			}
			c.Record(op)
			if err != nil || c.Lost() {
				return errEnded
			}
			sleep(ctx, rand.N(2*redriveEach))
		}
		return nil
	}
}

// Settle implements Workload: all sources run empty but for what a length limit leaves.
func (w *deadletter) Settle(ctx context.Context, e *Env) error {
	sources := []string{deadRejected, deadExpired, deadLimited, deadWork, deadWait, deadSent, deadParked, deadAgain, deadParked2}
	if err := await(ctx, e, sources, empty); err != nil {
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
			checker.Chain{From: deadSent, Stay: []string{deadSent, deadParked, deadBack}},
			checker.Chain{From: deadAgain, Stay: []string{deadAgain, deadParked2}, Consumed: true},
		),
		checker.Counts(),
	}
}
