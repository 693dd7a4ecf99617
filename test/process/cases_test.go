package process

import (
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestCases shows the cases of SEMANTICS §5.9, §5.11 and §5.19 that no other test shows.
// What another one shows is named here: A02 and A03 TestRefuse, A04 TestDeliver and
// TestRefuse, A07, A08, A11 and A15 TestDeliver and TestRefuse, A13 TestConsumerTimeout,
// A14 TestFailover; P02 TestDeliver; E02 TestRetryJob.
func TestCases(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "A01 a closed channel's messages go to the other in order", run: closedChannelToOther},
		{name: "A03 nothing to settle without acks", run: settleWithoutAcks},
		{name: "A05 delivery counts", warrenOnly: true, run: deliveryCounts},
		{name: "A06 a changed prefetch is for later consumers", run: changedPrefetch},
		{name: "A09 a lost connection's messages come back in order", run: lostConnection},
		{name: "A12 consumer priorities", run: consumerPriorities},
		{name: "P03 drop-head drops the most urgent", run: dropHeadPriorities},
		{name: "P03 reject-publish keeps the first", run: rejectPriorities},
		{name: "P03 every level expires", run: priorityExpiry},
		{name: "P04 priority arguments", run: priorityArguments},
		{name: "P05 priorities of quorum queues", warrenOnly: true, run: quorumPriorities},
		{name: "E08 a delay queue that dead-letters by the message's key", run: delayRecipe},
		{name: "E09 cancel stops a consumer without acks", run: cancelNoAck},
		{name: "E10 a durable auto-delete queue goes with its consumer's connection", run: durableAutoDelete},
		{name: "E10 it is gone when the close is answered", warrenOnly: true, run: autoDeletedAtClose},
		{name: "E11 to the back of the queue", run: backOfQueue},
	})
}

func closedChannelToOther(s *session) {
	q := s.queue("q", nil)
	first, one := s.consume(q, 0)
	_, two := s.consume(q, 0)
	var by [2][]string
	for i := range 4 {
		s.fill(q, numbered("m", 4)[i])
		select {
		case d := <-one:
			by[0] = append(by[0], string(d.Body))
		case d := <-two:
			by[1] = append(by[1], string(d.Body))
		case <-time.After(timeoutReply):
			s.Fatal("no delivery came")
		}
	}
	if len(by[0]) != 2 || len(by[1]) != 2 {
		s.Fatalf("not in turn: %q", by)
	}
	s.noError("close", first.Close())
	s.take(two, true, by[0]...)
}

func settleWithoutAcks(s *session) {
	q := s.queue("q", nil)
	for name, settle := range map[string]func(amqp.Delivery) error{
		"ack":    func(d amqp.Delivery) error { return d.Ack(false) },
		"reject": func(d amqp.Delivery) error { return d.Reject(true) },
		"nack":   func(d amqp.Delivery) error { return d.Nack(false, true) },
	} {
		s.fill(q, "m")
		wantClosed(s, s.channel(s.conn), 406, "unknown delivery tag 1", func(ch *amqp.Channel) error {
			deliveries, err := ch.Consume(q, "", true, false, false, false, nil)
			s.noError("consume", err)
			s.noError(name, settle(s.next(deliveries)))
			return nil
		})
	}
}

func deliveryCounts(s *session) {
	q := s.queue("q", amqp.Table{"x-queue-type": "quorum"})
	s.fill(q, "m")
	_, deliveries := s.consume(q, 1)
	for i, want := range []any{nil, int64(1), int64(2), int64(2)} {
		d := s.next(deliveries)
		if got := d.Headers["x-delivery-count"]; !reflect.DeepEqual(got, want) {
			s.Errorf("delivery %d: x-delivery-count %v (%T), want %v", i+1, got, got, want)
		}
		switch i {
		case 0, 1:
			s.noError("reject", d.Reject(true))
		case 2: // counts as acquired only
			s.noError("nack", d.Nack(false, true))
		default:
			if got := d.Headers["x-acquired-count"]; got != int64(3) {
				s.Errorf("x-acquired-count %v, want 3", got)
			}
			s.noError("ack", d.Ack(false))
		}
	}
}

func changedPrefetch(s *session) {
	q := s.queue("q", nil)
	ch := s.channel(s.conn)
	consume := func(prefetch int) <-chan amqp.Delivery {
		s.noError("qos", ch.Qos(prefetch, 0, false))
		deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
		s.noError("consume", err)
		return deliveries
	}
	one := consume(1)
	s.fill(q, "m1")
	s.take(one, false, "m1")
	three := consume(3)
	s.fill(q, "m2", "m3", "m4", "m5")
	s.take(three, false, "m2", "m3", "m4")
	s.ready(q, 1)
	unlimited := consume(0)
	s.fill(q, numbered("n", 20)...)
	s.take(unlimited, false, append([]string{"m5"}, numbered("n", 20)...)...)
}

func lostConnection(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 5)...)
	var raw net.Conn
	conn, err := connectWith(s.to.url, amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		var err error
		raw, err = amqp.DefaultDial(timeoutReply)(network, addr)
		return raw, err
	}})
	s.noError("dial", err)
	defer conn.Close()
	ch := s.channel(conn)
	s.noError("qos", ch.Qos(3, 0, false))
	deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
	s.noError("consume", err)
	s.take(deliveries, false, "m1", "m2", "m3")
	s.noError("cut", raw.Close())
	s.ready(q, 5)
	_, deliveries = s.consume(q, 0)
	s.take(deliveries, true, "m1", "m2", "m3")
	s.take(deliveries, false, "m4", "m5")
}

func consumerPriorities(s *session) {
	q := s.queue("q", nil)
	consume := func(priority any, prefetch int) <-chan amqp.Delivery {
		ch := s.channel(s.conn)
		s.noError("qos", ch.Qos(prefetch, 0, false))
		deliveries, err := ch.Consume(q, "", false, false, false, false, amqp.Table{"x-priority": priority})
		s.noError("consume", err)
		return deliveries
	}
	low, high := consume(int32(-5), 0), consume(int64(7), 2)
	s.fill(q, numbered("m", 5)...)
	s.take(high, false, "m1", "m2")
	s.take(low, false, "m3", "m4", "m5")
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - ", func(ch *amqp.Channel) error {
		_, err := ch.Consume(q, "", false, false, false, false, amqp.Table{"x-priority": "high"})
		return err
	})
}

// fillPriorities publishes 1,2,3 three times, each body being its priority.
func fillPriorities(s *session, q string) (refused int) {
	for range 3 {
		for p := range uint8(3) {
			m := message(string(rune('1' + p)))
			m.Priority = p + 1
			if !s.publishResult("", q, m) {
				refused++
			}
		}
	}
	return refused
}

func dropHeadPriorities(s *session) {
	q := s.queue("q", amqp.Table{"x-max-priority": 3, "x-max-length": 4})
	fillPriorities(s, q)
	s.holds(q, "2", "1", "1", "1")
}

func rejectPriorities(s *session) {
	q := s.queue("q", amqp.Table{"x-max-priority": 3, "x-max-length": 4, "x-overflow": "reject-publish"})
	if refused := fillPriorities(s, q); refused != 5 {
		s.Errorf("%d publishes were refused, want 5", refused)
	}
	s.holds(q, "3", "2", "1", "1")
}

func priorityExpiry(s *session) {
	dead := s.queue("dead", nil)
	for label, args := range map[string]amqp.Table{
		"with":    {"x-max-priority": 3, "x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead},
		"without": {"x-max-priority": 3, "x-message-ttl": 1},
	} {
		q := s.queue(label, args)
		fillPriorities(s, q)
		s.ready(q, 0)
	}
	s.ready(dead, 9)
}

func priorityArguments(s *session) {
	for text, priority := range map[string]any{"value_negative": -1, "max_value_exceeded": 256, "invalid arg 'x-max-priority'": "ten"} {
		wantClosed(s, s.channel(s.conn), 406, text, func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(s.name("bad"), true, false, false, false, amqp.Table{"x-max-priority": priority})
			return err
		})
	}
	q := s.queue("q", amqp.Table{"x-max-priority": 255})
	wantClosed(s, s.channel(s.conn), 406, "inequivalent arg 'x-max-priority'", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-max-priority": 10})
		return err
	})
}

func quorumPriorities(s *session) {
	q := s.queue("q", amqp.Table{"x-queue-type": "quorum"})
	for _, p := range []uint8{5, 3, 200, 31, 4} {
		m := message(string(rune('a' + p%26)))
		m.Priority = p
		s.publish("", q, m)
	}
	s.publish("", q, message("none")) // 4
	letter := func(p int) string { return string(rune('a' + p%26)) }
	s.ready(q, 6)
	got := s.drain(q)
	// 200 is taken as 31 and came first; a message without priority has 4.
	if want := []string{letter(200), letter(31), letter(5), letter(4), "none", letter(3)}; !slices.Equal(got, want) {
		s.Errorf("got %q, want %q", got, want)
	}
}

func delayRecipe(s *session) {
	hello := s.queue("hello", nil)
	x := s.exchange("delay", "fanout", nil)
	s.bind(s.queue("delay", amqp.Table{"x-dead-letter-exchange": ""}), "", x, nil)
	long, short := message("long"), message("short")
	long.Expiration, short.Expiration = "60000", "200"
	began := time.Now()
	if s.to.warren { // RabbitMQ would wait for the first one
		s.publish(x, hello, long)
	}
	s.publish(x, hello, short)
	d := s.get(hello)
	if after := time.Since(began); string(d.Body) != "short" || after < 200*time.Millisecond || after > 20*time.Second {
		s.Errorf("got %q after %v", d.Body, after)
	}
	s.noError("ack", d.Ack(false))
}

func cancelNoAck(s *session) {
	q := s.queue("q", nil)
	total := 2000
	s.fill(q, numbered("m", total)...)
	ch := s.channel(s.conn)
	deliveries, err := ch.Consume(q, "mine", true, false, false, false, nil)
	s.noError("consume", err)
	got := 0
	for range 10 {
		s.next(deliveries)
		got++
	}
	cancelled := make(chan error, 1)
	go func() { cancelled <- ch.Cancel("mine", false) }()
	for range deliveries { // ends with cancel-ok
		got++
	}
	s.noError("cancel", <-cancelled)
	s.ready(q, total-got)
}

func durableAutoDelete(s *session) {
	conn := s.dial()
	ch := s.channel(conn)
	q := s.name("brief")
	_, err := ch.QueueDeclare(q, true, true, false, false, nil)
	s.noError("declare", err)
	_, err = ch.Consume(q, "", false, false, false, false, nil)
	s.noError("consume", err)
	s.noError("close", conn.Close())
	s.until("the queue to go", func() bool {
		probe := s.channel(s.conn)
		_, err := probe.QueueDeclarePassive(q, true, true, false, false, nil)
		if err == nil {
			s.noError("close", probe.Close())
		}
		return err != nil
	})
}

func autoDeletedAtClose(s *session) {
	q := s.name("brief")
	for i := range 30 {
		conn := s.dial()
		ch := s.channel(conn)
		_, err := ch.QueueDeclare(q, i%2 == 0, true, false, false, amqp.Table{"x-max-length": i + 1})
		s.noError("declare anew", err)
		_, err = ch.Consume(q, "mine", false, false, false, false, nil)
		s.noError("consume", err)
		switch i % 3 {
		case 0:
			s.noError("close", conn.Close())
		case 1:
			s.noError("close", ch.Close())
		case 2:
			s.noError("cancel", ch.Cancel("mine", false))
		}
	}
}

func backOfQueue(s *session) {
	q := s.queue("q", nil)
	s.fill(q, "a", "b", "c")
	first := s.get(q)
	s.publish("", q, message("a"))
	s.noError("ack", first.Ack(false))
	second := s.get(q)
	s.noError("reject", second.Reject(true))
	s.holds(q, "b", "c", "a")
}
