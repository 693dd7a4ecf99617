package process

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestKeptDeadLetters shows the cases of SEMANTICS §5.5: what happens to dead letters that
// cannot be moved at once.
func TestKeptDeadLetters(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "D60 every reason arrives", warrenOnly: true, run: everyReason},
		{name: "D61 nothing bound, exchange missing", warrenOnly: true, run: boundLater},
		{name: "D61 D71 the target is deleted and comes back", warrenOnly: true, run: targetComesBack},
		{name: "D62 a full target", warrenOnly: true, run: fullTarget},
		{name: "D64 one of three targets is full", warrenOnly: true, run: oneTargetFull},
		{name: "D66 dead letters do not count toward the length", warrenOnly: true, run: outboxBesideLength},
		{name: "D67 drop-head and at-least-once", warrenOnly: true, run: dropHeadKept},
	})
}

func kept(more amqp.Table) amqp.Table {
	args := amqp.Table{"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
	maps.Copy(args, more)
	return args
}

func everyReason(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", kept(deadTo(dead, amqp.Table{"x-delivery-limit": 1})))
	s.publish("", q, expiring("expired", "100"))
	s.ready(dead, 1)
	s.fill(q, "rejected", "poison")
	_, deliveries := s.consume(q, 1)
	s.noError("reject", s.next(deliveries).Reject(false))
	s.noError("fail", s.next(deliveries).Reject(true))
	s.noError("fail", s.next(deliveries).Reject(true))
	s.holds(dead, "expired", "rejected", "poison")
	s.ready(q, 0)
}

func boundLater(s *session) {
	dlx := s.name("dlx")
	q := s.queue("q", kept(amqp.Table{"x-dead-letter-exchange": dlx, "x-message-ttl": 50}))
	bodies := numbered("m", 8)
	s.fill(q, bodies...)
	s.ready(q, 0)
	time.Sleep(200 * time.Millisecond)
	s.exchange("dlx", "fanout", nil)
	time.Sleep(200 * time.Millisecond)
	dead := s.queue("dead", nil)
	s.bind(dead, "", dlx, nil)
	// Their order is for the tests of dlx/mover: a leader may change in between.
	s.holdsAll(dead, bodies...)
}

// holdsAll waits until the queue holds just these messages, in any order.
func (s *session) holdsAll(queue string, bodies ...string) {
	s.Helper()
	s.ready(queue, len(bodies))
	got := s.drain(queue)
	slices.Sort(got)
	slices.Sort(bodies)
	if !slices.Equal(got, bodies) {
		s.Errorf("%s holds %q, want %q", queue, got, bodies)
	}
}

func targetComesBack(s *session) {
	dead := s.name("dead")
	q := s.queue("q", kept(deadTo(dead, nil)))
	_, deliveries := s.consume(q, 0)
	reject := func(bodies ...string) {
		s.Helper()
		s.fill(q, bodies...)
		for range bodies {
			s.noError("reject", s.next(deliveries).Reject(false))
		}
	}
	declare := func() {
		s.Helper()
		_, err := s.ch.QueueDeclare(dead, true, false, false, false, nil)
		s.noError("declare", err)
	}
	for round := range 5 {
		declare()
		bodies := numbered(fmt.Sprintf("r%d.", round), 30)
		reject(bodies...)
		s.holds(dead, bodies...)
		_, err := s.ch.QueueDelete(dead, false, false, false)
		s.noError("delete", err)
		late := numbered(fmt.Sprintf("late%d.", round), 30)
		reject(late...)
		declare()
		// One may have been under way to the old queue when that went: the others overtake it.
		s.holdsAll(dead, late...)
	}
	s.queue("dead", nil)
	s.ready(dead, 0)
}

func fullTarget(s *session) {
	dead := s.queue("dead", amqp.Table{"x-queue-type": "quorum", "x-max-length": 10, "x-overflow": "reject-publish"})
	q := s.queue("q", kept(deadTo(dead, amqp.Table{"x-message-ttl": 50})))
	bodies := numbered("m", 50)
	s.fill(q, bodies...)
	s.ready(q, 0)
	_, deliveries := s.consume(dead, 5)
	for _, body := range bodies {
		d := s.next(deliveries)
		if string(d.Body) != body || d.Redelivered {
			s.Fatalf("got %q redelivered %v, want %q", d.Body, d.Redelivered, body)
		}
		s.noError("ack", d.Ack(false))
	}
	s.ready(dead, 0)
}

func oneTargetFull(s *session) {
	dlx := s.exchange("dlx", "fanout", nil)
	open := []string{s.queue("open1", nil), s.queue("open2", amqp.Table{"x-queue-type": "quorum"})}
	full := s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	for _, target := range append(open, full) {
		s.bind(target, "", dlx, nil)
	}
	q := s.queue("q", kept(amqp.Table{"x-dead-letter-exchange": dlx}))
	s.fill(full, "in the way")
	bodies := numbered("m", 20)
	s.fill(q, bodies...)
	_, deliveries := s.consume(q, 0)
	held := s.take(deliveries, false, bodies...)
	s.noError("nack", held[19].Nack(true, false))
	for _, target := range open {
		s.holds(target, bodies...)
	}
	s.holds(full, "in the way")
	_, arriving := s.consume(full, 1)
	for _, body := range bodies {
		d := s.next(arriving)
		if string(d.Body) != body {
			s.Fatalf("got %q, want %q", d.Body, body)
		}
		s.noError("ack", d.Ack(false))
	}
	for _, target := range append(open, full) {
		s.ready(target, 0) // no second copy
	}
}

func outboxBesideLength(s *session) {
	q := s.queue("q", kept(amqp.Table{"x-dead-letter-exchange": s.name("nowhere"), "x-max-length": 3}))
	_, deliveries := s.consume(q, 0)
	for range 4 {
		s.fill(q, "a", "b", "c")
		held := s.take(deliveries, false, "a", "b", "c")
		s.noError("nack", held[2].Nack(true, false))
		s.ready(q, 0)
	}
	dead := s.queue("dead", nil)
	s.exchange("nowhere", "fanout", nil)
	s.bind(dead, "", s.name("nowhere"), nil)
	s.ready(dead, 12)
}

func dropHeadKept(s *session) {
	dlx := s.name("later")
	q := s.queue("q", amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "drop-head",
		"x-max-length": 2, "x-dead-letter-exchange": dlx,
	})
	s.fill(q, numbered("m", 10)...)
	s.ready(q, 2)
	dead := s.queue("dead", nil)
	s.exchange("later", "fanout", nil)
	s.bind(dead, "", dlx, nil)
	s.holds(dead, numbered("m", 8)...)
	s.holds(q, "m9", "m10")
}
