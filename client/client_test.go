package client

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

func TestConfig(t *testing.T) {
	good := Config{Addrs: []string{"a"}, User: "u"}
	for name, change := range map[string]func(*Config){
		"no address":     func(c *Config) { c.Addrs = nil },
		"two logins":     func(c *Config) { c.Token = func(context.Context) (string, error) { return "", nil } },
		"no login":       func(c *Config) { c.User = "" },
		"no certificate": func(c *Config) { c.User, c.TLS = "", &tls.Config{} },
		"backoff":        func(c *Config) { c.BackoffMin, c.BackoffMax = 2, 1 },
		"negative":       func(c *Config) { c.KeepAlive = -1 },
		"size":           func(c *Config) { c.MessageBytesMax = -1 },
		"vhost":          func(c *Config) { c.VHost = "\xff" },
	} {
		cfg := good
		change(&cfg)
		if c, err := Dial(t.Context(), cfg); err == nil {
			t.Errorf("%s: taken", name)
			closeClient(t, c)
		}
	}
	if err := good.validate(); err != nil || good.KeepAlive != keepAlive || good.Logger == nil {
		t.Errorf("%v: %+v", err, good)
	}
}

// TestDial: a login that is refused ends the search for a node, a node that is not there does not.
func TestDial(t *testing.T) {
	f := startFake(t)
	away := Config{Addrs: []string{"127.0.0.1:1"}, User: "u", BackoffMin: time.Millisecond}
	if _, err := Dial(t.Context(), away); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	away.Addrs = append(away.Addrs, f.addr)
	c, err := Dial(t.Context(), away)
	if err != nil {
		t.Fatal(err)
	}
	closeClient(t, c)
	if _, err := c.Publisher(PublisherConfig{}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := c.Consume(t.Context(), "q", ConsumerConfig{}, func(context.Context, *Delivery) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if _, err := c.DeclareQueue(t.Context(), Queue{}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	noToken := errors.New("the issuer is away")
	if _, err := Dial(t.Context(), Config{Addrs: []string{f.addr}, Token: func(context.Context) (string, error) { return "", noToken }}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	f.publish = append(f.publish, func(publishSide) error { return refusal(codes.Unauthenticated, "LOGIN_REFUSED") })
	if _, err := Dial(t.Context(), Config{Addrs: []string{f.addr}, User: "u"}); !errors.Is(err, ErrLoginRefused) {
		t.Errorf("got %v", err)
	}
}

// TestTextsThatCannotBeSent: what has a text that is not UTF-8 where the API has no bytes for it is invalid, and not tried again and again.
func TestTextsThatCannotBeSent(t *testing.T) {
	f := startFake(t)
	f.queue = func() error { return nil }
	c := dialFake(t, f)
	const bad = "q\xff"
	handler := func(context.Context, *Delivery) error { return nil }
	for name, do := range map[string]func() error{
		"queue":   func() error { return c.Consume(t.Context(), bad, ConsumerConfig{}, handler) },
		"tag":     func() error { return c.Consume(t.Context(), "q", ConsumerConfig{Tag: bad}, handler) },
		"declare": func() error { return c.Consume(t.Context(), "", ConsumerConfig{Declare: &Queue{Name: bad}}, handler) },
		"binding": func() error {
			return c.Consume(t.Context(), "", ConsumerConfig{Declare: &Queue{}, Bindings: []Binding{{Source: "x", RoutingKey: bad}}}, handler)
		},
		"declaration": func() error { _, err := c.DeclareQueue(t.Context(), Queue{Name: bad}); return err },
		"get":         func() error { _, err := c.Get(t.Context(), bad, 1, Ack); return err },
		"redrive":     func() error { _, err := c.Redrive(t.Context(), bad, RedriveConfig{}); return err },
	} {
		failed := make(chan error, 1)
		go func() { failed <- do() }()
		if err := wait(t, failed); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCallsAgain: calls that may be made twice are, at another node.
func TestCallsAgain(t *testing.T) {
	first, second := startFake(t), startFake(t)
	var calls atomic.Int32
	first.queue = func() error {
		calls.Add(1)
		return refusal(codes.Unavailable, "UNAVAILABLE")
	}
	second.queue = func() error { return nil }
	c := dialFake(t, first, second)
	if q, err := c.DeclareQueue(t.Context(), Queue{}); err != nil || q.Name != "q" || calls.Load() != 1 {
		t.Errorf("%+v, %v after %d calls", q, err, calls.Load())
	}
	second.queue = first.queue
	if _, err := c.DeclareQueue(t.Context(), Queue{}); !errors.Is(err, ErrUnavailable) || calls.Load() != 1+callTries {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
	second.queue = func() error { return refusal(codes.FailedPrecondition, "PRECONDITION_FAILED") }
	first.queue = second.queue
	if _, err := c.DeclareQueue(t.Context(), Queue{}); !errors.Is(err, ErrPreconditionFailed) {
		t.Error(err)
	}
	// Calls by the connection are made once, and the next one goes elsewhere.
	at := c.Addrs()[0]
	if _, err := warrenv1.NewTopologyServiceClient(c.Conn()).Bind(t.Context(), &warrenv1.BindRequest{}); err == nil || c.Addrs()[0] != at {
		t.Errorf("%v, at %s", err, c.Addrs()[0])
	}
	first.queue = func() error { return refusal(codes.Unavailable, "UNAVAILABLE") }
	second.queue = first.queue
	if _, err := warrenv1.NewTopologyServiceClient(c.Conn()).DeclareQueue(t.Context(), &warrenv1.DeclareQueueRequest{}); err == nil || c.Addrs()[0] == at {
		t.Errorf("%v, at %s", err, c.Addrs()[0])
	}
}
