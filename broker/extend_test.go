package broker

import (
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
)

// TestExtend: a delivery that its client is still at work with is as young as one that has just come; what is settled, or may be held for
// ever, is passed over.
func TestExtend(t *testing.T) {
	b := newBroker(t)
	c := dial(t, b)
	c.declare("q", table("x-queue-type", "quorum", "x-consumer-timeout", int32(16_000))) // counted by the second
	c.declare("patient", table("x-queue-type", "quorum", "x-consumer-timeout", int32(0)))
	c.consume("q", 2)
	c.put("q", "1", nil)
	first := c.take(1)[0]
	s := first.queue
	age := func() (since time.Duration, counted int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if h := s.held[first.id]; h != nil && h.aging != nil {
			since = h.since
		}
		for a := range s.agings {
			for _, slice := range a.slices {
				counted += slice.n
			}
		}
		return since, counted
	}
	came, _ := age()
	c.await("another age", func() bool {
		c.ch.Extend([]*Delivery{first})
		since, _ := age()
		return since > came
	})
	if _, counted := age(); counted != 1 {
		t.Errorf("%d deliveries are counted, want 1", counted)
	}
	c.consume("patient", 1)
	c.put("patient", "2", nil)
	kept := c.take(1)[0]
	c.ch.Extend([]*Delivery{kept})
	c.settle(fsm.Ack, first, kept)
	c.ch.Extend([]*Delivery{first, kept})
	if _, counted := age(); counted != 0 {
		t.Errorf("%d deliveries are counted, want none", counted)
	}
	c.await("empty queues", func() bool {
		st, err := b.status(t.Context(), b.cat.View().Queue("/", "q"), false)
		return err == nil && st.Ready+st.Unacked == 0
	})
}
