package broker

import (
	"fmt"
	"slices"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/trace"
)

// tracing has the broker trace to a recorder. Nothing has used it yet.
func tracing(b *Broker) *tracetest.SpanRecorder {
	r := tracetest.NewSpanRecorder()
	b.cfg.Trace = trace.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(r)))
	b.hub.trace = b.cfg.Trace
	return r
}

// inTrace are the properties of a message of trace n.
func inTrace(n int) amqp.RawProperties {
	return properties(func(p *amqp.Properties) {
		p.SetHeaders(amqp.Table{{Name: "traceparent", Value: fmt.Sprintf("00-%032x-00000000000000aa-01", n)}})
	})
}

// wantSpans waits until the spans of trace n that have ended are these, each as "name: outcome".
func (c *client) wantSpans(r *tracetest.SpanRecorder, n int, want ...string) {
	c.t.Helper()
	slices.Sort(want)
	var got []string
	defer func() {
		if c.t.Failed() {
			c.t.Logf("trace %d: %q, want %q", n, got, want)
		}
	}()
	c.await("spans", func() bool {
		got = nil
		for _, s := range r.Ended() {
			if s.SpanContext().TraceID().String() != fmt.Sprintf("%032x", n) {
				continue
			}
			outcome := ""
			for _, a := range s.Attributes() {
				if a.Key == "warren.outcome" {
					outcome = a.Value.AsString()
				}
			}
			got = append(got, s.Name()+": "+outcome)
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// Every way by which a publish and a delivery can end ends their spans.
func TestSpansEnd(t *testing.T) {
	b := newBroker(t)
	r := tracing(b)
	c := dial(t, b)
	c.declare("q", nil)
	c.declare("full", amqp.Table{{Name: "x-max-length", Value: int32(0)}, {Name: "x-overflow", Value: "reject-publish"}})

	if _, routed, err := c.publish("", "nowhere", "", inTrace(1)); routed || err != nil {
		t.Fatal(routed, err)
	}
	c.wantSpans(r, 1, "publish nowhere: unroutable")
	if _, _, err := c.publish("no such", "k", "", inTrace(2)); err == nil {
		t.Fatal("published to an exchange that is not there")
	}
	c.wantSpans(r, 2) // it is refused before it is looked at
	if x := c.put("full", "", inTrace(3)); !x.Refused {
		t.Fatal("not refused")
	}
	c.wantSpans(r, 3, "commit: refused", "publish full: refused")

	const published, committed = "publish q: committed", "commit: committed"
	c.put("q", "got", inTrace(4))
	c.settle(fsm.Ack, c.eventually("q"))
	c.wantSpans(r, 4, published, committed, "deliver q: ack", "settle q: ack")
	c.put("q", "got without ack", inTrace(5))
	d, _, err := c.ch.Get(t.Context(), "q", true)
	if d == nil || err != nil {
		t.Fatal(d, err)
	}
	c.ch.Took(d)
	c.wantSpans(r, 5, published, committed, "deliver q: ack", "settle q: ack")
	c.put("q", "dies without a target", inTrace(6))
	c.settle(fsm.Discard, c.eventually("q"))
	c.wantSpans(r, 6, published, committed, "deliver q: reject", "settle q: reject")

	// The client goes, and another one has it.
	c.put("q", "returned", inTrace(7))
	other := dial(t, b)
	other.eventually("q")
	other.ch.Close(t.Context())
	c.wantSpans(r, 7, published, committed, "deliver q: requeue", "settle q: requeue")
	d = c.eventually("q")

	// A transaction, of publishes and of settlements.
	tx := dial(t, b)
	tx.ch.TxSelect()
	if _, _, err := tx.publish("", "q", "", inTrace(8)); err != nil {
		t.Fatal(err)
	}
	if err := tx.commit(fsm.Ack); err != nil {
		t.Fatal(err)
	}
	c.wantSpans(r, 8, "publish q: taken")
	c.ch.TxSelect()
	if err := c.commit(fsm.Ack, d); err != nil {
		t.Fatal(err)
	}
	c.wantSpans(r, 7, published, committed, "deliver q: requeue", "settle q: requeue", "deliver q: transaction")

	// The queue goes while somebody holds a message of it.
	last := dial(t, b)
	last.put("q", "held", inTrace(9))
	last.eventually("q")
	last.eventually("q")
	if _, err := last.conn.DeleteQueue(t.Context(), "q", false, false); err != nil {
		t.Fatal(err)
	}
	c.wantSpans(r, 9, published, committed, "deliver q: queue ended")
	for _, s := range r.Started() {
		if s.EndTime().IsZero() {
			t.Errorf("%s of %s has not ended", s.Name(), s.SpanContext().TraceID())
		}
	}
}
