package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
)

func TestConsumerTimeoutPrecedence(t *testing.T) {
	const byDefault = time.Hour
	for _, tc := range []struct {
		name            string
		consumer, queue amqp.Table
		want            time.Duration
		refused         bool
	}{
		{name: "the node's for quorum queues", queue: table("x-queue-type", "quorum"), want: byDefault},
		{name: "none for others"},
		{name: "the queue's", queue: table("x-consumer-timeout", int32(5)), want: 5 * time.Millisecond},
		{name: "the queue's before the node's", queue: table("x-queue-type", "quorum", "x-consumer-timeout", int64(5)), want: 5 * time.Millisecond},
		{name: "the consumer's before the queue's", consumer: table("x-consumer-timeout", int16(9)), queue: table("x-consumer-timeout", int32(5)), want: 9 * time.Millisecond},
		{name: "for ever", consumer: table("x-consumer-timeout", int16(0)), queue: table("x-queue-type", "quorum")},
		{name: "a word", consumer: table("x-consumer-timeout", "long"), refused: true},
		{name: "negative", consumer: table("x-consumer-timeout", int32(-1)), refused: true},
		{name: "longer than time", consumer: table("x-consumer-timeout", int64(1<<63-1)), want: millis(1<<63 - 1)},
	} {
		if err := checkConsumer(tc.consumer, "q", "/", tc.queue); (err != nil) != tc.refused {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := consumerTimeout(tc.consumer, tc.queue, byDefault); !tc.refused && (got != tc.want || got < 0) {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestAging(t *testing.T) {
	a := newAging(1600*time.Millisecond, nil)
	first := a.add(250 * time.Millisecond)
	second := a.add(999 * time.Millisecond)
	if a.add(260*time.Millisecond) != second || first != 200*time.Millisecond || second != 900*time.Millisecond || len(a.slices) != 2 {
		t.Errorf("%v %v: %+v", first, second, a.slices) // a clock that went back counts as now
	}
	if due := a.overdueAt(first); due != 1900*time.Millisecond {
		t.Errorf("due at %v", due)
	}
	a.remove(second)
	a.remove(first)
	a.remove(second)
	if a.slices != nil {
		t.Errorf("left %+v", a.slices)
	}
	if newAging(0, nil) != nil {
		t.Error("no timeout is one")
	}
}

func TestConsumerTimesOut(t *testing.T) {
	b := newBroker(t)
	c, other := dial(t, b), dial(t, b)
	c.declare("q", table("x-queue-type", "quorum", "x-consumer-timeout", int32(200)))
	if _, err := c.ch.Consume(t.Context(), Consume{Queue: "q", Tag: "patient", Prefetch: 2, Arguments: table("x-consumer-timeout", int32(60000))}); err != nil {
		t.Fatal(err)
	}
	c.put("q", "kept", nil)
	kept := c.take(1)[0]
	for _, body := range []string{"1", "2", "3"} {
		c.put("q", body, nil)
	}
	// One more for the patient one, at once two for the other: it must not time out with the first before the second is there.
	c.await("the patient one's second", func() bool { return len(c.delivered) == 1 })
	c.consume("q", 2)
	held := c.take(3)
	c.await("a timeout", func() bool { return len(c.timedOut) > 0 })
	if c.timedOut[0] != "ct-q" || len(c.timedOut) > 1 {
		t.Fatalf("timed out: %v", c.timedOut)
	}
	if st, err := b.status(t.Context(), b.cat.View().Queue("/", "q"), false); err != nil || st.Consumers != 1 {
		t.Fatalf("status %+v, %v", st, err)
	}
	other.consume("q", 5)
	got := other.take(2)
	for _, d := range got {
		if !d.Redelivered || d.Failed != 0 || d.Acquired != 1 {
			t.Errorf("delivery %+v", d)
		}
	}
	c.settle(fsm.Ack, append(held, kept)...) // late ones have no effect
	other.settle(fsm.Ack, got...)
	c.await("an empty queue", func() bool {
		st, err := b.status(t.Context(), b.cat.View().Queue("/", "q"), false)
		return err == nil && st.Ready+st.Unacked == 0
	})
}

// Acks in time keep a consumer alive for as long as it likes.
func TestBusyConsumerDoesNotTimeOut(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", table("x-consumer-timeout", int32(3000)))
	c.consume("q", 1)
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		c.put("q", "m", nil)
		c.settle(fsm.Ack, c.take(1)...)
	}
	s := b.stream(b.cat.View().Queue("/", "q"))
	c.await("nothing being watched", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.agings) == 0 && !s.timed
	})
	if len(c.timedOut) > 0 {
		t.Errorf("timed out: %v", c.timedOut)
	}
}

func TestGetTimesOut(t *testing.T) {
	b := newBroker(t)
	c, other := dial(t, b), dial(t, b)
	c.declare("q", table("x-consumer-timeout", int32(150)))
	c.put("q", "m", nil)
	if d := c.get("q"); d == nil {
		t.Fatal("nothing fetched")
	}
	c.await("a timeout", func() bool { return len(c.timedOut) > 0 })
	if d := other.eventually("q"); !d.Redelivered || d.Failed != 0 {
		t.Errorf("delivery %+v", d)
	}
}

// What a cancelled consumer left behind goes back, too, without anybody being told.
func TestCancelledConsumerTimesOut(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	c, other := dial(t, b), dial(t, b)
	c.declare("q", table("x-consumer-timeout", int32(3000)))
	x := c.consume("q", 1)
	c.put("q", "m", nil)
	c.take(1)
	if err := x.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := other.eventually("q"); !d.Redelivered || d.Failed != 0 {
		t.Errorf("delivery %+v", d)
	}
	if len(c.timedOut) > 0 {
		t.Errorf("told %v", c.timedOut)
	}
}

// What an open transaction settles is not taken back from the client, nor does its consumer end for it; a rollback begins the time anew.
func TestTxSettlementsDoNotTimeOut(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	for name, tc := range map[string]struct {
		get  bool
		kind fsm.SettleKind
	}{
		"ack of a delivery":  {kind: fsm.Ack},
		"nack of a delivery": {kind: fsm.RequeueCounted},
		"ack of a get":       {get: true, kind: fsm.Ack},
		"reject of a get":    {get: true, kind: fsm.RequeueFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			c, other := dial(t, b), dial(t, b)
			c.declare("q", table("x-consumer-timeout", int32(timeout.Milliseconds())))
			c.put("q", "m", nil)
			c.ch.TxSelect()
			var d *Delivery
			if tc.get {
				d = c.get("q")
			} else {
				c.consume("q", 1)
				d = c.take(1)[0]
			}
			c.ch.TxSettles(d)
			time.Sleep(2 * timeout)
			other.wantQueue("q", 0, 1)
			c.ch.TxRollback([]*Delivery{d})
			rolledBack := time.Now()
			c.ch.TxSettles(d)
			time.Sleep(2 * timeout)
			c.mu.Lock()
			told := slices.Clone(c.timedOut)
			c.mu.Unlock()
			if len(told) > 0 {
				t.Fatalf("timed out: %v, %v after the rollback", told, time.Since(rolledBack))
			}
			if err := c.commit(tc.kind, d); err != nil {
				t.Fatal(err)
			}
			if tc.kind == fsm.Ack {
				other.wantQueue("q", 0, 0)
				return
			}
			if tc.get {
				d = c.eventually("q")
			} else {
				d = c.take(1)[0]
			}
			c.ch.TxSettles(d)
			c.ch.TxRollback([]*Delivery{d})
			rolledBack = time.Now()
			c.await("a timeout after a rollback", func() bool { return len(c.timedOut) > 0 })
			if took := time.Since(rolledBack); took < timeout {
				t.Errorf("timed out %v after the rollback", took)
			}
			other.eventually("q")
		})
	}
}

// A consumer that ends for another delivery leaves what the open transaction settles: the commit settles it, and the end of the channel returns it.
func TestTxOutlivesItsConsumer(t *testing.T) {
	t.Parallel()
	for name, commits := range map[string]bool{"commit": true, "the channel ends": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			c, other := dial(t, b), dial(t, b)
			c.declare("q", table("x-consumer-timeout", int32(2000)))
			c.consume("q", 2)
			c.put("q", "settled", nil)
			c.put("q", "held", nil)
			c.ch.TxSelect()
			ds := c.take(2)
			c.ch.TxSettles(ds[0])
			c.await("a timeout", func() bool { return len(c.timedOut) > 0 })
			if d := other.eventually("q"); string(d.Body) != "held" {
				t.Fatalf("%s came back", d.Body)
			} else {
				other.settle(fsm.Ack, d)
			}
			if !commits {
				c.ch.Close(t.Context())
				other.eventually("q")
				return
			}
			if err := c.commit(fsm.Ack, ds[0]); err != nil {
				t.Fatal(err)
			}
			c.await("an empty queue", func() bool {
				st, err := b.status(t.Context(), b.cat.View().Queue("/", "q"), false)
				return err == nil && st.Ready+st.Unacked == 0
			})
		})
	}
}
