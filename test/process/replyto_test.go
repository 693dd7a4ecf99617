package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const replyTo = "amq.rabbitmq.reply-to"

// TestDirectReply shows requests and replies without a reply queue (X09), between
// clients of any two nodes.
func TestDirectReply(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "X09 rules", run: replyRules},
		{name: "X09 refused", warrenOnly: true, run: refusedReplies},
	})
}

func replyRules(s *session) {
	q := s.queue("requests", nil)
	for _, r := range []refusal{
		{"acknowledging consumer", 406, "PRECONDITION_FAILED - reply consumer cannot acknowledge", func(ch *amqp.Channel, _, _ string) error {
			_, err := ch.Consume(replyTo, "", false, false, false, false, nil)
			return err
		}},
		{"second consumer", 406, "PRECONDITION_FAILED - reply consumer already set", func(ch *amqp.Channel, _, _ string) error {
			if _, err := ch.Consume(replyTo, "", true, false, false, false, nil); err != nil {
				return err
			}
			_, err := ch.Consume(replyTo, "", true, false, false, false, nil)
			return err
		}},
		{"publish without the consumer", 406, "PRECONDITION_FAILED - fast reply consumer does not exist", func(ch *amqp.Channel, _, _ string) error {
			return ch.Publish("", q, false, false, amqp.Publishing{ReplyTo: replyTo})
		}},
	} {
		s.Run(r.name, func(t *testing.T) {
			sub := &session{T: t, to: s.to, conn: s.conn, id: s.id}
			wantClosed(sub, sub.channel(s.conn), r.code, r.text, func(ch *amqp.Channel) error { return r.do(ch, "", "") })
		})
	}
	passive, err := s.ch.QueueDeclarePassive(replyTo, false, false, false, false, nil)
	if err != nil || passive.Messages != 0 || passive.Consumers != 1 {
		s.Errorf("passive declare: %+v, %v", passive, err)
	}
	replies := s.requester()
	name := s.ask(q)
	s.answer(name, "reply")
	if d := s.next(replies); string(d.Body) != "reply" || d.CorrelationId != "7" || d.Exchange != "" {
		s.Errorf("got %+v", d)
	}
	if !s.to.warren {
		return // RabbitMQ 3.10 fails with 541 when a requester's name is asked for
	}
	passive, err = s.ch.QueueDeclarePassive(name, false, false, false, false, nil)
	if err != nil || passive.Messages != 0 || passive.Consumers != 1 {
		s.Errorf("passive declare of the requester: %+v, %v", passive, err)
	}
	other := s.channel(s.conn)
	wantClosed(s, other, 404, "NOT_FOUND - no queue '"+name+"x' in vhost '/'", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name+"x", false, false, false, false, nil)
		return err
	})
}

func refusedReplies(s *session) {
	missing := "NOT_FOUND - no queue '" + replyTo + "' in vhost '/'"
	wantClosed(s, s.channel(s.conn), 404, missing, func(ch *amqp.Channel) error {
		return ch.QueueBind(replyTo, "k", "amq.direct", false, nil)
	})
	wantClosed(s, s.channel(s.conn), 403, "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue", func(ch *amqp.Channel) error {
		return ch.QueueBind(replyTo+".x", "k", "amq.direct", false, nil)
	})
	wantClosed(s, s.channel(s.conn), 404, missing, func(ch *amqp.Channel) error {
		_, _, err := ch.Get(replyTo, true)
		return err
	})
}

// requester consumes replies on the session's channel.
func (s *session) requester() <-chan amqp.Delivery {
	s.Helper()
	replies, err := s.ch.Consume(replyTo, "replies", true, false, false, false, nil)
	if err != nil {
		s.Fatalf("consume replies: %v", err)
	}
	return replies
}

// ask publishes a request and returns the name its responder is to answer to.
func (s *session) ask(queue string) string {
	s.Helper()
	s.publish("", queue, amqp.Publishing{ReplyTo: replyTo, CorrelationId: "7", Body: []byte("request")})
	d := s.get(queue)
	if d.CorrelationId != "7" || !strings.HasPrefix(d.ReplyTo, replyTo+".") {
		s.Fatalf("the request came with reply-to %q, correlation-id %q", d.ReplyTo, d.CorrelationId)
	}
	s.noError("ack", d.Ack(false))
	return d.ReplyTo
}

func (s *session) answer(name, body string) {
	s.Helper()
	s.publish("", name, amqp.Publishing{CorrelationId: "7", Body: []byte(body)})
}

// returned publishes a mandatory reply and tells whether it came back; it is
// confirmed in either case.
func (s *session) returned(name, body string) bool {
	s.Helper()
	ch := s.channel(s.conn)
	defer ch.Close()
	back := ch.NotifyReturn(make(chan amqp.Return, 1))
	confirm, err := ch.PublishWithDeferredConfirm("", name, true, false, amqp.Publishing{Body: []byte(body)})
	s.noError("publish", err)
	select {
	case <-confirm.Done():
	case <-time.After(timeoutReply):
		s.Fatal("no confirm of a reply")
	}
	select {
	case r := <-back: // it comes before the confirm
		if r.ReplyCode != 312 || string(r.Body) != body {
			s.Errorf("returned %+v", r)
		}
		return true
	default:
		return false
	}
}

func TestDirectReplyAcrossNodes(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for i := range 3 {
		t.Run(fmt.Sprintf("%d asks %d", i+1, (i+1)%3+1), func(t *testing.T) {
			requester, responder := at(t, c.Node(i)), at(t, c.Node((i+1)%3))
			q := requester.queue("requests", nil)
			replies := requester.requester()
			requester.publish("", q, amqp.Publishing{ReplyTo: replyTo, CorrelationId: "7"})
			d := responder.get(q)
			responder.noError("ack", d.Ack(false))
			bodies := numbered("reply", 500) // in order
			for _, body := range bodies {
				responder.noError("publish", responder.ch.Publish("", d.ReplyTo, false, false, amqp.Publishing{Body: []byte(body)}))
			}
			requester.take(replies, false, bodies...)
			large := strings.Repeat("x", 3<<20)
			if responder.returned(d.ReplyTo, large) {
				t.Error("a mandatory reply came back though its requester is there")
			}
			requester.take(replies, false, large)
			info, err := responder.ch.QueueDeclarePassive(d.ReplyTo, false, false, false, false, nil)
			if err != nil || info.Consumers != 1 {
				t.Errorf("passive declare from another node: %+v, %v", info, err)
			}
			requester.noError("cancel", requester.ch.Cancel("replies", false))
			if !responder.returned(d.ReplyTo, "late") {
				t.Error("a mandatory reply to a gone requester was taken")
			}
			responder.answer(d.ReplyTo, "dropped, and confirmed")
			wantClosed(responder, responder.channel(responder.conn), 404, "NOT_FOUND - no queue '"+d.ReplyTo+"'", func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclarePassive(d.ReplyTo, false, false, false, false, nil)
				return err
			})
		})
	}
	t.Run("pika", func(t *testing.T) {
		for i := range 3 {
			runClient(t, []string{"/usr/bin/python3", "../clients/pika/reply.py", c.Node(i).URL(), c.Node((i + 2) % 3).URL()}, nil)
		}
	})
}

// A reply to a requester whose node is dead is dropped, or returned when it is
// mandatory, and does not hold its responder up.
func TestDirectReplyToADeadNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	requester, responder := at(t, c.Node(0)), at(t, c.Node(1))
	q := plainQueue(requester, "requests", nil)
	requester.requester()
	requester.publish("", q, amqp.Publishing{ReplyTo: replyTo})
	d := responder.get(q)
	responder.noError("ack", d.Ack(false))
	kill(t, c.Node(0))
	begun := time.Now()
	if !responder.returned(d.ReplyTo, "too late") {
		t.Error("a mandatory reply to a dead node was taken")
	}
	responder.answer(d.ReplyTo, "too late")
	if took := time.Since(begun); took > timeoutReply/2 {
		t.Errorf("replies to a dead node took %v", took)
	}
	// The node comes back as another process: the old name is nobody's.
	start(t, c.Node(0))
	again := at(t, c.Node(0))
	replies := again.requester()
	if !responder.returned(d.ReplyTo, "too late") {
		t.Error("a name outlived its process")
	}
	again.publish("", q, amqp.Publishing{ReplyTo: replyTo})
	next := responder.get(q)
	responder.answer(next.ReplyTo, "in time")
	again.take(replies, false, "in time")
}
