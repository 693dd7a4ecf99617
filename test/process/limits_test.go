package process

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "M01 drop-head", run: dropHead},
		{name: "M02 drop-head by bytes", run: dropHeadBytes},
		{name: "M01 unacked messages do not count", run: limitIgnoresUnacked},
		{name: "M03 reject-publish", run: rejectPublish},
		{name: "M02 M03 reject-publish by bytes", run: rejectPublishBytes},
		{name: "M03 reject-publish passes a burst to a waiting consumer", run: rejectPublishPasses},
		{name: "M08 one full queue of two refuses", run: oneFullQueue},
		{name: "M06 length zero passes to a waiting consumer", run: lengthZero},
	})
}

func dropHead(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length": 5})
	s.fill(q, numbered("m", 20)...)
	s.holds(q, "m16", "m17", "m18", "m19", "m20")
}

func dropHeadBytes(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length-bytes": 100})
	ten := strings.Repeat("x", 10)
	for range 15 {
		s.publish("", q, message(ten))
	}
	s.ready(q, 10)
	big := strings.Repeat("y", 95)
	s.publish("", q, message(big))
	s.holds(q, big)
	s.publish("", q, message(strings.Repeat("z", 101)))
	s.ready(q, 0)
}

func limitIgnoresUnacked(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length": 2})
	s.fill(q, "a", "b")
	held := s.get(q)
	s.fill(q, "c")
	s.ready(q, 2)
	s.noError("requeue", held.Reject(true)) // over the limit: the head goes
	s.holds(q, "b", "c")
}

func rejectPublish(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length": 3, "x-overflow": "reject-publish"})
	s.fill(q, "a", "b", "c")
	if s.publishResult("", q, message("refused")) {
		s.Fatal("a publish beyond the limit was confirmed")
	}
	d := s.get(q)
	s.noError("ack", d.Ack(false))
	s.ready(q, 2)
	s.publish("", q, message("d"))
	s.holds(q, "b", "c", "d")
}

func rejectPublishBytes(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length-bytes": 20, "x-overflow": "reject-publish"})
	ten := strings.Repeat("x", 10)
	s.fill(q, ten, ten)
	if s.publishResult("", q, message(ten)) {
		s.Fatal("a publish beyond the limit was confirmed")
	}
	s.ready(q, 2)
}

// rejectPublishPasses: what a consumer takes as it comes is no part of the length.
func rejectPublishPasses(s *session) {
	for limit, bodies := range map[string][]string{"x-max-length": numbered("m", 200), "x-max-length-bytes": numbered("b", 200)} {
		q := s.queue(limit, amqp.Table{limit: 5, "x-overflow": "reject-publish"})
		_, deliveries := s.consume(q, 0)
		s.fill(q, bodies...)
		s.take(deliveries, false, bodies...)
		s.ready(q, 0)
	}
	three := s.queue("three", amqp.Table{"x-max-length": 2, "x-overflow": "reject-publish"})
	_, deliveries := s.consume(three, 3)
	s.fill(three, "a", "b", "c", "d", "e")
	if s.publishResult("", three, message("refused")) {
		s.Error("a publish beyond the limit was confirmed")
	}
	s.take(deliveries, false, "a", "b", "c")
	s.ready(three, 2)
}

func oneFullQueue(s *session) {
	x := s.exchange("x", "fanout", nil)
	full := s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	free := s.queue("free", nil)
	s.bind(full, "", x, nil)
	s.bind(free, "", x, nil)
	s.publish(x, "", message("a"))
	if s.publishResult(x, "", message("b")) {
		s.Error("confirmed although one queue refused")
	}
	s.holds(full, "a")
	s.holds(free, "a", "b")
}

func lengthZero(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length": 0})
	s.publish("", q, message("nobody waits"))
	s.ready(q, 0)
	_, deliveries := s.consume(q, 0)
	s.publish("", q, message("somebody waits"))
	s.take(deliveries, false, "somebody waits")
}
