package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/cmd/perf/load"
)

// amqpDriver speaks AMQP 0-9-1 by amqp091-go.
type amqpDriver struct{}

// Dial implements load.Driver.
func (amqpDriver) Dial(url string) (load.Conn, error) {
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 30 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &amqpConn{conn: conn, ch: ch}, nil
}

// amqpConn is a connection with one channel.
type amqpConn struct {
	conn    *amqp.Connection
	ch      *amqp.Channel
	closing atomic.Bool
	group   sync.WaitGroup
}

// Declare implements load.Conn.
func (c *amqpConn) Declare(queue string, args map[string]any) error {
	_, err := c.ch.QueueDeclare(queue, true, false, false, false, args)
	return err
}

// Delete implements load.Conn.
func (c *amqpConn) Delete(queue string) error {
	_, err := c.ch.QueueDelete(queue, false, false, false)
	return err
}

// Confirms implements load.Conn. The client hands confirms over in order.
func (c *amqpConn) Confirms(window int, settled func(number int, taken bool), lost func(error)) error {
	if err := c.ch.Confirm(false); err != nil {
		return err
	}
	confirms := c.ch.NotifyPublish(make(chan amqp.Confirmation, window))
	closed := c.ch.NotifyClose(make(chan *amqp.Error, 1))
	c.group.Go(func() { // ends with the connection
		for x := range confirms {
			settled(int(x.DeliveryTag-1), x.Ack)
		}
		if err := <-closed; err != nil && !c.closing.Load() {
			lost(err)
		}
	})
	return nil
}

// Publish implements load.Conn. The client has written the body when it returns.
func (c *amqpConn) Publish(ctx context.Context, queue string, body []byte) error {
	return c.ch.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
}

// fanout is the exchange that every vhost has for it.
const fanout = "amq.fanout"

// Join implements load.Fanner.
func (c *amqpConn) Join(queue string) error { return c.ch.QueueBind(queue, "", fanout, false, nil) }

// PublishAll implements load.Fanner.
func (c *amqpConn) PublishAll(ctx context.Context, body []byte) error {
	return c.ch.PublishWithContext(ctx, fanout, "", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
}

// Probe implements load.Prober.
func (c *amqpConn) Probe(ctx context.Context, queue string, body []byte) (confirmed func(context.Context) (bool, error), err error) {
	d, err := c.ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
	if err != nil {
		return nil, err
	}
	return d.WaitContext, nil
}

// Consume implements load.Conn.
func (c *amqpConn) Consume(queue string, prefetch int, handle func(load.Delivery), ended func(error)) error {
	if err := c.ch.Qos(prefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := c.ch.Consume(queue, "", prefetch == 0, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	c.group.Go(func() { // ends with the connection
		var d amqpDelivery
		for d.Delivery = range deliveries {
			handle(&d)
		}
		if !c.closing.Load() {
			ended(errors.New("a consumer was disconnected"))
		}
	})
	return nil
}

// Ready implements load.Conn.
func (c *amqpConn) Ready(queue string) (int, error) {
	q, err := c.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return q.Messages, err
}

// Leader implements load.Conn: the protocol does not tell.
func (c *amqpConn) Leader(string) (string, error) { return "", load.ErrUnsupported }

// Close implements load.Conn.
func (c *amqpConn) Close() {
	c.closing.Store(true)
	_ = c.conn.Close() // it may have ended before
	c.group.Wait()
}

type amqpDelivery struct{ amqp.Delivery }

func (d *amqpDelivery) Body() []byte      { return d.Delivery.Body }
func (d *amqpDelivery) Redelivered() bool { return d.Delivery.Redelivered }

// A delivery of a connection that is gone comes again by itself.
func (d *amqpDelivery) Ack(multiple bool)  { _ = d.Delivery.Ack(multiple) }
func (d *amqpDelivery) Nack(multiple bool) { _ = d.Delivery.Nack(multiple, false) }
func (d *amqpDelivery) Fail()              { _ = d.Reject(true) }
