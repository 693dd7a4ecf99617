package process

import (
	"fmt"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// withheld is a client under a channel-wide prefetch: it has some messages of a quorum queue, and the node keeps
// others back for it, of which it knows nothing.
type withheld struct {
	*session
	queue, dead string
	conn        *amqp.Connection
	socket      net.Conn
	ch          *amqp.Channel
	tags        []string
	seen        map[string]amqp.Delivery
}

const (
	withheldLimit    = 2 // of the channel
	withheldMessages = 3 * withheldLimit
)

// withholding starts three consumers of one queue, each of which could have as many messages as the channel. The first failed
// attempt kills a message.
func withholding(s, declarer *session) *withheld {
	s.Helper()
	w := &withheld{session: s, dead: s.queue("dead", nil), seen: map[string]amqp.Delivery{}}
	w.queue = declarer.queue("q", amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 0, "x-queue-leader-locator": "client-local", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": w.dead,
	})
	var err error
	w.conn, err = connectWith(s.to.url, amqp.Config{Heartbeat: 10 * time.Second, Dial: func(network, addr string) (net.Conn, error) {
		conn, err := net.DialTimeout(network, addr, timeoutReply)
		w.socket = conn
		return conn, err
	}})
	s.noError("connect", err)
	s.Cleanup(func() { w.conn.Close() })
	w.ch, err = w.conn.Channel()
	s.noError("open a channel", err)
	s.noError("qos", w.ch.Qos(withheldLimit, 0, true))
	all := make(chan amqp.Delivery, withheldMessages)
	for i := range 3 {
		w.tags = append(w.tags, fmt.Sprint("c", i))
		deliveries, err := w.ch.Consume(w.queue, w.tags[i], false, false, false, false, nil)
		s.noError("consume", err)
		go func() {
			for d := range deliveries {
				all <- d
			}
		}()
	}
	s.fill(w.queue, numbered("m", withheldMessages)...)
	for len(w.seen) < withheldLimit {
		d := s.next(all)
		w.seen[string(d.Body)] = d
	}
	s.ready(w.queue, 0) // the node has the others
	select {
	case d := <-all:
		s.Fatalf("%q came beyond the limit", d.Body)
	case <-time.After(5 * time.Millisecond):
	}
	return w
}

// unseen checks that everything the client has not seen is in the queue as if it had never left it.
func (w *withheld) unseen() {
	w.Helper()
	var got []string
	for range withheldMessages - len(w.seen) {
		d := w.get(w.queue)
		if _, seen := w.seen[string(d.Body)]; seen || d.Redelivered || d.Headers["x-delivery-count"] != nil || d.Headers["x-acquired-count"] != nil {
			w.Errorf("%q: seen before %v, redelivered %v, headers %v", d.Body, seen, d.Redelivered, d.Headers)
		}
		got = append(got, string(d.Body))
		w.noError("ack", d.Ack(false))
	}
	for i := 1; i < len(got); i++ {
		if got[i] < got[i-1] {
			w.Errorf("out of order: %v", got)
		}
	}
	w.ready(w.queue, 0)
}

// TestWithheldIsNoAttempt: what a channel-wide prefetch holds back at the client's node is not delivered. It does not fail
// with the channel, however that ends, and comes back as it was.
func TestWithheldIsNoAttempt(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for _, end := range []struct {
		name string
		do   func(*withheld) error
	}{
		{"channel closed", func(w *withheld) error { return w.ch.Close() }},
		{"connection closed", func(w *withheld) error { return w.conn.Close() }},
		{"socket lost", func(w *withheld) error { return w.socket.Close() }},
		{"channel error", func(w *withheld) error {
			if w.ch.ExchangeDeclarePassive("nowhere", "direct", false, false, false, false, nil) == nil {
				return fmt.Errorf("no error")
			}
			return nil
		}},
	} {
		for _, n := range c.Nodes()[:2] { // beside the queue's leader, and away from it
			t.Run(fmt.Sprintf("%s, %s", end.name, n.Name), func(t *testing.T) {
				s := at(t, n)
				w := withholding(s, at(t, c.Node(0)))
				s.noError("end", end.do(w))
				s.ready(w.dead, withheldLimit) // the client has failed with these
				w.unseen()
				s.ready(w.dead, withheldLimit)
			})
		}
	}
}

// TestWithheldIsNotCancelled: nor is it an attempt when its consumer is cancelled.
func TestWithheldIsNotCancelled(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for _, n := range c.Nodes()[:2] {
		t.Run(n.Name, func(t *testing.T) {
			s := at(t, n)
			w := withholding(s, at(t, c.Node(0)))
			for _, tag := range w.tags {
				s.noError("cancel", w.ch.Cancel(tag, false))
			}
			w.unseen()
			for body, d := range w.seen { // the client has these yet
				s.noError("ack of "+body, d.Ack(false))
			}
			s.ready(w.queue, 0)
			s.ready(w.dead, 0)
		})
	}
}

// TestWithheldKeepsTheTurn: the next active consumer begins with what the node held back for the one that is cancelled.
func TestWithheldKeepsTheTurn(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := sharedCluster(t, 3)
	for _, n := range c.Nodes()[:2] { // beside the queue's leader, and away from it
		t.Run(n.Name, func(t *testing.T) {
			for range 10 { // the next one's turn may come early or late
				keepsTheTurn(at(t, n), at(t, c.Node(0)), at(t, c.Node(2)))
			}
		})
	}
}

func keepsTheTurn(s, declarer, other *session) {
	s.Helper()
	full := declarer.queue("full", nil)
	q := declarer.queue("q", amqp.Table{"x-single-active-consumer": true, "x-queue-leader-locator": "client-local"})
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(1, 0, true))
	held, err := ch.Consume(full, "", false, false, false, false, nil)
	s.noError("consume", err)
	s.fill(full, "held")
	s.next(held)
	_, err = ch.Consume(q, "active", false, false, false, false, nil)
	s.noError("consume", err)
	s.fill(q, numbered("m", 5)...)
	s.ready(q, 4) // the node has the first one
	_, next := other.consume(q, 10)
	s.noError("cancel", ch.Cancel("active", false))
	for _, want := range numbered("m", 5) { // flagged or not: another node may lead by now
		if d := other.next(next); string(d.Body) != want {
			s.Fatalf("got %q, want %q", d.Body, want)
		}
	}
}
