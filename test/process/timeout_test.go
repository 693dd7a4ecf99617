package process

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestConsumerTimeout is A13: a client that keeps a message for too long loses it, and its
// consumer, or without being able to understand that its channel.
func TestConsumerTimeout(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "A13 the consumer is cancelled", warrenOnly: true, run: timeoutCancels},
		{name: "A13 a client that does not understand", warrenOnly: true, run: timeoutClosesChannel},
		{name: "A13 get", warrenOnly: true, run: timeoutOfGet},
		{name: "a single active consumer", warrenOnly: true, run: timeoutOfSingle},
		{name: "under a channel-wide prefetch", warrenOnly: true, run: timeoutOfWithheld},
		{name: "in a transaction", warrenOnly: true, run: timeoutInTx},
		{name: "bad arguments", warrenOnly: true, run: timeoutArguments},
	})
}

const quorumTimeout = "x-consumer-timeout"

// timeoutText is what pika and others look for.
const timeoutText = "timed out. Timeout value used: 300 ms"

func timeoutCancels(s *session) {
	q := s.queue("q", amqp.Table{"x-queue-type": "quorum", quorumTimeout: 60000})
	w := s.worker(q, "slow", 1, amqp.Table{quorumTimeout: 300})
	cancelled := w.ch.NotifyCancel(make(chan string, 1))
	began := time.Now()
	s.fill(q, "m1", "m2")
	held := s.take(w.deliveries, false, "m1")
	select {
	case tag := <-cancelled:
		if took := time.Since(began); tag != "slow" || took < 300*time.Millisecond {
			s.Errorf("%s was cancelled after %v", tag, took)
		}
	case <-time.After(timeoutReply):
		s.Fatal("no cancel came")
	}
	s.ready(q, 2)
	s.noError("a late ack", held[0].Ack(false))
	other := s.worker(q, "other", 2, nil)
	d := s.next(other.deliveries)
	if string(d.Body) != "m1" || !d.Redelivered || d.Headers["x-delivery-count"] != nil || d.Headers["x-acquired-count"] != int64(1) {
		s.Errorf("got %q redelivered=%v headers=%v", d.Body, d.Redelivered, d.Headers)
	}
	s.noError("ack", d.Ack(false))
	s.noError("ack", s.next(other.deliveries).Ack(false))
	s.ready(q, 0)
	// The channel is open: the same tag can be used again.
	s.fill(q, "m3")
	again, err := w.ch.Consume(q, "slow", false, false, false, false, nil)
	s.noError("consume again", err)
	s.noError("cancel", other.ch.Cancel("other", false))
	s.fill(q, "m4")
	for d := range again {
		s.noError("ack", d.Ack(false))
		if string(d.Body) == "m4" {
			break
		}
	}
}

func timeoutClosesChannel(s *session) {
	q := s.queue("q", amqp.Table{quorumTimeout: 300})
	s.fill(q, "m")
	w := dialWire(s.T, s.to)
	w.login() // without any capability
	w.send(method(1, 60, 20, uint16(0), q, "slow", byte(0), []byte{}))
	w.expect(60, 21)
	w.expect(60, 60)
	for range 2 { // header and body
		_, _, _, err := w.read()
		s.noError("the message", err)
	}
	args := w.expect(20, 40)
	if code, text := binary.BigEndian.Uint16(args), string(args[3:3+args[2]]); code != 406 ||
		!strings.HasPrefix(text, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 "+timeoutText) {
		s.Errorf("closed with %d %q", code, text)
	}
	w.send(method(1, 20, 41))
	w.send(method(2, 20, 10, "")) // the connection is open
	w.expect(20, 11)
	if d := s.get(q); !d.Redelivered {
		s.Error("came back without the flag")
	}
}

func timeoutOfGet(s *session) {
	q := s.queue("q", amqp.Table{quorumTimeout: 300})
	s.fill(q, "m")
	wantClosed(s, s.channel(s.conn), 406, timeoutText, func(ch *amqp.Channel) error {
		if _, ok, err := ch.Get(q, false); err != nil || !ok {
			s.Fatalf("get: %v, %v", ok, err)
		}
		return nil
	})
	s.holds(q, "m")
}

// timeoutOfSingle: the next one goes on where the one before hangs, in order.
func timeoutOfSingle(s *session) {
	q := s.queue("q", amqp.Table{"x-single-active-consumer": true, quorumTimeout: 300})
	hangs := s.worker(q, "hangs", 3, nil)
	next := s.worker(q, "next", 10, amqp.Table{quorumTimeout: 0})
	s.fill(q, numbered("m", 5)...)
	s.take(hangs.deliveries, false, "m1", "m2", "m3")
	s.take(next.deliveries, true, "m1", "m2", "m3")
	for _, body := range []string{"m4", "m5"} {
		if d := s.next(next.deliveries); string(d.Body) != body {
			s.Errorf("got %q, want %q", d.Body, body)
		}
	}
}

// timeoutInTx: what an open transaction settles stays with it, and the consumer goes on; after a rollback the client holds it.
func timeoutInTx(s *session) {
	q := s.queue("q", amqp.Table{quorumTimeout: 2000})
	ch := s.txChannel()
	s.noError("qos", ch.Qos(1, 0, false))
	deliveries, err := ch.Consume(q, "slow", false, false, false, false, nil)
	s.noError("consume", err)
	cancelled := ch.NotifyCancel(make(chan string, 1))
	s.fill(q, "m1", "m2")
	held := s.take(deliveries, false, "m1")
	s.noError("ack", held[0].Ack(false))
	time.Sleep(4 * time.Second)
	s.ready(q, 1)
	s.noError("commit", ch.TxCommit())
	held = s.take(deliveries, false, "m2")
	s.noError("nack", held[0].Nack(false, true))
	time.Sleep(4 * time.Second)
	select {
	case tag := <-cancelled:
		s.Fatalf("%s was cancelled for what it has settled", tag)
	default:
	}
	s.noError("rollback", ch.TxRollback())
	select {
	case <-cancelled:
	case <-time.After(timeoutReply):
		s.Fatal("no cancel came for what it holds again")
	}
	s.holds(q, "m2")
}

func timeoutArguments(s *session) {
	q := s.queue("q", nil)
	for _, v := range []any{"long", -1} {
		wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg 'x-consumer-timeout' for queue '"+q+"' in vhost '/': ", func(ch *amqp.Channel) error {
			_, err := ch.Consume(q, "", false, false, false, false, amqp.Table{quorumTimeout: v})
			return err
		})
		for _, name := range []string{quorumTimeout, "x-consumer-disconnected-timeout"} {
			wantClosed(s, s.channel(s.conn), 406, "PRECONDITION_FAILED - invalid arg '"+name+"' for queue 'new'", func(ch *amqp.Channel) error {
				return declare(ch, "new", amqp.Table{name: v})
			})
		}
	}
	s.queue("patient", amqp.Table{"x-queue-type": "quorum", "x-consumer-disconnected-timeout": 60_000})
}

// TestConsumerTimeoutDefault: the node's own timeout is for quorum queues, and it passes
// while the queue's leader dies.
func TestConsumerTimeoutDefault(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Args = append(cfg.Args, "--consumer-timeout=1s") })
	startAll(t, c)
	q := plainQueue(at(t, c.Node(0)), "quorum", amqp.Table{"x-queue-type": "quorum"})
	leader, others := leaderOf(t, c, q)
	s, second := at(t, others[0]), at(t, others[1])
	plain := plainQueue(s, "plain", nil)
	s.fill(q, "m")
	s.fill(plain, "m")
	w := s.worker(q, "slow", 1, nil)
	cancelled := w.ch.NotifyCancel(make(chan string, 1))
	_, kept := s.consume(plain, 1)
	s.take(w.deliveries, false, "m")
	d := s.next(kept)
	kill(t, leader)
	select {
	case <-cancelled:
	case <-time.After(timeoutReply):
		t.Fatal("no cancel came")
	}
	other := second.worker(q, "other", 1, nil)
	second.take(other.deliveries, true, "m")
	s.noError("ack of what a plain queue's consumer has had for longer", d.Ack(false))
	s.ready(plain, 0)
	if q, err := s.ch.QueueDelete(plain, false, true, false); err != nil || q != 0 {
		t.Errorf("delete of the empty queue: %d, %v", q, err)
	}
}

// timeoutOfWithheld: the time of a message begins when it is sent, not while a channel-wide prefetch holds it back.
func timeoutOfWithheld(s *session) {
	first, second := s.queue("first", nil), s.queue("second", amqp.Table{quorumTimeout: 300})
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(1, 0, true))
	cancelled := ch.NotifyCancel(make(chan string, 1))
	a, err := ch.Consume(first, "a", false, false, false, false, nil)
	s.noError("consume", err)
	b, err := ch.Consume(second, "b", false, false, false, false, nil)
	s.noError("consume", err)
	s.fill(first, "m")
	held := s.take(a, false, "m")
	s.fill(second, "n")
	select {
	case tag := <-cancelled:
		s.Fatalf("%s was cancelled for what its client has not got", tag)
	case <-time.After(600 * time.Millisecond):
	}
	s.noError("ack", held[0].Ack(false))
	s.take(b, false, "n")
	select {
	case tag := <-cancelled:
		if tag != "b" {
			s.Errorf("%s was cancelled", tag)
		}
	case <-time.After(timeoutReply):
		s.Fatal("no cancel came for what it holds")
	}
	if d := s.get(second); !d.Redelivered {
		s.Error("came back without the flag")
	}
}
