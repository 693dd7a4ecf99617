package process

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestDifferential shows what random sequences of methods, sent to Warren and to RabbitMQ 4.3, found to be unlike.
func TestDifferential(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "expirations that are wrong, and why", warrenOnly: true, run: wrongExpirations},
		{name: "a returned message shows no BCC", run: returnWithoutBCC},
		{name: "names are UTF-8", run: namesAreText},
		{name: "headers match by value, not by type", run: headerTypes},
		{name: "texts of refused bindings and exchanges", warrenOnly: true, run: refusedTexts},
		{name: "arguments in RabbitMQ's order", warrenOnly: true, run: argumentOrder},
		{name: "arguments that mean nothing", warrenOnly: true, run: idleArguments},
		{name: "BCC is checked before the user id", warrenOnly: true, run: copiesBeforeUser},
		{name: "methods behind tx.commit are carried out after it", warrenOnly: true, run: behindCommit},
		{name: "a returned request shows its reply-to as it was published", warrenOnly: true, run: returnedRequest},
		{name: "a consumer of replies keeps its tag", warrenOnly: true, run: tagOfReplies},
		{name: "a channel that is closed while it is used", warrenOnly: true, run: closedInUse},
	})
}

// closedInUse: amqp091-go sends what other goroutines settle behind channel.close. RabbitMQ, too, ends some of these connections.
func closedInUse(s *session) {
	for range 20 {
		conn, err := connect(s.to.url)
		s.noError("dial", err)
		defer conn.Close()
		ch, err := conn.Channel()
		s.noError("open channel", err)
		q, err := ch.QueueDeclare("", false, false, true, false, nil)
		s.noError("declare", err)
		for range 200 {
			s.noError("publish", ch.Publish("", q.Name, false, false, amqp.Publishing{Body: []byte("m")}))
		}
		from, err := ch.Consume(q.Name, "", false, false, false, false, nil)
		s.noError("consume", err)
		n := 0
		for d := range from {
			_ = d.Ack(false) // fails once the library knows that the channel is closed
			if n++; n == 50 {
				go func() { _ = ch.Close() }()
			}
		}
		again, err := conn.Channel()
		s.noError("open another channel", err)
		s.noError("close it", again.Close())
		s.noError("close", conn.Close())
	}
}

func wrongExpirations(s *session) {
	for text, why := range map[string]string{
		"soon": "no_integer", "10s": "{leftover_string,\"s\"}", "-1": "{value_negative,-1}", "315360000001": "{value_too_large,315360000001}",
	} {
		s.refuses(406, "PRECONDITION_FAILED - invalid expiration '"+text+"': "+why, func(ch *amqp.Channel) error {
			return ch.Publish("", "nowhere", false, false, amqp.Publishing{Expiration: text})
		})
	}
	q := s.queue("q", nil)
	s.publish("", q, amqp.Publishing{Expiration: "+600000", Body: []byte("m")})
	if d := s.get(q); d.Expiration != "+600000" {
		s.Errorf("expiration %q", d.Expiration)
	}
}

func returnWithoutBCC(s *session) {
	returns := s.ch.NotifyReturn(make(chan amqp.Return, 1))
	none := s.name("none")
	m := amqp.Publishing{Headers: amqp.Table{"BCC": []any{none}, "CC": []any{none}, "h": "v"}, Body: []byte("m")}
	s.noError("publish", s.ch.Publish("", none, true, false, m))
	select {
	case r := <-returns:
		if r.Headers["BCC"] != nil || r.Headers["CC"] == nil || r.Headers["h"] != "v" || string(r.Body) != "m" {
			s.Errorf("returned %v", r.Headers)
		}
	case <-time.After(timeoutReply):
		s.Fatal("not returned")
	}
}

func headerTypes(s *session) {
	x := s.exchange("x", "headers", nil)
	whole := []any{int32(1700000000), int64(1700000000)}
	if s.to.warren { // in RabbitMQ 4.3 a message's timestamp is equal to nothing
		whole = append(whole, time.Unix(1700000000, 0))
	}
	for _, same := range [][]any{{"v", []byte("v")}, {1.5, float32(1.5)}, whole} {
		for _, want := range same {
			q := s.queue(fmt.Sprintf("q-%T", want), nil)
			s.noError("bind", s.ch.QueueBind(q, "", x, false, amqp.Table{"h": want}))
			for _, have := range append(same, "other", int32(2), 2.5) {
				s.publish(x, "", amqp.Publishing{Headers: amqp.Table{"h": have}})
			}
			s.ready(q, len(same))
		}
	}
}

func namesAreText(s *session) {
	const bad = "a\xff"
	for name, m := range map[string][]byte{
		"queue.declare": method(1, 50, 10, uint16(0), bad, byte(0), []byte{}),
		"queue.bind":    method(1, 50, 20, uint16(0), "q", "amq.direct", bad, byte(0), []byte{}),
		"basic.consume": method(1, 60, 20, uint16(0), "q", bad, byte(0), []byte{}),
	} {
		s.Run(name, func(t *testing.T) {
			w := dialWire(t, s.to)
			w.login()
			w.send(m)
			w.expectClose(501, "FRAME_ERROR - Malformed UTF-8 in shortstr", 0, 0)
		})
	}
	s.publish("amq.direct", bad, message("routing keys of messages are bytes"))
}

func refusedTexts(s *session) {
	q := s.queue("q", nil)
	for text, match := range map[string]any{
		"Invalid x-match field value <<\"most\">>; expected all, any, all-with-x, or any-with-x": "most",
		"Invalid x-match field type signedint (value 1); expected longstr":                       int32(1),
	} {
		s.refuses(406, "PRECONDITION_FAILED - "+text, func(ch *amqp.Channel) error {
			return ch.QueueBind(q, "", "amq.headers", false, amqp.Table{"x-match": match})
		})
	}
	x := s.exchange("x", "direct", amqp.Table{"alternate-exchange": "a"})
	s.refuses(406, "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange '"+x+"' in vhost '/': received 'b' but current is 'a'", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(x, "direct", true, false, false, false, amqp.Table{"alternate-exchange": "b"})
	})
	s.refuses(406, "PRECONDITION_FAILED - invalid type 'bool' for arg 'alternate-exchange' in exchange 'new' in vhost '/'", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("new", "direct", true, false, false, false, amqp.Table{"alternate-exchange": true})
	})
	s.refuses(406, "PRECONDITION_FAILED - invalid exchange type ''", func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("new", "", true, false, false, false, nil)
	})
}

func argumentOrder(s *session) {
	q := s.queue("q", amqp.Table{"x-dead-letter-exchange": "x"})
	s.refuses(406, "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue '"+q+"' in vhost '/': received none but current is the value 'x' of type 'longstr'", func(ch *amqp.Channel) error {
		return declare(ch, q, amqp.Table{"x-max-length": int32(5)})
	})
	// Those of a quorum queue have another order.
	q = s.queue("quorum", amqp.Table{"x-queue-type": "quorum"})
	s.refuses(406, "PRECONDITION_FAILED - inequivalent arg 'x-dead-letter-exchange' for queue '"+q+"' in vhost '/': received the value 'x' of type 'longstr' but current is none", func(ch *amqp.Channel) error {
		return declare(ch, q, amqp.Table{"x-queue-type": "quorum", "x-message-ttl": int32(5), "x-dead-letter-exchange": "x"})
	})
	s.refuses(406, "PRECONDITION_FAILED - invalid arg 'x-dead-letter-routing-key' for queue 'new' in vhost '/': routing_key_but_no_dlx_defined", func(ch *amqp.Channel) error {
		return declare(ch, "new", amqp.Table{"x-dead-letter-routing-key": "k", "x-single-active-consumer": "yes"})
	})
	s.refuses(404, "NOT_FOUND - no queue 'none' in vhost '/'", func(ch *amqp.Channel) error {
		_, err := ch.Consume("none", "", false, false, false, false, amqp.Table{"x-priority": "high"})
		return err
	})
}

func idleArguments(s *session) {
	s.queue("mode", amqp.Table{"x-queue-mode": "quick"})
	s.queue("locator", amqp.Table{"x-queue-leader-locator": "min-masters"})
	s.queue("memory", amqp.Table{"x-queue-type": "quorum", "x-max-in-memory-length": int32(5)})
	s.refuses(406, "PRECONDITION_FAILED - invalid arg 'x-max-in-memory-length' for queue 'new' in vhost '/' of queue type rabbit_classic_queue", func(ch *amqp.Channel) error {
		return declare(ch, "new", amqp.Table{"x-max-in-memory-length": int32(5)})
	})
	s.refuses(406, "PRECONDITION_FAILED - invalid arg 'x-max-in-memory-bytes' for queue 'new' in vhost '/': {value_negative,-1}", func(ch *amqp.Channel) error {
		return declare(ch, "new", amqp.Table{"x-queue-type": "quorum", "x-max-in-memory-bytes": int32(-1)})
	})
}

// copiesBeforeUser: RabbitMQ 3.10 looks at the user first.
func copiesBeforeUser(s *session) {
	s.refuses(406, "PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,\"BCC\",longstr}", func(ch *amqp.Channel) error {
		return ch.Publish("", "none", false, false, amqp.Publishing{UserId: "other", Headers: amqp.Table{"BCC": "k"}})
	})
}

func behindCommit(s *session) {
	q := s.name("q")
	w := dialWire(s.T, s.to)
	w.login()
	publish := append(method(1, 60, 40, uint16(0), "", q, byte(0)), frame(frameHeader, 1, make([]byte, 14))...)
	publish[len(publish)-1-13] = 60                            // class basic, an empty body and no properties
	w.send(method(1, 50, 10, uint16(0), q, byte(4), []byte{})) // exclusive
	w.send(method(1, 90, 10))
	w.send(publish)
	w.send(method(1, 90, 20))
	w.send(method(1, 50, 10, uint16(0), q, byte(1), []byte{})) // passive
	w.expect(50, 11)
	w.expect(90, 11)
	w.expect(90, 21)
	if ok := w.expect(50, 11); ok[1+len(q)+3] != 1 {
		s.Errorf("declare-ok %v, want one message", ok)
	}
}

func returnedRequest(s *session) {
	const replies = "amq.rabbitmq.reply-to"
	returns := s.ch.NotifyReturn(make(chan amqp.Return, 1))
	_, err := s.ch.Consume(replies, "", true, false, false, false, nil)
	s.noError("consume", err)
	s.noError("publish", s.ch.Publish("", s.name("none"), true, false, amqp.Publishing{ReplyTo: replies}))
	select {
	case r := <-returns:
		if r.ReplyTo != replies {
			s.Errorf("returned with reply-to %q", r.ReplyTo)
		}
	case <-time.After(timeoutReply):
		s.Fatal("not returned")
	}
}

func tagOfReplies(s *session) {
	q := s.queue("q", nil)
	w := dialWire(s.T, s.to)
	w.login()
	w.send(method(1, 60, 20, uint16(0), "amq.rabbitmq.reply-to", "t", byte(2), []byte{}))
	w.expect(60, 21)
	w.send(method(1, 60, 20, uint16(0), q, "t", byte(0), []byte{}))
	w.expectClose(530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", 60, 20)
}
