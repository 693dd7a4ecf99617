package process

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// wantClosed runs f and checks that it closes its channel with this code and
// with text in the reason. f gets ch, which must be open.
func wantClosed(s *session, ch *amqp.Channel, code int, text string, f func(*amqp.Channel) error) {
	s.Helper()
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	err := f(ch)
	var refused *amqp.Error
	if !errors.As(err, &refused) || refused.Code == amqp.ErrClosed.Code {
		// An asynchronous method: the refusal comes on its own.
		select {
		case refused = <-closed:
		case <-time.After(timeoutReply):
			s.Fatalf("nothing was refused (%v), want %d %s", err, code, text)
		}
	}
	if refused == nil || refused.Code != code || !strings.Contains(refused.Reason, text) {
		s.Errorf("got %v, want %d with %q", refused, code, text)
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "channel errors", run: channelErrors},
		{name: "errors of the newest RabbitMQ", warrenOnly: true, run: newChannelErrors},
		{name: "a channel error spares the connection", run: channelErrorSpares},
		{name: "connection errors", run: connectionErrors},
		{name: "login", run: refusedLogin},
		{name: "vhost", run: refusedVHost},
		{name: "exclusive consumer", run: exclusiveConsumer},
		{name: "acks that nobody waits for", run: unknownTags},
	})
}

// refusal is one wrong use. {q} and {x} in text stand for the names of a queue
// and a direct exchange that exist; q holds one message.
type refusal struct {
	name string
	code int
	text string
	do   func(ch *amqp.Channel, q, x string) error
}

func runRefusals(s *session, refusals []refusal) {
	q := s.queue("q", amqp.Table{"x-message-ttl": 600000})
	x := s.exchange("x", "direct", nil)
	s.fill(q, "m")
	for _, r := range refusals {
		s.Run(r.name, func(t *testing.T) {
			sub := &session{T: t, to: s.to, conn: s.conn, id: s.id}
			text := strings.NewReplacer("{q}", q, "{x}", x).Replace(r.text)
			wantClosed(sub, sub.channel(s.conn), r.code, text, func(ch *amqp.Channel) error { return r.do(ch, q, x) })
		})
	}
	s.holds(q, "m")
}

func declare(ch *amqp.Channel, name string, args amqp.Table) error {
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	return err
}

func channelErrors(s *session) {
	runRefusals(s, []refusal{
		{"consume from a missing queue", 404, "NOT_FOUND - no queue 'none' in vhost '/'", func(ch *amqp.Channel, _, _ string) error {
			_, err := ch.Consume("none", "", false, false, false, false, nil)
			return err
		}},
		{"passive declare of a missing queue", 404, "NOT_FOUND - no queue 'none' in vhost '/'", func(ch *amqp.Channel, _, _ string) error {
			_, err := ch.QueueDeclarePassive("none", true, false, false, false, nil)
			return err
		}},
		{"passive declare of a missing exchange", 404, "NOT_FOUND - no exchange 'none' in vhost '/'", func(ch *amqp.Channel, _, _ string) error {
			return ch.ExchangeDeclarePassive("none", "direct", true, false, false, false, nil)
		}},
		{"publish to a missing exchange", 404, "NOT_FOUND - no exchange 'none' in vhost '/'", func(ch *amqp.Channel, _, _ string) error {
			return ch.Publish("none", "k", false, false, message("m"))
		}},
		{"get from a missing queue", 404, "NOT_FOUND - no queue 'none' in vhost '/'", func(ch *amqp.Channel, _, _ string) error {
			_, _, err := ch.Get("none", true)
			return err
		}},
		{"purge of a missing queue", 404, "NOT_FOUND - no queue 'none' in vhost '/'", func(ch *amqp.Channel, _, _ string) error {
			_, err := ch.QueuePurge("none", false)
			return err
		}},
		{"bind to a missing exchange", 404, "NOT_FOUND - no exchange 'none' in vhost '/'", func(ch *amqp.Channel, q, _ string) error {
			return ch.QueueBind(q, "k", "none", false, nil)
		}},
		{"bind of a missing queue", 404, "NOT_FOUND - no queue 'none' in vhost '/'", func(ch *amqp.Channel, _, x string) error {
			return ch.QueueBind("none", "k", x, false, nil)
		}},
		{"reserved queue name", 403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'", func(ch *amqp.Channel, _, _ string) error {
			return declare(ch, "amq.mine", nil)
		}},
		{"reserved exchange name", 403, "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'", func(ch *amqp.Channel, _, _ string) error {
			return ch.ExchangeDeclare("amq.mine", "direct", true, false, false, false, nil)
		}},
		{"bind to the default exchange", 403, "ACCESS_REFUSED - operation not permitted on the default exchange", func(ch *amqp.Channel, q, _ string) error {
			return ch.QueueBind(q, "k", "", false, nil)
		}},
		{"delete the default exchange", 403, "ACCESS_REFUSED - operation not permitted on the default exchange", func(ch *amqp.Channel, _, _ string) error {
			return ch.ExchangeDelete("", false, false)
		}},
		{"delete a system exchange", 403, "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed", func(ch *amqp.Channel, _, _ string) error {
			return ch.ExchangeDelete("amq.direct", false, false)
		}},
		{"other argument", 406, "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{q}' in vhost '/': received ", func(ch *amqp.Channel, q, _ string) error {
			return declare(ch, q, amqp.Table{"x-message-ttl": 20})
		}},
		{
			"other durability", 406,
			"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{q}' in vhost '/': received 'false' but current is 'true'",
			func(ch *amqp.Channel, q, _ string) error {
				_, err := ch.QueueDeclare(q, false, false, false, false, amqp.Table{"x-message-ttl": 600000})
				return err
			},
		},
		{
			"other exchange type", 406,
			"PRECONDITION_FAILED - inequivalent arg 'type' for exchange '{x}' in vhost '/': received 'topic' but current is 'direct'",
			func(ch *amqp.Channel, _, x string) error {
				return ch.ExchangeDeclare(x, "topic", true, false, false, false, nil)
			},
		},
		{"negative ttl", 406, "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'new' in vhost '/': {value_negative,-1}", func(ch *amqp.Channel, _, _ string) error {
			return declare(ch, "new", amqp.Table{"x-message-ttl": -1})
		}},
		{"negative length", 406, "PRECONDITION_FAILED - invalid arg 'x-max-length' for queue 'new' in vhost '/': {value_negative,-5}", func(ch *amqp.Channel, _, _ string) error {
			return declare(ch, "new", amqp.Table{"x-max-length": -5})
		}},
		{"lease of zero", 406, "PRECONDITION_FAILED - invalid arg 'x-expires' for queue 'new' in vhost '/'", func(ch *amqp.Channel, _, _ string) error {
			return declare(ch, "new", amqp.Table{"x-expires": 0})
		}},
		{"unknown overflow", 406, "PRECONDITION_FAILED - invalid arg 'x-overflow' for queue 'new' in vhost '/'", func(ch *amqp.Channel, _, _ string) error {
			return declare(ch, "new", amqp.Table{"x-overflow": "spill"})
		}},
		{"dead-letter key without exchange", 406, "routing_key_but_no_dlx_defined", func(ch *amqp.Channel, _, _ string) error {
			return declare(ch, "new", amqp.Table{"x-dead-letter-routing-key": "k"})
		}},
		{"dead-letter exchange that is a number", 406, "'x-dead-letter-exchange'", func(ch *amqp.Channel, _, _ string) error {
			return declare(ch, "new", amqp.Table{"x-dead-letter-exchange": 7})
		}},
		{"priority that is a word", 406, "PRECONDITION_FAILED - invalid arg 'x-max-priority'", func(ch *amqp.Channel, _, _ string) error {
			return declare(ch, "new", amqp.Table{"x-max-priority": "high"})
		}},
		{"ack of an unknown tag", 406, "PRECONDITION_FAILED - unknown delivery tag 7", func(ch *amqp.Channel, _, _ string) error { return ch.Ack(7, false) }},
		{"expiration that is a word", 406, "PRECONDITION_FAILED - invalid expiration 'soon'", func(ch *amqp.Channel, q, _ string) error {
			return ch.Publish("", q, false, false, amqp.Publishing{Expiration: "soon"})
		}},
		{"negative expiration", 406, "PRECONDITION_FAILED - invalid expiration '-1'", func(ch *amqp.Channel, q, _ string) error {
			return ch.Publish("", q, false, false, amqp.Publishing{Expiration: "-1"})
		}},
		{"expiration with a tail", 406, "PRECONDITION_FAILED - invalid expiration '10s'", func(ch *amqp.Channel, q, _ string) error {
			return ch.Publish("", q, false, false, amqp.Publishing{Expiration: "10s"})
		}},
		{"foreign user id", 406, "PRECONDITION_FAILED - user_id property set to 'root' but authenticated user was 'guest'", func(ch *amqp.Channel, q, _ string) error {
			return ch.Publish("", q, false, false, amqp.Publishing{UserId: "root"})
		}},
		{"delete of a queue that is not empty", 406, "PRECONDITION_FAILED - queue '{q}' in vhost '/' not empty", func(ch *amqp.Channel, q, _ string) error {
			_, err := ch.QueueDelete(q, false, true, false)
			return err
		}},
	})
}

func newChannelErrors(s *session) {
	runRefusals(s, []refusal{
		{
			"other argument", 406,
			"PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{q}' in vhost '/': received '20' but current is '600000'",
			func(ch *amqp.Channel, q, _ string) error { return declare(ch, q, amqp.Table{"x-message-ttl": 20}) },
		},
		{
			"missing argument", 406,
			"PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{q}' in vhost '/': received none but current is the value '600000' of type 'signedint'",
			func(ch *amqp.Channel, q, _ string) error { return declare(ch, q, nil) },
		},
		{"unknown exchange type", 406, "PRECONDITION_FAILED - unknown exchange type 'ring'", func(ch *amqp.Channel, _, _ string) error {
			return ch.ExchangeDeclare("new", "ring", true, false, false, false, nil)
		}},
	})
}

func channelErrorSpares(s *session) {
	q := s.queue("q", nil)
	bad := s.channel(s.conn)
	wantClosed(s, bad, 404, "NOT_FOUND", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(s.name("none"), true, false, false, false, nil)
		return err
	})
	s.fill(q, "other channels work")
	for range 3 { // the numbers of closed channels are used again
		ch := s.channel(s.conn)
		_, err := ch.QueueDeclarePassive(q, true, false, false, false, nil)
		s.noError("a new channel", err)
		s.noError("close", ch.Close())
	}
	s.holds(q, "other channels work")
}

func connectionErrors(s *session) {
	q := s.queue("q", nil)
	for _, r := range []struct {
		name string
		code int
		text string
		do   func(*amqp.Channel) error
	}{
		{"consumer tag twice", 530, "NOT_ALLOWED - attempt to reuse consumer tag 'mine'", func(ch *amqp.Channel) error {
			for range 2 {
				if _, err := ch.Consume(q, "mine", false, false, false, false, nil); err != nil {
					return err
				}
			}
			return nil
		}},
		{"prefetch size", 540, "NOT_IMPLEMENTED - prefetch_size!=0 (100)", func(ch *amqp.Channel) error { return ch.Qos(1, 100, false) }},
	} {
		s.Run(r.name, func(t *testing.T) {
			sub := &session{T: t, to: s.to, id: s.id}
			conn := sub.dial()
			closed := conn.NotifyClose(make(chan *amqp.Error, 1))
			wantClosed(sub, sub.channel(conn), r.code, r.text, r.do)
			select {
			case err := <-closed:
				if err == nil || err.Code != r.code {
					t.Errorf("the connection closed with %v", err)
				}
			case <-time.After(timeoutReply):
				t.Error("the connection stays open")
			}
		})
	}
}

func refusedLogin(s *session) {
	for _, password := range []string{"wrong", ""} {
		_, err := connectWith(s.to.url, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: "guest", Password: password}}})
		var refused *amqp.Error
		if !errors.As(err, &refused) || refused.Code != 403 {
			s.Errorf("password %q: got %v, want 403", password, err)
		}
	}
	conn, err := connectWith(s.to.url, amqp.Config{SASL: []amqp.Authentication{&amqp.AMQPlainAuth{Username: "guest", Password: "guest"}}})
	s.noError("AMQPLAIN", err)
	s.noError("close", conn.Close())
}

func refusedVHost(s *session) {
	// This client shows its own error; the raw test sees the answer itself.
	if _, err := connectWith(s.to.url, amqp.Config{Vhost: "nowhere"}); !errors.Is(err, amqp.ErrVhost) {
		s.Errorf("got %v, want %v", err, amqp.ErrVhost)
	}
}

func exclusiveConsumer(s *session) {
	q := s.queue("q", nil)
	first := s.channel(s.conn)
	_, err := first.Consume(q, "first", false, true, false, false, nil)
	s.noError("consume", err)
	consume := func(exclusive bool) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			_, err := ch.Consume(q, "", false, exclusive, false, false, nil)
			return err
		}
	}
	text := "ACCESS_REFUSED - queue '" + q + "' in vhost '/' in exclusive use"
	wantClosed(s, s.channel(s.conn), 403, text, consume(false))
	s.noError("cancel", first.Cancel("first", false))
	s.consume(q, 1)
	wantClosed(s, s.channel(s.conn), 403, text, consume(true))
}

func unknownTags(s *session) {
	q := s.queue("q", nil)
	s.fill(q, "m")
	for name, settle := range map[string]func(*amqp.Channel, uint64) error{
		"ack twice": func(ch *amqp.Channel, tag uint64) error { return errors.Join(ch.Ack(tag, false), ch.Ack(tag, false)) },
		"reject afterward": func(ch *amqp.Channel, tag uint64) error {
			return errors.Join(ch.Reject(tag, true), ch.Reject(tag, false))
		},
		"nack afterward": func(ch *amqp.Channel, tag uint64) error {
			return errors.Join(ch.Nack(tag, false, true), ch.Nack(tag, false, true))
		},
	} {
		s.Run(name, func(t *testing.T) {
			sub := &session{T: t, to: s.to, conn: s.conn, ch: s.ch, id: s.id}
			sub.ready(q, 1)
			wantClosed(sub, sub.channel(s.conn), 406, "PRECONDITION_FAILED - unknown delivery tag 1", func(ch *amqp.Channel) error {
				d, ok, err := ch.Get(q, false)
				if err != nil || !ok {
					t.Fatalf("get: %v, %v", ok, err)
				}
				return settle(ch, d.DeliveryTag)
			})
			if name == "ack twice" {
				sub.fill(q, "m")
			}
		})
	}
}
