package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
)

func table(kv ...any) (t amqp.Table) {
	for i := 0; i < len(kv); i += 2 {
		t.Set(kv[i].(string), kv[i+1])
	}
	return t
}

func TestPublishConsumeSettle(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", table("x-queue-type", "quorum"))
	if cf := c.put("q", "hello", nil); cf.Refused {
		t.Fatal("refused")
	}
	c.consume("q", 1)
	d := c.take(1)[0]
	if string(d.Body) != "hello" || d.Key != "q" || d.Exchange != "" || d.Redelivered {
		t.Fatalf("delivery %+v", d)
	}
	c.settle(fsm.RequeueFailed, d)
	d = c.take(1)[0]
	if !d.Redelivered || d.Failed != 1 {
		t.Fatalf("delivery %+v", d)
	}
	c.settle(fsm.Ack, d)
	c.put("q", "next", nil)
	if d := c.take(1)[0]; string(d.Body) != "next" {
		t.Fatalf("delivery %+v", d)
	}
}

func TestDeadLetterReasons(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	if err := c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "dlx", Type: "fanout", Durable: true}); err != nil {
		t.Fatal(err)
	}
	c.declare("dead", nil)
	if err := c.conn.Bind(t.Context(), Binding{Source: "dlx", Destination: "dead"}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		args   amqp.Table
		die    func(queue string)
	}{
		{"rejected", nil, func(q string) { c.settle(fsm.Discard, c.eventually(q)) }},
		{"expired", table("x-message-ttl", int32(30)), func(string) {}},
		{"maxlen", table("x-max-length", int32(0)), func(string) {}},
		{"delivery_limit", table("x-delivery-limit", int32(0)), func(q string) { c.settle(fsm.RequeueFailed, c.eventually(q)) }},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			q := "src-" + tc.reason
			tc.args.Set("x-dead-letter-exchange", "dlx")
			c.declare(q, tc.args)
			raw := properties(func(p *amqp.Properties) { p.SetMessageID(tc.reason) })
			c.put(q, "b", raw)
			tc.die(q)
			d := c.eventually("dead")
			headers, _, err := d.Properties.Headers()
			if err != nil {
				t.Fatal(err)
			}
			if v, _ := headers.Get("x-first-death-reason"); v != tc.reason {
				t.Errorf("reason %v", v)
			}
			if v, _ := headers.Get("x-first-death-queue"); v != q {
				t.Errorf("queue %v", v)
			}
			if d.Exchange != "dlx" || d.Key != q {
				t.Errorf("exchange %q key %q", d.Exchange, d.Key)
			}
			c.settle(fsm.Ack, d)
			if d := c.get("dead"); d != nil {
				t.Errorf("twice: %+v", d)
			}
		})
	}
}

func TestRetryLoop(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("work", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "wait"))
	c.declare("wait", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "work", "x-message-ttl", int32(5)))
	c.put("work", "job", nil)
	for range 5 {
		c.settle(fsm.Discard, c.eventually("work"))
	}
	d := c.eventually("work")
	headers, _, _ := d.Properties.Headers()
	v, _ := headers.Get("x-death")
	deaths, _ := v.(amqp.Array)
	if len(deaths) != 2 {
		t.Fatalf("x-death %v", v)
	}
	for _, x := range deaths {
		if n, _ := x.(amqp.Table).Get("count"); n != int64(5) {
			t.Errorf("count %v", n)
		}
	}
}

func TestRefusals(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	other := dial(t, b)
	c.declare("q", table("x-message-ttl", int32(10)))
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "mine", Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		kind Kind
		text string
		do   func() error
	}{
		"inequivalent": {PreconditionFailed, "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '20' but current is '10'", func() error {
			_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "q", Durable: true, Arguments: table("x-message-ttl", int32(20))})
			return err
		}},
		"negative length": {PreconditionFailed, "invalid arg 'x-max-length' for queue 'r' in vhost '/': {value_negative,-5}", func() error {
			_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "r", Durable: true, Arguments: table("x-max-length", int32(-5))})
			return err
		}},
		"passive missing": {NotFound, "no queue 'r' in vhost '/'", func() error {
			_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "r", Passive: true})
			return err
		}},
		"missing exchange": {NotFound, "no exchange 'e' in vhost '/'", func() error {
			_, _, err := c.publish("e", "k", "b", nil)
			return err
		}},
		"expiration": {PreconditionFailed, "invalid expiration '10s': {leftover_string,\"s\"}", func() error {
			_, _, err := c.publish("", "q", "b", properties(func(p *amqp.Properties) { p.SetExpiration("10s") }))
			return err
		}},
		"locked": {ResourceLocked, "cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.", func() error {
			_, err := other.conn.PurgeQueue(t.Context(), "mine")
			return err
		}},
		"reserved": {AccessRefused, "queue name 'amq.x' contains reserved prefix 'amq.*'", func() error {
			_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "amq.x", Durable: true})
			return err
		}},
		"priority": {PreconditionFailed, "invalid arg 'x-priority' for queue 'q' in vhost '/': \"expected integer, got longstr\"", func() error {
			_, err := c.ch.Consume(t.Context(), Consume{Queue: "q", Tag: "t", Arguments: table("x-priority", "high")})
			return err
		}},
		"priority, missing queue": {NotFound, "no queue 'r' in vhost '/'", func() error {
			_, err := c.ch.Consume(t.Context(), Consume{Queue: "r", Tag: "t", Arguments: table("x-priority", "high")})
			return err
		}},
		"no type": {PreconditionFailed, "invalid exchange type ''", func() error {
			return c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "e"})
		}},
		"alternate": {PreconditionFailed, "invalid type 'signedint' for arg 'alternate-exchange' in exchange 'e' in vhost '/'", func() error {
			return c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "e", Type: "direct", Arguments: table("alternate-exchange", int32(5))})
		}},
		"memory of a classic queue": {PreconditionFailed, "invalid arg 'x-max-in-memory-length' for queue 'r' in vhost '/' of queue type rabbit_classic_queue", func() error {
			_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "r", Durable: true, Arguments: table("x-max-in-memory-length", int32(5))})
			return err
		}},
		"first argument": {PreconditionFailed, "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'r' in vhost '/'", func() error {
			_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "r", Durable: true, Arguments: table("x-max-length", int32(-5), "x-dead-letter-exchange", int32(1))})
			return err
		}},
		"unknown type": {PreconditionFailed, "unknown exchange type 'x'", func() error {
			return c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "e", Type: "x"})
		}},
	} {
		var e *Error
		if err := tc.do(); !errors.As(err, &e) || e.Kind != tc.kind || e.Text != tc.text {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnroutable(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	if _, routed, err := c.publish("", "nobody", "b", nil); err != nil || routed {
		t.Fatalf("routed %v, %v", routed, err)
	}
}

func TestQueueEndsWithItsStream(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", nil)
	c.put("q", "1", nil)
	c.put("q", "2", nil)
	c.consume("q", 1)
	c.take(1)
	n, err := c.conn.DeleteQueue(t.Context(), "q", false, false)
	if err != nil || n != 1 {
		t.Fatalf("deleted %d, %v", n, err)
	}
	c.await("cancel", func() bool { return len(c.cancelled) == 1 })
	c.declare("q", nil)
	if d := c.get("q"); d != nil {
		t.Fatalf("message of the former queue: %+v", d)
	}
	deadline := time.Now().Add(30 * time.Second)
	for b.cat.View().QueueCount() != 1 {
		if time.Now().After(deadline) {
			t.Fatal("the former queue stays in the catalog")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestConnectionEndReturnsAndDeletes(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", table("x-queue-type", "quorum"))
	if _, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "mine", Exclusive: true}); err != nil {
		t.Fatal(err)
	}
	c.put("q", "1", nil)
	c.consume("q", 10)
	c.take(1)
	c.conn.Close(t.Context())
	other := dial(t, b)
	if d := other.eventually("q"); !d.Redelivered || d.Failed != 1 {
		t.Errorf("delivery %+v", d)
	}
	if _, err := other.conn.DeclareQueue(t.Context(), QueueDeclare{Name: "mine", Passive: true}); err == nil {
		t.Error("exclusive queue outlived its connection")
	}
}

// What is known of a queue's leader goes with the queue, also where the leader says last
// that it leads no more.
func TestNothingStaysOfQueuesThatEnd(t *testing.T) {
	b := newBroker(t)
	for range 20 {
		c := dial(t, b)
		ok, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Exclusive: true})
		if err != nil {
			t.Fatal(err)
		}
		c.put(ok.Name, "1", nil)
		c.consume(ok.Name, 1)
		c.take(1)
		c.conn.Close(t.Context())
	}
	left := func() [4]int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return [4]int{len(b.leaders), len(b.streams), len(b.trouble), len(b.watched)}
	}
	for deadline := time.Now().Add(30 * time.Second); left() != [4]int{}; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %d leaders, %d streams, %d troubled, %d watched", left()[0], left()[1], left()[2], left()[3])
		}
	}
}

func TestParseExpiration(t *testing.T) {
	for text, want := range map[string]string{
		"": "no_integer", "soon": "no_integer", " 10": "no_integer", "+-1": "no_integer", "10 ": "{leftover_string,\" \"}", "1.5": "{leftover_string,\".5\"}",
		"1_0": "{leftover_string,\"_0\"}", "-1": "{value_negative,-1}", "315360000001": "{value_too_large,315360000001}",
		"99999999999999999999": "{value_too_large,99999999999999999999}", "-99999999999999999999": "{value_negative,-99999999999999999999}",
	} {
		if _, err := parseExpiration(text); err == nil || err.(*Error).Text != "invalid expiration '"+text+"': "+want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for text, want := range map[string]int64{"0": 0, "-0": 0, "+5": 5, "010": 10, "315360000000": 315360000000} {
		if n, err := parseExpiration(text); err != nil || n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}
