package workload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/history"
)

// policyEach is how often a policy is changed, by each of two clients.
const policyEach = time.Second

// policyTTL is below what a policy lets messages live.
const policyTTL = 1500 * time.Millisecond

var (
	policySources = []string{"policy.plain", "policy.quorum", "policy.idle"} // nobody consumes the last
	policyTargets = []string{"policy.dead1", "policy.dead2", "policy.dead3"}
)

// policy changes where and when the messages of three queues die, while they do: policies set
// the time to live, the maximum length and the dead-letter exchange and key.
type policy struct{ opts Options }

func newPolicy(opts Options) Workload { return &policy{opts} }

// Name implements Workload.
func (w *policy) Name() string { return "policy" }

// Queues implements Workload.
func (w *policy) Queues() []string {
	return append(append([]string(nil), policySources...), policyTargets...)
}

// Setup implements Workload.
func (w *policy) Setup(c *client.Client) error {
	err := c.Do("declare", func(ch *amqp.Channel) error {
		for _, name := range w.Queues() {
			args := amqp.Table{}
			if name == "policy.quorum" {
				args = amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(100000)}
			}
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				return err
			}
		}
		return ch.ExchangeDeclare("policy.x", "direct", true, false, false, false, nil)
	})
	if err != nil {
		return err
	}
	err = c.Do("bind", func(ch *amqp.Channel) error {
		for _, t := range policyTargets {
			if err := ch.QueueBind(t, t, "policy.x", false, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return calmPolicies(context.Background(), c)
}

// calmPolicies sets policies by which messages die when they are rejected only.
func calmPolicies(ctx context.Context, c *client.Client) error {
	for _, q := range policySources {
		err := putPolicy(ctx, c, q, map[string]any{"dead-letter-exchange": "", "dead-letter-routing-key": policyTargets[0]})
		if err != nil {
			return err
		}
	}
	return nil
}

// putPolicy sets the policy of a queue.
func putPolicy(ctx context.Context, c *client.Client, queue string, definition map[string]any) error {
	op := c.Op(history.Invoke, history.Policy)
	op.Queue, op.Value = queue, fmt.Sprint(definition)
	op.Of = c.Record(op)
	status, err := c.HTTP(ctx, http.MethodPut, "/api/policies/%2F/"+queue, map[string]any{
		"pattern": "^" + queue + "$", "apply-to": "queues", "definition": definition,
	}, nil)
	op.Type = history.OK
	if err == nil && status >= http.StatusMultipleChoices {
		err = fmt.Errorf("set the policy of %s: %s", queue, http.StatusText(status))
	}
	if err != nil {
		op.Type, op.Error = history.Info, err.Error()
	}
	c.Record(op)
	return err
}

// anyPolicy makes a definition. Dead letters always have a way.
func anyPolicy() map[string]any {
	d := map[string]any{"dead-letter-exchange": []string{"", "policy.x"}[rand.IntN(2)], "dead-letter-routing-key": policyTargets[rand.IntN(len(policyTargets))]}
	if rand.IntN(2) == 0 {
		d["message-ttl"] = rand.IntN(int(policyTTL.Milliseconds()))
	}
	if rand.IntN(2) == 0 {
		d["max-length"] = rand.IntN(60)
	}
	return d
}

// Processes implements Workload.
func (w *policy) Processes() []Process {
	var n atomic.Uint64
	publish := publisher(float64(w.opts.Rate)/3, func() client.Message {
		q := policySources[n.Add(1)%uint64(len(policySources))]
		return client.Message{Key: q, Queue: q}
	})
	change := func(ctx context.Context, c *client.Client) error {
		for ctx.Err() == nil {
			if err := putPolicy(ctx, c, policySources[rand.IntN(len(policySources))], anyPolicy()); err != nil {
				return err
			}
			sleep(ctx, rand.N(2*policyEach))
		}
		return nil
	}
	decide := mostly(0.3, 0.05)
	return []Process{
		{Role: "publisher", Live: publish},
		{Role: "publisher", Live: publish},
		{Role: "changer", Live: change},
		{Role: "changer", Live: change},
		{Role: "consumer", Live: consumer(policySources[0], decide)},
		{Role: "consumer", Live: consumer(policySources[1], decide)},
		{Role: "getter", Live: getter(policySources[1], 50*time.Millisecond, decide)},
	}
}

// Settle implements Workload: nothing is to die by itself any more. A message keeps the instant that it was published with, whatever the policy
// says now.
func (w *policy) Settle(ctx context.Context, e *Env) error {
	for {
		c, err := e.Open(ctx)
		if err != nil {
			return err
		}
		err = calmPolicies(ctx, c)
		c.Close()
		if err == nil {
			sleep(ctx, policyTTL)
			return await(ctx, e, w.Queues(), func(c db.Count) bool { return c.Leaving == 0 })
		}
		if sleep(ctx, pauseLook); ctx.Err() != nil {
			return err
		}
	}
}

// Final implements Workload.
func (w *policy) Final(ctx context.Context, e *Env) error {
	return countAndDrain(ctx, e, w.Queues()...)
}

// Checkers implements Workload.
func (w *policy) Checkers() []checker.Checker {
	var chains []checker.Chain
	for _, q := range policySources {
		chains = append(chains, checker.Chain{From: q, Stay: append([]string{q}, policyTargets...), Consumed: q != "policy.idle"})
	}
	return []checker.Checker{
		checker.Lost(), checker.Duplicates(), checker.Order(policySources...), checker.Places(chains...),
		checker.Counts(),
	}
}
