package process

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestEdges shows rules at the edges of methods that other tests show in their middle.
func TestEdges(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "unbind where a side is missing", run: unbindMissing},
		{name: "Q01 exclusive is compared, durable is nothing to an exclusive queue", run: exclusiveAgain},
		{name: "C05 an exclusive queue is locked to others", run: lockedQueue},
		{name: "C04 exclusive consumers", run: exclusiveConsumers},
		{name: "get is outside of a channel-wide prefetch", run: getBesidePrefetch},
		{name: "L02 a passive declaration renews the lease", run: passiveRenews},
		{name: "CC and BCC through alternate exchanges", run: copiesThroughAlternate},
		{name: "A10 without the capability nobody is told", run: cancelWithoutCapability},
		{name: "nowait", run: noWait},
		{name: "tx with a consumer without acks", run: txNoAck},
		{name: "N02 2047 channels", run: manyChannels},
		{name: "frames up to frame_max", run: frameSizes},
		{name: "channel.close in the middle of a message", run: closeInTheMiddle},
		{name: "methods in wrong order before the connection is open", run: wrongHandshake},
		{name: "mandatory and immediate, unroutable", warrenOnly: true, run: mandatoryImmediate},
		{name: "A02 a tag of another channel", run: tagOfAnotherChannel},
		{name: "if-empty looks at unacked messages too", warrenOnly: true, run: emptyWithUnacked},
		{name: "if-empty looks at what waits for a retry or a route", warrenOnly: true, run: emptyWithWaiting},
		{name: "dead-letter arguments that no short string holds", warrenOnly: true, run: longDeadLetterArguments},
	})
}

func unbindMissing(s *session) {
	q, x := s.queue("q", nil), s.exchange("x", "direct", nil)
	none := s.name("none")
	s.noError("missing exchange", s.ch.QueueUnbind(q, "k", none, nil))
	s.noError("missing queue", s.ch.QueueUnbind(none, "k", x, nil))
	s.noError("missing source", s.ch.ExchangeUnbind(x, "k", none, false, nil))
	s.noError("missing destination", s.ch.ExchangeUnbind(none, "k", x, false, nil))
	s.noError("both", s.ch.QueueUnbind(none, "k", none, nil))
	wantClosed(s, s.channel(s.conn), 404, "NOT_FOUND - no exchange '"+none+"' in vhost '/'", func(ch *amqp.Channel) error {
		return ch.QueueBind(none, "k", none, false, nil) // the exchange is looked at first
	})
}

const lockedText = "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '"

func exclusiveAgain(s *session) {
	mine, shared := s.name("mine"), s.queue("shared", nil)
	_, err := s.ch.QueueDeclare(mine, true, false, true, false, nil)
	s.noError("declare", err)
	_, err = s.ch.QueueDeclare(mine, false, false, true, false, nil)
	s.noError("declare again, not durable", err)
	wantClosed(s, s.channel(s.conn), 405, lockedText+mine, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(mine, true, false, false, false, nil)
		return err
	})
	wantClosed(s, s.channel(s.conn), 405, lockedText+shared, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(shared, true, false, true, false, nil)
		return err
	})
}

func lockedQueue(s *session) {
	mine := s.name("mine")
	owner := s.dial()
	_, err := s.channel(owner).QueueDeclare(mine, false, false, true, false, nil)
	s.noError("declare", err)
	s.noError("bind", s.channel(owner).QueueBind(mine, "k", "amq.direct", false, nil))
	for what, f := range map[string]func(ch *amqp.Channel) error{
		"declare": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(mine, false, false, false, false, nil)
			return err
		},
		"declare exclusive": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(mine, false, false, true, false, nil)
			return err
		},
		"passive": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(mine, false, false, true, false, nil)
			return err
		},
		"consume": func(ch *amqp.Channel) error {
			_, err := ch.Consume(mine, "", false, false, false, false, nil)
			return err
		},
		"get":    func(ch *amqp.Channel) error { _, _, err := ch.Get(mine, true); return err },
		"purge":  func(ch *amqp.Channel) error { _, err := ch.QueuePurge(mine, false); return err },
		"delete": func(ch *amqp.Channel) error { _, err := ch.QueueDelete(mine, false, false, false); return err },
		"bind":   func(ch *amqp.Channel) error { return ch.QueueBind(mine, "l", "amq.direct", false, nil) },
		"unbind": func(ch *amqp.Channel) error { return ch.QueueUnbind(mine, "k", "amq.direct", nil) },
	} {
		s.Run(what, func(t *testing.T) {
			in := *s
			in.T = t
			wantClosed(&in, s.channel(s.conn), 405, lockedText+mine, f)
		})
	}
	s.publish("", mine, message("anybody may publish"))
	s.noError("close", owner.Close())
	if s.to.warren { // RabbitMQ 4.3 may answer before that
		_, err = s.ch.QueueDeclare(mine, false, false, true, false, nil)
		s.noError("the name is free when the close is answered", err)
	}
}

func exclusiveConsumers(s *session) {
	for typ, args := range map[string]amqp.Table{"classic": nil, "quorum": {"x-queue-type": "quorum"}} {
		if args != nil && !s.to.warren {
			continue // RabbitMQ's quorum queues do not keep others out
		}
		q := s.queue(typ, args)
		one := s.channel(s.conn)
		_, err := one.Consume(q, "one", false, false, false, false, nil)
		s.noError("consume", err)
		consume := func(exclusive bool) func(*amqp.Channel) error {
			return func(ch *amqp.Channel) error {
				_, err := ch.Consume(q, "", false, exclusive, false, false, nil)
				return err
			}
		}
		in := "ACCESS_REFUSED - queue '" + q + "' in vhost '/' in exclusive use"
		wantClosed(s, s.channel(s.conn), 403, in, consume(true))
		s.noError("cancel", one.Cancel("one", false))
		_, err = one.Consume(q, "alone", false, true, false, false, nil)
		s.noError("consume alone", err)
		wantClosed(s, s.channel(s.conn), 403, in, consume(false))
		wantClosed(s, s.channel(s.dial()), 403, in, consume(true))
		s.noError("close", one.Close())
		_, err = s.channel(s.conn).Consume(q, "", false, true, false, false, nil)
		s.noError("consume when it has gone", err)
	}
}

func getBesidePrefetch(s *session) {
	q, other := s.queue("q", nil), s.queue("other", nil)
	s.fill(other, "fetched")
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(1, 0, true))
	fetched, ok, err := ch.Get(other, false)
	if err != nil || !ok {
		s.Fatalf("get: %v, %v", ok, err)
	}
	deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
	s.noError("consume", err)
	s.fill(q, "1", "2")
	one := s.next(deliveries)
	s.noError("ack what was fetched", fetched.Ack(false))
	select {
	case d := <-deliveries:
		s.Errorf("%q came beyond the limit", d.Body)
	case <-time.After(50 * time.Millisecond):
	}
	s.noError("ack", one.Ack(false))
	s.next(deliveries)
}

func passiveRenews(s *session) {
	const lease = 1500 * time.Millisecond
	args := amqp.Table{"x-expires": lease.Milliseconds()}
	for end := time.Now().Add(timeoutReply); ; {
		q, ch := s.queue("q", args), s.channel(s.conn)
		last, late := time.Now(), false
		var err error
		for i := 0; i < 10 && err == nil; i++ {
			time.Sleep(300 * time.Millisecond)
			looked := time.Now()
			_, err = ch.QueueDeclarePassive(q, true, false, false, false, nil)
			late = late || time.Since(last) > lease-50*time.Millisecond // from the look before to the end of this one
			last = looked
		}
		if err == nil {
			return
		}
		if !late || time.Now().After(end) {
			s.Fatalf("look: %v", err)
		}
	}
}

func copiesThroughAlternate(s *session) {
	ae := s.exchange("ae", "direct", nil)
	x := s.exchange("x", "direct", amqp.Table{"alternate-exchange": ae})
	direct, copies := s.queue("direct", nil), s.queue("copies", nil)
	s.bind(direct, "here", x, nil)
	s.bind(copies, "copy", ae, nil)
	for _, header := range []string{"CC", "BCC"} {
		m := message(header)
		m.Headers = amqp.Table{header: []any{"copy"}}
		s.publish(x, "nowhere", m) // nothing matches in x: all keys go on
		d := s.get(copies)
		if _, has := d.Headers["BCC"]; string(d.Body) != header || has || d.RoutingKey != "nowhere" {
			s.Errorf("%s: got %q with key %q, %v", header, d.Body, d.RoutingKey, d.Headers)
		}
		s.noError("ack", d.Ack(false))
		s.publish(x, "here", m) // one key matches: the alternate is not asked
		s.holds(direct, header)
		m.Headers = amqp.Table{header: []any{"here"}}
		s.publish(x, "copy", m)
		s.holds(direct, header)
		s.ready(copies, 0)
	}
}

func cancelWithoutCapability(s *session) {
	q := s.queue("q", nil)
	w := dialWire(s.T, s.to)
	w.login()
	w.send(method(1, 60, 20, uint16(0), q, "tag", byte(0), []byte{}))
	w.expect(60, 21)
	_, err := s.ch.QueueDelete(q, false, false, false)
	s.noError("delete", err)
	time.Sleep(50 * time.Millisecond)
	w.send(method(1, 60, 30, "tag", byte(0)))
	w.expect(60, 31) // the answer is the first thing to come
}

func noWait(s *session) {
	q, x := s.name("q"), s.name("x")
	w := dialWire(s.T, s.to)
	w.login()
	none := []byte{}
	w.send(method(1, 40, 10, uint16(0), x, "fanout", byte(1<<4), none))
	w.send(method(1, 50, 10, uint16(0), q, byte(1<<4), none))
	w.send(method(1, 50, 20, uint16(0), q, x, "", byte(1), none))
	w.send(method(1, 60, 20, uint16(0), q, "tag", byte(1<<1|1<<3), none))
	w.send(method(1, 60, 30, "tag", byte(1)))
	w.publish(1, x, "", "body")
	w.send(method(1, 60, 70, uint16(0), q, byte(1)))
	w.expect(60, 71)
	for range 2 { // header and body
		if kind, _, _, err := w.read(); err != nil || kind == frameMethod {
			s.Fatalf("frame of type %d, %v", kind, err)
		}
	}
	w.send(method(1, 50, 30, uint16(0), q, byte(1)))
	w.send(method(1, 50, 40, uint16(0), q, byte(1<<2)))
	w.send(method(1, 40, 20, uint16(0), x, byte(1<<1)))
	w.send(method(1, 85, 10, byte(1)))
	w.send(method(1, 50, 30, uint16(0), q, byte(1))) // fails all the same
	w.expectChannelClose(1, 404, "NOT_FOUND - no queue '"+q+"'", 50, 30)
}

func txNoAck(s *session) {
	q := s.queue("q", nil)
	s.fill(q, "1", "2")
	ch, err := s.conn.Channel()
	s.noError("channel", err)
	s.noError("select", ch.Tx())
	deliveries, err := ch.Consume(q, "", true, false, false, false, nil)
	s.noError("consume", err)
	one := s.next(deliveries)
	s.next(deliveries)
	s.noError("rollback", ch.TxRollback())
	s.ready(q, 0) // deliveries are no part of it
	wantClosed(s, ch, 406, "PRECONDITION_FAILED - unknown delivery tag 1", func(ch *amqp.Channel) error {
		return one.Ack(false)
	})
	s.ready(q, 0)
}

func manyChannels(s *session) {
	w := dialWire(s.T, s.to)
	w.loginFor(2047)
	for n := uint16(2); n <= 2047; n++ {
		w.send(method(n, 20, 10, ""))
		w.expect(20, 11)
	}
	w.send(method(2048, 20, 10, ""))
	w.expectClose(530, "NOT_ALLOWED - number of channels opened (2047) has reached the negotiated channel_max (2047)", 0, 0)
}

func frameSizes(s *session) {
	q := s.queue("q", nil)
	const most = 131072 - 8
	w := dialWire(s.T, s.to)
	w.login()
	w.send(method(1, 85, 10, byte(0)))
	w.expect(85, 11)
	w.send(method(1, 60, 40, uint16(0), "", q, byte(0)))
	w.send(frame(frameHeader, 1, []byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0}))
	for _, n := range []int{most, 0, 1, 1<<18 - most - 1} {
		w.send(frame(frameBody, 1, []byte(strings.Repeat("x", min(n, most)))))
		for n -= most; n > 0; n -= most {
			w.send(frame(frameBody, 1, []byte(strings.Repeat("x", min(n, most)))))
		}
	}
	w.expect(60, 80)
	if d := s.get(q); len(d.Body) != 1<<18 {
		s.Errorf("%d bytes came", len(d.Body))
	}
}

func closeInTheMiddle(s *session) {
	w := dialWire(s.T, s.to)
	w.login()
	w.send(method(1, 60, 40, uint16(0), "", "q", byte(0)))
	w.send(method(1, 20, 40, uint16(200), "OK", uint16(0), uint16(0)))
	w.expectClose(505, "UNEXPECTED_FRAME", 60, 40)
	w = dialWire(s.T, s.to)
	w.login()
	w.send(method(1, 60, 40, uint16(0), "", "q", byte(0)))
	w.send(method(0, 10, 50, uint16(200), "OK", uint16(0), uint16(0)))
	w.expect(10, 51) // the connection may be closed at any time
}

func wrongHandshake(s *session) {
	open := method(0, 10, 40, "/", "", byte(0))
	for what, m := range map[string][]byte{
		"open for start-ok": open, "channel.open for tune-ok": method(1, 20, 10, ""), "a body for tune-ok": frame(frameBody, 1, []byte("b")),
		"start-ok twice": method(0, 10, 11, []byte{}, "PLAIN", []byte("\x00guest\x00guest"), "en_US"),
	} {
		w := dialWire(s.T, s.to)
		if what == "open for start-ok" {
			w.send([]byte("AMQP\x00\x00\x09\x01"))
			w.expect(10, 10)
		} else {
			w.greet("PLAIN", "\x00guest\x00guest", nil)
		}
		w.send(m)
		codes := []uint16{}
		for {
			kind, _, payload, err := w.read()
			if err != nil {
				break
			}
			if kind == frameMethod && payload[1] == 10 && payload[3] == 50 {
				codes = append(codes, uint16(payload[4])<<8|uint16(payload[5]))
				w.send(method(0, 10, 51))
			}
		}
		s.Logf("%s: %v", what, codes)
		if s.to.warren && len(codes) != 1 {
			s.Errorf("%s: closed with %v", what, codes)
		}
	}
}

func mandatoryImmediate(s *session) {
	returns := s.ch.NotifyReturn(make(chan amqp.Return, 2))
	c, err := s.ch.PublishWithDeferredConfirm("", s.name("nobody"), true, true, message("m"))
	s.noError("publish", err)
	if !confirmed(s.T, c) {
		s.Error("refused")
	}
	if r := s.nextReturn(returns); r.ReplyCode != 312 {
		s.Errorf("returned with %d %s", r.ReplyCode, r.ReplyText)
	}
	if len(returns) > 0 {
		s.Error("returned twice")
	}
}

func tagOfAnotherChannel(s *session) {
	q := s.queue("q", nil)
	s.fill(q, "1", "2")
	_, deliveries := s.consume(q, 2)
	s.take(deliveries, false, "1", "2")
	other := s.channel(s.conn)
	for _, f := range []func(ch *amqp.Channel) error{
		func(ch *amqp.Channel) error { return ch.Ack(1, false) },
		func(ch *amqp.Channel) error { return ch.Ack(1, true) },
		func(ch *amqp.Channel) error { return ch.Ack(0, false) },
		func(ch *amqp.Channel) error { return ch.Nack(2, true, true) },
		func(ch *amqp.Channel) error { return ch.Reject(1, true) },
	} {
		wantClosed(s, other, 406, "PRECONDITION_FAILED - unknown delivery tag", f)
		other = s.channel(s.conn)
	}
	s.noError("everything of nothing", other.Ack(0, true))
	s.ready(q, 0)
}

func emptyWithUnacked(s *session) {
	q := s.queue("q", nil)
	s.fill(q, "m")
	d := s.get(q)
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - queue '"+q+"' in vhost '/' not empty", func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(q, false, true, false)
		return err
	})
	s.noError("ack", d.Ack(false))
	_, err := s.ch.QueueDelete(q, false, true, false)
	s.noError("delete", err)
}

func emptyWithWaiting(s *session) {
	why := map[string]string{"retry": "messages that wait for a retry: 1", "route": ""} // the letter may be on its way yet
	for what, args := range map[string]amqp.Table{
		"retry": {"x-delayed-retry-type": "all", "x-delayed-retry-min": int32(60_000)},
		"route": {
			"x-queue-type": "quorum", "x-overflow": "reject-publish", "x-dead-letter-strategy": "at-least-once",
			"x-dead-letter-exchange": s.name("none"),
		},
	} {
		q := s.queue(what, args)
		s.fill(q, "m")
		s.noError(what, s.get(q).Nack(false, what == "retry"))
		s.until(what+": it waits", func() bool {
			n, err := s.ch.QueueDeclarePassive(q, true, false, false, false, nil)
			return err == nil && n.Messages == 0
		})
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - queue '"+q+"' in vhost '/' not empty: "+why[what], func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(q, false, true, false)
			return err
		})
		_, err := s.ch.QueueDelete(q, false, false, false)
		s.noError("delete", err)
	}
}

func longDeadLetterArguments(s *session) {
	fits, long := strings.Repeat("k", 255), strings.Repeat("k", 256)
	for _, name := range []string{"x-dead-letter-exchange", "x-dead-letter-routing-key"} {
		args := func(v string) amqp.Table {
			t := amqp.Table{"x-dead-letter-exchange": "amq.fanout"}
			t[name] = v
			return t
		}
		s.queue(name, args(fits))
		q := s.name("long" + name)
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg '"+name+"' for queue '"+q+"' in vhost '/': {longer_than_255_bytes,256}", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, true, false, false, false, args(long))
			return err
		})
	}
}

// TestExclusiveConsumerFailover kills the leader of a queue with an exclusive consumer: the
// consumer goes on and keeps others out, until its own node dies.
func TestExclusiveConsumerFailover(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	for _, typ := range []string{"classic", "quorum"} {
		q := plainQueue(s, typ, amqp.Table{"x-queue-type": typ})
		leader, others := leaderOf(t, c, q)
		holder, other := at(t, others[0]), at(t, others[1])
		consume := func(ch *amqp.Channel, exclusive bool) (<-chan amqp.Delivery, error) {
			return ch.Consume(q, "", false, exclusive, false, false, nil)
		}
		deliveries, err := consume(holder.ch, true)
		holder.noError("consume", err)
		other.fill(q, "before")
		held := holder.take(deliveries, false, "before")
		kill(t, leader)
		other.fill(q, "after")
		holder.noError("ack", held[0].Ack(false))
		holder.noError("ack", holder.take(deliveries, false, "after")[0].Ack(false))
		for _, exclusive := range []bool{false, true} {
			wantClosed(other, other.channel(other.conn), 403, "in exclusive use", func(ch *amqp.Channel) error {
				_, err := consume(ch, exclusive)
				return err
			})
		}
		start(t, leader)
		kill(t, others[0])
		back := at(t, leader)
		var next <-chan amqp.Delivery
		back.until("the end of the dead node's consumer", func() bool {
			next, err = consume(back.channel(back.conn), true)
			return err == nil
		})
		other.fill(q, "last")
		back.take(next, false, "last")
		start(t, others[0])
		s = at(t, c.Node(0))
	}
}
