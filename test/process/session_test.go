package process

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// timeoutReply bounds every wait for something that must come.
const timeoutReply = 30 * time.Second

// scenario is one promise to AMQP clients.
type scenario struct {
	name string
	// warrenOnly marks what an older RabbitMQ does differently.
	warrenOnly bool
	run        func(*session)
}

// runScenarios runs each scenario on a single node and through one of three, or on each
// foreign broker.
func runScenarios(t *testing.T, scenarios []scenario) {
	t.Helper()
	eachTarget(t, func(t *testing.T, to target) {
		for i, sc := range scenarios {
			if !to.takes(i) {
				continue
			}
			t.Run(sc.name, func(t *testing.T) {
				if sc.warrenOnly && !to.warren {
					t.Skip("differs in this broker")
				}
				sc.run(newSession(t, to))
			})
		}
	})
}

// session is a connection with one channel in confirm mode, for one test. Its
// methods fail the test on any error.
type session struct {
	*testing.T
	to   target
	conn *amqp.Connection
	ch   *amqp.Channel
	id   string // makes names of this test unique
}

func newSession(t *testing.T, to target) *session {
	t.Helper()
	s := &session{T: t, to: to, id: fmt.Sprintf("t%08x", rand.Uint32())}
	s.conn = s.dial()
	s.ch = s.channel(s.conn)
	return s
}

func (s *session) dial() *amqp.Connection {
	s.Helper()
	var socket net.Conn
	conn, err := connectWith(s.to.url, amqp.Config{Heartbeat: 10 * time.Second, Dial: func(network, addr string) (nc net.Conn, err error) {
		socket, err = amqp.DefaultDial(30*time.Second)(network, addr)
		return socket, err
	}})
	if err != nil {
		s.Fatalf("connect to %s: %v", s.to.name, err)
	}
	s.Cleanup(func() {
		// A connection that is not read, or not answered, cannot be closed as the protocol has it.
		defer time.AfterFunc(timeoutReply, func() { socket.Close() }).Stop()
		conn.Close()
	})
	return conn
}

// channel opens a channel in confirm mode.
func (s *session) channel(conn *amqp.Connection) *amqp.Channel {
	s.Helper()
	ch, err := conn.Channel()
	if err != nil {
		s.Fatalf("open a channel: %v", err)
	}
	if err := ch.Confirm(false); err != nil {
		s.Fatalf("confirm mode: %v", err)
	}
	return ch
}

// name returns a name that no other test uses.
func (s *session) name(label string) string { return s.id + "." + label }

// queue declares a durable queue that is deleted at the end.
func (s *session) queue(label string, args amqp.Table) string {
	s.Helper()
	name := s.name(label)
	if _, err := s.ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		s.Fatalf("declare queue %s: %v", label, err)
	}
	s.Cleanup(func() {
		s.cleanup(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(name, false, false, false)
			return err
		})
	})
	return name
}

// exchange declares a durable exchange that is deleted at the end.
func (s *session) exchange(label, kind string, args amqp.Table) string {
	s.Helper()
	name := s.name(label)
	if err := s.ch.ExchangeDeclare(name, kind, true, false, false, false, args); err != nil {
		s.Fatalf("declare exchange %s: %v", label, err)
	}
	s.Cleanup(func() {
		s.cleanup(func(ch *amqp.Channel) error { return ch.ExchangeDelete(name, false, false) })
	})
	return name
}

// cleanup runs f on a new connection: the session's may be gone.
func (s *session) cleanup(f func(*amqp.Channel) error) {
	conn, err := connect(s.to.url)
	if err != nil {
		s.Errorf("clean up: %v", err)
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err == nil {
		err = f(ch)
	}
	if err != nil {
		s.Errorf("clean up: %v", err)
	}
}

func (s *session) bind(queue, key, exchange string, args amqp.Table) {
	s.Helper()
	if err := s.ch.QueueBind(queue, key, exchange, false, args); err != nil {
		s.Fatalf("bind %s to %s: %v", queue, exchange, err)
	}
}

func message(body string) amqp.Publishing {
	return amqp.Publishing{Body: []byte(body), DeliveryMode: amqp.Persistent}
}

// publish publishes and waits for the confirm.
func (s *session) publish(exchange, key string, m amqp.Publishing) {
	s.Helper()
	if !s.publishResult(exchange, key, m) {
		s.Fatalf("publish %.60q to %q was refused", m.Body, exchange)
	}
}

// publishResult publishes and returns whether the message was taken.
func (s *session) publishResult(exchange, key string, m amqp.Publishing) bool {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), timeoutReply)
	defer cancel()
	confirm, err := s.ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, false, false, m)
	if err != nil {
		s.Fatalf("publish %.60q to %q: %v", m.Body, exchange, err)
	}
	ok, err := confirm.WaitContext(ctx)
	if err != nil {
		s.Fatalf("confirm of %.60q to %q: %v", m.Body, exchange, err)
	}
	return ok
}

// confirmed waits for what becomes of a publish, and tells whether the message was taken.
func confirmed(t *testing.T, c *amqp.DeferredConfirmation) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	ok, err := c.WaitContext(ctx)
	if err != nil {
		t.Errorf("no confirm: %v", err)
	}
	return ok
}

// fill publishes the bodies to a queue, in order, and waits for all confirms.
func (s *session) fill(queue string, bodies ...string) {
	s.Helper()
	s.fillThrough("", queue, bodies...)
}

// fillThrough publishes the bodies to an exchange, in order, and waits for all confirms.
func (s *session) fillThrough(exchange, key string, bodies ...string) {
	s.Helper()
	s.noError("fill", s.filled(exchange, key, bodies...))
}

// filled does what fillThrough does, for any goroutine.
func (s *session) filled(exchange, key string, bodies ...string) error {
	confirms := make([]*amqp.DeferredConfirmation, 0, len(bodies))
	for _, body := range bodies {
		c, err := s.ch.PublishWithDeferredConfirmWithContext(s.Context(), exchange, key, false, false, message(body))
		if err != nil {
			return fmt.Errorf("publish %q: %w", body, err)
		}
		confirms = append(confirms, c)
	}
	ctx, cancel := context.WithTimeout(s.Context(), timeoutReply)
	defer cancel()
	for i, c := range confirms {
		ok, err := c.WaitContext(ctx)
		if err != nil {
			return fmt.Errorf("confirm of %q: %w", bodies[i], err)
		}
		if !ok {
			return fmt.Errorf("%q was refused", bodies[i])
		}
	}
	return nil
}

// consume starts a consumer on a channel of its own with this prefetch.
func (s *session) consume(queue string, prefetch int) (*amqp.Channel, <-chan amqp.Delivery) {
	s.Helper()
	ch := s.channel(s.conn)
	if err := ch.Qos(prefetch, 0, false); err != nil {
		s.Fatalf("qos: %v", err)
	}
	deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
	if err != nil {
		s.Fatalf("consume %s: %v", queue, err)
	}
	return ch, deliveries
}

// next returns the next delivery.
func (s *session) next(deliveries <-chan amqp.Delivery) amqp.Delivery {
	s.Helper()
	select {
	case d, ok := <-deliveries:
		if !ok {
			s.Fatal("the consumer ended")
		}
		return d
	case <-time.After(timeoutReply):
		s.Fatal("no delivery came")
	}
	panic("not reached")
}

// nextReturn receives a message that comes back.
func (s *session) nextReturn(returns <-chan amqp.Return) amqp.Return {
	s.Helper()
	select {
	case r := <-returns:
		return r
	case <-time.After(timeoutReply):
		s.Fatal("no message came back")
	}
	panic("not reached")
}

// take receives deliveries without settling them and checks bodies and the
// redelivered flag.
func (s *session) take(deliveries <-chan amqp.Delivery, redelivered bool, bodies ...string) []amqp.Delivery {
	s.Helper()
	got := make([]amqp.Delivery, 0, len(bodies))
	for i, want := range bodies {
		d := s.next(deliveries)
		if string(d.Body) != want || d.Redelivered != redelivered {
			s.Fatalf("delivery %d: got %q redelivered=%v, want %q redelivered=%v", i+1, d.Body, d.Redelivered, want, redelivered)
		}
		got = append(got, d)
	}
	return got
}

// get takes one message from the queue; it waits until one is there.
func (s *session) get(queue string) amqp.Delivery {
	s.Helper()
	var got amqp.Delivery
	s.until("a message in "+queue, func() bool {
		d, ok, err := s.ch.Get(queue, false)
		if err != nil {
			s.Fatalf("get from %s: %v", queue, err)
		}
		got = d
		return ok
	})
	return got
}

// drain gets and acks everything in the queue and returns the bodies.
func (s *session) drain(queue string) []string {
	s.Helper()
	bodies := s.drainMany(queue)
	for {
		d, ok, err := s.ch.Get(queue, true)
		if err != nil {
			s.Fatalf("get from %s: %v", queue, err)
		}
		if !ok {
			return bodies
		}
		bodies = append(bodies, string(d.Body))
	}
}

// drainMany takes what is in a long queue by a consumer: each get is a command of its own.
func (s *session) drainMany(queue string) (bodies []string) {
	s.Helper()
	q, err := s.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		s.Fatalf("look at %s: %v", queue, err)
	}
	if q.Messages < 50 {
		return nil
	}
	ch := s.channel(s.conn)
	deliveries, err := ch.Consume(queue, "drain", true, false, false, false, nil)
	if err != nil {
		s.Fatalf("consume %s: %v", queue, err)
	}
	for range q.Messages {
		bodies = append(bodies, string(s.next(deliveries).Body))
	}
	go func() { _ = ch.Cancel("drain", false) }() // closes deliveries
	for d := range deliveries {
		bodies = append(bodies, string(d.Body))
	}
	s.noError("close", ch.Close())
	return bodies
}

// holds waits until the queue has exactly as many ready messages as bodies are
// given, and checks them.
func (s *session) holds(queue string, bodies ...string) {
	s.Helper()
	s.ready(queue, len(bodies))
	if got := s.drain(queue); !slices.Equal(got, bodies) {
		s.Fatalf("%s holds %q, want %q", queue, got, bodies)
	}
}

// ready waits until the queue has n ready messages.
func (s *session) ready(queue string, n int) {
	s.Helper()
	got := -1
	s.until(fmt.Sprintf("%d ready messages in %s", n, queue), func() bool {
		q, err := s.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			s.Fatalf("look at %s: %v", queue, err)
		}
		got = q.Messages
		return got == n
	}, &got)
}

// until waits for a condition outside this process. seen is shown when it does
// not come.
func (s *session) until(what string, done func() bool, seen ...any) {
	s.Helper()
	deadline := time.Now().Add(timeoutReply)
	for !done() {
		if time.Now().After(deadline) {
			var b strings.Builder
			for _, v := range seen {
				if p, ok := v.(*int); ok {
					fmt.Fprintf(&b, ", last seen %d", *p)
				}
			}
			s.Fatalf("waited in vain for %s%s", what, b.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// within does something again until it took less than the limit: what is shown of
// it holds only if nothing was late meanwhile. undo clears up after one that was.
func (s *session) within(limit time.Duration, do, undo func()) {
	s.Helper()
	for end := time.Now().Add(timeoutReply); ; undo() {
		began := time.Now()
		do()
		took := time.Since(began)
		if took < limit {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("it took %v, at most %v would do", took, limit)
		}
	}
}

// noError fails the test on an error.
func (s *session) noError(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// numbered returns n bodies prefix1, prefix2, …
func numbered(prefix string, n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprintf("%s%d", prefix, i+1)
	}
	return bodies
}
