package process

import (
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestExpiry(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "T03 queue ttl needs no consumer", run: queueTTL},
		{name: "message ttl", run: messageTTL},
		{name: "T04 the smaller ttl counts", run: smallerTTL},
		{name: "T08 ttl zero", run: zeroTTL},
		{name: "T06 unacked messages do not expire, requeued ones do", run: unackedTTL},
		{name: "T07 requeue keeps the first instant", run: requeueTTL},
		{name: "L02 D11 queue lease", run: queueLease},
		{name: "T10 T13 expiry anywhere in the queue", warrenOnly: true, run: expiryAnywhere},
	})
}

func expiring(body, millis string) amqp.Publishing {
	m := message(body)
	m.Expiration = millis
	return m
}

func queueTTL(s *session) {
	q := s.queue("q", amqp.Table{"x-message-ttl": 300})
	w := s.worker(q, "first", 1, nil) // it waits: who comes later may come too late
	s.fill(q, "a", "b")
	s.take(w.deliveries, false, "a")
	s.noError("cancel", w.ch.Cancel("first", false))
	s.ready(q, 0)
}

func messageTTL(s *session) {
	q := s.queue("q", nil)
	start := time.Now()
	s.publish("", q, expiring("short", "300"))
	s.publish("", q, message("for ever"))
	s.ready(q, 1)
	if early := time.Since(start); early < 290*time.Millisecond {
		s.Errorf("expired after %v", early)
	}
	s.holds(q, "for ever")
}

func smallerTTL(s *session) {
	long := s.queue("long", amqp.Table{"x-message-ttl": 60000})
	short := s.queue("short", amqp.Table{"x-message-ttl": 200})
	s.publish("", long, expiring("m", "200"))
	s.publish("", short, expiring("m", "60000"))
	s.ready(long, 0)
	s.ready(short, 0)
}

func zeroTTL(s *session) {
	q := s.queue("q", amqp.Table{"x-message-ttl": 0})
	s.publish("", q, message("nobody waits"))
	s.ready(q, 0)
	_, deliveries := s.consume(q, 0)
	s.publish("", q, message("somebody waits"))
	d := s.next(deliveries)
	if string(d.Body) != "somebody waits" {
		s.Fatalf("got %q", d.Body)
	}
	s.noError("requeue", d.Reject(true))
	s.ready(q, 0)
	s.publish("", q, message("last"))
	s.take(deliveries, false, "last") // and not the requeued one
}

func unackedTTL(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", amqp.Table{"x-message-ttl": 300, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	w := s.worker(q, "first", 1, nil) // it waits: who comes later may come too late
	s.fill(q, "held", "free")
	held := s.take(w.deliveries, false, "held")[0]
	s.noError("cancel", w.ch.Cancel("first", false))
	s.ready(dead, 1) // the other one expired, this one did not
	s.noError("requeue", held.Reject(true))
	s.holds(dead, "free", "held")
	s.ready(q, 0)
}

func requeueTTL(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", amqp.Table{"x-message-ttl": 1000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	start := time.Now()
	s.fill(q, "m")
	for time.Since(start) < 700*time.Millisecond {
		if d, ok, err := s.ch.Get(q, false); err != nil {
			s.Fatal(err)
		} else if ok {
			s.noError("requeue", d.Reject(true))
		}
	}
	// Published after the last requeue, and half a second from its end: if the requeues had begun the time anew, this one would die first.
	s.publish("", q, expiring("later", "500"))
	s.holds(dead, "m", "later")
}

func expiryAnywhere(s *session) {
	dead := s.queue("dead", nil)
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	s.publish("", q, message("for ever"))
	s.within(250*time.Millisecond, func() {
		s.publish("", q, expiring("later", "400"))
		s.publish("", q, expiring("soon", "100"))
	}, func() {
		s.ready(dead, 2)
		s.drain(dead)
	})
	s.holds(dead, "soon", "later")
	s.holds(q, "for ever")
}

func queueLease(s *session) {
	dead := s.queue("dead", nil)
	name := s.name("lease")
	args := amqp.Table{"x-expires": 300, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
	var consumer *amqp.Channel
	s.until("a consumer before the lease is over", func() bool {
		_, err := s.ch.QueueDeclare(name, true, false, false, false, args)
		s.noError("declare", err)
		consumer = s.channel(s.conn)
		_, err = consumer.Consume(name, "", false, false, false, false, nil)
		return err == nil
	})
	time.Sleep(600 * time.Millisecond) // a consumer keeps the queue
	s.fill(name, "goes with its queue")
	s.noError("close", consumer.Close())
	s.until("the end of an unused queue", func() bool {
		time.Sleep(500 * time.Millisecond) // looking renews the lease
		ch := s.channel(s.conn)
		defer ch.Close()
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		var refused *amqp.Error
		return errors.As(err, &refused) && refused.Code == 404
	})
	s.ready(dead, 0)
}
