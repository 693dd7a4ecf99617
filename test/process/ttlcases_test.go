package process

import (
	"errors"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestTimeAndLengthCases shows the cases of SEMANTICS §5.6 to §5.8 that TestExpiry and
// TestLimits do not. T05 is TestTransactions', T09 TestExpiryOverRestart's, T14 and T15
// TestExpiryOnTime's.
func TestTimeAndLengthCases(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "T01 values of x-message-ttl", run: ttlArguments},
		{name: "T02 values of expiration", run: expirationValues},
		{name: "T11 a late consumer gets live messages only", run: lateConsumer},
		{name: "L01 values of x-expires", run: leaseArguments},
		{name: "L02 what renews a lease", run: leaseRenewal},
		{name: "M02 whichever limit comes first", run: bothLimits},
		{name: "M04 confirms never contradict", run: confirmsAgree},
		{name: "M06 length zero refuses", run: refuseAll},
		{name: "M07 values of the limits", warrenOnly: true, run: limitArguments},
	})
}

// refusesArgument checks that a declaration with the argument alone is answered 406.
func refusesArgument(s *session, name string, values ...any) {
	s.Helper()
	for _, v := range values {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg '"+name+"'", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(s.name("bad"), true, false, false, false, amqp.Table{name: v})
			return err
		})
	}
}

const tenYears = int64(315_360_000_000)

func ttlArguments(s *session) {
	for i, v := range []any{int8(100), int16(100), int32(100), int64(100), int64(0), tenYears} {
		s.queue(fmt.Sprint("q", i), amqp.Table{"x-message-ttl": v})
	}
	refusesArgument(s, "x-message-ttl", "100", 100.0, int64(-1), tenYears+1)
	q := s.queue("same", amqp.Table{"x-message-ttl": int32(100)})
	_, err := s.ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-message-ttl": int64(100)})
	s.noError("declare with another width", err)
	for _, v := range []any{100.0, int32(101)} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - ", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-message-ttl": v})
			return err
		})
	}
}

func expirationValues(s *session) {
	q := s.queue("q", nil)
	// An empty text cannot be sent by this library: it leaves the property out.
	for _, v := range []string{"foobar", "10000foobar", "-1", "315360000001", " 1", "1.5"} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid expiration '"+v+"'", func(ch *amqp.Channel) error {
			return ch.PublishWithContext(s.Context(), "", q, false, false, expiring("bad", v))
		})
	}
	s.ready(q, 0)
	s.publish("", q, expiring("zero", "0"))
	s.publish("", q, expiring("long", fmt.Sprint(tenYears)))
	s.holds(q, "long")
}

func lateConsumer(s *session) {
	q := s.queue("q", nil)
	for i, body := range numbered("m", 30) {
		if i%3 == 0 {
			s.publish("", q, message(body))
		} else {
			s.publish("", q, expiring(body, "50"))
		}
	}
	if s.to.warren {
		s.ready(q, 10)
	}
	time.Sleep(100 * time.Millisecond)
	_, deliveries := s.consume(q, 0)
	for i := 1; i <= 30; i += 3 {
		s.take(deliveries, false, fmt.Sprint("m", i))
	}
	s.ready(q, 0)
}

func leaseArguments(s *session) {
	refusesArgument(s, "x-expires", int32(0), int32(-1), "1000", 1000.5)
	q := s.queue("q", amqp.Table{"x-expires": 60_000})
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - inequivalent arg 'x-expires'", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-expires": 60_001})
		return err
	})
}

func (s *session) noQueue(name string) {
	s.Helper()
	wantClosed(s, s.channel(s.conn), 404, "NOT_FOUND - no queue '"+name+"'", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
}

func leaseRenewal(s *session) {
	const lease = 1200 * time.Millisecond
	args := amqp.Table{"x-expires": lease.Milliseconds()}
	renewals := map[string]func(ch *amqp.Channel, q string) error{
		"declare": func(ch *amqp.Channel, q string) error {
			_, err := ch.QueueDeclare(q, true, false, false, false, args)
			return err
		},
		"passive": func(ch *amqp.Channel, q string) error {
			_, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
			return err
		},
		"get": func(ch *amqp.Channel, q string) error {
			_, _, err := ch.Get(q, true)
			return err
		},
		"publish": func(ch *amqp.Channel, q string) error { // does not renew
			return ch.PublishWithContext(s.Context(), "", q, false, false, message("m"))
		},
	}
	for end := time.Now().Add(timeoutReply); ; {
		ch, last, late := s.channel(s.conn), map[string]time.Time{}, false
		for name := range renewals {
			last[name] = time.Now()
			_, err := ch.QueueDeclare(s.name(name), true, false, false, false, args)
			s.noError("declare", err)
		}
		var err error
		for began := time.Now(); err == nil && time.Since(began) < 2*lease; time.Sleep(lease / 6) {
			for name, renew := range renewals {
				begun := time.Now()
				err = errors.Join(err, renew(ch, s.name(name)))
				late = late || time.Since(last[name]) > lease-50*time.Millisecond // from the one before to the end of this one
				last[name] = begun
			}
		}
		if err == nil {
			break
		}
		if !late || time.Now().After(end) {
			s.Fatalf("a queue that is used: %v", err)
		}
	}
	s.noQueue(s.name("publish"))
	time.Sleep(3 * lease / 2)
	for name := range renewals {
		s.noQueue(s.name(name))
	}
}

func bothLimits(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length": 3, "x-max-length-bytes": 10})
	s.fill(q, "a", "b", "c", "d")
	s.holds(q, "b", "c", "d")
	m := message("123456")
	m.Headers = amqp.Table{"long": "headers do not count toward the bytes of a queue"}
	s.publish("", q, m)
	s.fill(q, "1234", "5")
	s.holds(q, "1234", "5")
}

func confirmsAgree(s *session) {
	const total = 20_000
	q := s.queue("q", amqp.Table{"x-max-length": 100, "x-overflow": "reject-publish"})
	ch := s.channel(s.conn)
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, total))
	consumer := s.channel(s.conn)
	s.noError("qos", consumer.Qos(50, 0, false))
	deliveries, err := consumer.Consume(q, "mine", false, false, false, false, nil)
	s.noError("consume", err)
	got := make(chan int, 1)
	go func() {
		n := 0
		for d := range deliveries {
			n++
			_ = d.Ack(false)
		}
		got <- n
	}()
	for range total {
		s.noError("publish", ch.PublishWithContext(s.Context(), "", q, false, false, message("m")))
	}
	taken, next := 0, uint64(1)
	for range total {
		select {
		case c := <-confirms: // the library puts them in order, once each
			if c.DeliveryTag != next {
				s.Fatalf("confirm of %d, want %d", c.DeliveryTag, next)
			}
			next++
			if c.Ack {
				taken++
			}
		case <-time.After(timeoutReply):
			s.Fatalf("%d of %d publishes are settled", next-1, total)
		}
	}
	s.ready(q, 0)
	s.noError("cancel", consumer.Cancel("mine", false))
	if n := <-got; n != taken {
		s.Errorf("%d were confirmed and %d delivered", taken, n)
	}
}

func refuseAll(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"})
	if s.publishResult("", q, message("m")) {
		s.Error("a publish into a queue of length zero was confirmed")
	}
	s.ready(q, 0)
}

func limitArguments(s *session) {
	refusesArgument(s, "x-max-length", int32(-5), "5", 5.0)
	refusesArgument(s, "x-max-length-bytes", int32(-5), "5", 5.0)
	refusesArgument(s, "x-overflow", "drop-tail", int32(1))
	// RabbitMQ refuses this one.
	s.queue("q", amqp.Table{"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish-dlx"})
}

// TestExpiryOverRestart shows T09 and L03: what is left of a time to live, and a queue's
// lease, survive the end of all nodes.
func TestExpiryOverRestart(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	q := plainQueue(s, "lasting", nil)
	lease := plainQueue(s, "leased", amqp.Table{"x-expires": 8000})
	s.publish("", q, expiring("soon", "4000"))
	s.publish("", q, message("stays"))
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	startAll(t, c)
	s = at(t, c.Node(1))
	if _, err := s.ch.QueueDeclarePassive(lease, true, false, false, false, nil); err != nil {
		t.Fatalf("the leased queue after the restart: %v", err)
	}
	s.ready(q, 1)
	s.holds(q, "stays")
	s.until("the end of the lease", func() bool {
		time.Sleep(9 * time.Second)
		ch := s.channel(s.conn)
		_, err := ch.QueueDeclarePassive(lease, true, false, false, false, nil)
		return err != nil
	})
}
