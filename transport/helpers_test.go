package transport

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// directory is the address book of a test cluster. Addresses may be those of
// proxies.
type directory struct {
	mu    sync.Mutex
	addrs map[[2]NodeID]string // by (asking, asked); asking "" is everybody
}

func (d *directory) set(asking, asked NodeID, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.addrs == nil {
		d.addrs = map[[2]NodeID]string{}
	}
	d.addrs[[2]NodeID{asking, asked}] = addr
}

func (d *directory) resolver(asking NodeID) func(NodeID) (string, bool) {
	return func(asked NodeID) (string, bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if a, ok := d.addrs[[2]NodeID{asking, asked}]; ok {
			return a, true
		}
		a, ok := d.addrs[[2]NodeID{"", asked}]
		return a, ok
	}
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// startMesh starts a node of cluster "c" known to d; change may adapt its
// configuration. The test's end closes it.
func startMesh(t testing.TB, d *directory, id NodeID, change func(*Config)) *Mesh {
	t.Helper()
	l := listen(t)
	d.set("", id, l.Addr().String())
	cfg := Config{
		Local: id, Listener: l, ClusterID: func() string { return "c" }, Resolve: d.resolver(id),
		PingInterval: 20 * time.Millisecond, RedialMin: 5 * time.Millisecond, RedialMax: 50 * time.Millisecond,
	}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil)).With("node", string(id))
	}
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) { return len(p), nil }

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func untilUp(t testing.TB, m *Mesh, peers ...NodeID) {
	t.Helper()
	for _, p := range peers {
		until(t, fmt.Sprintf("%s reaches %s", m.cfg.Local, p), func() bool { return m.Peer(p).Up })
	}
}

// pair starts two linked nodes. The link lasts on a starved machine, too: what is sent is not lost with it, and answers come late.
func pair(t testing.TB, change func(*Config)) (a, b *Mesh) {
	t.Helper()
	d := &directory{}
	calm := func(c *Config) {
		c.SilenceMax, c.AnswerWait, c.StreamWait, c.DialTimeout = time.Minute, time.Minute, time.Minute, time.Minute
		if change != nil {
			change(c)
		}
	}
	a, b = startMesh(t, d, "a/1", calm), startMesh(t, d, "b/1", calm)
	a.SetPeers([]NodeID{"a/1", "b/1"})
	b.SetPeers([]NodeID{"a/1", "b/1"})
	untilUp(t, a, "b/1")
	untilUp(t, b, "a/1")
	return a, b
}

// proxy is a TCP relay whose connections can be cut or frozen.
type proxy struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup
	frozen atomic.Bool
	pace   atomic.Int64 // pause after each piece, nanoseconds

	mu    sync.Mutex
	conns []net.Conn
	shut  bool // refuse new connections by closing them
}

func startProxy(t testing.TB, target string) *proxy {
	t.Helper()
	p := &proxy{l: listen(t), target: target}
	p.wg.Go(func() {
		for {
			c, err := p.l.Accept()
			if err != nil {
				return
			}
			p.relay(c)
		}
	})
	t.Cleanup(func() {
		p.l.Close()
		p.cut(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) relay(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		c.Close()
		return
	}
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		c.Close()
		return
	}
	p.conns = append(p.conns, c, s)
	p.wg.Go(func() { p.pump(c, s) })
	p.wg.Go(func() { p.pump(s, c) })
}

func (p *proxy) pump(dst, src net.Conn) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		for p.frozen.Load() {
			time.Sleep(time.Millisecond)
		}
		if d := p.pace.Load(); d > 0 {
			time.Sleep(time.Duration(d))
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// cut breaks all connections; with shut new ones are refused until open.
func (p *proxy) cut(shut bool) {
	p.frozen.Store(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = shut
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
}

func (p *proxy) open() { p.mu.Lock(); p.shut = false; p.mu.Unlock() }

func (p *proxy) addr() string { return p.l.Addr().String() }

func withTimeout(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

var _ io.Writer = testWriter{}
