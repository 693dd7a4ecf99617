package amqp

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// publisherOf opens a connection in confirm mode that has published once, and one queue.
func publisherOf(t *testing.T, r *rig) *rawClient {
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.ConfirmSelect{}, &wire.QueueDeclare{Queue: "q"})
	want[*wire.ConfirmSelectOk](c, 1)
	want[*wire.QueueDeclareOk](c, 1)
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "first")
	want[*wire.BasicAck](c, 1)
	return c
}

// quiesce runs Quiesce beside the test.
func quiesce(r *rig, limit time.Duration) <-chan int {
	done := make(chan int, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		done <- r.s.Quiesce(ctx, ShutdownOptions{})
	}()
	return done
}

// TestQuiesceWaitsForConfirms: a client that is told to go has the answers to everything that was read of it.
func TestQuiesceWaitsForConfirms(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c, other := publisherOf(t, r), r.open(t)
	other.channel(1)
	r.b.freeze(true)
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "second")
	eventually(t, "second publish", func() bool { return r.s.Stats().Published == 2 })
	done := quiesce(r, patience)
	eventually(t, "quiet", func() bool { return r.s.quiet.Load() != nil })
	time.Sleep(300 * time.Millisecond) // its reader hears of it
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "too late")
	select {
	case n := <-done:
		t.Fatalf("quiet with %d unanswered while the broker is frozen", n)
	case <-time.After(50 * time.Millisecond):
	}
	r.b.freeze(false)
	if n := receive(t, done, "end of Quiesce"); n != 0 {
		t.Fatalf("%d connections without their answers", n)
	}
	other.alive(2) // one that has not published is served
	ended := make(chan error, 1)
	go func() { _, err := r.s.Expel(t.Context(), ShutdownOptions{}); ended <- err }()
	if m := want[*wire.BasicAck](c, 1); m.DeliveryTag != 2 {
		t.Fatalf("%+v", m)
	}
	for _, x := range []*rawClient{c, other} {
		if m := want[*wire.ConnectionClose](x, 0); m.ReplyCode != 320 {
			t.Fatalf("%+v", m)
		}
		x.send(0, &wire.ConnectionCloseOk{})
		x.closed()
	}
	if err := receive(t, ended, "end of Expel"); err != nil {
		t.Fatal(err)
	}
	if n := r.s.Stats().Published; n != 2 {
		t.Errorf("%d messages were read, want 2", n)
	}
	r.s.Resume()
	r.open(t).channel(1) // Expel closes no listener
}

// TestResume: what came while the server was quiet is read afterwards, also of a client that an alarm blocked before.
func TestResume(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := publisherOf(t, r)
	for _, alarm := range []string{"", "low on memory"} {
		r.s.SetBlocked(alarm)
		if alarm != "" {
			want[*wire.ConnectionBlocked](c, 0)
		}
		if n := receive(t, quiesce(r, patience), "end of Quiesce"); n != 0 {
			t.Fatalf("%d connections without their answers", n)
		}
		before := r.s.Stats().Published
		c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "meanwhile")
		time.Sleep(20 * time.Millisecond)
		if n := r.s.Stats().Published; n != before {
			t.Fatal("read while quiet")
		}
		r.s.Resume()
		if alarm != "" {
			time.Sleep(20 * time.Millisecond)
			if n := r.s.Stats().Published; n != before {
				t.Fatal("read while an alarm blocks it")
			}
			r.s.SetBlocked("")
			want[*wire.ConnectionUnblocked](c, 0)
		}
		want[*wire.BasicAck](c, 1)
	}
	c.alive(2)
}

// TestNothingIsDeliveredUnheard: a client whose acks are not read, because it has published and the server is quiet, is sent nothing that it has to
// ack; it would do work that another consumer does again. One that has not published is served on, as is a consumer without acks. What waited
// comes when the server is not quiet any more, in its place, or goes back to the queue unseen.
func TestNothingIsDeliveredUnheard(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c, plain, p := publisherOf(t, r), r.open(t), r.open(t)
	p.channel(1)
	for _, q := range []string{"work", "events", "plain"} {
		p.send(1, &wire.QueueDeclare{Queue: q})
		want[*wire.QueueDeclareOk](p, 1)
	}
	plain.channel(1)
	plain.send(1, &wire.BasicConsume{Queue: "plain", ConsumerTag: "c"})
	want[*wire.BasicConsumeOk](plain, 1)
	for i, m := range []wire.BasicConsume{{Queue: "work", ConsumerTag: "work"}, {Queue: "events", ConsumerTag: "events", NoAck: true}} {
		c.channel(uint16(i + 2))
		c.send(uint16(i+2), &m)
		want[*wire.BasicConsumeOk](c, uint16(i+2))
	}
	if n := receive(t, quiesce(r, patience), "end of Quiesce"); n != 0 {
		t.Fatalf("%d connections without their answers", n)
	}
	work, events := consumerOf(r, "work"), consumerOf(r, "events")
	deliver := func(body string) {
		work.ch.sink.Deliver(work, &broker.Delivery{Body: []byte(body)})
	}
	deliver("1")
	deliver("2")
	events.ch.sink.Deliver(events, &broker.Delivery{Body: []byte("event")})
	other := consumerOf(r, "plain")
	other.ch.sink.Deliver(other, &broker.Delivery{Body: []byte("plain")})
	if _, body := wantContent[*wire.BasicDeliver](plain, 1); string(body) != "plain" {
		t.Errorf("a client that has not published got %q", body)
	}
	if _, body := wantContent[*wire.BasicDeliver](c, 3); string(body) != "event" { // and nothing before it
		t.Errorf("got %q", body)
	}
	r.s.Resume()
	deliver("3")
	for i, body := range []string{"1", "2", "3"} {
		if m, got := wantContent[*wire.BasicDeliver](c, 2); string(got) != body || m.DeliveryTag != uint64(i+1) {
			t.Errorf("got %q with tag %d, want %q with %d", got, m.DeliveryTag, body, i+1)
		}
	}
	c.alive(9)
}

// consumerOf is the queue's only consumer.
func consumerOf(r *rig, queue string) *memConsumer {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	return r.b.queues[queue].consumers[0]
}

// TestQuiesceIsBounded: a client whose publish is not answered, and one that reads nothing, hold nobody up.
func TestQuiesceIsBounded(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := publisherOf(t, r)
	r.b.freeze(true)
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "second")
	eventually(t, "second publish", func() bool { return r.s.Stats().Published == 2 })
	if n := receive(t, quiesce(r, 100*time.Millisecond), "end of Quiesce"); n != 1 {
		t.Errorf("%d connections without their answers", n)
	}
	r.b.freeze(false)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := r.s.Expel(ctx, ShutdownOptions{Waves: 20, Every: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("end with a silent client: %v", err)
	}
}

// TestExpelIsBoundedByNoBroker: a broker that is slow to take back what connections had holds nobody up beyond the end of Expel.
func TestExpelIsBoundedByNoBroker(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(cfg *Config) { cfg.OperationTimeout = 20 * time.Second })
	for range 3 {
		r.open(t).channel(1)
	}
	r.b.mu.Lock()
	r.b.stuck = true
	r.b.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	if _, err := r.s.Expel(ctx, ShutdownOptions{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("end with a stuck broker: %v", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the end took %v", took)
	}
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if n := len(r.b.conns); n != 0 {
		t.Errorf("%d connections are open at the broker", n)
	}
}

// TestListenerIsOpenedAgain: after CloseListeners the server serves another listener.
func TestListenerIsOpenedAgain(t *testing.T) {
	t.Parallel()
	b := newMemBroker(t)
	s, err := New(testConfig(t), b)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- s.Serve(ln) }()
		r := &rig{b: b, s: s, addr: ln.Addr().String()}
		c := r.open(t)
		s.CloseListeners()
		if err := receive(t, served, "end of Serve"); !errors.Is(err, ErrServerClosed) {
			t.Fatal(err)
		}
		c.channel(1) // the connection stays
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _ = s.Shutdown(ctx, ShutdownOptions{}) // the clients do not answer
}

// TestWaves: many connections are ended a part at a time.
func TestWaves(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	const clients, every = waveMin + 10, 5 * time.Second // a starved machine sees the time between the waves
	for range clients {
		r.dial(t)
	}
	open := func() int { return r.s.Stats().Connections }
	ended := make(chan error, 1)
	go func() { _, err := r.s.Expel(t.Context(), ShutdownOptions{Waves: 20, Every: every}); ended <- err }()
	eventually(t, "first wave", func() bool { return open() == clients-waveMin })
	time.Sleep(50 * time.Millisecond)
	if n := open(); n != clients-waveMin {
		t.Errorf("%d connections between two waves", n)
	}
	if err := receive(t, ended, "end of Expel"); err != nil || open() != 0 {
		t.Errorf("%v, %d connections are open", err, open())
	}
}

// TestPublishersAreReadUntilTheirWave: a publisher that is sent away in a later wave has its confirms until then, and before it goes the one
// for what was read last.
func TestPublishersAreReadUntilTheirWave(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	const every = 5 * time.Second // a starved machine sees the time between the waves
	waves := ShutdownOptions{Waves: 20, Every: every, Quiet: patience}
	clients := make([]*rawClient, waveMin+2)
	for i := range clients {
		clients[i] = r.open(t)
		clients[i].channel(1)
		clients[i].send(1, &wire.ConfirmSelect{})
		want[*wire.ConfirmSelectOk](clients[i], 1)
		clients[i].publish(1, wire.BasicPublish{RoutingKey: "nowhere"}, "first")
		want[*wire.BasicAck](clients[i], 1)
	}
	clients[0].send(1, &wire.QueueDeclare{Queue: "q"})
	want[*wire.QueueDeclareOk](clients[0], 1)
	if n := r.s.Quiesce(t.Context(), waves); n != 0 {
		t.Fatalf("%d connections without their answers", n)
	}
	before := r.s.Stats().Published
	for _, c := range clients {
		c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "second")
	}
	eventually(t, "what those of the second wave have published", func() bool { return r.s.Stats().Published == before+2 })
	ended := make(chan int, 1)
	go func() {
		n, err := r.s.Expel(t.Context(), waves)
		if err != nil {
			t.Errorf("end of Expel: %v", err)
		}
		ended <- n
	}()
	var stayed []*rawClient
	for _, c := range clients {
		switch _, m, _ := c.method(); m := m.(type) {
		case *wire.BasicAck:
			stayed = append(stayed, c)
		case *wire.ConnectionClose:
			c.send(0, &wire.ConnectionCloseOk{})
			c.closed()
		default:
			t.Fatalf("%T", m)
		}
	}
	if len(stayed) != 2 {
		t.Fatalf("%d publishers had a confirm after the server was quiet, want 2", len(stayed))
	}
	r.b.freeze(true)
	for _, c := range stayed {
		c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "third")
	}
	eventually(t, "what was published between the waves", func() bool { return r.s.Stats().Published == before+4 })
	eventually(t, "the second wave", func() bool { return restless(r.s.connections()) == 2 })
	r.b.freeze(false)
	for _, c := range stayed {
		if m := want[*wire.BasicAck](c, 1); m.DeliveryTag != 3 {
			t.Errorf("%+v", m)
		}
		want[*wire.ConnectionClose](c, 0)
		c.send(0, &wire.ConnectionCloseOk{})
		c.closed()
	}
	if n := receive(t, ended, "end of Expel"); n != 0 {
		t.Errorf("%d without answers", n)
	}
}
