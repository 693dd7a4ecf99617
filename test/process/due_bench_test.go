package process

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

const (
	dueWindow = 1000 // unconfirmed messages
	dueMax    = 3 * time.Minute
)

// BenchmarkDueInRandomOrder measures what it costs that N messages leave a queue in an order that has nothing to do with that in which they came:
// expiry within one second into a queue behind a dead-letter exchange, and a delayed exchange over five. The node's processor time from the first
// instant on, and when all were there (-benchtime 1x; some two minutes).
func BenchmarkDueInRandomOrder(b *testing.B) {
	for _, way := range []struct {
		name string
		span time.Duration
	}{{"ttl", time.Second}, {"delayed", 5 * time.Second}} {
		for _, n := range []int{50_000, 100_000, 200_000, 400_000} {
			b.Run(fmt.Sprintf("%s/%d", way.name, n), func(b *testing.B) {
				for b.Loop() {
					dueAtRandom(b, way.name == "delayed", n, way.span)
				}
			})
		}
	}
}

func dueAtRandom(b *testing.B, delayed bool, n int, span time.Duration) {
	binary, err := shared.binary()
	if err != nil {
		b.Fatal(err)
	}
	c, err := cluster.New(cluster.Config{Nodes: 1, Binary: binary, Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := c.StartAll(b.Context()); err != nil {
		b.Fatal(err)
	}
	conn, err := amqp.Dial(c.Node(0).URL())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	exchange, key := dueTopology(b, ch, delayed)
	due := time.Now().Add(3*time.Second + time.Duration(n)*50*time.Microsecond) // all are published before
	publishDue(b, ch, n, func() (string, string, amqp.Publishing) {
		wait := (time.Until(due) + rand.N(span)).Milliseconds()
		m := amqp.Publishing{Body: make([]byte, 100), DeliveryMode: amqp.Persistent}
		if delayed {
			m.Headers = amqp.Table{"x-delay": wait}
		} else {
			m.Expiration = strconv.FormatInt(max(0, wait), 10)
		}
		return exchange, key, m
	})
	if late := time.Since(due); late > 0 {
		b.Fatalf("published %v after the first were due", late)
	}
	time.Sleep(time.Until(due))
	before, err := c.Node(0).CPU()
	if err != nil {
		b.Fatal(err)
	}
	for {
		q, err := ch.QueueDeclarePassive("target", true, false, false, false, nil)
		if err != nil {
			b.Fatal(err)
		}
		if q.Messages >= n {
			break
		}
		if time.Since(due) > dueMax {
			b.Fatalf("%d of %d have come after %v", q.Messages, n, dueMax)
		}
		time.Sleep(50 * time.Millisecond)
	}
	after, err := c.Node(0).CPU()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((after-before).Microseconds())/float64(n), "cpu-µs/msg")
	b.ReportMetric(time.Since(due).Seconds(), "s-until-all")
}

// dueTopology declares the target, and what leads to it.
func dueTopology(b *testing.B, ch *amqp.Channel, delayed bool) (exchange, key string) {
	_, err := ch.QueueDeclare("target", true, false, false, false, nil)
	if err == nil && delayed {
		if err = ch.ExchangeDeclare("later", "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "direct"}); err == nil {
			err = ch.QueueBind("target", "target", "later", false, nil)
		}
		exchange, key = "later", "target"
	} else if err == nil {
		_, err = ch.QueueDeclare("source", true, false, false, false, amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "target"})
		key = "source"
	}
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		b.Fatal(err)
	}
	return exchange, key
}

// publishDue publishes n messages and awaits their confirms.
func publishDue(b *testing.B, ch *amqp.Channel, n int, next func() (exchange, key string, m amqp.Publishing)) {
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, dueWindow))
	open := 0
	confirmed := func() {
		if c, ok := <-confirms; !ok || !c.Ack {
			b.Fatal("a message is not confirmed")
		}
		open--
	}
	for range n {
		for open >= dueWindow {
			confirmed()
		}
		exchange, key, m := next()
		if err := ch.PublishWithContext(b.Context(), exchange, key, false, false, m); err != nil {
			b.Fatal(err)
		}
		open++
	}
	for open > 0 {
		confirmed()
	}
}
