package process

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/client"
	"github.com/warrenmq/warren/test/cluster"
)

// goClientAt is a client of the gRPC API that knows all nodes and is at one of them.
func goClientAt(t *testing.T, c *cluster.Cluster, n *cluster.Node) *client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	cfg := client.Config{User: "guest", Password: "guest", BackoffMax: time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, n := range c.Nodes() {
		cfg.Addrs = append(cfg.Addrs, n.GRPCAddr())
	}
	for { // the order is by chance
		cl, err := client.Dial(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		end := func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeoutStart)
			defer cancel()
			if err := cl.Close(ctx); err != nil {
				t.Error(err)
			}
		}
		if cl.Addrs()[0] == n.GRPCAddr() {
			t.Cleanup(end)
			return cl
		}
		end()
	}
}

// goPublisher publishes numbered messages to an exchange until it is told to end.
type goPublisher struct {
	name      string
	c         *client.Client
	sent      int
	confirmed atomic.Int64
}

func (g *goPublisher) run(t *testing.T, exchange string, end <-chan struct{}) {
	p, err := g.c.Publisher(client.PublisherConfig{Deduplicate: true, OutstandingMax: 256, ResultTimeout: 2 * time.Second})
	if err != nil {
		t.Error(err)
		return
	}
	var pending []*client.Pending
	for {
		select {
		case <-end:
			for i, r := range pending {
				if err := r.Wait(t.Context()); err != nil {
					t.Errorf("%s-%d: %v", g.name, i, err)
				}
			}
			return
		case <-time.After(500 * time.Microsecond):
		}
		r, err := p.PublishAsync(t.Context(), &client.Message{Exchange: exchange, Body: fmt.Appendf(nil, "%s-%d", g.name, g.sent), Mandatory: true})
		if err != nil {
			t.Errorf("%s-%d: %v", g.name, g.sent, err)
			return
		}
		g.sent++
		if pending = append(pending, r); len(pending) > 1 {
			select {
			case <-pending[0].Done():
				if err := pending[0].Err(); err != nil {
					t.Error(err)
				}
				pending = pending[1:]
				g.confirmed.Add(1)
			default:
			}
		}
	}
}

// TestGoClientNodesGo publishes and consumes by the Go client while the node that leads the queues is killed, which is one publisher's node too, and
// while the node of the other publisher and of the consumer is drained, and while the node where that publisher is then is cut off from the others: every message has its confirm, a queue that drops duplicates has
// each once and in order, and the consumer has had all. Of delayed messages that are taken back when they are due each is taken back or comes, and never both.
func TestGoClientNodesGo(t *testing.T) {
	t.Parallel()
	c := stoppableCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeoutStart)
	defer cancel()
	setup := goClientAt(t, c, c.Node(0))
	const exchange, kept, worked = "gone", "gone.kept", "gone.worked"
	if err := setup.DeclareExchange(ctx, client.Exchange{Name: exchange, Type: "fanout"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{kept, worked} {
		_, err := setup.DeclareQueue(ctx, client.Queue{Name: q, Type: "quorum", Arguments: client.Table{
			"x-deduplication-window": 600_000, "x-queue-leader-locator": "client-local",
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := setup.Bind(ctx, client.Binding{Source: exchange, Queue: q}); err != nil {
			t.Fatal(err)
		}
	}
	leader, others := leaderOf(t, c, kept)
	first := &goPublisher{name: "first", c: goClientAt(t, c, leader)}
	second := &goPublisher{name: "second", c: goClientAt(t, c, others[0])}
	publishers := []*goPublisher{first, second}
	consumer := goClientAt(t, c, others[0])

	seen := map[string]bool{}
	var mu sync.Mutex
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	end := make(chan struct{})
	var publishing, consumers sync.WaitGroup
	for _, p := range publishers {
		publishing.Go(func() { p.run(t, exchange, end) })
	}
	consumers.Go(func() {
		if err := consumer.Consume(consuming, worked, client.ConsumerConfig{Concurrency: 4, Prefetch: 100}, func(_ context.Context, d *client.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			seen[string(d.Body)] = true
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	delayer := newGoDelayer(ctx, t, setup, goClientAt(t, c, others[1]))
	for range 6 {
		publishing.Go(func() { delayer.work(ctx, t, end) })
	}
	consumers.Go(func() { delayer.consume(consuming, t) })
	finish := sync.OnceFunc(func() { close(end); publishing.Wait() })
	defer consumers.Wait()
	defer stop()
	defer finish()
	// more waits until each publisher has more confirms.
	more := func() {
		t.Helper()
		for _, p := range publishers {
			want := p.confirmed.Load() + 200
			if err := cluster.Poll(ctx, func() (bool, error) { return p.confirmed.Load() >= want, nil }); err != nil {
				t.Fatalf("%s has %d of %d confirms: %v", p.name, p.confirmed.Load(), want, err)
			}
		}
	}
	more()
	kill(t, leader)
	more()
	start(t, leader)
	if out, err := localCtl(t, others[0], "drain", "--timeout", "20"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	more()
	var away *cluster.Node
	var rest []*cluster.Node
	for _, n := range c.Nodes() {
		if n.GRPCAddr() == second.c.Addrs()[0] {
			away = n
		} else {
			rest = append(rest, n)
		}
	}
	for _, n := range rest {
		if err := cluster.Cut(ctx, away, n); err != nil {
			t.Fatal(err)
		}
	}
	more() // the clients' streams to the node are whole, and bring nothing
	for _, n := range rest {
		if err := cluster.Heal(ctx, away, n); err != nil {
			t.Fatal(err)
		}
	}
	finish()
	total := 0
	for _, p := range publishers {
		total += p.sent
		if got := p.c.Addrs()[0]; got == others[0].GRPCAddr() { // the one that was killed is back, and may be in use
			t.Errorf("the publisher %s is at %s, which is drained", p.name, others[0].Name)
		}
	}
	if err := cluster.Poll(ctx, func() (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) >= total, nil
	}); err != nil {
		t.Fatalf("the consumer has %d of %d messages: %v", len(seen), total, err)
	}
	delayer.check(ctx, t)
	stop()
	consumers.Wait()
	if got := consumer.Addrs()[0]; got == others[0].GRPCAddr() {
		t.Errorf("the consumer is at %s, which is drained", others[0].Name)
	}
	rpcAt(t, others[1], "guest", "guest").counts(worked, 0, 0) // all acks have arrived

	// What is in the other queue, one after the other.
	bodies := map[string][]string{}
	drain, enough := context.WithCancel(ctx)
	defer enough()
	n := 0
	err := setup.Consume(drain, kept, client.ConsumerConfig{Prefetch: 1000}, func(_ context.Context, d *client.Delivery) error {
		name, number, _ := strings.Cut(string(d.Body), "-")
		bodies[name] = append(bodies[name], number)
		if n++; n == total {
			enough()
		}
		return nil
	})
	if err != nil || n != total {
		t.Fatalf("%d of %d messages: %v", n, total, err)
	}
	for _, p := range publishers {
		want := make([]string, p.sent)
		for i := range want {
			want[i] = strconv.Itoa(i)
		}
		if !slices.Equal(bodies[p.name], want) {
			t.Errorf("%s: %d messages came, in other order or others than the %d that were sent", p.name, len(bodies[p.name]), p.sent)
		}
	}
	rpcAt(t, others[1], "guest", "guest").counts(kept, 0, 0)
	t.Logf("%d and %d messages", first.sent, second.sent)
}
