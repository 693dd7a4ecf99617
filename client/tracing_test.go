package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/warrenmq/warren/client"
)

// TestTraces shows that what a handler does belongs to the trace that its message was published in, and what the spans say.
func TestTraces(t *testing.T) {
	addrs := addresses()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	spans := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	c, err := client.Dial(ctx, client.Config{Addrs: addrs, User: "guest", Password: "guest", TracerProvider: provider})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { must(c.Close(ctx)) }()
	if _, err := c.DeclareQueue(ctx, client.Queue{Name: "traced", Type: "quorum"}); err != nil {
		t.Fatal(err)
	}
	p, err := c.Publisher(client.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	headers := client.Table{"mine": "stays"}
	outer, root := provider.Tracer("test").Start(ctx, "root")
	if err := p.Publish(outer, &client.Message{RoutingKey: "traced", Headers: headers, MessageID: "m1", Body: []byte("body")}); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(outer, &client.Message{RoutingKey: "traced nowhere", Mandatory: true}); !errors.Is(err, client.ErrUnroutable) {
		t.Fatal(err)
	}
	if err := c.DeclareExchange(ctx, client.Exchange{Name: "traced later", Type: "x-delayed-message", Arguments: client.Table{"x-delayed-type": "fanout"}}); err != nil {
		t.Fatal(err)
	}
	late, err := c.PublishDelayed(outer, &client.Message{Exchange: "traced later", Headers: headers}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if cancelled, err := c.CancelDelayed(ctx, late); !cancelled || err != nil {
		t.Error(cancelled, err)
	}
	root.End()
	if len(headers) != 1 {
		t.Errorf("the caller's headers are %v", headers)
	}
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.Consume(consuming, "traced", client.ConsumerConfig{OnError: client.Requeue}, func(ctx context.Context, d *client.Delivery) error {
		if d.Headers["mine"] != "stays" || d.Headers["traceparent"] == nil {
			t.Errorf("headers %v", d.Headers)
		}
		if got := oteltrace.SpanContextFromContext(ctx).TraceID(); got != root.SpanContext().TraceID() {
			t.Errorf("the handler is in the trace %v, want %v", got, root.SpanContext().TraceID())
		}
		if !d.Redelivered {
			return errors.New("once more")
		}
		stop()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	type told struct {
		name    string
		kind    oteltrace.SpanKind
		outcome string
		status  codes.Code
	}
	var publish oteltrace.SpanID
	var got []told
	for _, s := range spans.Ended() {
		if s.Name() == "root" {
			continue
		}
		outcome := attribute.NewSet(s.Attributes()...)
		v, _ := outcome.Value("warren.outcome")
		got = append(got, told{s.Name(), s.SpanKind(), v.AsString(), s.Status().Code})
		parent := root.SpanContext().SpanID()
		if s.SpanKind() == oteltrace.SpanKindConsumer {
			parent = publish
		} else if publish == (oteltrace.SpanID{}) {
			publish = s.SpanContext().SpanID()
		}
		if s.Parent().SpanID() != parent {
			t.Errorf("the parent of %q is %v, want %v", s.Name(), s.Parent().SpanID(), parent)
		}
	}
	want := []told{
		{"publish traced", oteltrace.SpanKindProducer, "confirmed", codes.Unset},
		{"publish traced nowhere", oteltrace.SpanKindProducer, "failed", codes.Error},
		{"publish traced later", oteltrace.SpanKindProducer, "confirmed", codes.Unset},
		{"process traced", oteltrace.SpanKindConsumer, "requeue", codes.Error},
		{"process traced", oteltrace.SpanKindConsumer, "ack", codes.Unset},
	}
	if len(got) != len(want) {
		t.Fatalf("spans %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("span %d is %v, want %v", i, got[i], want[i])
		}
	}
}
