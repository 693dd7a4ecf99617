package broker

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/policy"
)

func removable() amqp.Table {
	return table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dlq", "x-dead-letter-on-removal", true)
}

// expireSoon lets a queue expire soon. Its arguments could do so before the test has filled it.
func expireSoon(t *testing.T, b *Broker, queue string) {
	t.Helper()
	soon := amqp.Table{{Name: "expires", Value: int64(20)}}
	if _, err := b.PutPolicy(t.Context(), policy.Spec{VHost: "/", Name: queue, Pattern: "^" + queue + "$", ApplyTo: policy.Queues, Definition: soon}); err != nil {
		t.Fatal(err)
	}
}

// A quorum queue does not expire while a client holds a message of it; a classic one does.
func TestHeldMessagesKeepAQuorumQueue(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("quorum", table("x-queue-type", "quorum"))
	c.declare("classic", nil)
	there := func(queue string) bool { return b.cat.View().Queue("/", queue) != nil }
	for _, q := range []string{"quorum", "classic"} {
		c.put(q, "m", nil)
		if d := c.get(q); d == nil {
			t.Fatalf("%s: no message", q)
		}
		expireSoon(t, b, q)
	}
	c.await("the end of the classic queue", func() bool { return !there("classic") })
	time.Sleep(200 * time.Millisecond)
	if !there("quorum") {
		t.Fatal("the quorum queue is gone")
	}
	c.ch.Close(t.Context()) // what it held is requeued
	c.await("the end of the quorum queue", func() bool { return !there("quorum") })
}

// What is left in a queue goes to its dead-letter exchange when the queue asked for it, however it ends.
func TestDeadLetterOnRemoval(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("dlq", nil)
	for _, tc := range []struct {
		name string
		d    QueueDeclare
		end  func(other *client, consumer *Consumer)
	}{
		{"deleted", QueueDeclare{Durable: true}, func(o *client, _ *Consumer) {
			if _, err := o.conn.DeleteQueue(t.Context(), "deleted", false, false); err != nil {
				t.Fatal(err)
			}
		}},
		{"transient", QueueDeclare{}, func(o *client, _ *Consumer) {
			if _, err := o.conn.DeleteQueue(t.Context(), "transient", false, false); err != nil {
				t.Fatal(err)
			}
		}},
		{"auto-delete", QueueDeclare{Durable: true, AutoDelete: true}, func(_ *client, x *Consumer) {
			if err := x.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		{"exclusive", QueueDeclare{Exclusive: true}, func(o *client, _ *Consumer) { o.conn.Close(t.Context()) }},
		{"expired", QueueDeclare{Durable: true}, func(_ *client, x *Consumer) {
			expireSoon(t, b, "expired")
			if err := x.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := dial(t, b)
			tc.d.Name, tc.d.Arguments = tc.name, removable()
			if _, err := o.conn.DeclareQueue(t.Context(), tc.d); err != nil {
				t.Fatal(err)
			}
			var want []string
			consumer := o.consume(tc.name, 2)
			for i := range 7 {
				want = append(want, fmt.Sprint(i))
				o.put(tc.name, want[i], nil)
			}
			o.take(2)
			tc.end(o, consumer)
			c.await("the dead letters", func() bool { return len(c.bodies(b, "dlq")) == 7 })
			for _, body := range want {
				d := c.eventually("dlq")
				headers, _, err := d.Properties.Headers()
				reason, _ := headers.Get("x-first-death-reason")
				if string(d.Body) != body || err != nil || reason != "queue_removed" || d.Redelivered {
					t.Errorf("%s: %s, reason %v", body, d.Body, reason)
				}
				c.settle(fsm.Ack, d)
			}
			c.await("the queue's end", func() bool {
				return !slices.ContainsFunc(b.Queues(t.Context()), func(q QueueInfo) bool { return q.Name == tc.name })
			})
		})
	}
}

func TestDeadLetterOnRemovalIsAsked(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("dlq", nil)
	args := removable()
	args.Set("x-dead-letter-on-removal", false)
	c.declare("plain", args)
	c.put("plain", "m", nil)
	if _, err := c.conn.DeleteQueue(t.Context(), "plain", false, true); err == nil {
		t.Error("if-empty deletes a queue with a message")
	}
	if n, err := c.conn.DeleteQueue(t.Context(), "plain", true, false); err != nil || n != 1 {
		t.Errorf("%d: %v", n, err)
	}
	c.await("the queue's end", func() bool { return len(b.Queues(t.Context())) == 1 })
	if got := c.bodies(b, "dlq"); len(got) != 0 {
		t.Errorf("dlq has %v", got)
	}
	var e *Error
	args.Set("x-dead-letter-on-removal", "yes")
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "bad", Durable: true, Arguments: args}); !errors.As(err, &e) ||
		e.Text != "invalid arg 'x-dead-letter-on-removal' for queue 'bad' in vhost '/': {unacceptable_type,longstr}" {
		t.Error(err)
	}
	c.declare("two", removable())
	args.Set("x-dead-letter-on-removal", false)
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "two", Durable: true, Arguments: args}); kindOfRefusal(err) != PreconditionFailed {
		t.Error(err)
	}
}

func (c *client) bind(bd Binding) {
	c.t.Helper()
	if err := c.conn.Bind(c.t.Context(), bd); err != nil {
		c.t.Fatal(err)
	}
}

// A queue that is to lose nothing is not deleted while its messages have nowhere to go. An empty
// one is, and one that may drop them.
func TestRemovalWithoutARoute(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	for _, x := range []ExchangeDeclare{{Name: "fan", Type: "fanout"}, {Name: "heads", Type: "headers"}} {
		x.Durable = true
		if err := c.conn.DeclareExchange(t.Context(), x); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name, exchange, key string
		way                 func()
	}{
		{"gone-queue", "", "dlq", func() { c.declare("dlq", nil) }},
		{"no-exchange", "later", "", func() {
			if err := c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "later", Type: "direct", Durable: true}); err != nil {
				t.Fatal(err)
			}
			c.bind(Binding{Source: "later", Destination: "dlq", Key: "no-exchange"})
		}},
		{"no-binding", "fan", "k", func() { c.bind(Binding{Source: "fan", Destination: "dlq"}) }},
		{"by-headers", "heads", "k", func() {
			c.bind(Binding{Source: "heads", Destination: "dlq", Arguments: table("x-match", "all-with-x")})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := table("x-dead-letter-exchange", tc.exchange, "x-dead-letter-on-removal", true, "x-dead-letter-strategy", "at-least-once")
			if tc.key != "" {
				args.Set("x-dead-letter-routing-key", tc.key)
			}
			c.declare(tc.name, args)
			c.put(tc.name, tc.name, nil)
			remove := func() error {
				_, err := c.conn.DeleteQueue(t.Context(), tc.name, false, false)
				return err
			}
			var e *Error
			if err := remove(); !errors.As(err, &e) || e.Kind != PreconditionFailed || e.Text != fmt.Sprintf(
				"queue '%s' in vhost '/' has messages for exchange '%s', which has no route for them; bind a queue to it, or purge this one first", tc.name, tc.exchange) {
				t.Fatal(err)
			}
			tc.way()
			if err := remove(); err != nil {
				t.Fatal(err)
			}
			c.await("the dead letter", func() bool { return slices.Contains(c.bodies(b, "dlq"), tc.name) })
		})
	}
	for name, args := range map[string]amqp.Table{
		"empty": table("x-dead-letter-exchange", "nowhere", "x-dead-letter-on-removal", true, "x-dead-letter-strategy", "at-least-once"),
		"most":  table("x-dead-letter-exchange", "nowhere", "x-dead-letter-on-removal", true),
	} {
		c.declare(name, args)
		if name == "most" {
			c.put(name, "m", nil)
		}
		if _, err := c.conn.DeleteQueue(t.Context(), name, false, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Such a queue does not expire either, until there is a route.
func TestExpiryWithoutARoute(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dlq", "x-dead-letter-on-removal", true,
		"x-dead-letter-strategy", "at-least-once"))
	c.put("q", "m", nil)
	expireSoon(t, b, "q")
	time.Sleep(300 * time.Millisecond)
	if got := c.bodies(b, "q"); !slices.Equal(got, []string{"m"}) {
		t.Fatalf("q has %v", got)
	}
	c.declare("dlq", nil)
	c.await("the dead letter", func() bool { return slices.Equal(c.bodies(b, "dlq"), []string{"m"}) })
}
