package broker

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
)

// deadLetterRig declares queues a and b whose rejected messages go to the queue dlq.
func deadLetterRig(t *testing.T) (*Broker, *client) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("dlq", nil)
	for _, q := range []string{"a", "b"} {
		c.declare(q, table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dlq"))
	}
	return b, c
}

func (c *client) kill(queue string, bodies ...string) {
	c.t.Helper()
	for _, body := range bodies {
		c.put(queue, body, properties(func(p *amqp.Properties) { p.SetMessageID(body) }))
		c.settle(fsm.Discard, c.eventually(queue))
	}
}

func (c *client) redrive(b *Broker, queue string, r Redrive) RedriveStatus {
	c.t.Helper()
	if _, err := b.StartRedrive(c.t.Context(), User{Name: "guest"}, "/", queue, r); err != nil {
		c.t.Fatal(err)
	}
	return c.redriven(b, queue)
}

// redriven waits for the end of a redrive.
func (c *client) redriven(b *Broker, queue string) (st RedriveStatus) {
	c.t.Helper()
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		var err error
		if st, err = b.RedriveStatus(c.t.Context(), User{Name: "guest"}, "/", queue); err != nil {
			c.t.Fatal(err)
		}
		if st.State == "done" || st.State == "stopped" {
			return st
		}
	}
	c.t.Fatalf("the redrive does not end: %+v", st)
	return st
}

func (c *client) bodies(b *Broker, queue string) []string {
	c.t.Helper()
	return peekedBodies(c.peek(b, queue, Peek{State: "ready", Count: 1000, Truncate: 100}))
}

func TestRedriveSendsBack(t *testing.T) {
	b, c := deadLetterRig(t)
	c.kill("a", "a1", "a2")
	c.kill("b", "b1")
	c.kill("a", "a3")
	c.put("dlq", "stray", nil)
	c.await("the dead letters", func() bool { return len(c.bodies(b, "dlq")) == 5 })
	plan, err := b.PlanRedrive(t.Context(), User{Name: "guest"}, "/", "dlq", Redrive{})
	if err != nil || !maps.Equal(plan.Destinations, map[string]uint64{"a": 3, "b": 1}) || plan.NoOrigin != 1 || plan.Messages != 5 || plan.Next != 0 {
		t.Fatalf("%+v: %v", plan, err)
	}
	if got := c.bodies(b, "dlq"); len(got) != 5 {
		t.Fatalf("a dry run moved something: %v", got)
	}
	st := c.redrive(b, "dlq", Redrive{Filter: Filter{From: "a", MessageIDs: []string{"a2", "b1", "a3"}}})
	if st.Moved != 2 || st.UnderWay != 0 || st.Number != 1 || st.State != "done" {
		t.Fatalf("%+v", st)
	}
	if got := c.bodies(b, "a"); !slices.Equal(got, []string{"a2", "a3"}) {
		t.Fatalf("a has %v", got)
	}
	d := c.eventually("a")
	headers, _, err := d.Properties.Headers()
	if err != nil || d.Exchange != "" || d.Key != "a" || d.Redelivered {
		t.Errorf("%+v: %v", d, err)
	}
	if deaths, ok := headers.Get("x-death"); !ok || len(deaths.(amqp.Array)) != 1 {
		t.Errorf("x-death %v", deaths)
	}
	// It dies again, and the count goes on.
	c.settle(fsm.Discard, d)
	c.await("the second death", func() bool { return len(c.bodies(b, "dlq")) == 4 })
	if got := c.peek(b, "dlq", Peek{State: "ready", Count: 9, Filter: Filter{MessageIDs: []string{"a2"}}}); len(got.Messages) != 1 || got.Messages[0].Deaths[0].Count != 2 {
		t.Errorf("%+v", got)
	}
	st = c.redrive(b, "dlq", Redrive{})
	if st.Moved != 3 || st.NoOrigin != 1 {
		t.Errorf("%+v", st)
	}
	// The state says that a redrive has ended as soon as it has; what was applied is counted beside.
	c.await("this node has counted five", func() bool { return b.DeadTotals().Redriven == 5 })
	if got := c.bodies(b, "dlq"); !slices.Equal(got, []string{"stray"}) {
		t.Errorf("dlq has %v", got)
	}
}

func TestRedriveWays(t *testing.T) {
	b, c := deadLetterRig(t)
	c.declare("first", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "a"))
	c.declare("bound", nil)
	c.declare("named", nil)
	if err := c.conn.DeclareExchange(t.Context(), ExchangeDeclare{Name: "x", Type: "topic", Durable: true}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"first", "bound", "dlq"} {
		if err := c.conn.Bind(t.Context(), Binding{Source: "x", Destination: q, Key: "k.*"}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := c.publish("x", "k.1", "m", nil); err != nil {
		t.Fatal(err)
	}
	c.settle(fsm.Ack, c.eventually("bound"), c.eventually("dlq"))
	c.settle(fsm.Discard, c.eventually("first"))
	c.settle(fsm.Discard, c.eventually("a"))
	c.await("the dead letter", func() bool { return len(c.bodies(b, "dlq")) == 1 })
	back := func(want string, r Redrive, counts RedriveStatus) {
		t.Helper()
		st := c.redrive(b, "dlq", r)
		if st.Moved != counts.Moved || st.Missing != counts.Missing || st.NoOrigin != counts.NoOrigin {
			t.Errorf("to %s: %+v", r.To, st)
		}
		if counts.Moved == 0 {
			return
		}
		d := c.eventually(want)
		if d.Exchange != "x" && want != "a" || d.Key != "k.1" && want != "a" {
			t.Errorf("%s got it from %s with %s", want, d.Exchange, d.Key)
		}
		c.settle(fsm.Ack, d)
	}
	plan, err := b.PlanRedrive(t.Context(), User{Name: "guest"}, "/", "dlq", Redrive{To: "exchange"})
	if err != nil || !maps.Equal(plan.Destinations, map[string]uint64{"first": 1, "bound": 1}) {
		t.Errorf("%+v: %v", plan, err)
	}
	back("", Redrive{To: "queue", Queue: "nowhere"}, RedriveStatus{Missing: 1})
	back("bound", Redrive{To: "exchange"}, RedriveStatus{Moved: 1})
	c.settle(fsm.Discard, c.eventually("first"))
	c.settle(fsm.Discard, c.eventually("a"))
	c.await("the dead letter again", func() bool { return len(c.bodies(b, "dlq")) == 1 })
	back("first", Redrive{To: "first"}, RedriveStatus{Moved: 1})
	c.kill("a", "last")
	c.await("another", func() bool { return len(c.bodies(b, "dlq")) == 1 })
	back("a", Redrive{To: "last"}, RedriveStatus{Moved: 1})
}

func TestRedriveDiscardsStopsAndWaits(t *testing.T) {
	b, c := deadLetterRig(t)
	var bodies []string
	for i := range 40 {
		bodies = append(bodies, fmt.Sprint(i))
	}
	c.kill("a", bodies...)
	c.await("the dead letters", func() bool { return len(c.bodies(b, "dlq")) == 40 })
	held := c.eventually("dlq")
	st := c.redrive(b, "dlq", Redrive{Discard: true, Filter: Filter{MessageIDs: []string{"0", "1", "2"}}})
	if st.Moved != 2 || st.Busy != 1 {
		t.Errorf("discarded: %+v", st)
	}
	c.settle(fsm.RequeueCounted, held)
	began := time.Now()
	if _, err := b.StartRedrive(t.Context(), User{Name: "guest"}, "/", "dlq", Redrive{Rate: 5}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.StartRedrive(t.Context(), User{Name: "guest"}, "/", "dlq", Redrive{}); kindOfRefusal(err) != PreconditionFailed {
		t.Errorf("a second one: %v", err)
	}
	c.await("some messages", func() bool {
		st, err := b.RedriveStatus(t.Context(), User{Name: "guest"}, "/", "dlq")
		return err != nil || st.Moved >= 3
	})
	if _, err := b.StopRedrive(t.Context(), User{Name: "guest"}, "/", "dlq"); err != nil {
		t.Fatal(err)
	}
	st = c.redriven(b, "dlq")
	if took := time.Since(began); st.State != "stopped" || st.Moved < 3 || float64(st.Moved) > 1+5*took.Seconds() {
		t.Errorf("after %v at 5 a second: %+v", took, st)
	}
	if n := len(c.bodies(b, "dlq")) + len(c.bodies(b, "a")); n != 38 {
		t.Errorf("%d messages", n)
	}
	for _, r := range []Redrive{
		{To: "elsewhere"},
		{To: "queue"},
		{To: "last", Queue: "a"},
		{To: "queue", Queue: "dlq"},
		{Discard: true, Rate: 1},
		{Filter: Filter{Reasons: []string{"boredom"}}},
	} {
		if _, err := b.StartRedrive(t.Context(), User{Name: "guest"}, "/", "dlq", r); kindOfRefusal(err) != PreconditionFailed {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := b.StartRedrive(t.Context(), User{Name: "nobody"}, "/", "dlq", Redrive{}); kindOfRefusal(err) != AccessRefused {
		t.Error(err)
	}
}

// A message that was redriven does not end as a cycle for what happened before.
func TestRedriveBeginsANewRound(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("dlq", nil)
	c.declare("w", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "dlq", "x-message-ttl", int32(1)))
	c.declare("q", table("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "w", "x-message-ttl", int32(1)))
	c.put("q", "m", nil)
	for round := range 3 {
		c.await("the dead letter", func() bool { return len(c.bodies(b, "dlq")) == 1 })
		if got := c.peek(b, "dlq", Peek{State: "ready", Count: 1}); len(got.Messages[0].Deaths) != 2 || got.Messages[0].Deaths[0].Count != uint64(round+1) {
			t.Fatalf("round %d: %+v", round, got.Messages[0].Deaths)
		}
		if st := c.redrive(b, "dlq", Redrive{To: "first"}); st.Moved != 1 {
			t.Fatalf("round %d: %+v", round, st)
		}
	}
}

// TestRetriedLetters: a dead letter that was sent back and died again is told from one that never was.
func TestRetriedLetters(t *testing.T) {
	b, c := deadLetterRig(t)
	c.kill("a", "again", "other")
	c.await("the dead letters", func() bool { return len(c.bodies(b, "dlq")) == 2 })
	c.redrive(b, "dlq", Redrive{Filter: Filter{MessageIDs: []string{"again"}}})
	if got := c.peek(b, "a", Peek{State: "ready", Count: 9}).Messages; len(got) != 1 {
		t.Fatalf("sent back: %+v", got)
	} else if retried, since := got[0].Retried(); !retried || since != 0 {
		t.Errorf("sent back: %v, and died %d times since", retried, since)
	}
	c.settle(fsm.Discard, c.eventually("a"))
	c.await("it back", func() bool { return len(c.bodies(b, "dlq")) == 2 })
	for _, m := range c.peek(b, "dlq", Peek{State: "ready", Count: 9, Truncate: 9}).Messages {
		retried, since := m.Retried()
		if again := string(m.Body) == "again"; retried != again || again && (since != 1 || m.Deaths[0].Count != 2 || m.Deaths[0].Before != 1) {
			t.Errorf("%s: %v, died %d times since: %+v", m.Body, retried, since, m.Deaths)
		}
	}
	if got, err := b.DeadLetters(t.Context(), User{Name: "guest"}, "/", "dlq"); err != nil || len(got.Groups) != 1 || got.Groups[0].Messages != 2 || got.Groups[0].Retried != 1 {
		t.Errorf("%+v: %v", got, err)
	}
	yes, no := true, false
	for want, retried := range map[string]*bool{"again": &yes, "other": &no} {
		if got := peekedBodies(c.peek(b, "dlq", Peek{State: "ready", Count: 9, Truncate: 9, Filter: Filter{Retried: retried}})); !slices.Equal(got, []string{want}) {
			t.Errorf("retried %v: %v", *retried, got)
		}
	}
	if st := c.redrive(b, "dlq", Redrive{Filter: Filter{Retried: &no}}); st.Moved != 1 {
		t.Errorf("of those never retried: %+v", st)
	}
	if got := c.bodies(b, "dlq"); !slices.Equal(got, []string{"again"}) {
		t.Errorf("left: %v", got)
	}
}

// A redrive that has large messages to read, which takes long, decides bit by bit, and keeps nobody waiting who ends its leader.
func TestRedriveOfLargeMessages(t *testing.T) {
	const n, takes = 40, 100 * time.Millisecond
	b, h := withLargeMessages(t, n, takes)
	if _, err := b.StartRedrive(t.Context(), User{Name: "guest"}, "/", "q", Redrive{Filter: Filter{Header: "a", HeaderValue: "b"}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for h.redriving().Cursor == 0 {
		if time.Since(began) > n*takes*3/4 {
			t.Fatalf("nothing is decided after %v", time.Since(began))
		}
		time.Sleep(10 * time.Millisecond)
	}
	began = time.Now()
	h.replica.Leader().Stop()
	if took := time.Since(began); took > n*takes/2 {
		t.Errorf("its leader ends after %v", took)
	}
}
