package leader

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// entries is how many entries the log has taken.
func (r *rig) entries() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	return r.log.last
}

// patient makes a rig whose acks would wait for an hour, with a consumer.
func patient(t *testing.T, prefetch uint32) (*rig, Node) {
	n := node(1)
	r := newRigWith(t, plain(), func(c *Config) { c.acksLinger = time.Hour }, n)
	r.answerRoll(n)
	r.attach(n, 1, prefetch)
	return r, n
}

// An ack that nobody waits for joins the entry of the next publish.
func TestAckJoinsTheNextPublish(t *testing.T) {
	for _, prefetch := range []uint32{1, 10} {
		r, n := patient(t, prefetch)
		r.publish(n, "a")
		before := r.entries()
		for range 20 {
			item := r.items(n, 1)[0]
			r.settle(n, fsm.Ack, item)
			r.publish(n, "b")
		}
		if got := r.entries() - before; got != 20 {
			t.Errorf("prefetch %d: 20 acks and 20 publishes took %d entries, want 20", prefetch, got)
		}
		if s := r.status(n, 1); s.Ready+s.Unacked != 1 {
			t.Errorf("prefetch %d: %d ready and %d unacked, want one message left", prefetch, s.Ready, s.Unacked)
		}
	}
}

// A consumer that takes one message after the other waits for none of its acks to get into the log.
func TestSmallPrefetchWaitsForNoEntry(t *testing.T) {
	r, n := patient(t, 1)
	r.publish(n, numbers(1, 50)...)
	item := r.items(n, 1)
	before := r.entries()
	for i := 2; i <= 50; i++ {
		r.settle(n, fsm.Ack, item...)
		item = r.gets(n, 1, numbers(i, i)...)
	}
	if got := r.entries() - before; got != 0 {
		t.Errorf("49 messages took %d entries", got)
	}
}

// An ack alone is in the log soon.
func TestAckAloneDoesNotWaitForLong(t *testing.T) {
	n := node(1)
	r := newRig(t, plain(), n)
	r.answerRoll(n)
	r.attach(n, 1, 10)
	r.publish(n, "a")
	item := r.items(n, 1)[0]
	began := time.Now()
	r.settle(n, fsm.Ack, item)
	await(r, n.ID, func(a *wire.Answer) bool { return a.UpTo >= r.seq[1] })
	t.Logf("answered after %v", time.Since(began))
}

// Acks do not wait where somebody waits for them.
func TestAckThatSomebodyWaitsFor(t *testing.T) {
	t.Run("a count", func(t *testing.T) {
		r, n := patient(t, 10)
		r.publish(n, "a")
		r.settle(n, fsm.Ack, r.items(n, 1)[0])
		if s := r.status(n, 1); s.Ready+s.Unacked != 0 {
			t.Errorf("%d ready and %d unacked behind the ack, want none", s.Ready, s.Unacked)
		}
	})
	t.Run("a get", func(t *testing.T) {
		r, n := patient(t, 10)
		r.publish(n, "a")
		r.settle(n, fsm.Ack, r.items(n, 1)[0])
		if r.get(n, 1).Found {
			t.Error("found a message in an empty queue")
		}
	})
	t.Run("a rejection behind it", func(t *testing.T) {
		r, n := patient(t, 10)
		r.publish(n, "a", "b")
		items := r.items(n, 2)
		r.settle(n, fsm.Ack, items[0])
		r.settle(n, fsm.RequeueCounted, items[1])
		r.items(n, 1)
	})
	t.Run("another node's publish", func(t *testing.T) {
		a, b := node(1), node(2)
		r := newRigWith(t, plain(), func(c *Config) { c.acksLinger = time.Hour }, a, b)
		r.answerRoll(a)
		r.answerRoll(b)
		r.attach(a, 1, 10)
		r.publish(b, "m")
		r.settle(a, fsm.Ack, r.items(a, 1)[0])
		r.publish(b, "m")
		await(r, a.ID, func(x *wire.Answer) bool { return x.UpTo >= 1 })
	})
	t.Run("the end of the queue", func(t *testing.T) {
		r, n := patient(t, 10)
		r.publish(n, "a")
		r.settle(n, fsm.Ack, r.items(n, 1)[0])
		r.l.BeginClose()
		await(r, n.ID, func(a *wire.Answer) bool { return a.UpTo >= r.seq[1] })
	})
	t.Run("many acks", func(t *testing.T) {
		r, n := patient(t, 1000)
		bodies := make([]string, 400)
		r.publish(n, bodies...)
		items := r.items(n, len(bodies))
		for i := 0; i < len(items); i += 2 {
			r.settle(n, fsm.Ack, items[i])
		}
		await(r, n.ID, func(a *wire.Answer) bool { return a.UpTo > uint64(len(bodies)) })
	})
}
