package broker

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
	"github.com/warrenmq/warren/transport"
)

const testNode = "n1/uuid"

// memGroups hosts every queue in memory: the Raft host has tests of its own.
type memGroups struct {
	mu   sync.Mutex
	logs map[uint64]*leader.MemLog
	heat map[uint64]int64
}

type memGroup struct{ *leader.MemLog }

func (memGroup) IsLeader() bool { return true }

func (memGroup) Follow(*catalog.Queue)           {}
func (memGroup) RestIf(func() bool)              {}
func (memGroup) Beginning() (index, term uint64) { return 0, 0 }

func (g *memGroups) Stop(uint64) error { return nil }

func (g *memGroups) Start(q *catalog.Queue, r *leader.Replica, lead func(uint64, string, bool)) (Group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	log := leader.NewMemLog(r)
	g.logs[q.ID] = log
	lead(1, testNode, true)
	return memGroup{log}, nil
}

func (*memGroups) Yield(context.Context, uint64) {}

func (*memGroups) Survives(context.Context, *catalog.Queue) bool { return true }

func (g *memGroups) Heat(id uint64) int64 { return g.heat[id] }

func (g *memGroups) Delete(id uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.logs, id)
	return nil
}

// newBroker runs a broker over a real catalog of one node.
func newBroker(t testing.TB) *Broker {
	return newBrokerBehind(t, func(c Catalog) Catalog { return c })
}

// newBrokerBehind runs one that has its catalog through something.
func newBrokerBehind(t testing.TB, through func(Catalog) Catalog) *Broker {
	t.Helper()
	return newBrokerWith(t, through, &memGroups{logs: map[uint64]*leader.MemLog{}})
}

// newBrokerOver runs one over groups.
func newBrokerOver(t testing.TB, groups Groups) *Broker {
	t.Helper()
	return newBrokerWith(t, func(c Catalog) Catalog { return c }, groups)
}

func newBrokerWith(t testing.TB, through func(Catalog) Catalog, groups Groups) *Broker {
	t.Helper()
	return newBrokerTuned(t, through, groups, func(*Config) {})
}

func newBrokerTuned(t testing.TB, through func(Catalog) Catalog, groups Groups, tune func(*Config)) *Broker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	mesh, err := transport.New(transport.Config{
		Local: testNode, Listener: ln, ClusterID: func() string { return "c" },
		Resolve: func(transport.NodeID) (string, bool) { return "", false }, Logger: log, Level: level.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	cat, err := catalog.Open(catalog.Config{
		Local: testNode, Dir: t.TempDir(), Mesh: mesh, Logger: log,
		Founding: &catalog.Founding{ClusterID: "c", Members: []catalog.NodeID{testNode}, Admin: func() (auth.User, error) {
			return auth.User{Name: "guest", PasswordHash: auth.HashPassword("guest"), Tags: []string{"administrator"}}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Node: testNode, Groups: groups,
		Send:  func(string, []byte) error { return transport.ErrPeerDown },
		Alive: func(string) bool { return true }, Replicas: 3, QueueTimeout: 5 * time.Second, Logger: log,
	}
	tune(&cfg)
	b := New(cfg, through(cat))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := cat.Propose(ctx, &catalog.RegisterNode{ID: testNode})
	if err != nil {
		t.Fatal(err)
	}
	for cat.View().ClusterID() == "" {
		if ctx.Err() != nil {
			t.Fatal("catalog not founded")
		}
		time.Sleep(time.Millisecond)
	}
	n := cat.View().Node(testNode)
	b.Start(fsm.Origin{Node: n.Number, Incarnation: res.ID})
	t.Cleanup(func() {
		b.Close()
		if err := cat.Close(); err != nil {
			t.Error(err)
		}
		mesh.Close()
	})
	return b
}

// client is a connection with one channel that records what happens on it.
type client struct {
	t    testing.TB
	conn *Conn
	ch   *Channel
	tag  uint64

	mu        sync.Mutex
	confirmed map[uint64]Confirm
	delivered []*Delivery
	cancelled []string
	timedOut  []string // tags, "" for get
}

func dial(t testing.TB, b *Broker) *client {
	t.Helper()
	u, err := b.Login(t.Context(), "PLAIN", []byte("\x00guest\x00guest"), Caller{Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := b.Open(t.Context(), u, "/", ConnInfo{})
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, conn: conn, confirmed: map[uint64]Confirm{}}
	if c.ch, err = conn.OpenChannel(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *client) Confirm(list []Confirm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range list {
		c.confirmed[x.Tag] = x
	}
}

func (c *client) Deliver(d *Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delivered = append(c.delivered, d)
}

func (c *client) Cancelled(x *Consumer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled = append(c.cancelled, x.Tag())
}

func (c *client) TimedOut(x *Consumer, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tag := ""
	if x != nil {
		tag = x.Tag()
	}
	c.timedOut = append(c.timedOut, tag)
}

func (c *client) Failed(err *Error) { c.t.Errorf("the broker ended the channel: %v", err) }

func (c *client) await(what string, cond func() bool) {
	c.t.Helper()
	until(c.t, what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return cond()
	})
}

// until waits for what comes soon.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (c *client) declare(name string, args amqp.Table) {
	c.t.Helper()
	if _, err := c.conn.DeclareQueue(c.t.Context(), QueueDeclare{Name: name, Durable: true, Arguments: args}); err != nil {
		c.t.Fatal(err)
	}
}

func properties(p func(*amqp.Properties)) amqp.RawProperties {
	raw, err := amqp.Rewrite(amqp.RawProperties{0, 0}, p)
	if err != nil {
		panic(err)
	}
	return raw
}

func (c *client) publish(exchange, key, body string, raw amqp.RawProperties) (tag uint64, routed bool, err error) {
	return c.publishes(&Publish{Exchange: exchange, Key: key, Properties: raw, Body: []byte(body)})
}

// publishes publishes p, without properties if it has none.
func (c *client) publishes(p *Publish) (tag uint64, routed bool, err error) {
	if p.Properties == nil {
		p.Properties = amqp.RawProperties{0, 0}
	}
	c.tag++
	p.Tag = c.tag
	routed, err = c.ch.Publish(c.t.Context(), p)
	c.ch.Flush()
	return c.tag, routed, err
}

// put publishes to a queue and waits for the confirm.
func (c *client) put(queue, body string, raw amqp.RawProperties) Confirm {
	c.t.Helper()
	tag, routed, err := c.publish("", queue, body, raw)
	if err != nil || !routed {
		c.t.Fatalf("publish: routed %v, %v", routed, err)
	}
	c.await("confirm", func() bool { _, ok := c.confirmed[tag]; return ok })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.confirmed[tag]
}

func (c *client) consume(queue string, prefetch uint16) *Consumer {
	c.t.Helper()
	x, err := c.ch.Consume(c.t.Context(), Consume{Queue: queue, Tag: "ct-" + queue, Prefetch: prefetch})
	if err != nil {
		c.t.Fatal(err)
	}
	return x
}

// take waits for n deliveries and takes them.
func (c *client) take(n int) []*Delivery {
	c.t.Helper()
	c.await("deliveries", func() bool { return len(c.delivered) >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.delivered[:n]
	c.delivered = c.delivered[n:]
	return got
}

func (c *client) settle(kind fsm.SettleKind, ds ...*Delivery) {
	c.ch.Settle(kind, ds)
	c.ch.Flush()
}

func (c *client) get(queue string) *Delivery {
	c.t.Helper()
	d, _, err := c.ch.Get(c.t.Context(), queue, false)
	if err != nil {
		c.t.Fatal(err)
	}
	return d
}

// eventually fetches a message, waiting for one.
func (c *client) eventually(queue string) *Delivery {
	c.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if d := c.get(queue); d != nil {
			return d
		}
		time.Sleep(2 * time.Millisecond)
	}
	c.t.Fatalf("nothing came to queue %s", queue)
	return nil
}
