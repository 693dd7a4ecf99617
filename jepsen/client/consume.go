package client

import (
	"bytes"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/history"
)

// Delivery is a message that came to the client. It must be settled by the client that
// it came to.
type Delivery struct {
	amqp.Delivery
	// Queue is where it came from.
	Queue string
	// ID is read from the body.
	ID string
	// Deaths is how often it was dead-lettered.
	Deaths int
}

// Consume starts a consumer of queue with manual acks. The channel it returns is closed when
// the client's is. Each delivery must be given to Took.
func (c *Client) Consume(queue string, prefetch int) (<-chan amqp.Delivery, error) {
	if c.rpc != nil {
		late := time.AfterFunc(c.cfg.Timeout, c.Cut)
		defer late.Stop()
		return c.rpc.consume(queue, prefetch)
	}
	var deliveries <-chan amqp.Delivery
	err := c.Do("consume "+queue, func(ch *amqp.Channel) (err error) {
		if err = ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
		deliveries, err = ch.Consume(queue, "", false, false, false, false, nil)
		return err
	})
	return deliveries, err
}

// Took records a delivery from queue as f: Deliver or Drain.
func (c *Client) Took(f, queue string, d amqp.Delivery) Delivery {
	out, op := c.read(f, queue, d)
	c.Record(op)
	return out
}

// read makes the operation of a delivery.
func (c *Client) read(f, queue string, d amqp.Delivery) (Delivery, history.Op) {
	out := Delivery{Delivery: d, Queue: queue, Deaths: deaths(d.Headers)}
	op := c.Op(history.OK, f)
	var sound bool
	out.ID, sound = readBody(d.Body)
	if !sound || d.MessageId != out.ID {
		op.Error = "the body is not what was published"
	}
	op.Queue, op.Value, op.Redelivered, op.Deaths = queue, out.ID, d.Redelivered, out.Deaths
	return out, op
}

// Get does a basic.get of queue. ok is false when it is empty.
func (c *Client) Get(queue string) (out Delivery, ok bool, err error) {
	op := c.Op(history.Invoke, history.Get)
	op.Queue = queue
	of := c.Record(op)
	var d amqp.Delivery
	err = c.Do("get from "+queue, func(ch *amqp.Channel) (err error) {
		d, ok, err = ch.Get(queue, false)
		return err
	})
	op.Type = Outcome(err)
	switch {
	case err != nil:
		op.Error = err.Error()
	case ok:
		out, op = c.read(history.Get, queue, d)
	}
	op.Of = of
	c.Record(op)
	return out, ok, err
}

// Settle acks (history.Ack), rejects (history.Reject) or requeues (history.Requeue) a
// delivery.
func (c *Client) Settle(f string, d Delivery) error {
	op := c.Op(history.OK, f)
	op.Queue, op.Value, op.Deaths = d.Queue, d.ID, d.Deaths
	late := time.AfterFunc(c.cfg.Timeout, c.Cut)
	defer late.Stop()
	var err error
	switch f {
	case history.Reject:
		err = d.Reject(false)
	case history.Requeue:
		err = d.Reject(true) // unlike basic.nack it counts for a delivery limit
	default:
		err = d.Ack(false)
	}
	if err != nil {
		op.Type, op.Error = history.Info, err.Error()
	}
	c.Record(op)
	return err
}

// Ack acks a delivery without recording it.
func (c *Client) Ack(d amqp.Delivery) error {
	late := time.AfterFunc(c.cfg.Timeout, c.Cut)
	defer late.Stop()
	return d.Ack(false)
}

// body returns the content of a message: its ID and what follows from it.
func body(id string, size int) []byte {
	unit := []byte(id + " ")
	return append(unit, bytes.Repeat(unit, max(0, size/len(unit)-1))...)
}

// readBody returns the ID in a body, and whether the body is what body made.
func readBody(b []byte) (id string, sound bool) {
	id, _, sound = strings.Cut(string(b), " ")
	return id, sound && bytes.Equal(b, body(id, len(b)))
}

// deaths adds up the counts of x-death.
func deaths(headers amqp.Table) int {
	list, _ := headers["x-death"].([]any)
	sum := 0
	for _, entry := range list {
		death, _ := entry.(amqp.Table)
		n, _ := death["count"].(int64)
		sum += int(n)
	}
	return sum
}
