// Package trace continues the traces that messages carry in their headers, in the form of W3C (traceparent, tracestate). It begins none of its own and
// adds nothing to messages: a message without a context, or with one whose sampled flag is not set, is not traced. See docs/adr/0038-traces.md.
//
// A nil *Tracer traces nothing, at the cost of looking at it. Where spans go is the business of the TracerProvider, which the program makes.
package trace

import (
	"bytes"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/warrenmq/warren/amqp"
)

// Names of attributes: OpenTelemetry's conventions for messaging, and Warren's own.
const (
	keySystem      = attribute.Key("messaging.system")
	keyOperation   = attribute.Key("messaging.operation.name")
	keyType        = attribute.Key("messaging.operation.type")
	keyDestination = attribute.Key("messaging.destination.name")
	keyRoutingKey  = attribute.Key("messaging.rabbitmq.destination.routing_key")
	keyMessageID   = attribute.Key("messaging.message.id")
	keyBodySize    = attribute.Key("messaging.message.body.size")
	keyVhost       = attribute.Key("warren.vhost")
	keyQueue       = attribute.Key("warren.queue")
	keyQueues      = attribute.Key("warren.queues")
	keyOutcome     = attribute.Key("warren.outcome")
	keyReason      = attribute.Key("warren.dead_letter.reason")
	keySource      = attribute.Key("warren.source.queue")
	keySent        = attribute.Key("warren.transfer.sent")
	keyRedelivered = attribute.Key("warren.redelivered")
)

const (
	headerParent = "traceparent"
	// system is how clients of RabbitMQ call what they talk to: the spans on both sides belong together.
	system = "rabbitmq"
	scope  = "github.com/warrenmq/warren"
)

// Tracer begins spans. It is safe for concurrent use.
type Tracer struct{ of otel.Tracer }

// New returns a Tracer whose spans go to a provider.
func New(p otel.TracerProvider) *Tracer { return &Tracer{p.Tracer(scope)} }

// Parent is what a span is a child of.
type Parent = otel.SpanContext

// carrier reads a message's headers.
type carrier struct{ get func(name string) (any, bool) }

func (c carrier) Get(name string) string {
	switch v, _ := c.get(name); v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

func (carrier) Set(string, string) {}
func (carrier) Keys() []string     { return nil }

// Of returns the context that headers carry; ok is false if there is none, it is malformed, or its trace is not sampled.
func (t *Tracer) Of(headers amqp.Table) (p Parent, ok bool) {
	if t == nil || len(headers) == 0 {
		return p, false
	}
	if _, has := headers.Get(headerParent); !has {
		return p, false
	}
	return extract(carrier{headers.Get})
}

// OfProperties is Of for the headers in a message's properties.
func (t *Tracer) OfProperties(raw amqp.RawProperties) (p Parent, ok bool) {
	// The search for the name is much cheaper than stepping over the headers.
	if t == nil || !bytes.Contains(raw, []byte(headerParent)) {
		return p, false
	}
	return extract(carrier{raw.Header})
}

func extract(c carrier) (p Parent, ok bool) {
	p = otel.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), c))
	return p, p.IsValid() && p.IsSampled()
}

// Span is one that is recorded. Nil stands for none: its methods do nothing.
type Span struct {
	span   otel.Span
	tracer *Tracer
}

// start begins a span at a time, zero for now; nil if it is not recorded.
func (t *Tracer) start(p Parent, kind otel.SpanKind, operation, where string, begun time.Time, attributes ...attribute.KeyValue) *Span {
	readable(attributes)
	options := []otel.SpanStartOption{
		otel.WithSpanKind(kind), otel.WithAttributes(keySystem.String(system), keyOperation.String(operation)), otel.WithAttributes(attributes...),
	}
	if !begun.IsZero() {
		options = append(options, otel.WithTimestamp(begun))
	}
	name := operation
	if where != "" {
		name += " " + text(where)
	}
	_, s := t.of.Start(otel.ContextWithSpanContext(context.Background(), p), name, options...)
	if !s.IsRecording() {
		s.End()
		return nil
	}
	return &Span{s, t}
}

// text replaces what is no UTF-8: names and keys of AMQP may be any bytes, a message of OTLP may not have them, and one in a span would keep hundreds of
// others from being sent.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// readable does the same to the values of attributes.
func readable(attributes []attribute.KeyValue) {
	for i, a := range attributes {
		switch a.Value.Type() {
		case attribute.STRING:
			if s := a.Value.AsString(); !utf8.ValidString(s) {
				attributes[i].Value = attribute.StringValue(text(s))
			}
		case attribute.STRINGSLICE:
			list := a.Value.AsStringSlice() // a copy
			for j := range list {
				list[j] = text(list[j])
			}
			attributes[i].Value = attribute.StringSliceValue(list)
		}
	}
}

// Context is what the span's children are children of.
func (s *Span) Context() Parent {
	if s == nil {
		return Parent{}
	}
	return s.span.SpanContext()
}

// End ends the span with what came of it. failed marks it as an error.
func (s *Span) End(outcome string, failed bool) {
	if s == nil {
		return
	}
	if outcome != "" {
		s.span.SetAttributes(keyOutcome.String(outcome))
	}
	if failed {
		s.span.SetStatus(codes.Error, outcome)
	}
	s.span.End()
}

// Publish begins the span of a message that a client publishes, from its receipt to the verdict of all queues.
func (t *Tracer) Publish(p Parent, vhost, exchange, key string, props amqp.RawProperties, bodyBytes int) *Span {
	at := destination(exchange, key)
	attributes := []attribute.KeyValue{
		keyType.String("send"), keyDestination.String(at), keyRoutingKey.String(key), keyVhost.String(vhost), keyBodySize.Int(bodyBytes),
	}
	if id, ok := props.MessageID(); ok {
		attributes = append(attributes, keyMessageID.String(id))
	}
	return t.start(p, otel.SpanKindServer, "publish", at, time.Time{}, attributes...)
}

// Commit begins the span of what queues' logs do with a publish, a child of its span.
func (s *Span) Commit(queues []string) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.start(s.Context(), otel.SpanKindInternal, "commit", "", time.Time{}, keyQueues.StringSlice(queues))
}

// Deliver begins the span of a message that a client has or is about to have, until it is settled.
func (t *Tracer) Deliver(p Parent, vhost, queue, exchange, key string, redelivered bool, bodyBytes int) *Span {
	return t.start(p, otel.SpanKindInternal, "deliver", queue, time.Time{}, keyDestination.String(destination(exchange, key)+":"+queue), keyRoutingKey.String(key),
		keyVhost.String(vhost), keyQueue.String(queue), keyRedelivered.Bool(redelivered), keyBodySize.Int(bodyBytes))
}

// Settle begins the span of a settlement, until the queue's log has it: a child of the delivery's.
func (s *Span) Settle(queue, how string) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.start(s.Context(), otel.SpanKindServer, "settle", queue, time.Time{}, keyType.String("settle"), keyQueue.String(queue), keyOutcome.String(how))
}

// Hop is a message's way from one queue to another.
type Hop struct {
	Kind                  string // "dead-letter", "redrive" or "forward"
	Vhost, Source, Target string
	Exchange, Key         string // by which it was routed
	Reason                string
	Begun                 time.Time // when it died
}

// Move begins the span of a hop, from the death to the commit in the target.
func (t *Tracer) Move(p Parent, h *Hop) *Span {
	attributes := []attribute.KeyValue{
		keyDestination.String(destination(h.Exchange, h.Key) + ":" + h.Target), keyRoutingKey.String(h.Key), keyVhost.String(h.Vhost), keySource.String(h.Source), keyQueue.String(h.Target),
	}
	if h.Reason != "" {
		attributes = append(attributes, keyReason.String(h.Reason))
	}
	return t.start(p, otel.SpanKindInternal, h.Kind, h.Source, h.Begun, attributes...)
}

// Sent notes how often a hop's message was sent.
func (s *Span) Sent(times int) {
	if s != nil {
		s.span.SetAttributes(keySent.Int(times))
	}
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
