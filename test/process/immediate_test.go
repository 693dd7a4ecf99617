package process

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestImmediate(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "no consumer, a busy one, a free one", warrenOnly: true, run: func(s *session) { eachFlavour(s, nil, immediateOneQueue) }},
		{name: "several queues", warrenOnly: true, run: immediateSeveralQueues},
		{name: "a consumer that comes and goes", warrenOnly: true, run: immediateFallback},
		{name: "without confirms", warrenOnly: true, run: immediateWithoutConfirms},
	})
}

// immediate is a channel that publishes immediate messages and waits for what becomes of
// them.
type immediate struct {
	*session
	ch      *amqp.Channel
	returns chan amqp.Return
}

func newImmediate(s *session) immediate {
	s.Helper()
	i := immediate{s, s.channel(s.conn), make(chan amqp.Return, 10)}
	i.ch.NotifyReturn(i.returns)
	return i
}

// send publishes with the immediate flag, waits for the confirm and returns the code of
// the basic.return that came before it, or 0.
func (i immediate) send(exchange, key string, mandatory bool, body string) uint16 {
	i.Helper()
	confirm, err := i.ch.PublishWithDeferredConfirm(exchange, key, mandatory, true, message(body))
	i.noError("publish", err)
	select {
	case <-confirm.Done():
	case <-time.After(timeoutReply):
		i.Fatalf("no confirm of %q", body)
	}
	if !confirm.Acked() {
		i.Errorf("%q was refused", body)
	}
	select {
	case r := <-i.returns: // a return leaves before its confirm
		if string(r.Body) != body || r.Exchange != exchange || r.RoutingKey != key || r.DeliveryMode != amqp.Persistent {
			i.Errorf("%q came back as %+v", body, r)
		}
		if r.ReplyCode == 313 && r.ReplyText != "NO_CONSUMERS" {
			i.Errorf("text %q", r.ReplyText)
		}
		return r.ReplyCode
	default:
		return 0
	}
}

// expect sends and checks the code.
func (i immediate) expect(code uint16, queue, body string) {
	i.Helper()
	if got := i.send("", queue, false, body); got != code {
		i.Fatalf("%q came back with %d, want %d", body, got, code)
	}
}

func immediateOneQueue(s *session, q string) {
	i := newImmediate(s)
	i.expect(313, q, "nobody")
	s.ready(q, 0)
	w := s.worker(q, "w", 1, nil)
	i.expect(0, q, "m1")
	held := s.take(w.deliveries, false, "m1")
	i.expect(313, q, "busy")
	s.noError("ack", held[0].Ack(false))
	s.until("room for another", func() bool { return i.send("", q, false, "m2") == 0 })
	s.noError("ack", s.take(w.deliveries, false, "m2")[0].Ack(false))
	s.noError("cancel", w.ch.Cancel("w", false))
	i.expect(313, q, "gone")
	if i.send("", q+".none", true, "nowhere") != 312 {
		s.Error("a mandatory message without a route did not come back with 312")
	}
	if i.send("", q+".none", false, "nowhere") != 313 {
		s.Error("an immediate message without a route did not come back with 313")
	}
	s.ready(q, 0)
}

// immediateSeveralQueues: it comes back only if no queue could hand it on, and queues
// without a consumer do not keep it.
func immediateSeveralQueues(s *session) {
	x := s.exchange("x", "fanout", nil)
	one, two := s.queue("one", nil), s.queue("two", nil)
	s.bind(one, "", x, nil)
	s.bind(two, "", x, nil)
	i := newImmediate(s)
	if code := i.send(x, "", false, "nobody"); code != 313 {
		s.Fatalf("came back with %d", code)
	}
	_, deliveries := s.consume(two, 5)
	if code := i.send(x, "", false, "somebody"); code != 0 {
		s.Fatalf("came back with %d although one queue has a consumer", code)
	}
	s.take(deliveries, false, "somebody")
	s.ready(one, 0)
}

// immediateFallback is what S3 builds: each consumer has a queue that ends with it, and
// what finds nobody goes to a queue that keeps it.
func immediateFallback(s *session) {
	keep := s.queue("keep", nil)
	lease := s.queue("lease", amqp.Table{
		"x-expires": 60000, "x-message-ttl": 30000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": keep,
	})
	i := newImmediate(s)
	deliver := func(body string) {
		if i.send("", lease, false, body) == 313 {
			s.publish("", keep, message(body))
		}
	}
	deliver("early")
	w := s.worker(lease, "w", 10, nil)
	deliver("live")
	s.noError("ack", s.take(w.deliveries, false, "live")[0].Ack(false))
	s.noError("close", w.ch.Close())
	deliver("late")
	s.holds(keep, "early", "late")
	s.ready(lease, 0)
}

func immediateWithoutConfirms(s *session) {
	q := s.queue("q", nil)
	ch, err := s.conn.Channel()
	s.noError("channel", err)
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	s.noError("publish", ch.Publish("", q, false, true, message("m")))
	select {
	case r := <-returns:
		if r.ReplyCode != 313 {
			s.Errorf("returned with %d", r.ReplyCode)
		}
	case <-time.After(timeoutReply):
		s.Fatal("no return came")
	}
	s.ready(q, 0)
}

// TestImmediateFailover kills the leader under a consumer of another node: what is
// published meanwhile waits for the next leader to know the consumer, and is not returned.
func TestImmediateFailover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	q := plainQueue(at(t, c.Node(0)), "immediate", nil)
	leader, others := leaderOf(t, c, q)
	consumer, publisher := at(t, others[0]), at(t, others[1])
	_, deliveries := consumer.consume(q, 0)
	i := newImmediate(publisher)
	i.expect(0, q, "before")
	consumer.take(deliveries, false, "before")
	kill(t, leader)
	for _, body := range numbered("m", 20) {
		i.expect(0, q, body)
		if d := consumer.next(deliveries); string(d.Body) != body {
			t.Fatalf("got %q, want %q", d.Body, body)
		}
	}
}
