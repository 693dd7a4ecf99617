package process

import (
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestPipelined: what a client sends on one channel, without waiting for anything, happens in that order. The cases are those of the tests of
// RabbitMQ's Java client in which Warren once differed.
func TestPipelined(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "a consumer that is ready comes before a get", run: consumerBeforeGet},
		{name: "a get finds nothing with a time to live of 0", run: getOfWhatIsDue},
		{name: "a get does not count what has a time to live of 0", run: countBesideWhatIsDue},
		{name: "a get comes after what makes room", run: getAfterOverflow},
		{name: "a cancelled consumer gets what was published before", run: publishedBeforeCancel},
	})
}

// sent publishes without waiting for a confirm.
func sent(s *session, ch *amqp.Channel, q string, m amqp.Publishing) {
	s.Helper()
	s.noError("publish", ch.Publish("", q, false, false, m))
}

// got is what a get on the channel finds.
func got(s *session, ch *amqp.Channel, q string) (d amqp.Delivery, ok bool) {
	s.Helper()
	d, ok, err := ch.Get(q, true)
	s.noError("get", err)
	return d, ok
}

func consumerBeforeGet(s *session) {
	q := s.queue("q", nil)
	for range 20 {
		ch := s.channel(s.conn)
		deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
		s.noError("consume", err)
		sent(s, ch, q, message("m"))
		if d, ok := got(s, ch, q); ok {
			s.Fatalf("a get found %q", d.Body)
		}
		s.noError("ack", s.next(deliveries).Ack(false))
		s.noError("close", ch.Close())
	}
}

func getOfWhatIsDue(s *session) {
	q, all := s.queue("q", nil), s.queue("all", amqp.Table{"x-message-ttl": 0})
	ch := s.channel(s.conn)
	due := message("due")
	due.Expiration = "0"
	for range 20 {
		sent(s, ch, q, due)
		sent(s, ch, all, message("due"))
		for _, q := range []string{q, all} {
			if d, ok := got(s, ch, q); ok {
				s.Fatalf("a get found %q", d.Body)
			}
		}
	}
}

// What expires as it comes is not counted as remaining by a get that finds something.
func countBesideWhatIsDue(s *session) {
	q := s.queue("q", nil)
	ch := s.channel(s.conn)
	due := message("due")
	due.Expiration = "0"
	for range 20 {
		sent(s, ch, q, due)
		sent(s, ch, q, message("m"))
		if d, ok := got(s, ch, q); !ok || string(d.Body) != "m" || d.MessageCount != 0 {
			s.Fatalf("a get found %q, and %d left", d.Body, d.MessageCount)
		}
	}
}

func getAfterOverflow(s *session) {
	q := s.queue("q", amqp.Table{"x-max-length": 1})
	ch := s.channel(s.conn)
	for range 20 {
		s.fill(q, "1")
		first, ok, err := ch.Get(q, false)
		if s.noError("get", err); !ok {
			s.Fatal("nothing there")
		}
		sent(s, ch, q, message("2"))
		s.noError("requeue", first.Nack(false, true))
		if d, ok := got(s, ch, q); !ok || string(d.Body) != "2" || d.MessageCount != 0 {
			s.Fatalf("a get found %q, and %d left", d.Body, d.MessageCount)
		}
	}
}

func publishedBeforeCancel(s *session) {
	q := s.queue("q", nil)
	want := numbered("m", 10)
	for range 20 {
		ch := s.channel(s.conn)
		deliveries, err := ch.Consume(q, "mine", true, false, false, false, nil)
		s.noError("consume", err)
		for _, body := range want {
			sent(s, ch, q, message(body))
		}
		s.noError("cancel", ch.Cancel("mine", false))
		var taken []string
		for d := range deliveries {
			taken = append(taken, string(d.Body))
		}
		if !slices.Equal(taken, want) {
			s.Fatalf("the consumer got %q", taken)
		}
		s.noError("close", ch.Close())
	}
}
