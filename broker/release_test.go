package broker

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// D51: a message that would go round by itself is kept under at-least-once, shown, and goes
// on when it is released and its way is no cycle any more. More topology does not release it.
func TestReleaseParkedCycles(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	if err := c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "dlx", Type: "fanout", Durable: true}); err != nil {
		t.Fatal(err)
	}
	c.declare("q", table("x-message-ttl", int32(10), "x-dead-letter-exchange", "dlx", "x-dead-letter-strategy", "at-least-once"))
	round := Binding{Source: "dlx", Destination: "q"}
	if err := c.conn.Bind(t.Context(), round); err != nil {
		t.Fatal(err)
	}
	c.put("q", "m", nil)
	parked := func(want int) {
		t.Helper()
		for until := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			got := c.peek(b, "q", Peek{State: "parked", Count: 10, Truncate: 10})
			if len(got.Messages) == want {
				return
			}
			if time.Now().After(until) {
				t.Fatalf("%d parked, want %d", len(got.Messages), want)
			}
		}
	}
	parked(1)
	release := func(want Released) {
		t.Helper()
		got, err := b.ReleaseParked(t.Context(), User{Name: "guest"}, "/", "q")
		if err != nil || got != want {
			t.Fatalf("released %+v, want %+v: %v", got, want, err)
		}
	}
	release(Released{Cycle: 1})
	parked(1) // it is still a cycle
	c.declare("d", nil)
	if err := c.conn.Bind(t.Context(), Binding{Source: "dlx", Destination: "d"}); err != nil {
		t.Fatal(err)
	}
	parked(1)
	release(Released{Cycle: 1})
	if d := c.eventually("d"); string(d.Body) != "m" {
		t.Errorf("got %q", d.Body)
	}
	parked(0)
	release(Released{})
	_, err := b.ReleaseParked(t.Context(), User{Name: "guest"}, "/", "nobody")
	wantKind(t, err, NotFound, "no queue 'nobody' in vhost '/'")
}

// A queue with a dead-letter exchange needs, when it is new, permission to read the queue and
// to write to the exchange.
func TestDeadLetterPermissions(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	set := func(read, write string) {
		t.Helper()
		p := &catalog.PutPermission{Vhost: "/", User: "guest", Configure: ".*", Read: read, Write: write}
		if _, err := b.cat.Propose(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	declare := func(queue, exchange string) error {
		_, err := c.conn.DeclareQueue(t.Context(), QueueDeclare{Name: queue, Durable: true, Arguments: table("x-dead-letter-exchange", exchange)})
		return err
	}
	set("^q", "^dlx$")
	if err := declare("q1", "dlx"); err != nil {
		t.Error(err)
	}
	wantKind(t, declare("q2", "other"), AccessRefused, "write access to exchange 'other' in vhost '/' refused for user 'guest'")
	wantKind(t, declare("q2", ""), AccessRefused, "write access to exchange 'amq.default' in vhost '/' refused for user 'guest'")
	wantKind(t, declare("r", "dlx"), AccessRefused, "read access to queue 'r' in vhost '/' refused for user 'guest'")
	set("^$", "^$")
	if err := declare("q1", "dlx"); err != nil {
		t.Errorf("a queue that exists: %v", err)
	}
}
