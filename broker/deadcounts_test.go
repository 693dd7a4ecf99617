package broker

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

// declareFanout declares a fanout exchange bound to the queues.
func (c *client) declareFanout(name string, queues ...string) {
	c.t.Helper()
	if err := c.conn.DeclareExchange(c.t.Context(), ExchangeDeclare{Name: name, Type: "fanout", Durable: true}); err != nil {
		c.t.Fatal(err)
	}
	for _, q := range queues {
		if err := c.conn.Bind(c.t.Context(), Binding{Source: name, Destination: q}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// reject publishes n messages to the queue and discards them.
func (c *client) reject(queue string, n int) {
	c.t.Helper()
	for i := range n {
		c.put(queue, strconv.Itoa(i), nil)
		c.settle(fsm.Discard, c.eventually(queue))
	}
}

// Each death counts under its reason, the queue's type and what RabbitMQ calls the
// strategy; each drop under its cause.
func TestDeadTotals(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("dead", nil)
	c.declareFanout("dlx", "dead")
	c.declareFanout("nowhere")
	c.declare("plain", nil)
	c.declare("moved", table("x-dead-letter-exchange", "dlx"))
	c.declare("missing", table("x-dead-letter-exchange", "absent"))
	c.declare("unrouted", table("x-dead-letter-exchange", "nowhere"))
	c.declare("cycle", table("x-dead-letter-exchange", "", "x-message-ttl", int32(10)))
	c.declare("limited", table("x-dead-letter-exchange", "dlx", "x-queue-type", "quorum", "x-delivery-limit", int32(0)))
	c.declare("kept", table("x-dead-letter-exchange", "absent", "x-queue-type", "quorum", "x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish"))

	c.reject("plain", 1)
	c.reject("moved", 3)
	c.reject("missing", 2)
	c.reject("unrouted", 4)
	c.reject("kept", 5)
	c.put("cycle", "round", nil)
	c.put("limited", "once", nil)
	c.settle(fsm.RequeueFailed, c.eventually("limited"))

	var want DeadTotals
	want.Died[ClassicQueue][StrategyDisabled][dlx.Rejected] = 3 // plain and missing
	want.Died[ClassicQueue][AtMostOnce][dlx.Rejected] = 7
	want.Died[ClassicQueue][AtMostOnce][dlx.Expired] = 1
	want.Died[QuorumQueue][AtMostOnce][dlx.DeliveryLimit] = 1
	want.Died[QuorumQueue][AtLeastOnce][dlx.Rejected] = 5
	want.Confirmed[ClassicQueue][AtMostOnce] = 3
	want.Confirmed[QuorumQueue][AtMostOnce] = 1
	want.Dropped[DropNoDLX], want.Dropped[DropNoExchange] = 1, 2
	want.Dropped[DropUnroutable], want.Dropped[DropCycle] = 4, 1
	var got DeadTotals
	waited := uint64(0)
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		got = b.DeadTotals()
		waited = 0
		for _, n := range got.Waited {
			waited += n
		}
		got.Waited, got.WaitedMillis = want.Waited, 0
		if got == want {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got != want || waited != 4 {
		t.Errorf("%d in classes of time\n got %+v\nwant %+v", waited, got, want)
	}
}

// A message of a delayed exchange that comes due has not died.
func TestDeadTotalsOfDelayedMessages(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", nil)
	args := table("x-delayed-type", "fanout")
	if err := c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "later", Type: "x-delayed-message", Durable: true, Arguments: args}); err != nil {
		t.Fatal(err)
	}
	if err := c.conn.Bind(t.Context(), Binding{Source: "later", Destination: "q"}); err != nil {
		t.Fatal(err)
	}
	raw := properties(func(p *amqp.Properties) { p.SetHeaders(table("x-delay", int32(20))) })
	if _, routed, err := c.publish("later", "", "m", raw); err != nil || !routed {
		t.Fatal(routed, err)
	}
	c.eventually("q")
	c.await("the count", func() bool { return b.DeadTotals() == DeadTotals{Forwarded: 1} })
}

func TestDropLog(t *testing.T) {
	var l dropLog
	now := time.Unix(1000, 0)
	for i, tc := range []struct {
		after time.Duration
		cause DropCause
		n     uint64
		count uint64
		due   bool
	}{
		{0, DropUnroutable, 3, 3, true},
		{time.Second, DropUnroutable, 4, 0, false},
		{time.Second, DropCycle, 1, 1, true}, // each cause for itself
		{time.Minute, DropUnroutable, 5, 9, true},
		{time.Minute, DropNoDLX, 5, 0, false}, // as declared
		{time.Minute, DropQueueDeleted, 5, 0, false},
	} {
		now = now.Add(tc.after)
		if count, due := l.note(tc.cause, tc.n, now); count != tc.count || due != tc.due {
			t.Errorf("%d: %d %v", i, count, due)
		}
	}
}

// An outbox tells what it waits for, and clears.
func TestOutbox(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("full", table("x-max-length", int32(1), "x-overflow", "reject-publish"))
	c.declareFanout("dlx", "full")
	c.declare("source", table("x-dead-letter-exchange", "dlx"))
	c.declare("kept", table("x-dead-letter-exchange", "absent", "x-queue-type", "quorum", "x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish"))
	if list, err := b.Outboxes(t.Context(), 0); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	c.put("full", "in the way", nil)
	c.reject("source", 2)
	c.reject("kept", 1)
	status := func(queue string) (s OutboxStatus) {
		t.Helper()
		s, err := b.Outbox(t.Context(), "/", queue)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	c.await("a full target", func() bool {
		s := status("source")
		return len(s.Targets) == 1 && s.Targets[0].State == "full"
	})
	s := status("source")
	target := s.Targets[0]
	if s.Messages != 2 || s.MessageBytes != 2 || s.States.Routed != 2 || target.Queue != "full" || target.Pending != 2 ||
		target.Since == 0 || s.LastError == nil || s.LastError.Text != "queue 'full' in vhost '/': the target is full" ||
		s.DeadLettered["rejected"] != 2 || s.Stuck() != "target full is full" {
		t.Errorf("%+v %+v", s, s.LastError)
	}
	// The queue's own declaration may have it looked at again, for which it leaves the parked ones for a moment.
	c.await("a parked letter", func() bool { s = status("kept"); return s.States.ParkedUnrouted == 1 })
	if s.Stuck() != "no route" || s.LastError.Text != `there is no exchange "absent"` {
		t.Errorf("%+v %+v", s, s.LastError)
	}
	if list, err := b.Outboxes(t.Context(), time.Hour); err != nil || len(list) != 0 {
		t.Errorf("nothing is that old: %v, %v", list, err)
	}
	time.Sleep(2 * time.Millisecond) // so old are both
	if list, err := b.Outboxes(t.Context(), time.Millisecond); err != nil || len(list) != 2 || list[0].OldestAge == 0 {
		t.Errorf("%+v, %v", list, err)
	}
	c.settle(fsm.Ack, c.eventually("full"))
	c.settle(fsm.Ack, c.eventually("full"))
	c.settle(fsm.Ack, c.eventually("full"))
	c.declareFanout("absent", "full")
	c.settle(fsm.Ack, c.eventually("full"))
	c.await("empty outboxes", func() bool {
		list, err := b.Outboxes(t.Context(), 0)
		return err == nil && len(list) == 0
	})
	if s := status("source"); s.Messages != 0 || s.OldestAge != 0 || len(s.Targets) != 0 || s.Confirmed != 2 {
		t.Errorf("%+v", s)
	}
}

// TestOutboxWithoutALeader: a leader is waited for if there can be one.
func TestOutboxWithoutALeader(t *testing.T) {
	b := newBroker(t)
	dial(t, b).declare("q", nil)
	b.queues.dismiss(b.queues.get(b.cat.View().Queue("/", "q").ID))
	for online, waits := range map[bool]bool{true: true, false: false} {
		b.cfg.Online = func(string) bool { return online }
		began := time.Now()
		_, err := b.Outbox(t.Context(), "/", "q")
		if took := time.Since(began); !errors.Is(err, ErrNoLeader) || (took >= timeoutOutboxes) != waits {
			t.Errorf("online %t: %v after %v", online, err, took)
		}
	}
}

// Other nodes answer for the queues they lead, in pages.
func TestOutboxesAnswer(t *testing.T) {
	b := newBroker(t)
	for _, bad := range []string{"", "{", `{"version":2}`, `{"version":1,"queue":"x"}`} {
		if _, err := b.AnswerOutboxes(t.Context(), []byte(bad)); err == nil {
			t.Errorf("%q was answered", bad)
		}
	}
	raw, err := b.AnswerOutboxes(t.Context(), []byte(`{"version":1}`))
	if err != nil || string(raw) != `{"outboxes":[],"more":false}` {
		t.Errorf("%s %v", raw, err)
	}
}
