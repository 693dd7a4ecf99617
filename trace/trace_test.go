package trace

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/warrenmq/warren/amqp"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// record returns a Tracer and what it has recorded.
func record() (*Tracer, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	return New(sdk.NewTracerProvider(sdk.WithSpanProcessor(r))), r
}

func properties(t testing.TB, headers amqp.Table) amqp.RawProperties {
	t.Helper()
	var p amqp.Properties
	p.SetHeaders(headers)
	p.SetMessageID("id-1")
	return p.AppendTo(nil)
}

// A context is taken from headers of either form of a string, and only if its trace is sampled.
func TestOf(t *testing.T) {
	tracer, _ := record()
	for name, tc := range map[string]struct {
		headers amqp.Table
		ok      bool
	}{
		"none":           {nil, false},
		"others":         {amqp.Table{{Name: "x", Value: "traceparent"}}, false},
		"sampled":        {amqp.Table{{Name: "a", Value: int32(1)}, {Name: "traceparent", Value: sampled}}, true},
		"bytes":          {amqp.Table{{Name: "traceparent", Value: []byte(sampled)}}, true},
		"not sampled":    {amqp.Table{{Name: "traceparent", Value: unsampled}}, false},
		"a number":       {amqp.Table{{Name: "traceparent", Value: int64(7)}}, false},
		"a table":        {amqp.Table{{Name: "traceparent", Value: amqp.Table{{Name: "traceparent", Value: sampled}}}}, false},
		"too short":      {amqp.Table{{Name: "traceparent", Value: sampled[:54]}}, false},
		"too long":       {amqp.Table{{Name: "traceparent", Value: strings.Repeat(sampled, 1000)}}, false},
		"of zeroes":      {amqp.Table{{Name: "traceparent", Value: "00-00000000000000000000000000000000-b7ad6b7169203331-01"}}, false},
		"with state":     {amqp.Table{{Name: "traceparent", Value: sampled}, {Name: "tracestate", Value: "a=b"}}, true},
		"with bad state": {amqp.Table{{Name: "traceparent", Value: sampled}, {Name: "tracestate", Value: "==="}}, true},
		"in a table":     {amqp.Table{{Name: "x", Value: amqp.Table{{Name: "traceparent", Value: sampled}}}}, false},
	} {
		p, ok := tracer.Of(tc.headers)
		q, of := tracer.OfProperties(properties(t, tc.headers))
		if ok != tc.ok || of != tc.ok || ok && (p.TraceID() != q.TraceID() || p.SpanID().String() != "b7ad6b7169203331" || !p.IsRemote()) {
			t.Errorf("%s: %v %v, %v %v, want %v", name, p, ok, q, of, tc.ok)
		}
		if name == "with state" && p.TraceState().Get("a") != "b" {
			t.Errorf("the state is %q", p.TraceState())
		}
	}
	if _, ok := (*Tracer)(nil).Of(amqp.Table{{Name: "traceparent", Value: sampled}}); ok {
		t.Error("no tracer traces")
	}
}

// attributesOf are a span's, as text.
func attributesOf(s sdk.ReadOnlySpan) map[attribute.Key]string {
	m := map[attribute.Key]string{}
	for _, a := range s.Attributes() {
		m[a.Key] = a.Value.String()
	}
	return m
}

// The spans of a message's life have the parents, kinds, times and attributes that the ADR names.
func TestSpans(t *testing.T) {
	tracer, recorder := record()
	parent, _ := tracer.Of(amqp.Table{{Name: "traceparent", Value: sampled}})
	publish := tracer.Publish(parent, "/", "orders", "created", properties(t, nil), 5)
	commit := publish.Commit([]string{"a", "b"})
	commit.End("committed", false)
	publish.End("refused", true)
	deliver := tracer.Deliver(parent, "/", "a", "orders", "created", true, 5)
	settle := deliver.Settle("a", "reject")
	deliver.End("reject", false)
	settle.End("", false)
	died := time.UnixMilli(1_700_000_000_000)
	hop := tracer.Move(parent, &Hop{Kind: "dead-letter", Vhost: "/", Source: "a", Target: "dead", Key: "k", Reason: "rejected", Begun: died})
	hop.Sent(2)
	hop.End("committed", false)
	spans := recorder.Ended()
	if len(spans) != 5 {
		t.Fatalf("%d spans", len(spans))
	}
	for i, want := range []struct {
		name       string
		kind       otel.SpanKind
		parent     otel.SpanID
		attributes map[attribute.Key]string
	}{
		{"commit", otel.SpanKindInternal, publish.Context().SpanID(), map[attribute.Key]string{"warren.queues": `["a","b"]`, "warren.outcome": "committed"}},
		{"publish orders:created", otel.SpanKindServer, parent.SpanID(), map[attribute.Key]string{
			"messaging.system": "rabbitmq", "messaging.operation.name": "publish", "messaging.operation.type": "send", "messaging.destination.name": "orders:created",
			"messaging.rabbitmq.destination.routing_key": "created", "messaging.message.id": "id-1", "messaging.message.body.size": "5", "warren.vhost": "/",
		}},
		{"deliver a", otel.SpanKindInternal, parent.SpanID(), map[attribute.Key]string{"messaging.destination.name": "orders:created:a", "warren.redelivered": "true", "warren.outcome": "reject"}},
		{"settle a", otel.SpanKindServer, deliver.Context().SpanID(), map[attribute.Key]string{"messaging.operation.type": "settle", "warren.outcome": "reject"}},
		{"dead-letter a", otel.SpanKindInternal, parent.SpanID(), map[attribute.Key]string{
			"messaging.destination.name": "k:dead", "warren.dead_letter.reason": "rejected", "warren.source.queue": "a", "warren.queue": "dead", "warren.transfer.sent": "2",
		}},
	} {
		s := spans[i]
		if s.Name() != want.name || s.SpanKind() != want.kind || s.Parent().SpanID() != want.parent || s.SpanContext().TraceID() != parent.TraceID() {
			t.Errorf("span %d is %s of kind %v below %v", i, s.Name(), s.SpanKind(), s.Parent())
		}
		got := attributesOf(s)
		for key, value := range want.attributes {
			if got[key] != value {
				t.Errorf("%s: %s is %q, want %q", want.name, key, got[key], value)
			}
		}
	}
	if !spans[4].StartTime().Equal(died) {
		t.Errorf("the hop began at %v", spans[4].StartTime())
	}
	if spans[1].Status().Description != "refused" {
		t.Errorf("a refused publish has the status %v", spans[1].Status())
	}
}

// Names and keys may be any bytes, what a span has of them is text: the form in which spans are sent takes nothing else, and refuses all that go with them.
func TestBytesBecomeText(t *testing.T) {
	tracer, recorder := record()
	parent, _ := tracer.Of(amqp.Table{{Name: "traceparent", Value: sampled}})
	var props amqp.Properties
	props.SetMessageID("id\xff")
	publish := tracer.Publish(parent, "v\xff", "x\xff", "k\xff", props.AppendTo(nil), 5)
	publish.Commit([]string{"a\xff", "b"}).End("committed", false)
	publish.End("committed", false)
	tracer.Deliver(parent, "v\xff", "q\xff", "x\xff", "k\xff", true, 5).Settle("q\xff", "ack").End("", false)
	tracer.Move(parent, &Hop{Kind: "dead-letter", Vhost: "v\xff", Source: "a\xff", Target: "d\xff", Key: "k\xff", Reason: "rejected"}).End("committed", false)
	for _, s := range recorder.Started() {
		if !utf8.ValidString(s.Name()) {
			t.Errorf("the name %q is no text", s.Name())
		}
		for _, a := range s.Attributes() {
			for _, v := range append(a.Value.AsStringSlice(), a.Value.AsString()) {
				if !utf8.ValidString(v) {
					t.Errorf("%s: %s %q is no text", s.Name(), a.Key, v)
				}
			}
		}
		if got := attributesOf(s)[keyRoutingKey]; got != "" && got != "k\uFFFD" {
			t.Errorf("the key is %q", got)
		}
	}
}

// What the provider does not sample leaves nothing to be kept, and nothing to be ended.
func TestNotSampled(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := New(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder), sdk.WithSampler(sdk.ParentBased(sdk.NeverSample(), sdk.WithRemoteParentSampled(sdk.TraceIDRatioBased(0))))))
	parent, ok := tracer.Of(amqp.Table{{Name: "traceparent", Value: sampled}})
	span := tracer.Publish(parent, "/", "", "q", nil, 0)
	if !ok || span != nil || len(recorder.Started()) > 0 {
		t.Errorf("%v %v %d", ok, span, len(recorder.Started()))
	}
	span.Commit(nil).End("", true) // nil takes it
	span.Settle("q", "ack").Sent(1)
	if span.Context().IsValid() {
		t.Error("no span has a context")
	}
}

func FuzzOf(f *testing.F) {
	f.Add(sampled, "a=b")
	f.Add(unsampled, "")
	f.Add("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", ",,=")
	tracer, _ := record()
	f.Fuzz(func(t *testing.T, parent, state string) {
		headers := amqp.Table{{Name: "traceparent", Value: parent}, {Name: "tracestate", Value: []byte(state)}}
		p, ok := tracer.Of(headers)
		q, of := tracer.OfProperties(properties(t, headers))
		if ok != of || !p.Equal(q) {
			t.Fatalf("%v %v, but in properties %v %v", p, ok, q, of)
		}
		if ok && (!p.IsSampled() || !p.TraceID().IsValid() || !p.SpanID().IsValid()) {
			t.Fatalf("%v is taken", p)
		}
	})
}

// BenchmarkOff is what a message costs that is not traced, by a node that does not trace and by one that does.
func BenchmarkOff(b *testing.B) {
	raw := properties(b, amqp.Table{{Name: "x-first", Value: "one"}, {Name: "x-second", Value: int64(2)}})
	headers := amqp.Table{{Name: "x-first", Value: "one"}, {Name: "x-second", Value: int64(2)}}
	on, _ := record()
	for name, tracer := range map[string]*Tracer{"off": nil, "on": on} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := tracer.Of(headers); ok {
					b.Fatal()
				}
				if _, ok := tracer.OfProperties(raw); ok {
					b.Fatal()
				}
			}
		})
	}
}

// BenchmarkOn is what the spans of a message's life cost, without sending them.
func BenchmarkOn(b *testing.B) {
	tracer := New(sdk.NewTracerProvider())
	raw := properties(b, amqp.Table{{Name: "traceparent", Value: sampled}})
	b.ReportAllocs()
	for b.Loop() {
		parent, _ := tracer.OfProperties(raw)
		publish := tracer.Publish(parent, "/", "orders", "created", raw, 1024)
		publish.Commit([]string{"a"}).End("committed", false)
		publish.End("committed", false)
		deliver := tracer.Deliver(parent, "/", "a", "orders", "created", false, 1024)
		settle := deliver.Settle("a", "ack")
		deliver.End("ack", false)
		settle.End("", false)
	}
}
