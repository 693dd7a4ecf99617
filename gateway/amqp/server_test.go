package amqp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server over a broker in memory.
type rig struct {
	b    *memBroker
	s    *Server
	addr string
}

// patience is for what comes at once on a machine that is not starved.
const patience = 30 * time.Second

func testConfig(tb testing.TB) Config {
	cfg := Default()
	cfg.AuthFailureDelay = 10 * time.Millisecond
	cfg.CloseTimeout = 2 * time.Second
	cfg.HandshakeTimeout = patience
	cfg.Logger = slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg
}

func startServer(tb testing.TB, edit ...func(*Config)) *rig {
	tb.Helper()
	cfg := testConfig(tb)
	for _, e := range edit {
		e(&cfg)
	}
	b := newMemBroker(tb)
	s, err := New(cfg, b)
	if err != nil {
		tb.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := s.Shutdown(ctx, ShutdownOptions{}); err != nil {
			tb.Errorf("shutdown: %v", err)
		}
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			tb.Errorf("serve: %v", err)
		}
	})
	return &rig{b: b, s: s, addr: ln.Addr().String()}
}

func (r *rig) url() string { return "amqp://guest:guest@" + r.addr + "/" }

func (r *rig) dial(tb testing.TB) *amqp091.Connection {
	tb.Helper()
	c, err := amqp091.Dial(r.url())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (r *rig) channel(tb testing.TB) *amqp091.Channel {
	tb.Helper()
	ch, err := r.dial(tb).Channel()
	if err != nil {
		tb.Fatal(err)
	}
	return ch
}

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func receive[T any](tb testing.TB, from <-chan T, what string) T {
	tb.Helper()
	select {
	case v, ok := <-from:
		if !ok {
			tb.Fatalf("%s: channel closed", what)
		}
		return v
	case <-time.After(patience):
		tb.Fatalf("timed out waiting for %s", what)
		panic("unreachable")
	}
}

func TestPublishConsumeConfirm(t *testing.T) {
	r := startServer(t)
	ch := r.channel(t)
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirms := ch.NotifyPublish(make(chan amqp091.Confirmation, 100))
	const n = 100
	for i := range n {
		err := ch.PublishWithContext(t.Context(), "", q.Name, true, false, amqp091.Publishing{
			ContentType: "text/plain", Headers: amqp091.Table{"i": int32(i)}, Body: fmt.Appendf(nil, "message %d", i),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		if c := receive(t, confirms, "confirm"); !c.Ack || c.DeliveryTag != uint64(i+1) {
			t.Fatalf("confirm %d: %+v", i, c)
		}
	}
	if err := ch.Qos(10, 0, false); err != nil {
		t.Fatal(err)
	}
	ds, err := ch.Consume(q.Name, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		d := receive(t, ds, "delivery")
		if want := fmt.Sprintf("message %d", i); string(d.Body) != want || d.Headers["i"] != int32(i) || d.DeliveryTag != uint64(i+1) {
			t.Fatalf("delivery %d: %+v", i, d)
		}
		if i%3 == 0 || i == n-1 {
			if err := d.Ack(true); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "acks", func() bool { ready, unacked := r.b.counts(q.Name); return ready+unacked == 0 })
}
