package workload

import (
	"context"
	"math/rand/v2"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/checker"
	"github.com/warrenmq/warren/jepsen/client"
	"github.com/warrenmq/warren/jepsen/history"
)

const (
	txIn   = "tx.in"
	txOut1 = "tx.out1"
	txOut2 = "tx.out2"

	txBatch    = 5    // messages of a transaction, at most
	txRollback = 0.08 // how often one is rolled back
)

// tx moves messages from a queue into two others, some at a time, each time in a transaction.
type tx struct{ opts Options }

func newTx(opts Options) Workload { return &tx{opts} }

// Name implements Workload.
func (w *tx) Name() string { return "tx" }

// Queues implements Workload.
func (w *tx) Queues() []string { return []string{txIn, txOut1, txOut2} }

// Setup implements Workload.
func (w *tx) Setup(c *client.Client) error {
	return c.Do("declare", func(ch *amqp.Channel) error {
		for name, args := range map[string]amqp.Table{txIn: nil, txOut1: nil, txOut2: {"x-queue-type": "quorum"}} {
			if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
				return err
			}
		}
		return nil
	})
}

// Processes implements Workload.
func (w *tx) Processes() []Process {
	publish := publisher(float64(w.opts.Rate)/3, func() client.Message { return client.Message{Key: txIn, Queue: txIn} })
	list := []Process{{Role: "publisher", Live: publish}, {Role: "publisher", Live: publish}}
	for range 4 {
		list = append(list, Process{Role: "mover", Live: moveInTx})
	}
	return list
}

// moveInTx is a life of moves.
func moveInTx(ctx context.Context, c *client.Client) error {
	t, err := c.Tx(2 * txBatch)
	if err != nil {
		return err
	}
	defer t.Forget()
	deliveries, err := t.Consume(txIn)
	if err != nil {
		return err
	}
	life := time.NewTimer(lifeMin + rand.N(lifeMax-lifeMin))
	defer life.Stop()
	for n, size := 0, 1+rand.IntN(txBatch); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-life.C:
			return nil
		case d, open := <-deliveries:
			if !open {
				return errEnded
			}
			if err := moveOne(ctx, t, c.Took(history.Deliver, txIn, d)); err != nil {
				return err
			}
			if n++; n < size {
				continue
			}
			rollback := rand.Float64() < txRollback
			if err := t.Commit(rollback); err != nil {
				return err
			}
			if rollback {
				return nil // what it had taken comes again
			}
			n, size = 0, 1+rand.IntN(txBatch)
		}
	}
}

func moveOne(ctx context.Context, t *client.Tx, d client.Delivery) error {
	for _, out := range []string{txOut1, txOut2} {
		if err := t.Publish(ctx, client.Message{Key: out, Queue: out}); err != nil {
			return err
		}
	}
	return t.Ack(d)
}

// Settle implements Workload.
func (w *tx) Settle(context.Context, *Env) error { return nil }

// Final implements Workload.
func (w *tx) Final(ctx context.Context, e *Env) error { return countAndDrain(ctx, e, w.Queues()...) }

// Checkers implements Workload.
func (w *tx) Checkers() []checker.Checker {
	stays := func(q string, consumed bool) checker.Chain {
		return checker.Chain{From: q, Stay: []string{q}, Consumed: consumed}
	}
	return []checker.Checker{
		checker.Transactions(), checker.Lost(), checker.Duplicates(), checker.Order(txIn),
		checker.Places(stays(txIn, true), stays(txOut1, false), stays(txOut2, false)),
		checker.Counts(),
	}
}
