package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/history"
)

const (
	delayedExchange = "delayed.x"
	delayedOut      = "delayed.out"
	delayedTTL      = "delayed.ttl"
	delayedAfter    = "delayed.after"
	delayedRetry    = "delayed.retry"

	delayedMax   = 3 * time.Second        // of x-delay and expiration
	retryPause   = 400 * time.Millisecond // of delayedRetry
	retryReturns = 2                      // how often its messages are returned before they are acked
)

// delayed sends messages that must come later, each once and not before its time: through a delayed
// exchange, by expiry from a queue into another, and by the retry delay of a queue to which
// they are returned.
type delayed struct {
	opts Options

	mu sync.Mutex
	// taken says of what was confirmed or came out of the delayed exchange whether both are so.
	taken map[string]bool
}

func newDelayed(opts Options) Workload { return &delayed{opts: opts, taken: map[string]bool{}} }

// Name implements Workload.
func (w *delayed) Name() string { return "delayed" }

// Queues implements Workload.
func (w *delayed) Queues() []string {
	return []string{delayedOut, delayedTTL, delayedAfter, delayedRetry}
}

// Setup implements Workload.
func (w *delayed) Setup(c *client.Client) error {
	return c.Do("declare", func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(delayedExchange, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "direct"}); err != nil {
			return err
		}
		for name, args := range map[string]amqp.Table{
			delayedOut: nil, delayedAfter: nil,
			delayedTTL: {"x-message-ttl": int32(delayedMax.Milliseconds()), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": delayedAfter},
			delayedRetry: {
				"x-queue-type": "quorum", "x-delivery-limit": int32(100000), "x-delayed-retry-type": "all",
				"x-delayed-retry-min": int32(retryPause.Milliseconds()), "x-delayed-retry-max": int32(retryPause.Milliseconds()),
			},
		} {
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				return err
			}
		}
		return ch.QueueBind(delayedOut, "out", delayedExchange, false, nil)
	})
}

// next makes the messages of the three ways in turns.
func (w *delayed) next(n uint64) client.Message {
	due := rand.N(delayedMax)
	ms := strconv.FormatInt(due.Milliseconds(), 10)
	extra := map[string]string{history.Due: ms}
	switch n % 3 {
	case 0:
		return client.Message{Exchange: delayedExchange, Key: "out", Queue: delayedExchange, Extra: extra, Headers: amqp.Table{"x-delay": int32(due.Milliseconds())}}
	case 1:
		return client.Message{Key: delayedTTL, Queue: delayedTTL, Extra: extra, Expiration: ms}
	}
	return client.Message{Key: delayedRetry, Queue: delayedRetry}
}

// Processes implements Workload.
func (w *delayed) Processes() []Process {
	var n atomic.Uint64
	publish := publisherTelling(float64(w.opts.Rate)/4, func() client.Message { return w.next(n.Add(1)) }, func(p *client.Pending) {
		if p.Queue() == delayedExchange {
			w.note(p.ID.String(), false)
		}
	})
	take := func(d client.Delivery) string {
		if d.Queue == delayedOut {
			w.note(d.ID, true)
		}
		return history.Ack
	}
	retry := func(d client.Delivery) string {
		if attempts, _ := d.Headers["x-acquired-count"].(int64); attempts < retryReturns {
			return history.Requeue
		}
		return history.Ack
	}
	return []Process{
		{Role: "publisher", Live: publish},
		{Role: "publisher", Live: publish},
		{Role: "consumer", Live: consumer(delayedOut, take), Stays: true},
		{Role: "consumer", Live: consumer(delayedOut, take), Stays: true},
		{Role: "consumer", Live: consumer(delayedAfter, take), Stays: true},
		{Role: "retrier", Live: consumer(delayedRetry, retry), Stays: true},
		{Role: "retrier", Live: consumer(delayedRetry, retry), Stays: true},
	}
}

// note notes that a message of the delayed exchange was confirmed, or came.
func (w *delayed) note(id string, came bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken[id] = w.taken[id] || came
}

// missing counts the confirmed messages of the delayed exchange that have not come.
func (w *delayed) missing() (n int, one string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, came := range w.taken {
		if !came {
			n, one = n+1, id
		}
	}
	return n, one
}

// Settle implements Workload: nobody tells how much a delayed exchange has, so what it must
// have is waited for.
func (w *delayed) Settle(ctx context.Context, e *Env) error {
	sleep(ctx, delayedMax+retryPause) // what was not confirmed may be there, too
	for n, id := w.missing(); n > 0; n, id = w.missing() {
		if ctx.Err() != nil {
			return fmt.Errorf("%d messages do not come out of %s, %s is one: %w", n, delayedExchange, id, ctx.Err())
		}
		sleep(ctx, pauseLook)
	}
	return await(ctx, e, w.Queues(), empty)
}

// Final implements Workload.
func (w *delayed) Final(ctx context.Context, e *Env) error {
	return countAndDrain(ctx, e, w.Queues()...)
}

// Checkers implements Workload.
func (w *delayed) Checkers() []checker.Checker {
	return []checker.Checker{
		checker.Early(map[string]time.Duration{delayedRetry: retryPause}), checker.Lost(), checker.Duplicates(),
		checker.Places(
			checker.Chain{From: delayedExchange, Stay: []string{delayedOut}, Consumed: true},
			checker.Chain{From: delayedTTL, Stay: []string{delayedTTL, delayedAfter}, Consumed: true},
			checker.Chain{From: delayedRetry, Stay: []string{delayedRetry}, Consumed: true},
		),
		checker.Counts(),
	}
}
