package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// gate lets a node's bytes through or holds them back, in both directions, as a network does
// that drops packets: connections stay open and fall silent.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
	deaf bool          // only what comes in is held back
}

func newGate() *gate {
	g := &gate{open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.deaf = make(chan struct{}), false
}

// deafen is shut for what comes in.
func (g *gate) deafen() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.deaf = make(chan struct{}), true
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

func (g *gate) pass(gone <-chan struct{}) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-gone:
		return net.ErrClosed
	}
}

func (g *gate) passOut(gone <-chan struct{}) error {
	g.mu.Lock()
	deaf := g.deaf
	g.mu.Unlock()
	if deaf {
		return nil
	}
	return g.pass(gone)
}

// gatedConn is a connection of a gated node.
type gatedConn struct {
	net.Conn
	gate *gate
	gone chan struct{}
	once sync.Once
}

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, errors.Join(err, c.gate.pass(c.gone))
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.gate.passOut(c.gone); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

type gatedListener struct {
	net.Listener
	gate *gate
}

func (l gatedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.gate.wrap(conn), nil
}

func (g *gate) wrap(conn net.Conn) net.Conn {
	return &gatedConn{Conn: conn, gate: g, gone: make(chan struct{})}
}

// TestSilentLeader cuts the leader off without closing a connection. The others elect as soon as
// the detector tells; a proposal that was on its way to the old leader goes to the new one; and
// what the old leader could not commit takes effect once after the network is back.
func TestSilentLeader(t *testing.T) {
	c := newNodes(t, 3)
	c.ready()
	for _, n := range c.all {
		propose(t, n, register(n))
	}
	old, follower := c.leader(), c.follower()
	old.gate.shut()
	t.Cleanup(old.gate.release) // also if the test fails: nothing ends behind a shut gate

	type answer struct {
		from string
		r    catalog.Result
		err  error
		took time.Duration
	}
	answers := make(chan answer, 2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := time.Now()
	for name, n := range map[string]*node{"old leader": old, "follower": follower} {
		go func() {
			r, err := n.catalog.Propose(ctx, replicated("from "+name, c.ids...))
			answers <- answer{name, r, err, time.Since(start)}
		}()
	}
	// Both are on their way to the old leader when the detector has its verdict.
	until(t, "the old leader has an entry it cannot commit", func() bool {
		s := old.catalog.Stats()
		return s["last_log_index"] != s["commit_index"]
	})
	told := time.Now()
	for id, n := range c.all {
		if id != old.id {
			n.catalog.NodeDead(old.id)
		}
	}
	a := <-answers
	if a.from != "follower" || a.err != nil {
		t.Fatalf("first answer: %+v", a)
	}
	if d := time.Since(told); d > 10*time.Second {
		t.Errorf("a proposal took %v after the verdict", d)
	} else {
		t.Logf("a proposal on a follower succeeded %v after the verdict", d)
	}
	old.gate.release()
	b := <-answers
	if b.err != nil || !b.r.Changed {
		t.Fatalf("second answer: %+v", b)
	}
	t.Logf("the proposal on the old leader succeeded after %v", b.took)
	for id, n := range c.all {
		if err := n.catalog.ReadIndex(ctx); err != nil {
			t.Fatal(err)
		}
		for _, r := range []catalog.Result{a.r, b.r} {
			if q := n.catalog.View().QueueByID(r.ID); q == nil || r.ID != r.Index {
				t.Errorf("%s lacks queue %d", id, r.ID)
			}
		}
		if got := n.catalog.View().QueueCount(); got != 2 {
			t.Errorf("%s has %d queues", id, got)
		}
	}
}

// gated returns the mesh configuration of a node behind its gate.
func gated(cfg transport.Config, g *gate) transport.Config {
	cfg.Listener = gatedListener{cfg.Listener, g}
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("dial: %w", err)
		}
		return g.wrap(conn), nil
	}
	return cfg
}
