package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/warrenmq/warren/metrics"
	"github.com/warrenmq/warren/trace"
)

// timeoutTraces bounds the sending of the last spans when the node ends.
const timeoutTraces = 2 * time.Second

// collectorBackoff is between attempts to reach a collector that is away: gRPC's own grows to two minutes.
var collectorBackoff = backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}

// spanCounts are what became of spans. Those that ended and are neither exported nor failed wait, or were dropped because too many waited.
type spanCounts struct{ ended, exported, failed atomic.Uint64 }

// wantsTraces tells whether traces are to be sent anywhere: by the node's own setting, or by OpenTelemetry's variables.
func wantsTraces(endpoint string, lookup func(string) string) bool {
	if strings.EqualFold(lookup("OTEL_SDK_DISABLED"), "true") || lookup("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return endpoint != "" || lookup("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || lookup("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// openTraces begins to trace messages, if that is wanted. A collector that is away holds nothing up: spans that do not fit into the queue before it are
// dropped, and counted.
func (n *running) openTraces(ctx context.Context) error {
	if !wantsTraces(n.cfg.OTLPEndpoint, os.Getenv) {
		return nil
	}
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 5 * time.Second, MaxElapsedTime: 20 * time.Second}),
		otlptracegrpc.WithDialOption(grpc.WithConnectParams(grpc.ConnectParams{Backoff: collectorBackoff, MinConnectTimeout: 5 * time.Second})),
	}
	if n.cfg.OTLPEndpoint != "" {
		options = append(options, otlptracegrpc.WithEndpointURL(n.cfg.OTLPEndpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, options...) // connects in the background
	if err != nil {
		return err
	}
	of, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "warren"), attribute.String("service.instance.id", n.cfg.NodeID), attribute.String("service.version", buildVersion()),
	), resource.WithFromEnv())
	if err != nil {
		n.log.Warn("OTEL_RESOURCE_ATTRIBUTES is not read in full", "err", err)
	}
	otel.SetErrorHandler(&traceErrors{log: n.log})
	provider := sdk.NewTracerProvider(
		sdk.WithResource(of),
		// By the trace's id, so that all nodes record the same traces.
		sdk.WithSampler(sdk.ParentBased(sdk.NeverSample(), sdk.WithRemoteParentSampled(sdk.TraceIDRatioBased(n.cfg.TraceRatio)))),
		sdk.WithSpanProcessor(&n.spans.processor),
		sdk.WithBatcher(countedExporter{exporter, &n.spans.counts}),
	)
	n.spans.tracer = trace.New(provider)
	n.onClose("traces", func() error {
		stop, cancel := context.WithTimeout(context.Background(), timeoutTraces)
		defer cancel()
		if err := provider.Shutdown(stop); err != nil {
			n.log.Warn("the last spans were not sent", "err", err)
		}
		return nil
	})
	n.log.Info("traces of messages are sent", "to", n.cfg.OTLPEndpoint, "ratio", n.cfg.TraceRatio)
	return nil
}

// spans are the node's traces; tracer is nil if there are none.
type spans struct {
	tracer    *trace.Tracer
	counts    spanCounts
	processor countingProcessor
}

func newSpans() *spans {
	s := &spans{}
	s.processor.counts = &s.counts
	return s
}

// figures are what metrics show, nothing without traces.
func (s *spans) figures() metrics.Spans {
	return metrics.Spans{On: s.tracer != nil, Ended: s.counts.ended.Load(), Exported: s.counts.exported.Load(), Failed: s.counts.failed.Load()}
}

// countingProcessor counts spans that end.
type countingProcessor struct{ counts *spanCounts }

// OnStart implements sdk.SpanProcessor.
func (*countingProcessor) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements sdk.SpanProcessor.
func (p *countingProcessor) OnEnd(sdk.ReadOnlySpan) { p.counts.ended.Add(1) }

// Shutdown implements sdk.SpanProcessor.
func (*countingProcessor) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdk.SpanProcessor.
func (*countingProcessor) ForceFlush(context.Context) error { return nil }

// countedExporter counts what is sent.
type countedExporter struct {
	sdk.SpanExporter
	counts *spanCounts
}

// ExportSpans implements sdk.SpanExporter.
func (e countedExporter) ExportSpans(ctx context.Context, list []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, list)
	if err != nil {
		e.counts.failed.Add(uint64(len(list)))
	} else {
		e.counts.exported.Add(uint64(len(list)))
	}
	return err
}

// traceErrorsEvery is the least time between two lines of the log about them.
const traceErrorsEvery = time.Minute

// traceErrors logs what goes wrong with sending, now and then.
type traceErrors struct {
	log  *slog.Logger
	last atomic.Int64 // ns since 1970
}

// Handle implements otel.ErrorHandler.
func (h *traceErrors) Handle(err error) {
	now, last := time.Now().UnixNano(), h.last.Load()
	if time.Duration(now-last) >= traceErrorsEvery && h.last.CompareAndSwap(last, now) {
		h.log.Warn("traces are not sent", "err", err)
	}
}
