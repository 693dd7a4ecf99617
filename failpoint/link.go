//go:build failpoints

package failpoint

import (
	"context"
	"net"
	"sync"
)

// A cut link is silent, as if its packets were dropped: nothing is read or written, new
// connections do not come about, and the far side does not hear that one was
// closed. Only the side that dialled does this, so that two nodes are cut apart when each
// has cut the other's address.

// gate is the link to one address.
type gate struct {
	mu     sync.Mutex
	open   chan struct{} // closed while the link is open
	isOpen bool
	atOpen []func()
}

var gates = struct {
	sync.Mutex
	byAddr map[string]*gate
}{byAddr: map[string]*gate{}}

func gateOf(addr string) *gate {
	gates.Lock()
	defer gates.Unlock()
	g := gates.byAddr[addr]
	if g == nil {
		g = &gate{open: make(chan struct{}), isOpen: true}
		close(g.open)
		gates.byAddr[addr] = g
	}
	return g
}

// Cut stops all bytes of the links that were or will be dialled to addr.
func Cut(addr string) {
	g := gateOf(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen {
		g.open, g.isOpen = make(chan struct{}), false
	}
}

// Heal ends what Cut began.
func Heal(addr string) {
	g := gateOf(addr)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen {
		return
	}
	close(g.open)
	g.isOpen = true
	for _, f := range g.atOpen {
		f()
	}
	g.atOpen = nil
}

// opened is closed once the link is open.
func (g *gate) opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// Dialer opens connections whose bytes Handler can stop, nil if there are no failpoints.
func Dialer() func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		g := gateOf(addr)
		select {
		case <-g.opened():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c, gate: g, closed: make(chan struct{})}, nil
	}
}

// conn is a connection behind a gate. Deadlines bound the network's part of a call only.
type conn struct {
	net.Conn
	gate   *gate
	closed chan struct{}
	once   sync.Once
}

func (c *conn) wait() error {
	select {
	case <-c.gate.opened():
		return nil
	case <-c.closed:
		return net.ErrClosed
	}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if cut := c.wait(); cut != nil {
		return 0, cut
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if err := c.wait(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn. The far side hears of it when the link is open again.
func (c *conn) Close() (err error) {
	c.once.Do(func() {
		close(c.closed)
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		if c.gate.isOpen {
			err = c.Conn.Close()
			return
		}
		c.gate.atOpen = append(c.gate.atOpen, func() { c.Conn.Close() })
	})
	return err
}
