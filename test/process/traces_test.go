package process

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/warrenmq/warren/test/cluster"
)

// collected is a collector of traces: a real OTLP server that keeps what it gets.
type collected struct {
	collector.UnimplementedTraceServiceServer
	addr string

	mu    sync.Mutex
	spans []span
}

// span is one that came, with the node that sent it.
type span struct {
	*otlp.Span
	node string
}

func (c *collected) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.ResourceSpans {
		node := ""
		for _, a := range r.Resource.Attributes {
			if a.Key == "service.instance.id" {
				node = a.Value.GetStringValue()
			}
		}
		for _, s := range r.ScopeSpans {
			for _, one := range s.Spans {
				c.spans = append(c.spans, span{one, node})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// serve listens, at a free port or where the collector was before, until the test or the returned function ends it.
func (c *collected) serve(t *testing.T) (stop func()) {
	t.Helper()
	if c.addr == "" {
		ports, err := cluster.FreePorts(1) // below those of outgoing connections, so that none takes it
		if err != nil {
			t.Fatal(err)
		}
		c.addr = fmt.Sprint("127.0.0.1:", ports[0])
	}
	ln, err := net.Listen("tcp", c.addr)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(ln) }() // ends with Stop
	t.Cleanup(server.Stop)
	return server.Stop
}

// of are the spans of a trace, in the order in which they began.
func (c *collected) of(trace string) (list []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if hex.EncodeToString(s.TraceId) == trace {
			list = append(list, s)
		}
	}
	slices.SortStableFunc(list, func(a, b span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return list
}

func (s span) get(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// producerSpan is what the client that publishes says it is.
const producerSpan = "b7ad6b7169203331"

func traced(n int, flags string) (trace string, headers amqp.Table) {
	trace = fmt.Sprintf("%032x", 0xabcdef0000+n)
	return trace, amqp.Table{"traceparent": "00-" + trace + "-" + producerSpan + "-" + flags, "tracestate": "shop=1"}
}

// kinds counts spans by name and what came of them.
func kinds(list []span) map[string]int {
	n := map[string]int{}
	for _, s := range list {
		n[s.Name+": "+s.get("warren.outcome")]++
	}
	return n
}

// tracedCluster is three nodes that trace to c.
func tracedCluster(t *testing.T, c *collected) *cluster.Cluster {
	t.Helper()
	nodes := newCluster(t, 3, func(cfg *cluster.Config) {
		cfg.Args = append(cfg.Args, "--otlp-endpoint", "http://"+c.addr)
		cfg.Env = append(cfg.Env, "OTEL_BSP_SCHEDULE_DELAY=100")
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := nodes.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// TestTraces: a retry loop of two hops is one connected trace, over the death of the queue's leader; a collector that is away is no trouble.
func TestTraces(t *testing.T) {
	t.Parallel()
	c := &collected{}
	stop := c.serve(t)
	nodes := tracedCluster(t, c)
	s := at(t, nodes.Node(0))
	plainQueue(s, "work", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"})
	plainQueue(s, "wait", amqp.Table{"x-queue-type": "quorum", "x-message-ttl": 300, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work"})
	leader, others := leaderOf(t, nodes, "work")
	client := at(t, others[0])
	if err := client.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	in, err := client.ch.Consume("work", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	send := func(headers amqp.Table) {
		t.Helper()
		done, err := client.ch.PublishWithDeferredConfirm("", "work", false, false, amqp.Publishing{Headers: headers, Body: []byte("x")})
		if err != nil || !confirmed(t, done) {
			t.Fatalf("not confirmed: %v", err)
		}
	}
	next := func() amqp.Delivery {
		t.Helper()
		select {
		case d := <-in:
			return d
		case <-time.After(timeoutReply):
			t.Fatal("nothing comes")
		}
		return amqp.Delivery{}
	}

	// Once around, and settled.
	trace, headers := traced(1, "01")
	send(headers)
	first := next()
	if err := first.Reject(false); err != nil {
		t.Fatal(err)
	}
	second := next()
	if second.Headers["traceparent"] != headers["traceparent"] || second.Headers["tracestate"] != "shop=1" {
		t.Errorf("the context became %v", second.Headers)
	}
	if err := second.Ack(false); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"publish work: committed": 1, "commit: committed": 1, "deliver work: reject": 1, "settle work: reject": 1,
		"dead-letter work: committed": 1, "dead-letter wait: committed": 1, "deliver work: ack": 1, "settle work: ack": 1,
	}
	await(t, timeoutReply, "the trace of a round", func() bool { return len(c.of(trace)) >= 8 })
	list := c.of(trace)
	if got := kinds(list); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%v, want %v", got, want)
	}
	checkRound(t, list, others[0].Name)

	// What is not sampled, and what has no context, leaves nothing; a later one over the death of the leader is whole.
	silent, unsampled := traced(2, "00")
	send(unsampled)
	send(nil)
	for range 2 {
		d := next()
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	over, headers := traced(3, "01")
	send(headers)
	held := next()
	kill(t, leader)
	if err := held.Reject(false); err != nil {
		t.Fatal(err)
	}
	again := next()
	if err := again.Ack(false); err != nil {
		t.Fatal(err)
	}
	await(t, timeoutReply, "the trace over a failover", func() bool {
		got := kinds(c.of(over))
		return got["dead-letter work: committed"] > 0 && got["dead-letter wait: committed"] > 0 && got["settle work: ack"] == 1 && got["deliver work: reject"] == 1
	})
	if n := len(c.of(silent)); n > 0 {
		t.Errorf("%d spans of a trace that is not sampled", n)
	}

	// Without a collector everything goes on; with it, so do traces.
	stop()
	for n := range 100 {
		_, headers := traced(100+n, "01")
		send(headers)
	}
	for range 100 {
		d := next()
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	c.serve(t)
	await(t, 2*timeoutReply, "traces after the collector is back", func() bool {
		last, headers := traced(int(time.Now().UnixNano()), "01")
		send(headers)
		d := next()
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // for the node to send it
		return len(c.of(last)) == 4
	})
	if ended := scrape(t, "/metrics", others...)[`warren_trace_spans_total{outcome="ended"}`]; ended < 400 {
		t.Errorf("%v spans ended", ended)
	}
}

// TestTracesOfAnyBytes: a message whose key is no text is traced, and keeps no other one from it.
func TestTracesOfAnyBytes(t *testing.T) {
	t.Parallel()
	c := &collected{}
	c.serve(t)
	nodes := tracedCluster(t, c)
	s := at(t, nodes.Node(0))
	plainQueue(s, "any", amqp.Table{"x-queue-type": "quorum"})
	if err := s.ch.ExchangeDeclare("keys", "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.ch.QueueBind("any", "", "keys", false, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	bytes, with := traced(1, "01")
	text, without := traced(2, "01")
	for key, headers := range map[string]amqp.Table{"\xff\xfe": with, "plain": without} {
		done, err := s.ch.PublishWithDeferredConfirm("keys", key, false, false, amqp.Publishing{Headers: headers})
		if err != nil || !confirmed(t, done) {
			t.Fatalf("not confirmed: %v", err)
		}
	}
	await(t, timeoutReply, "both traces", func() bool { return len(c.of(bytes)) >= 2 && len(c.of(text)) >= 2 })
}

// checkRound checks how the spans of one round hang together.
func checkRound(t *testing.T, list []span, client string) {
	t.Helper()
	byID := map[string]span{}
	for _, s := range list {
		byID[hex.EncodeToString(s.SpanId)] = s
	}
	for _, s := range list {
		parent := hex.EncodeToString(s.ParentSpanId)
		name, _, _ := strings.Cut(s.Name, " ")
		below := map[string]string{"commit": "publish work", "settle": "deliver work"}[name]
		switch {
		case below == "" && parent != producerSpan, below != "" && byID[parent].Name != below:
			t.Errorf("%s is below %s %q", s.Name, parent, byID[parent].Name)
		case s.EndTimeUnixNano < s.StartTimeUnixNano:
			t.Errorf("%s ends before it begins", s.Name)
		case name != "dead-letter" && s.node != client:
			t.Errorf("%s is of %s, the client is at %s", s.Name, s.node, client)
		case name != "commit" && name != "settle" && s.TraceState != "shop=1":
			t.Errorf("%s has the state %q", s.Name, s.TraceState)
		}
		if name != "dead-letter" {
			continue
		}
		source, target, reason := s.get("warren.source.queue"), s.get("warren.queue"), s.get("warren.dead_letter.reason")
		if way := source + " " + target + " " + reason; way != "work wait rejected" && way != "wait work expired" {
			t.Errorf("a hop %s", way)
		}
	}
	at := func(name string) int { return slices.IndexFunc(list, func(s span) bool { return s.Name == name }) }
	if at("publish work") > at("deliver work") || at("deliver work") > at("dead-letter wait") || at("dead-letter work") > at("dead-letter wait") {
		t.Errorf("they began in the order %v", kinds(list))
	}
}
