package workload

import (
	"context"
	"fmt"
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

const (
	churnLoad  = "churn.load"
	churnNames = 3
	churnPause = 60 * time.Millisecond
)

// churn declares, looks for and deletes queues of a few names through all nodes, and exchanges and
// bindings by which messages go into a queue that stays.
type churn struct {
	opts Options
	// last is the argument that was last declared; the next one is larger by one.
	last atomic.Int64
	// exchanges numbers exchanges: each is declared once.
	exchanges atomic.Int64
}

func newChurn(opts Options) Workload {
	w := &churn{opts: opts}
	w.last.Store(1000)
	return w
}

// Name implements Workload.
func (w *churn) Name() string { return "churn" }

// Queues implements Workload.
func (w *churn) Queues() []string { return []string{churnLoad} }

// Setup implements Workload.
func (w *churn) Setup(c *client.Client) error {
	return c.Do("declare", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(churnLoad, true, false, false, false, nil)
		return err
	})
}

// Processes implements Workload.
func (w *churn) Processes() []Process {
	publish := publisher(float64(w.opts.Rate)/4, func() client.Message { return client.Message{Key: churnLoad, Queue: churnLoad} })
	list := []Process{
		{Role: "publisher", Live: publish},
		{Role: "consumer", Live: consumer(churnLoad, func(client.Delivery) string { return history.Ack })},
		{Role: "binder", Live: w.bind},
		{Role: "binder", Live: w.bind},
	}
	for range 5 {
		list = append(list, Process{Role: "churner", Live: w.churn})
	}
	return list
}

// bind publishes through an exchange that it declares, binds, unbinds and deletes: between the
// answers about the binding, what is confirmed has arrived.
func (w *churn) bind(ctx context.Context, c *client.Client) error {
	for ctx.Err() == nil {
		name := fmt.Sprintf("churn.x%d", w.exchanges.Add(1))
		err := c.Do("bind", func(ch *amqp.Channel) error {
			if err := ch.ExchangeDeclare(name, []string{"direct", "fanout", "topic"}[rand.IntN(3)], true, false, false, false, nil); err != nil {
				return err
			}
			return ch.QueueBind(churnLoad, "k", name, false, nil)
		})
		for range 3 {
			if err == nil {
				err = c.Publish(ctx, client.Message{Exchange: name, Key: "k", Queue: churnLoad})
			}
		}
		if err != nil {
			return err
		}
		err = c.Do("unbind", func(ch *amqp.Channel) error {
			if rand.IntN(2) == 0 {
				if err := ch.QueueUnbind(churnLoad, "k", name, nil); err != nil {
					return err
				}
			}
			return ch.ExchangeDelete(name, false, false)
		})
		if err != nil {
			return err
		}
		sleep(ctx, rand.N(2*churnPause))
	}
	return nil
}

// churn does one thing after the other to names.
func (w *churn) churn(ctx context.Context, c *client.Client) error {
	for ctx.Err() == nil {
		name := fmt.Sprintf("churn.q%d", rand.IntN(churnNames))
		var err error
		switch rand.IntN(8) {
		case 0, 1:
			err = w.declare(c, name, w.last.Add(1))
		case 2:
			err = w.declare(c, name, w.last.Load()-rand.Int64N(churnNames)) // perhaps what is there
		case 3, 4:
			err = aside(c, history.Look, name, "", func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
				return err
			})
		case 5:
			err = aside(c, history.Delete, name, "", func(ch *amqp.Channel) error {
				_, err := ch.QueueDelete(name, false, false, false)
				return err
			})
		default:
			askHTTP(ctx, c, name)
		}
		if err != nil {
			return err
		}
		sleep(ctx, rand.N(2*churnPause))
	}
	return nil
}

func (w *churn) declare(c *client.Client, name string, length int64) error {
	return aside(c, history.Declare, name, strconv.FormatInt(length, 10), func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-max-length": length})
		return err
	})
}

// aside records an operation on a name. An error tells that the client is of no more use.
func aside(c *client.Client, f, name, value string, do func(*amqp.Channel) error) error {
	op := c.Op(history.Invoke, f)
	op.Queue, op.Value = name, value
	op.Of = c.Record(op)
	err := c.Aside(f, do)
	op.Type = client.Outcome(err)
	if err != nil {
		op.Error = err.Error()
	}
	c.Record(op)
	if op.Type == history.Info {
		return err
	}
	return nil
}

// askHTTP asks for a name over HTTP.
func askHTTP(ctx context.Context, c *client.Client, name string) {
	op := c.Op(history.Invoke, history.API)
	op.Queue = name
	op.Of = c.Record(op)
	var answer struct {
		Arguments map[string]any `json:"arguments"`
	}
	status, err := c.HTTP(context.WithoutCancel(ctx), http.MethodGet, "/api/queues/%2F/"+name, nil, &answer)
	switch {
	case err != nil:
		op.Type, op.Error = history.Info, err.Error()
	case status == http.StatusOK:
		length, _ := answer.Arguments["x-max-length"].(float64)
		op.Type, op.Value = history.OK, strconv.FormatInt(int64(length), 10)
	case status == http.StatusNotFound:
		op.Type = history.Fail
	default:
		op.Type, op.Error = history.Info, http.StatusText(status)
	}
	c.Record(op)
}

// Settle implements Workload.
func (w *churn) Settle(context.Context, *Env) error { return nil }

// Final implements Workload.
func (w *churn) Final(ctx context.Context, e *Env) error { return countAndDrain(ctx, e, churnLoad) }

// Checkers implements Workload.
func (w *churn) Checkers() []checker.Checker {
	return []checker.Checker{
		checker.Catalog(), checker.Lost(), checker.Duplicates(), checker.Order(churnLoad),
		checker.Places(checker.Chain{From: churnLoad, Stay: []string{churnLoad}, Consumed: true}),
		checker.Counts(),
	}
}
