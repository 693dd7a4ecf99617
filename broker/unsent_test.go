package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// Leaders of an older program, and those that cannot be reached, learn of what was not sent as of a counted return.
func TestUnsentOverLevels(t *testing.T) {
	for _, tc := range []struct {
		name  string
		level int
		down  bool
		new   bool
	}{{"old", levelUnsent - 1, false, false}, {"new", levelUnsent, false, true}, {"out of reach", levelUnsent, true, false}} {
		r := newStreamRig(t)
		r.level = tc.level
		s := r.s
		s.leader, s.resyncs = "leader", 3
		c := &Consumer{no: 1}
		c.stream.Store(s)
		var ds []*Delivery
		for _, id := range []queue.MessageID{5, 4, 8} {
			s.holdLocked(id, &holding{no: 1, attempt: 2})
			ds = append(ds, &Delivery{Consumer: c, queue: s, id: id, attempt: 2})
		}
		r.down = tc.down
		GiveBack(ds...)
		r.down = false
		s.retry()
		want := []fsm.Run{{First: 4, Count: 2, Attempt: 2}, {First: 8, Count: 1, Attempt: 2}}
		told, batches := sent[*wire.Unsent](r), sent[*wire.Batch](r)
		if tc.new {
			if len(told) != 1 || told[0].Resync != 3 || !slices.Equal(told[0].Runs, want) || len(batches)+len(s.held) > 0 {
				t.Errorf("%s: %+v, %d batches, %d held", tc.name, told, len(batches), len(s.held))
			}
			continue
		}
		if len(told) > 0 || len(batches) != 1 || len(s.held) != 3 {
			t.Fatalf("%s: %+v, %d batches, %d held", tc.name, told, len(batches), len(s.held))
		}
		if op, ok := batches[0].Stream.Ops[0].(fsm.Settle); !ok || op.Kind != fsm.RequeueCounted || !slices.Equal(op.Runs, want) {
			t.Errorf("%s: %+v", tc.name, batches[0].Stream.Ops)
		}
	}
}

// A message that waits at the gateway does not age. With its consumer it goes back, as it was.
func TestWithheldDoesNotAge(t *testing.T) {
	b := newBroker(t)
	c, other := dial(t, b), dial(t, b)
	c.declare("q", table("x-queue-type", "quorum", "x-consumer-timeout", int32(100)))
	c.put("q", "1", nil)
	c.put("q", "2", nil)
	c.consume("q", 2)
	ds := c.take(2)
	for _, d := range ds {
		d.Withhold()
	}
	time.Sleep(250 * time.Millisecond)
	c.mu.Lock()
	if len(c.timedOut) > 0 {
		t.Errorf("timed out with what it has not got: %v", c.timedOut)
	}
	c.mu.Unlock()
	if !ds[0].Sent() {
		t.Error("what is withheld may not be sent")
	}
	c.await("a timeout", func() bool { return len(c.timedOut) > 0 })
	if ds[1].Sent() || ds[0].Sent() {
		t.Error("what went back may be sent")
	}
	for i, want := range []bool{true, false} {
		if d := other.eventually("q"); d.Redelivered != want || d.Failed != 0 || (d.Acquired == 1) != want || string(d.Body) != string(ds[i].Body) {
			t.Errorf("delivery %d: %s %+v", i, d.Body, d)
		}
	}
}

// The answer to a new limit does not pass for the answer to a cancel, which uses the consumer's number too.
func TestLimitBeforeCancel(t *testing.T) {
	r := newStreamRig(t)
	s := r.s
	s.leader = "leader"
	c := &Consumer{no: 1, attached: true, spec: Consume{Prefetch: 20}}
	c.stream.Store(s)
	s.consumers[1] = c
	for _, tc := range []struct{ limit, want uint16 }{{5, 5}, {5, 0}, {30, 20}, {20, 0}, {0, 0}} {
		c.SetLimit(tc.limit)
		if told := sent[*wire.Attach](r); len(told) > 1 || (len(told) == 1) != (tc.want > 0) || tc.want > 0 && told[0].Consumer.Prefetch != uint32(tc.want) {
			t.Errorf("limit %d: %+v", tc.limit, told)
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- c.askDetach(t.Context(), false) }()
	until(t, "the detach", func() bool { return len(sent[*wire.Detach](r)) > 0 })
	s.attachedMsg(&wire.Attached{Queue: 7, No: 1})
	select {
	case <-ended:
		t.Error("ended by the answer to something else")
	case <-time.After(5 * time.Millisecond):
	}
	s.detachedMsg(&wire.Detached{Queue: 7, No: 1})
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A consumer that the leader has replaced by another one ends, and knows why. A refusal of one that was not attached is an answer, and nothing more.
func TestReplacedConsumerEnds(t *testing.T) {
	for _, attached := range []bool{true, false} {
		r := newStreamRig(t)
		sink := &client{}
		c := &Consumer{ch: &Channel{conn: &Conn{vhost: "/"}, sink: sink}, no: 1, attached: attached, spec: Consume{Tag: "t", Queue: "q"}}
		c.stream.Store(r.s)
		r.s.consumers[1] = c
		r.s.attachedMsg(&wire.Attached{Queue: 7, No: 1, Refusal: "exclusive"})
		r.s.detachedMsg(&wire.Detached{Queue: 7, No: 1, Gone: attached})
		if ended := len(sink.cancelled) == 1; ended != attached || (c.Displaced() != nil) != attached {
			t.Errorf("attached %v: told %v, because %v", attached, sink.cancelled, c.Displaced())
		}
	}
}
