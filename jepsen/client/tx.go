package client

import (
	"context"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/history"
)

// Tx is a transactional channel of a client, beside its own one. Its methods may be called by
// one goroutine at a time. When one fails, the client is of no more use.
type Tx struct {
	c          *Client
	ch         *amqp.Channel
	took, made []history.Op
}

// Tx opens a transactional channel with a prefetch. It ends with the client.
func (c *Client) Tx(prefetch int) (*Tx, error) {
	t := &Tx{c: c}
	err := c.Do("tx.select", func(*amqp.Channel) (err error) {
		if t.ch, err = c.conn.Channel(); err != nil {
			return err
		}
		if err = t.ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
		return t.ch.Tx()
	})
	return t, err
}

// Consume starts a consumer of queue with manual acks: each delivery must be given to Took of the
// client. The channel is closed when the client's connection ends.
func (t *Tx) Consume(queue string) (<-chan amqp.Delivery, error) {
	var deliveries <-chan amqp.Delivery
	err := t.c.Do("consume "+queue, func(*amqp.Channel) (err error) {
		deliveries, err = t.ch.Consume(queue, "", false, false, false, false, nil)
		return err
	})
	return deliveries, err
}

// Ack acks a delivery in the transaction.
func (t *Tx) Ack(d Delivery) error {
	op := t.c.Op(history.OK, history.Ack)
	op.Queue, op.Value, op.Deaths = d.Queue, d.ID, d.Deaths
	t.took = append(t.took, op)
	return t.c.Do("ack", func(*amqp.Channel) error { return d.Ack(false) })
}

// Publish publishes a message under a new ID in the transaction. How it ended is recorded with
// the transaction.
func (t *Tx) Publish(ctx context.Context, m Message) error {
	c := t.c
	c.seq++
	id := history.MessageID{Process: c.Process, Life: c.Life, Seq: c.seq}.String()
	op := c.Op(history.Invoke, history.Publish)
	op.Queue, op.Value, op.Extra = m.Queue, id, m.Extra
	op.Of = c.Record(op)
	t.made = append(t.made, op)
	return c.Do("publish", func(*amqp.Channel) error {
		return t.ch.PublishWithContext(ctx, m.Exchange, m.Key, false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: id, Headers: m.Headers,
			Expiration: m.Expiration, Priority: m.Priority, Body: body(id, c.cfg.BodyBytes),
		})
	})
}

// Commit commits, or rolls back. It records that as one operation and then, by its outcome, what
// became of the publishes and acks: those of a rollback have failed. The transaction is over
// also when it failed or is unknown.
func (t *Tx) Commit(rollback bool) error {
	op := t.c.Op(history.Invoke, history.Commit)
	op.Extra = map[string]string{history.Took: values(t.took), history.Made: values(t.made)}
	if rollback {
		op.Value = history.Rollback
	}
	op.Of = t.c.Record(op)
	err := t.c.Do("commit", func(*amqp.Channel) error {
		if rollback {
			return t.ch.TxRollback()
		}
		return t.ch.TxCommit()
	})
	op.Type = Outcome(err)
	if err != nil {
		op.Error = fmt.Sprint(err)
	}
	t.c.Record(op)
	done := op.Type
	if rollback {
		done = history.Fail // whatever the answer: nothing was committed
	}
	for _, p := range t.made {
		p.Type = done
		t.c.Record(p)
	}
	for _, a := range t.took {
		if a.Type = done; done != history.Fail {
			t.c.Record(a)
		}
	}
	t.took, t.made = nil, nil
	return err
}

// Forget takes note that the connection was lost before the transaction ended: nothing was committed.
func (t *Tx) Forget() {
	for _, p := range t.made {
		p.Type, p.Error = history.Fail, "never committed"
		t.c.Record(p)
	}
	t.took, t.made = nil, nil
}

func values(ops []history.Op) string {
	list := make([]string, len(ops))
	for i, o := range ops {
		list[i] = o.Value
	}
	return strings.Join(list, " ")
}
