package broker

import (
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

// TestRejectSaysWhy: what a client says of why it rejects a message is in the death's record, in the headers and in the outbox; what is no such
// text settles nothing; a later death of the same kind has its own text.
func TestRejectSaysWhy(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("dead", nil)
	c.declare("q", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dead", "x-queue-type", "quorum"))
	c.declare("parks", table("x-dead-letter-exchange", "none", "x-dead-letter-strategy", "at-least-once", "x-queue-type", "quorum", "x-overflow", "reject-publish"))
	reject := func(queue, detail string) {
		t.Helper()
		if err := c.ch.Reject(detail, []*Delivery{c.eventually(queue)}); err != nil {
			t.Fatal(err)
		}
		c.ch.Flush()
	}
	detail := func(d *Delivery, want any) {
		t.Helper()
		v, _ := d.Properties.Header("x-death")
		list, _ := v.(amqp.Array)
		if len(list) != 1 {
			t.Fatalf("x-death %v", v)
		}
		if got, _ := list[0].(amqp.Table).Get("detail"); got != want {
			t.Errorf("detail %v, want %v", got, want)
		}
		if got, _ := list[0].(amqp.Table).Get("reason"); got != "rejected" {
			t.Errorf("reason %v", got)
		}
	}
	c.put("q", "a", nil)
	held := c.eventually("q")
	for _, bad := range []string{strings.Repeat("x", dlx.DetailMax+1), "\xff"} {
		if err := c.ch.Reject(bad, []*Delivery{held}); kindOfRefusal(err) != PreconditionFailed {
			t.Errorf("%q: %v", bad, err)
		}
	}
	c.settle(fsm.RequeueCounted, held)
	most := strings.Repeat("ż", dlx.DetailMax/2)
	reject("q", most)
	first := c.eventually("dead")
	detail(first, most)
	c.settle(fsm.Discard, first) // there is no way out of "dead"

	// A text is that of the settlements that had it, whatever is settled beside them.
	for _, body := range []string{"b", "c", "d"} {
		c.put("q", body, nil)
	}
	ds := []*Delivery{c.eventually("q"), c.eventually("q"), c.eventually("q")}
	c.ch.Settle(fsm.Discard, ds[:1])
	if err := c.ch.Reject("twice", ds[1:2]); err != nil {
		t.Fatal(err)
	}
	c.ch.Settle(fsm.Discard, ds[2:])
	c.ch.Flush()
	for _, want := range []any{nil, "twice", nil} {
		d := c.eventually("dead")
		detail(d, want)
		c.settle(fsm.Ack, d)
	}

	c.put("parks", "e", nil)
	reject("parks", "no way")
	var got Peeked
	c.await("a parked letter", func() bool {
		got = c.peek(b, "parks", Peek{State: "parked", Count: 10})
		return len(got.Messages) == 1
	})
	if m := got.Messages[0]; m.Reason != "rejected" || m.Detail != "no way" {
		t.Errorf("%+v", m)
	}
}
