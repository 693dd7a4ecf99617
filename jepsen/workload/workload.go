package workload

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/history"
)

// Workload is what the clients of a run do.
type Workload interface {
	// Name is the name in the registry.
	Name() string
	// Queues are those whose leaders the faults are aimed at.
	Queues() []string
	// Setup declares what the processes need, on a new cluster.
	Setup(c *client.Client) error
	// Processes are the clients. It is called once.
	Processes() []Process
	// Settle returns when what the processes that stay must do is done. All faults are
	// healed by then and the others have ended.
	Settle(ctx context.Context, e *Env) error
	// Final looks at what is left when all processes have ended: mostly, it counts and drains
	// all queues.
	Final(ctx context.Context, e *Env) error
	// Checkers judge the history.
	Checkers() []checker.Checker
}

// Process is a client that connects again and again.
type Process struct {
	// Role says in a word what it does.
	Role string
	// Live is one life: it uses c until ctx ends, or returns before. c is closed by the
	// caller. An error says why the connection is of no more use.
	Live func(ctx context.Context, c *client.Client) error
	// Stays says that it goes on until Settle has returned.
	Stays bool
}

// Env is what Settle and Final have besides.
type Env struct {
	// Open connects a client of the process history.Final to any node.
	Open func(ctx context.Context) (*client.Client, error)
	// Count asks the cluster for what is in a queue.
	Count func(ctx context.Context, queue string) (db.Count, error)
	// Record records an operation of the process history.Final.
	Record func(op history.Op)
}

// Options are what the caller may choose.
type Options struct {
	// Rate is how many messages are published per second, over all publishers.
	Rate int
	// Nodes is the number of nodes.
	Nodes int
	// Seed chooses what is left to chance. What clients do with a message also depends on
	// which comes when, so that a seed does not repeat a run exactly.
	Seed uint64
	// Quorum says that the system replicates only what is declared as a quorum queue, and moves dead
	// letters at least once only if it is asked to: RabbitMQ.
	Quorum bool
}

// args returns the arguments with which a queue is declared so that it promises what it does
// with Warren, as far as the system can.
func (o Options) args(args amqp.Table) amqp.Table {
	if !o.Quorum {
		return args
	}
	all := amqp.Table{"x-queue-type": "quorum"}
	maps.Copy(all, args)
	// With at-least-once a full queue must refuse publishers: one that drops its head for a maximum
	// length has at-most-once only.
	if all["x-dead-letter-exchange"] != nil && all["x-max-length"] == nil {
		all["x-dead-letter-strategy"], all["x-overflow"] = "at-least-once", "reject-publish"
	}
	return all
}

const (
	// burstMax is how many messages a publisher sends before it waits for confirms.
	burstMax = 8
	// lifeMin and lifeMax bound how long a consumer keeps its connection.
	lifeMin, lifeMax = 3 * time.Second, 15 * time.Second
	prefetch         = 20
)

// publisher returns a Live that publishes what next says, rate messages a second.
func publisher(rate float64, next func() client.Message) func(context.Context, *client.Client) error {
	return publisherTelling(rate, next, func(*client.Pending) {})
}

// publisherTelling is publisher, and tells of what was confirmed.
func publisherTelling(rate float64, next func() client.Message, confirmed func(*client.Pending)) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		for ctx.Err() == nil {
			begun := time.Now()
			var pending []*client.Pending
			for range 1 + rand.IntN(burstMax) {
				p, err := c.Send(ctx, next())
				if err != nil {
					return err
				}
				pending = append(pending, p)
			}
			var lost error
			for _, p := range pending {
				// What was sent is waited for also when the load ends.
				if err := p.Wait(context.WithoutCancel(ctx)); err != nil {
					lost = err
				}
				if p.Confirmed {
					confirmed(p)
				}
			}
			if lost != nil {
				return lost
			}
			pause := time.Duration(float64(len(pending)) / rate * float64(time.Second))
			sleep(ctx, pause-time.Since(begun))
		}
		return nil
	}
}

// consumer returns a Live that consumes queue and settles each delivery as decide says.
func consumer(queue string, decide func(client.Delivery) string) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		deliveries, err := c.Consume(queue, prefetch)
		if err != nil {
			return err
		}
		life := time.NewTimer(lifeMin + rand.N(lifeMax-lifeMin))
		defer life.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-life.C:
				return nil
			case d, open := <-deliveries:
				if !open {
					return errEnded
				}
				took := c.Took(history.Deliver, queue, d)
				if err := c.Settle(decide(took), took); err != nil {
					return err
				}
			}
		}
	}
}

// getter returns a Live that takes messages by basic.get.
func getter(queue string, every time.Duration, decide func(client.Delivery) string) func(context.Context, *client.Client) error {
	return func(ctx context.Context, c *client.Client) error {
		for ctx.Err() == nil {
			d, ok, err := c.Get(queue)
			if err != nil {
				return err
			}
			if ok {
				if err := c.Settle(decide(d), d); err != nil {
					return err
				}
			}
			sleep(ctx, every)
		}
		return nil
	}
}

// mostly returns a decision that acks but for a part of the deliveries that are rejected, and one
// that are requeued.
func mostly(rejected, requeued float64) func(client.Delivery) string {
	return func(client.Delivery) string {
		switch x := rand.Float64(); {
		case x < rejected:
			return history.Reject
		case x < rejected+requeued:
			return history.Requeue
		}
		return history.Ack
	}
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
