package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/history"
)

const (
	mutexQueue = "mutex.lock"
	// mutexHold is how long a lock is held at most, mutexRest how long a client does without.
	mutexHold = 30 * time.Millisecond
	mutexRest = 40 * time.Millisecond
	// mutexCut is how often a holder loses its connection instead of releasing the lock.
	mutexCut = 0.03
)

// mutex uses a queue with one message as a lock: who has the message, unacked, has the lock
// and gives it back by a requeue. Its token is x-acquired-count, which grows with each return.
type mutex struct{}

func newMutex(Options) Workload { return mutex{} }

// Name implements Workload.
func (mutex) Name() string { return "mutex" }

// Queues implements Workload.
func (mutex) Queues() []string { return []string{mutexQueue} }

// Setup implements Workload.
func (mutex) Setup(c *client.Client) error {
	err := c.Do("declare", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(mutexQueue, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(10_000_000)})
		return err
	})
	if err != nil {
		return err
	}
	return c.Publish(context.Background(), client.Message{Key: mutexQueue, Queue: mutexQueue})
}

// Processes implements Workload.
func (mutex) Processes() []Process {
	var list []Process
	for range 3 {
		list = append(list, Process{Role: "getter", Live: lockByGet}, Process{Role: "consumer", Live: lockByConsume})
	}
	return list
}

// lockByGet asks for the lock again and again.
func lockByGet(ctx context.Context, c *client.Client) error {
	for ctx.Err() == nil {
		op := lockOp(c, history.Acquire)
		op.Type = history.Invoke
		op.Of = c.Record(op)
		var d amqp.Delivery
		var ok bool
		err := c.Do("acquire", func(ch *amqp.Channel) (err error) {
			d, ok, err = ch.Get(mutexQueue, false)
			return err
		})
		switch {
		case err != nil:
			op.Type, op.Error = history.Info, err.Error()
			c.Record(op)
			return err
		case !ok:
			op.Type = history.Fail
			c.Record(op)
		default:
			if err := holdLock(c, op, d); err != nil {
				return err
			}
		}
		sleep(ctx, rand.N(mutexRest))
	}
	return nil
}

// lockByConsume waits for the lock as a consumer.
func lockByConsume(ctx context.Context, c *client.Client) error {
	op := lockOp(c, history.Acquire)
	op.Type = history.Invoke
	of := c.Record(op)
	deliveries, err := c.Consume(mutexQueue, 1)
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
			op.Of = of
			if err := holdLock(c, op, d); err != nil {
				return err
			}
			op = lockOp(c, history.Acquire)
			op.Type = history.Invoke
			of = c.Record(op)
		}
	}
}

func lockOp(c *client.Client, f string) history.Op {
	op := c.Op(history.OK, f)
	op.Queue = mutexQueue
	return op
}

// holdLock ends the acquire op with the lock, holds it for a while and gives it back.
func holdLock(c *client.Client, op history.Op, d amqp.Delivery) error {
	count, _ := d.Headers["x-acquired-count"].(int64) // not there: 0
	op.Type, op.Value = history.OK, strconv.FormatInt(count, 10)
	c.Record(op)
	time.Sleep(rand.N(mutexHold))
	release := lockOp(c, history.Release)
	release.Type, release.Value = history.Invoke, op.Value
	release.Of = c.Record(release)
	lost := c.Lost()
	if !lost && rand.Float64() < mutexCut {
		c.Cut() // gives it back, too
		release.Type, release.Extra = history.OK, map[string]string{"by": "cut"}
		c.Record(release)
		return errEnded
	}
	err := c.Do("release", func(*amqp.Channel) error { return d.Reject(true) })
	release.Type = history.OK
	if err != nil || c.Lost() { // then the lock was lost some time before
		release.Type, release.Error = history.Info, fmt.Sprint(err)
	}
	c.Record(release)
	return err
}

// Settle implements Workload.
func (mutex) Settle(context.Context, *Env) error { return nil }

// Final implements Workload.
func (mutex) Final(ctx context.Context, e *Env) error { return countAndDrain(ctx, e, mutexQueue) }

// Checkers implements Workload.
func (mutex) Checkers() []checker.Checker {
	return []checker.Checker{
		checker.Mutex(), checker.Lost(), checker.Places(checker.Chain{From: mutexQueue, Stay: []string{mutexQueue}}), checker.Counts(),
	}
}
