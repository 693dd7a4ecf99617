package process

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestRows shows the rules that no other test names, by the ids of the list of
// cases; what else has an id is in the tests that docs/compatibility.md names.
func TestRows(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "U01 publishes before confirm.select are not counted", run: confirmsBegin},
		{name: "U01 confirm.select without an answer", run: confirmNoWait},
		{name: "U02 a returned message is whole, and before its confirm", run: returnIsWhole},
		{name: "U03 deleting a queue confirms what was on its way", run: deleteConfirms},
		{name: "U06 CC and BCC of other types", run: oddCopies},
		{name: "U07 user id", run: userID},
		{name: "U08 size of a message", warrenOnly: true, run: messageSize},
		{name: "U09 where a message may go", run: publishTargets},
		{name: "N02 limits of the connection", warrenOnly: true, run: tuneLimits},
		{name: "N05 channels", run: channelRules},
		{name: "N05 methods of RabbitMQ's dialect", run: dialect},
		{name: "N07 N08 properties and types", run: everyType},
		{name: "Q01 declaring again", run: declareAgain},
		{name: "Q02 the queue declared last", run: lastQueue},
		{name: "Q03 auto-delete", run: autoDelete},
		{name: "Q04 if-unused and if-empty", run: conditionalDelete},
		{name: "Q05 purge leaves what is unacked", run: purgeUnacked},
		{name: "Q06 arguments that are wrong", run: wrongArguments},
		{name: "Q06 arguments of other queue types", run: foreignArguments},
		{name: "Q07 queue types", warrenOnly: true, run: queueTypes},
		{name: "blamed methods", run: blamedMethods},
	})
}

func confirmsBegin(s *session) {
	q := s.queue("q", nil)
	ch, err := s.conn.Channel()
	s.noError("channel", err)
	for range 3 {
		s.noError("publish", ch.Publish("", q, false, false, message("uncounted")))
	}
	s.noError("confirm", ch.Confirm(false))
	s.noError("confirm again", ch.Confirm(false))
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 8))
	for range 4 {
		s.noError("publish", ch.Publish("", q, false, false, message("counted")))
	}
	for i := range 4 {
		select {
		case c := <-confirms:
			if !c.Ack || c.DeliveryTag != uint64(i+1) {
				s.Errorf("confirm %d: %+v", i+1, c)
			}
		case <-time.After(timeoutReply):
			s.Fatal("no confirm")
		}
	}
	s.ready(q, 7)
}

func confirmNoWait(s *session) {
	w := dialWire(s.T, s.to)
	w.login()
	w.send(method(1, 85, 10, byte(1)))
	w.publish(1, "", "nobody", "body")
	w.expect(60, 80) // the confirm is the first thing to come
}

// publish sends a whole message.
func (w *wire) publish(channel uint16, exchange, key, body string) {
	w.t.Helper()
	w.send(method(channel, 60, 40, uint16(0), exchange, key, byte(0)))
	p := []byte{0, 60, 0, 0, 0, 0, 0, 0}
	p = binary.BigEndian.AppendUint32(p, uint32(len(body)))
	w.send(frame(frameHeader, channel, append(p, 0, 0)))
	w.send(frame(frameBody, channel, []byte(body)))
}

func returnIsWhole(s *session) {
	returns := s.ch.NotifyReturn(make(chan amqp.Return, 1))
	confirms := s.ch.NotifyPublish(make(chan amqp.Confirmation, 1))
	m := amqp.Publishing{
		ContentType: "text/plain", CorrelationId: "c", MessageId: "m", Priority: 3, DeliveryMode: 2,
		Headers: amqp.Table{"h": int32(1)}, Body: bytes.Repeat([]byte("x"), 300000),
	}
	s.noError("publish", s.ch.Publish("", s.name("nobody"), true, false, m))
	select {
	case c := <-confirms:
		if !c.Ack {
			s.Errorf("confirm %+v", c)
		}
	case <-time.After(timeoutReply):
		s.Fatal("no confirm")
	}
	select {
	case r := <-returns:
		if r.ReplyCode != 312 || r.ReplyText != "NO_ROUTE" || r.RoutingKey != s.name("nobody") || r.Exchange != "" ||
			r.ContentType != m.ContentType || r.CorrelationId != "c" || r.MessageId != "m" || r.Priority != 3 || r.DeliveryMode != 2 ||
			r.Headers["h"] != int32(1) || !bytes.Equal(r.Body, m.Body) {
			s.Errorf("returned %d %s with %d bytes, %+v", r.ReplyCode, r.ReplyText, len(r.Body), r.Headers)
		}
	default: // the client hands them on in their order
		s.Fatal("confirmed before it was returned")
	}
}

func deleteConfirms(s *session) {
	q := s.queue("q", nil)
	confirms := make([]*amqp.DeferredConfirmation, 0, 50)
	for range cap(confirms) {
		c, err := s.ch.PublishWithDeferredConfirm("", q, false, false, message("m"))
		s.noError("publish", err)
		confirms = append(confirms, c)
	}
	_, err := s.channel(s.conn).QueueDelete(q, false, false, false)
	s.noError("delete", err)
	ctx, cancel := context.WithTimeout(s.Context(), timeoutReply)
	defer cancel()
	for i, c := range confirms {
		if ok, err := c.WaitContext(ctx); err != nil || !ok {
			s.Fatalf("confirm %d: %v, %v", i+1, ok, err)
		}
	}
}

func oddCopies(s *session) {
	a, b := s.queue("a", nil), s.queue("b", nil)
	for _, header := range []string{"CC", "BCC"} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,\""+header+"\",longstr}", func(ch *amqp.Channel) error {
			return ch.Publish("", a, false, false, amqp.Publishing{Headers: amqp.Table{header: a}})
		})
	}
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED", func(ch *amqp.Channel) error {
		return ch.Publish("", a, false, false, amqp.Publishing{Headers: amqp.Table{"CC": int32(1)}})
	})
	s.publish("", a, amqp.Publishing{Body: []byte("m"), Headers: amqp.Table{"CC": []any{a, a, b}, "BCC": []any{b}}})
	for _, q := range []string{a, b} {
		s.ready(q, 1)
		d := s.get(q)
		if _, seen := d.Headers["BCC"]; seen || d.Headers["CC"] == nil {
			s.Errorf("headers in %s: %v", q, d.Headers)
		}
		s.noError("ack", d.Ack(false))
	}
}

func userID(s *session) {
	q := s.queue("q", nil)
	s.publish("", q, amqp.Publishing{UserId: "guest", Body: []byte("equal")})
	s.publish("", q, amqp.Publishing{Body: []byte("unset")})
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - user_id property set to 'Guest' but authenticated user was 'guest'", func(ch *amqp.Channel) error {
		return ch.Publish("", q, false, false, amqp.Publishing{UserId: "Guest"})
	})
	s.holds(q, "equal", "unset")
}

func messageSize(s *session) {
	q := s.queue("q", nil)
	s.publish("", q, amqp.Publishing{Body: make([]byte, 15<<20)})
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - message size 20971520 is larger than configured max size 16777216", func(ch *amqp.Channel) error {
		return ch.Publish("", q, false, false, amqp.Publishing{Body: make([]byte, 20<<20)})
	})
	s.publish("", q, message("other channels work"))
	s.ready(q, 2)
}

func publishTargets(s *session) {
	internal := s.name("internal")
	s.noError("declare", s.ch.ExchangeDeclare(internal, "fanout", false, true, true, false, nil))
	wantClosed(s, s.channel(s.conn), 403, "ACCESS_REFUSED - cannot publish to internal exchange '"+internal+"' in vhost '/'", func(ch *amqp.Channel) error {
		return ch.Publish(internal, "k", false, false, message("m"))
	})
	wantClosed(s, s.channel(s.conn), 404, "NOT_FOUND - no exchange 'none' in vhost '/'", func(ch *amqp.Channel) error {
		return ch.Publish("none", "k", false, false, message("m"))
	})
	s.publish("", s.name("nobody"), message("unroutable, and confirmed"))
	s.noError("delete", s.ch.ExchangeDelete(internal, false, false))
}

func tuneLimits(s *session) {
	for _, tc := range []struct {
		channels uint16
		frameMax uint32
		text     string
	}{
		{100, 8191, "negotiated frame_max = 8191 is lower than the minimum allowed value (8192)"},
		{100, 0, "negotiated frame_max = 0 is higher than the maximum allowed value (131072)"},
		{100, 131073, "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)"},
		{0, 131072, "negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)"},
		{2048, 131072, "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)"},
	} {
		w := dialWire(s.T, s.to)
		w.greet("PLAIN", "\x00guest\x00guest", nil)
		w.tune(tc.channels, tc.frameMax)
		w.expectClose(530, "NOT_ALLOWED - "+tc.text, 10, 30)
	}
	w := dialWire(s.T, s.to)
	w.greet("PLAIN", "\x00guest\x00guest", nil)
	w.tune(1, 8192) // the least of both
	w.send(method(0, 10, 40, "/", "", byte(0)))
	w.expect(10, 41)
	w.send(method(1, 20, 10, ""))
	w.expect(20, 11)
}

// expectChannelClose reads channel.close and answers it.
func (w *wire) expectChannelClose(channel, code uint16, text string, class, id uint16) {
	w.t.Helper()
	args := w.expect(20, 40)
	got, reason, tail := binary.BigEndian.Uint16(args), string(args[3:3+args[2]]), args[3+args[2]:]
	blamed := [2]uint16{binary.BigEndian.Uint16(tail), binary.BigEndian.Uint16(tail[2:])}
	if got != code || !strings.Contains(reason, text) || blamed != [2]uint16{class, id} {
		w.t.Errorf("closed with %d %q for %v, want %d %q for %d.%d", got, reason, blamed, code, text, class, id)
	}
	w.send(method(channel, 20, 41))
}

func channelRules(s *session) {
	w := dialWire(s.T, s.to)
	w.login()
	// What comes behind the error is ignored, but for the end of the channel, and
	// the number is free afterwards.
	for range 2 {
		w.send(method(1, 50, 30, uint16(0), "none", byte(0)))
		w.send(method(1, 60, 10, uint32(0), uint16(1), byte(0)))
		w.expectChannelClose(1, 404, "NOT_FOUND - no queue 'none' in vhost '/'", 50, 30)
		w.send(method(1, 20, 10, ""))
		w.expect(20, 11)
	}
	w.send(method(1, 20, 40, uint16(200), "OK", uint16(0), uint16(0)))
	w.expect(20, 41)
	w.send(method(1, 60, 10, uint32(0), uint16(1), byte(0)))
	w.expectClose(504, "CHANNEL_ERROR - expected 'channel.open'", 60, 10)
}

func dialect(s *session) {
	w := dialWire(s.T, s.to)
	w.login()
	w.send(method(1, 30, 10, "/data", byte(0x1f))) // access.request
	if ticket := w.expect(30, 11); !bytes.Equal(ticket, []byte{0, 1}) {
		s.Errorf("ticket %v", ticket)
	}
	w.send(method(1, 20, 20, byte(1)))
	w.expect(20, 21)
	w.send(method(1, 60, 30, "no such consumer", byte(0)))
	w.expect(60, 31)
	w.send(method(1, 20, 20, byte(0)))
	w.expectClose(540, "NOT_IMPLEMENTED - active=false", 20, 20)
	for _, tc := range []struct {
		send []byte
		text string
		id   uint16
	}{
		{method(1, 60, 10, uint32(7), uint16(1), byte(0)), "prefetch_size!=0 (7)", 10},
		{method(1, 60, 110, byte(0)), "requeue=false", 110},
	} {
		w := dialWire(s.T, s.to)
		w.login()
		w.send(tc.send)
		w.expectClose(540, "NOT_IMPLEMENTED - "+tc.text, 60, tc.id)
	}
}

func everyType(s *session) {
	q := s.queue("q", nil)
	at := time.Unix(1700000000, 0).UTC()
	headers := amqp.Table{
		"t": true, "b": int8(-1), "B": byte(200), "s": int16(-300), "I": int32(-70000), "l": int64(1) << 40, "f": float32(1.5), "d": 2.25,
		"D": amqp.Decimal{Scale: 2, Value: 314}, "S": "text", "A": []any{"a", int32(1), []any{true, nil}, amqp.Table{"in": "side"}},
		"T": at, "F": amqp.Table{"nested": amqp.Table{"deep": int64(1)}}, "V": nil, "x": []byte{0, 1, 2},
	}
	all := amqp.Publishing{
		ContentType: "ct", ContentEncoding: "ce", Headers: headers, DeliveryMode: 2, Priority: 9, CorrelationId: "ci", ReplyTo: "rt",
		Expiration: "600000", MessageId: "mi", Timestamp: at, Type: "ty", UserId: "guest", AppId: "ai", Body: []byte("all"),
	}
	s.publish("", q, all)
	d := s.get(q)
	if d.ContentType != "ct" || d.ContentEncoding != "ce" || d.DeliveryMode != 2 || d.Priority != 9 || d.CorrelationId != "ci" || d.ReplyTo != "rt" ||
		d.Expiration != "600000" || d.MessageId != "mi" || !d.Timestamp.Equal(at) || d.Type != "ty" || d.UserId != "guest" || d.AppId != "ai" {
		s.Errorf("properties %+v", d)
	}
	if got, want := encoded(s, d.Headers), encoded(s, headers); got != want {
		s.Errorf("headers\n%s\nwant\n%s", got, want)
	}
	s.publish("", q, amqp.Publishing{Body: []byte("none")})
	d = s.get(q)
	if d.ContentType != "" || len(d.Headers) != 0 || d.DeliveryMode != 0 || d.Priority != 0 || !d.Timestamp.IsZero() || d.UserId != "" {
		s.Errorf("a message without properties came with %+v", d)
	}
}

func declareAgain(s *session) {
	args := amqp.Table{"x-max-length": int32(10)}
	q := s.queue("q", args)
	s.fill(q, "1", "2")
	_, deliveries := s.consume(q, 1)
	s.next(deliveries)
	ok, err := s.ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-max-length": int64(10)}) // of any width
	if err != nil || ok.Name != q || ok.Messages != 1 || ok.Consumers != 1 {
		s.Errorf("declared again: %+v, %v", ok, err)
	}
	inequivalent := "PRECONDITION_FAILED - inequivalent arg '%' for queue '" + q + "' in vhost '/': received "
	for _, tc := range []struct {
		arg                            string
		durable, autoDelete, exclusive bool
		args                           amqp.Table
		code                           int
	}{
		{"durable", false, false, false, args, 406},
		{"auto_delete", true, true, false, args, 406},
		{"x-max-length", true, false, false, amqp.Table{"x-max-length": int32(11)}, 406},
		{"x-max-length", true, false, false, nil, 406},
	} {
		wantClosed(s, s.channel(s.conn), tc.code, strings.Replace(inequivalent, "%", tc.arg, 1), func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, tc.durable, tc.autoDelete, tc.exclusive, false, tc.args)
			return err
		})
	}
	mine, err := s.ch.QueueDeclare(s.name("mine"), false, false, true, false, nil)
	s.noError("declare", err)
	other := s.dial()
	for _, exclusive := range []bool{true, false} {
		wantClosed(s, s.channel(other), 405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '"+mine.Name+"' in vhost '/'", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(mine.Name, false, false, exclusive, false, nil)
			return err
		})
	}
}

func lastQueue(s *session) {
	ch := s.channel(s.conn)
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	s.noError("declare", err)
	if !strings.HasPrefix(q.Name, "amq.gen-") {
		s.Errorf("the server calls a queue %q", q.Name)
	}
	s.noError("bind the last one", ch.QueueBind("", "k", "amq.direct", false, nil))
	s.publish("amq.direct", "k", message("m"))
	d, ok, err := ch.Get("", true)
	if err != nil || !ok || string(d.Body) != "m" {
		s.Errorf("get from the last one: %q, %v, %v", d.Body, ok, err)
	}
	wantClosed(s, s.channel(s.conn), 404, "NOT_FOUND - no previously declared queue", func(ch *amqp.Channel) error {
		_, _, err := ch.Get("", true)
		return err
	})
}

func autoDelete(s *session) {
	q, err := s.ch.QueueDeclare(s.name("auto"), true, true, false, false, nil)
	s.noError("declare", err)
	s.fill(q.Name, "m")
	time.Sleep(100 * time.Millisecond)
	s.ready(q.Name, 1) // never before the first consumer
	first, deliveries := s.consume(q.Name, 1)
	s.next(deliveries)
	second, _ := s.consume(q.Name, 1)
	s.noError("close", first.Close())
	_, err = s.ch.QueueDeclarePassive(q.Name, true, true, false, false, nil)
	s.noError("look with a consumer left", err)
	s.noError("close", second.Close())
	s.until("the end of the queue", func() bool {
		ch := s.channel(s.conn)
		defer ch.Close()
		_, err := ch.QueueDeclarePassive(q.Name, true, true, false, false, nil)
		return err != nil
	})
}

func conditionalDelete(s *session) {
	q := s.queue("q", nil)
	s.fill(q, "m")
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - queue '"+q+"' in vhost '/' not empty", func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(q, false, true, false)
		return err
	})
	user, _ := s.consume(q, 1)
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - queue '"+q+"' in vhost '/' in use", func(ch *amqp.Channel) error {
		_, err := ch.QueueDelete(q, true, false, false)
		return err
	})
	s.noError("close", user.Close())
	s.holds(q, "m")
	for range 2 { // a missing queue is fine
		_, err := s.ch.QueueDelete(q, true, true, false)
		s.noError("delete", err)
	}
}

func purgeUnacked(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 5)...)
	ch, deliveries := s.consume(q, 2)
	s.take(deliveries, false, "m1", "m2")
	if n, err := s.ch.QueuePurge(q, false); err != nil || n != 3 {
		s.Errorf("purged %d, %v; want 3", n, err)
	}
	s.noError("close", ch.Close())
	s.holds(q, "m1", "m2")
}

func queueTypes(s *session) {
	for _, v := range []any{"magic", "", 7} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED", func(ch *amqp.Channel) error {
			return declare(ch, s.name("new"), amqp.Table{"x-queue-type": v})
		})
	}
	classic := s.queue("classic", amqp.Table{"x-queue-type": "classic"})
	s.noError("classic is the same as none", declare(s.ch, classic, nil))
	quorum := s.queue("quorum", amqp.Table{"x-queue-type": "quorum"})
	for q, other := range map[string]string{classic: "quorum", quorum: "classic"} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue '"+q+"' in vhost '/': received ", func(ch *amqp.Channel) error {
			return declare(ch, q, amqp.Table{"x-queue-type": other})
		})
	}
}

// wrongArguments are refused with RabbitMQ's words.
func wrongArguments(s *session) {
	for _, r := range []struct {
		arg  string
		v    any
		text string
	}{
		{"x-overflow", "up", ": invalid_overflow"},
		{"x-single-active-consumer", "yes", ": {unacceptable_type,longstr}"},
		{"x-queue-version", int32(9), ": \"unsupported queue version '9'\""},
		{"x-queue-type", "magic", ": \"unsupported queue type 'magic'\""},
		{"x-dead-letter-routing-key", "k", ": routing_key_but_no_dlx_defined"},
	} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg '"+r.arg+"' for queue 'new' in vhost '/'"+r.text, func(ch *amqp.Channel) error {
			return declare(ch, "new", amqp.Table{r.arg: r.v})
		})
	}
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'new' in vhost '/'", func(ch *amqp.Channel) error {
		return declare(ch, "new", amqp.Table{"x-dead-letter-exchange": int32(5)})
	})
	for arg, r := range map[string]struct {
		v    any
		text string
	}{
		"x-quorum-initial-group-size": {int32(-1), "{value_negative,-1}"},
		"x-dead-letter-strategy":      {"never", "invalid_dlx_strategy"},
		"x-queue-leader-locator":      {"nowhere", "invalid_queue_locator_arg"},
	} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg '"+arg+"' for queue 'new' in vhost '/': "+r.text, func(ch *amqp.Channel) error {
			return declare(ch, "new", amqp.Table{"x-queue-type": "quorum", arg: r.v})
		})
	}
	q := s.queue("priority", nil)
	wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg 'x-priority' for queue '"+q+"' in vhost '/': \"expected integer, got longstr\"", func(ch *amqp.Channel) error {
		_, err := ch.Consume(q, "", false, false, false, false, amqp.Table{"x-priority": "high"})
		return err
	})
}

// foreignArguments have a meaning for another type of queue only.
func foreignArguments(s *session) {
	stream := amqp.Table{"x-max-age": "1D", "x-stream-max-segment-size-bytes": int32(1000), "x-initial-cluster-size": int32(1)}
	classic := amqp.Table{"x-queue-mode": "lazy", "x-queue-version": int32(2), "x-queue-master-locator": "min-masters"}
	refused := func(typ, arg string, v any) {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg '"+arg+"' for queue 'new' in vhost '/' of queue type rabbit_"+typ+"_queue", func(ch *amqp.Channel) error {
			return declare(ch, "new", amqp.Table{"x-queue-type": typ, arg: v})
		})
	}
	for arg, v := range stream {
		refused("classic", arg, v)
		refused("quorum", arg, v)
	}
	for arg, v := range classic {
		refused("quorum", arg, v)
		if arg == "x-queue-master-locator" && !s.to.warren {
			continue // RabbitMQ 4.3 ends the connection, unless its configuration permits the argument
		}
		s.queue("classic"+arg, amqp.Table{arg: v})
	}
	for _, typ := range []string{"classic", "quorum"} {
		q := s.queue(typ, amqp.Table{"x-queue-type": typ})
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg 'x-stream-offset' for queue '"+q+"' in vhost '/' of queue type rabbit_"+typ+"_queue", func(ch *amqp.Channel) error {
			_, err := ch.Consume(q, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
			return err
		})
		s.noError("declared again with what the type does not know", declare(s.ch, q, amqp.Table{"x-queue-type": typ, "x-max-age": "1D"}))
	}
}

// blamedMethods checks class and method of refusals as frameworks test them.
func blamedMethods(s *session) {
	q := s.queue("q", nil)
	w := dialWire(s.T, s.to)
	w.login()
	none := []byte{}
	for _, tc := range []struct {
		name      string
		send      []byte
		code      uint16
		text      string
		class, id uint16
	}{
		{"passive queue", method(1, 50, 10, uint16(0), "none", byte(1), none), 404, "NOT_FOUND", 50, 10},
		{"passive exchange", method(1, 40, 10, uint16(0), "none", "direct", byte(1), none), 404, "NOT_FOUND", 40, 10},
		{"other durability", method(1, 50, 10, uint16(0), q, byte(0), none), 406, "PRECONDITION_FAILED", 50, 10},
		{"consume", method(1, 60, 20, uint16(0), "none", "", byte(0), none), 404, "NOT_FOUND", 60, 20},
		{"ack", method(1, 60, 80, uint32(0), uint32(9), byte(0)), 406, "unknown delivery tag 9", 60, 80},
		{"delete exchange", method(1, 40, 20, uint16(0), "amq.topic", byte(0)), 403, "ACCESS_REFUSED", 40, 20},
		{"bind", method(1, 50, 20, uint16(0), q, "none", "k", byte(0), none), 404, "NOT_FOUND - no exchange 'none'", 50, 20},
	} {
		w.send(tc.send)
		w.expectChannelClose(1, tc.code, tc.text, tc.class, tc.id)
		w.send(method(1, 20, 10, ""))
		w.expect(20, 11)
	}
	holder := s.channel(s.conn)
	_, err := holder.Consume(q, "", false, true, false, false, nil)
	s.noError("consume", err)
	w.send(method(1, 60, 20, uint16(0), q, "", byte(0), none))
	w.expectChannelClose(1, 403, "exclusive", 60, 20)
}

// encoded prints a table in a fixed order, with the types of its values.
func encoded(s *session, t amqp.Table) string {
	s.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t)) {
		switch v := t[name].(type) {
		case amqp.Table:
			fmt.Fprintf(&b, "%s={%s} ", name, encoded(s, v))
		case time.Time:
			fmt.Fprintf(&b, "%s=time %d ", name, v.Unix())
		default:
			fmt.Fprintf(&b, "%s=%T %v ", name, v, v)
		}
	}
	return b.String()
}
