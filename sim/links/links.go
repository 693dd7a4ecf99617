// Package links carries the connections of simulated nodes in memory, over links that are cut, slow or one-way, and ends those of a node that crashes, with
// a word to its peers or without. Time is that of the testing/synctest bubble in which it runs.
package links

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/warrenmq/warren/transport"
)

// Link is one direction between two nodes.
type Link struct{ From, To transport.NodeID }

// State is what is wrong with a link. The zero value is a quick local network.
type State struct {
	Cut  bool          // bytes wait, as TCP repeats them, until it is healed
	Slow time.Duration // most that is added to the latency
}

// Network carries connections between nodes by their names.
type Network struct {
	mu        sync.Mutex // guards the rest; pipe.mu may be held
	rnd       *rand.Rand
	listeners map[transport.NodeID]*listener
	links     map[Link]State
	conns     map[*conn]bool
	silent    map[transport.NodeID]bool    // nodes that went without a word
	ghosts    map[transport.NodeID][]*conn // the other ends of their connections
	healed    chan struct{}                // closed and replaced when links change
}

// New makes a network without nodes, whose latencies are drawn by a seed.
func New(seed uint64) *Network {
	return &Network{
		rnd: rand.New(rand.NewPCG(seed, 2)), listeners: make(map[transport.NodeID]*listener),
		links: make(map[Link]State), conns: make(map[*conn]bool),
		silent: make(map[transport.NodeID]bool), ghosts: make(map[transport.NodeID][]*conn), healed: make(chan struct{}),
	}
}

// Change alters links and wakes everybody who waits for one.
func (n *Network) Change(fn func(map[Link]State)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fn(n.links)
	close(n.healed)
	n.healed = make(chan struct{})
}

// state returns what is wrong with a link and a channel that tells of a change.
func (n *Network) state(l Link) (State, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.links[l], n.healed
}

// latency draws the time a piece takes on a link.
func (n *Network) latency(l Link) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := 50*time.Microsecond + time.Duration(n.rnd.Int64N(int64(300*time.Microsecond)))
	if s := n.links[l].Slow; s > 0 {
		d += time.Duration(n.rnd.Int64N(int64(s)))
	}
	return d
}

type listener struct {
	n      *Network
	id     transport.NodeID
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

// Listen makes a node reachable. Ends that its former life left behind learn that it is gone.
func (n *Network) Listen(id transport.NodeID) net.Listener {
	l := &listener{n: n, id: id, accept: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	n.listeners[id] = l
	ghosts := n.ghosts[id]
	delete(n.ghosts, id)
	delete(n.silent, id)
	close(n.healed)
	n.healed = make(chan struct{})
	n.mu.Unlock()
	for _, c := range ghosts {
		c.reset()
	}
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error { l.once.Do(func() { close(l.done) }); return nil }

func (l *listener) Addr() net.Addr { return address(l.id) }

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

// Dial connects two nodes. A node without a listener refuses; over a cut link the dial waits.
func (n *Network) Dial(ctx context.Context, from, to transport.NodeID) (net.Conn, error) {
	for {
		there, changed := n.state(Link{from, to})
		back, _ := n.state(Link{to, from})
		n.mu.Lock()
		silent := n.silent[to]
		n.mu.Unlock()
		if !there.Cut && !back.Cut && !silent {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	time.Sleep(n.latency(Link{from, to}) + n.latency(Link{to, from}))
	n.mu.Lock()
	l := n.listeners[to]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	}
	there, back := newPipe(n, Link{from, to}), newPipe(n, Link{to, from})
	a := &conn{n: n, local: from, remote: to, in: back, out: there, closed: make(chan struct{})}
	b := &conn{n: n, local: to, remote: from, in: there, out: back, closed: make(chan struct{})}
	a.peer, b.peer = b, a
	select {
	case l.accept <- b:
		n.mu.Lock()
		n.conns[a], n.conns[b] = true, true
		n.mu.Unlock()
		return a, nil
	case <-l.done:
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Crash takes a node off the network at once. Its peers are told by resets, or, if silent, by nothing until it returns.
func (n *Network) Crash(id transport.NodeID, silent bool) {
	n.mu.Lock()
	l := n.listeners[id]
	delete(n.listeners, id)
	n.silent[id] = silent
	var mine []*conn
	for c := range n.conns {
		if c.local == id {
			mine = append(mine, c)
		}
	}
	for _, c := range mine {
		delete(n.conns, c)
		delete(n.conns, c.peer)
		if silent {
			n.ghosts[id] = append(n.ghosts[id], c.peer)
		}
	}
	n.mu.Unlock()
	if l != nil {
		_ = l.Close()
	}
	for _, c := range mine {
		c.out.drop()
		c.shut()
		if !silent {
			c.peer.reset()
		}
	}
}

// pipeBytesMax is how much one direction holds before writers wait.
const pipeBytesMax = 1 << 20

type piece struct {
	at   time.Time // when it arrives
	data []byte
}

// pipe is one direction of a connection.
type pipe struct {
	n *Network
	l Link

	mu       sync.Mutex // guards the rest
	pieces   []piece
	bytes    int
	newest   time.Time
	fin      bool // the writer has closed
	broken   bool // reset
	dead     bool // nothing written arrives
	readable chan struct{}
	writable chan struct{}
}

func newPipe(n *Network, l Link) *pipe {
	return &pipe{n: n, l: l, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// drop loses what is under way and all that is written later.
func (p *pipe) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pieces, p.bytes, p.dead = nil, 0, true
	poke(p.writable)
}

// end tells the reader that nothing more comes, after what is under way, or at once if broken.
func (p *pipe) end(broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fin, p.broken = true, p.broken || broken
	poke(p.readable)
	poke(p.writable)
}

// take reads what has arrived; without any it returns how long to wait for the next piece, 0 if unknown.
func (p *pipe) take(b []byte, cut bool) (n int, wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case cut:
		return 0, 0, nil
	case p.broken:
		return 0, 0, syscall.ECONNRESET
	}
	if len(p.pieces) == 0 {
		if p.fin {
			return 0, 0, io.EOF
		}
		return 0, 0, nil
	}
	first := &p.pieces[0]
	if wait := time.Until(first.at); wait > 0 {
		return 0, wait, nil
	}
	n = copy(b, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		p.pieces = p.pieces[1:]
	}
	p.bytes -= n
	poke(p.writable)
	return n, 0, nil
}

// put sends b; false means that there is no room yet.
func (p *pipe) put(b []byte, latency time.Duration) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.broken, p.fin:
		return false, syscall.EPIPE
	case p.bytes > pipeBytesMax:
		return false, nil
	case p.dead:
		return true, nil
	}
	at := time.Now().Add(latency)
	if at.Before(p.newest) {
		at = p.newest
	}
	p.newest = at
	p.pieces = append(p.pieces, piece{at, append([]byte{}, b...)})
	p.bytes += len(b)
	poke(p.readable)
	return true, nil
}

// conn is one end of a connection.
type conn struct {
	n             *Network
	local, remote transport.NodeID
	peer          *conn
	in, out       *pipe
	once          sync.Once
	closed        chan struct{}

	mu       sync.Mutex
	deadline time.Time // of reads
}

// shut closes this end only.
func (c *conn) shut() { c.once.Do(func() { close(c.closed) }) }

// reset breaks both directions as this end sees them.
func (c *conn) reset() {
	c.in.end(true)
	c.out.end(true)
}

func (c *conn) Close() error {
	c.shut()
	c.out.end(false)
	c.in.mu.Lock()
	c.in.dead, c.in.pieces, c.in.bytes = true, nil, 0
	poke(c.in.writable)
	c.in.mu.Unlock()
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	delete(c.n.conns, c)
	return nil
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		default:
		}
		s, changed := c.n.state(c.in.l)
		n, wait, err := c.in.take(b, s.Cut)
		if n > 0 || err != nil {
			return n, err
		}
		c.mu.Lock()
		deadline := c.deadline
		c.mu.Unlock()
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			if wait == 0 || left < wait {
				wait = left
			}
		}
		if err := c.await(c.in.readable, changed, wait); err != nil {
			return 0, err
		}
	}
}

// await returns when something may have changed; wait of 0 is for ever.
func (c *conn) await(ready, changed <-chan struct{}, wait time.Duration) error {
	var late <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-ready:
	case <-changed:
	case <-late:
	case <-c.closed:
		return net.ErrClosed
	}
	return nil
}

func (c *conn) Write(b []byte) (int, error) {
	for {
		select {
		case <-c.closed:
			return 0, net.ErrClosed
		default:
		}
		ok, err := c.out.put(b, c.n.latency(c.out.l))
		if err != nil {
			return 0, err
		}
		if ok {
			return len(b), nil
		}
		if err := c.await(c.out.writable, nil, 0); err != nil {
			return 0, err
		}
	}
}

func (c *conn) LocalAddr() net.Addr  { return address(c.local) }
func (c *conn) RemoteAddr() net.Addr { return address(c.remote) }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	poke(c.in.readable)
	return nil
}

// SetWriteDeadline is not needed: nobody who writes here sets one.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
