package process

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestDeadLettersTakeTheNewWay changes the way of dead letters that wait for a full queue.
func TestDeadLettersTakeTheNewWay(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "D69 bound to another queue", warrenOnly: true, run: boundElsewhere},
		{name: "D69 one of two bindings goes", warrenOnly: true, run: oneBindingGoes},
	})
}

// waiting are messages that were rejected in a queue of which dlx is the dead-letter
// exchange, and wait for room in full.
func (s *session) waiting(n int) (dlx, full string, bodies []string) {
	s.Helper()
	dlx = s.exchange("dlx", "fanout", nil)
	full = s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	s.bind(full, "", dlx, nil)
	s.fill(full, "in the way")
	q := s.queue("q", kept(amqp.Table{"x-dead-letter-exchange": dlx}))
	bodies = numbered("m", n)
	s.fill(q, bodies...)
	_, deliveries := s.consume(q, 0)
	held := s.take(deliveries, false, bodies...)
	s.noError("nack", held[n-1].Nack(true, false))
	time.Sleep(500 * time.Millisecond) // all are routed: what is not would take the new way at once
	return dlx, full, bodies
}

func (s *session) unbind(queue, exchange string) {
	s.Helper()
	s.noError("unbind", s.ch.QueueUnbind(queue, "", exchange, nil))
}

func boundElsewhere(s *session) {
	dlx, full, bodies := s.waiting(700)
	spare := s.queue("spare", nil)
	s.bind(spare, "", dlx, nil)
	s.unbind(full, dlx)
	s.holds(spare, bodies...)
	s.holds(full, "in the way")
}

// What the other queue has taken it does not get again, and the full one gets nothing.
func oneBindingGoes(s *session) {
	dlx := s.exchange("dlx", "fanout", nil)
	open, full := s.queue("open", nil), s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	s.bind(open, "", dlx, nil)
	s.bind(full, "", dlx, nil)
	s.fill(full, "in the way")
	q := s.queue("q", kept(amqp.Table{"x-dead-letter-exchange": dlx, "x-message-ttl": 20}))
	bodies := numbered("m", 50)
	s.fill(q, bodies...)
	s.ready(open, len(bodies))
	s.unbind(full, dlx)
	more := numbered("n", 20)
	s.fill(q, more...)
	s.holds(open, append(bodies, more...)...)
	s.until("the letters for full to be withdrawn", func() bool {
		return strings.Contains(mustCtl(s.T, s.to.node, "list_queues", "-q", "name", "messages_dlx"), q+"\t0\n")
	})
	s.holds(full, "in the way")
	s.fill(full, "room again")
	s.holds(full, "room again")
	s.ready(q, 0)
}

// TestFullOutbox fills the outbox of a queue whose dead letters have no room in their
// target: clients' publishes are refused, moves and what other queues send are not.
func TestFullOutbox(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "D66 publishes are refused", warrenOnly: true, run: outboxRefuses},
		{name: "D66 two queues into each other", warrenOnly: true, run: outboxesOfEachOther},
	})
}

func outboxRefuses(s *session) {
	full := s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	s.fill(full, "in the way")
	q := s.queue("q", kept(deadTo(full, amqp.Table{"x-dead-letter-max-length": 5})))
	bodies := numbered("m", 20)
	s.fill(q, bodies...)
	_, deliveries := s.consume(q, 0)
	held := s.take(deliveries, false, bodies...)
	s.noError("nack", held[19].Nack(true, false)) // more than the bound, and none is lost
	s.until("a refused publish", func() bool { return !s.publishResult("", q, message("late")) })
	_, dead := s.consume(full, 1)
	s.noError("ack", s.next(dead).Ack(false))
	for _, body := range bodies {
		d := s.next(dead)
		if string(d.Body) != body {
			s.Fatalf("got %q, want %q", d.Body, body)
		}
		s.noError("ack", d.Ack(false))
	}
	s.until("an accepted publish", func() bool { return s.publishResult("", q, message("again")) })
}

// Each queue's dead letters go into the other, both refuse what is over their length, and
// both outboxes are over their bound: nothing waits for itself.
func outboxesOfEachOther(s *session) {
	a, b := s.name("a"), s.name("b")
	args := func(other string) amqp.Table {
		return kept(deadTo(other, amqp.Table{"x-dead-letter-max-length": 3, "x-max-length": 10}))
	}
	s.queue("a", args(b))
	s.queue("b", args(a))
	inA, inB := numbered("a", 10), numbered("b", 10)
	s.fill(a, inA...)
	s.fill(b, inB...)
	_, fromA := s.consume(a, 0)
	_, fromB := s.consume(b, 0)
	heldA, heldB := s.take(fromA, false, inA...), s.take(fromB, false, inB...)
	s.noError("nack", heldA[9].Nack(true, false))
	s.noError("nack", heldB[9].Nack(true, false))
	s.take(fromB, false, inA...)
	last := s.take(fromA, false, inB...)
	s.noError("ack", last[9].Ack(true))
}
