package process

import (
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// inOrder checks that what one channel got of one publisher, in the order of its tags, is in order or flagged. Bodies are numbers of
// one width.
func (s *session) inOrder(got []amqp.Delivery) {
	s.Helper()
	slices.SortFunc(got, func(a, b amqp.Delivery) int { return int(a.DeliveryTag) - int(b.DeliveryTag) })
	last := ""
	for _, d := range got {
		if string(d.Body) < last && !d.Redelivered {
			s.Errorf("%s came behind %s on one channel, without the flag", d.Body, last)
		}
		last = max(last, string(d.Body))
	}
}

// TestOneChannelsOrder: the messages of a queue come to a channel in order, or flagged, also if it gets some of them by basic.get, or by
// consumers that start while others go on.
func TestOneChannelsOrder(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	t.Run("get while others wait for the limit", func(t *testing.T) {
		s := at(t, c.Node(0))
		q := s.queue("q", nil)
		ch := s.channel(s.conn)
		s.noError("qos", ch.Qos(1, 0, true))
		all := make(chan amqp.Delivery, 3)
		for range 2 { // the limit holds back what the second one is sent
			ds, err := ch.Consume(q, "", false, false, false, false, nil)
			s.noError("consume", err)
			go func() {
				for d := range ds {
					all <- d
				}
			}()
		}
		s.fill(q, "1", "2", "3")
		s.ready(q, 1)
		got := []amqp.Delivery{s.next(all)}
		d, ok, err := ch.Get(q, false)
		if err != nil || !ok || string(d.Body) != "3" {
			t.Fatalf("get: %q %v %v", d.Body, ok, err)
		}
		s.noError("ack", got[0].Ack(false))
		s.inOrder(append(got, d, s.next(all)))
	})
	t.Run("get beside a consumer", func(t *testing.T) {
		s := at(t, c.Node(0))
		q := s.queue("q", nil)
		s.passing(q, func(ch *amqp.Channel, all chan<- amqp.Delivery) {
			d, ok, err := ch.Get(q, false)
			s.noError("get", err)
			if ok {
				all <- d
			}
		})
	})
	t.Run("a consumer starts beside another", func(t *testing.T) {
		s := at(t, c.Node(1))
		q := s.queue("q", nil)
		s.passing(q, func(ch *amqp.Channel, all chan<- amqp.Delivery) {
			tag := fmt.Sprint("c", time.Now().UnixNano())
			s.consumeInto(ch, q, tag, all)
			s.noError("cancel", ch.Cancel(tag, false))
		})
	})
}

// passingMessages go to a consumer while the channel does something else again and again.
const passingMessages = 2000

// passing consumes messages while f is called on the same channel again and again, and checks their order. f passes on what it gets.
func (s *session) passing(queue string, f func(*amqp.Channel, chan<- amqp.Delivery)) {
	s.Helper()
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(20, 0, false))
	all := make(chan amqp.Delivery, passingMessages)
	s.consumeInto(ch, queue, "", all)
	done := make(chan []amqp.Delivery, 1)
	go func() {
		var got []amqp.Delivery
		for len(got) < passingMessages {
			select {
			case d := <-all:
				_ = d.Ack(false)
				got = append(got, d)
			case <-time.After(timeoutReply):
				done <- got
				return
			}
		}
		done <- got
	}()
	var bodies []string
	for i := range passingMessages {
		bodies = append(bodies, fmt.Sprintf("%05d", i))
	}
	filled := make(chan error, 1)
	go func() { filled <- s.filled("", queue, bodies...) }()
	for {
		select {
		case got := <-done:
			s.noError("fill", <-filled)
			if len(got) != passingMessages {
				s.Fatalf("got %d messages", len(got))
			}
			s.inOrder(got)
			return
		default:
			f(ch, all)
		}
	}
}

// consumeInto starts a consumer and passes on what it gets.
func (s *session) consumeInto(ch *amqp.Channel, queue, tag string, all chan<- amqp.Delivery) {
	s.Helper()
	ds, err := ch.Consume(queue, tag, false, false, false, false, nil)
	s.noError("consume", err)
	go func() {
		for d := range ds {
			all <- d
		}
	}()
}
