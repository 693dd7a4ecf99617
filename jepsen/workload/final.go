package workload

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/history"
)

// errEnded tells that a consumer's channel has ended.
var errEnded = errors.New("the channel has ended")

// pauseLook is between two looks at what must become true.
const pauseLook = 100 * time.Millisecond

const (
	drainPrefetch = 200
	quietDrain    = 300 * time.Millisecond
)

// await waits until done is true of every queue three times in a row.
func await(ctx context.Context, e *Env, queues []string, done func(db.Count) bool) error {
	var last error
	for times := 0; times < 3; {
		times++
		for _, q := range queues {
			count, err := e.Count(ctx, q)
			switch {
			case err != nil:
				last, times = fmt.Errorf("count %s: %w", q, err), 0
			case !done(count):
				last, times = fmt.Errorf("%s has %d ready, %d unacked, %d leaving", q, count.Ready, count.Unacked, count.Leaving), 0
			}
		}
		sleep(ctx, pauseLook)
		if ctx.Err() != nil {
			return fmt.Errorf("the queues do not come to rest: %w (%w)", ctx.Err(), last)
		}
	}
	return nil
}

// resting tells that nobody holds messages of a queue and none are leaving it.
func resting(c db.Count) bool { return c.Unacked == 0 && c.Leaving == 0 }

// empty tells that a queue has nothing.
func empty(c db.Count) bool { return resting(c) && c.Ready == 0 }

// countAndDrain waits until the queues are at rest, records what the nodes say is in them,
// and takes everything out.
func countAndDrain(ctx context.Context, e *Env, queues ...string) error {
	if err := await(ctx, e, queues, resting); err != nil {
		return err
	}
	for _, q := range queues {
		count, err := e.Count(ctx, q)
		if err != nil {
			return fmt.Errorf("count %s: %w", q, err)
		}
		for by, n := range map[string]int{"the queue's state": count.Ready, "the HTTP API": count.API} {
			e.Record(history.Op{Type: history.OK, F: history.Count, Queue: q, Value: strconv.Itoa(n), Extra: map[string]string{"by": by}})
		}
	}
	for _, q := range queues {
		if err := drain(ctx, e, q); err != nil {
			return fmt.Errorf("drain %s: %w", q, err)
		}
	}
	return nil
}

// drain takes everything out of a queue to which nothing comes any more.
func drain(ctx context.Context, e *Env, queue string) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c, err := e.Open(ctx)
		if err != nil {
			return err
		}
		err = drainWith(ctx, c, queue)
		c.Close()
		if err != nil { // what it held comes again, flagged
			sleep(ctx, pauseLook)
			continue
		}
		count, err := e.Count(ctx, queue)
		if err == nil && empty(count) {
			return nil
		}
		sleep(ctx, pauseLook)
	}
}

// drainWith takes out what is ready, if anything is.
func drainWith(ctx context.Context, c *client.Client, queue string) error {
	var q amqp.Queue
	if err := c.Do("look at "+queue, func(ch *amqp.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err
	}); err != nil || q.Messages == 0 {
		return err
	}
	deliveries, err := c.Consume(queue, drainPrefetch)
	if err != nil {
		return err
	}
	return takeAll(ctx, c, queue, deliveries)
}

// takeAll takes what comes until nothing has come for a while; the caller looks then whether
// that was all.
func takeAll(ctx context.Context, c *client.Client, queue string, deliveries <-chan amqp.Delivery) error {
	quiet := time.NewTimer(quietDrain)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet.C:
			return nil
		case d, open := <-deliveries:
			if !open {
				return errEnded
			}
			// Recorded first: if the ack is lost, it comes again, flagged.
			c.Took(history.Drain, queue, d)
			if err := c.Ack(d); err != nil {
				return err
			}
			quiet.Reset(quietDrain)
		}
	}
}
