package client

import (
	"context"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Names of attributes, those of the spans that nodes make (ADR 38).
const (
	keySystem      = attribute.Key("messaging.system")
	keyOperation   = attribute.Key("messaging.operation.name")
	keyType        = attribute.Key("messaging.operation.type")
	keyDestination = attribute.Key("messaging.destination.name")
	keyRoutingKey  = attribute.Key("messaging.rabbitmq.destination.routing_key")
	keyMessageID   = attribute.Key("messaging.message.id")
	keyBodySize    = attribute.Key("messaging.message.body.size")
	keyQueue       = attribute.Key("warren.queue")
	keyOutcome     = attribute.Key("warren.outcome")
	keyRedelivered = attribute.Key("warren.redelivered")
	// system is what nodes say in their spans.
	system = "rabbitmq"
	scope  = "github.com/warrenmq/warren/client"
)

// tracer begins spans. Nil traces nothing.
type tracer struct {
	of         trace.Tracer
	propagator propagation.TextMapPropagator
}

func newTracer(cfg Config) *tracer {
	if cfg.TracerProvider == nil {
		return nil
	}
	t := &tracer{cfg.TracerProvider.Tracer(scope), cfg.Propagator}
	if t.propagator == nil {
		t.propagator = propagation.TraceContext{}
	}
	return t
}

// carrier are headers as propagators see them.
type carrier Table

func (c carrier) Get(name string) string {
	switch v := c[name].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func (c carrier) Set(name, value string) { c[name] = value }
func (c carrier) Keys() []string         { return slices.Collect(maps.Keys(c)) }

// span is one that has begun. Nil stands for none.
type span struct{ trace.Span }

// publish begins the span of a message until its result, and returns the message with the span's context in its headers.
func (t *tracer) publish(ctx context.Context, m *Message) (*Message, *span) {
	if t == nil {
		return m, nil
	}
	at := destination(m.Exchange, m.RoutingKey)
	attributes := []attribute.KeyValue{
		keySystem.String(system), keyOperation.String("publish"), keyType.String("send"), keyDestination.String(at),
		keyRoutingKey.String(m.RoutingKey), keyBodySize.Int(len(m.Body)),
	}
	if m.MessageID != "" {
		attributes = append(attributes, keyMessageID.String(m.MessageID))
	}
	ctx, s := t.of.Start(ctx, "publish "+at, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	with := *m
	if with.Headers = maps.Clone(m.Headers); with.Headers == nil {
		with.Headers = Table{}
	}
	t.propagator.Inject(ctx, carrier(with.Headers))
	if len(with.Headers) == 0 {
		with.Headers = m.Headers
	}
	return &with, &span{s}
}

// process begins the span of a delivery that is handled, a child of the one in its headers. The context is for the handler.
func (t *tracer) process(ctx context.Context, d *Delivery) (context.Context, *span) {
	if t == nil {
		return ctx, nil
	}
	ctx, s := t.of.Start(t.propagator.Extract(ctx, carrier(d.Headers)), "process "+d.Queue, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		keySystem.String(system), keyOperation.String("process"), keyType.String("process"), keyQueue.String(d.Queue),
		keyDestination.String(destination(d.Exchange, d.RoutingKey)+":"+d.Queue), keyRoutingKey.String(d.RoutingKey),
		keyBodySize.Int(len(d.Body)), keyRedelivered.Bool(d.Redelivered),
	))
	return ctx, &span{s}
}

// end ends the span with what came of it.
func (s *span) end(outcome string, err error) {
	if s == nil {
		return
	}
	s.SetAttributes(keyOutcome.String(outcome))
	if err != nil {
		s.RecordError(err)
		s.SetStatus(codes.Error, err.Error())
	}
	s.End()
}

// destination names an exchange and a key as the conventions for RabbitMQ do.
func destination(exchange, key string) string {
	switch {
	case exchange == "":
		return key
	case key == "":
		return exchange
	}
	return exchange + ":" + key
}
