package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/detector"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	"github.com/warrenmq/warren/metrics"
	"github.com/warrenmq/warren/shovel"
)

const (
	// shovelTick is how often a node looks which shovels it is to run, beside each change of the catalog.
	shovelTick = time.Second
	// shovelUnheard is how long a node that has heard nothing of the catalog's leader goes on running shovels.
	shovelUnheard = 5 * time.Second
	// shovelMessageMax is the largest message that is forwarded, shovelBudget what a shovel has under way, both in bytes.
	shovelMessageMax = 128 << 20
	shovelBudget     = 32 << 20
)

// openShovels makes what runs shovels. They begin with keepShovels.
func (n *running) openShovels() {
	n.inner = newInnerListener()
	n.shovels = shovel.NewCrew(shovel.Config{
		Local: n.inner.dial, Cluster: n.ClusterName, MessageMax: shovelMessageMax, Budget: shovelBudget, Logger: n.log,
		Finished: func(ctx context.Context, j shovel.Job) error {
			_, err := n.broker.DeleteShovel(ctx, j.VHost, j.Name, j.Since)
			return err
		},
	})
	n.shovelsWake = make(chan struct{}, 1)
	n.catalog.Load().Subscribe(func(_, _ *catalog.View) { n.lookAtShovels() })
}

// lookAtShovels has keepShovels look now.
func (n *running) lookAtShovels() {
	select {
	case n.shovelsWake <- struct{}{}:
	default:
	}
}

// keepShovels runs the shovels that are this node's, until ctx ends.
func (n *running) keepShovels(ctx context.Context) {
	var listening sync.WaitGroup
	defer listening.Wait()
	defer n.inner.Close() //nolint:errcheck // it has no other end
	defer n.shovels.Close()
	tick := time.NewTicker(shovelTick)
	defer tick.Stop()
	parsed := map[uint64]shovel.Job{} // by the revision of each
	for {
		// A drain closes all listeners.
		if phase(n.phase.Load()) == serving && n.inner.reopen() {
			listening.Go(n.serveInner)
		}
		n.shovels.Set(n.ownShovels(parsed))
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-n.shovelsWake:
		}
	}
}

func (n *running) serveInner() {
	if err := n.amqp.Serve(n.inner); !errors.Is(err, gateway.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		n.log.Error("shovels do not reach this cluster", "err", err)
	}
}

// ownShovels are those that this node is to run: one that is cut off, or drains, runs none.
func (n *running) ownShovels(parsed map[uint64]shovel.Job) (list []shovel.Job) {
	cat := n.catalog.Load()
	if phase(n.phase.Load()) != serving || cat.Unheard() > shovelUnheard {
		return nil
	}
	view := cat.View()
	var nodes []string
	known := map[uint64]bool{}
	for s := range view.Shovels() {
		if nodes == nil {
			nodes = n.shovelNodes(view)
		}
		known[s.Since] = true
		if placeOf(s.Vhost, s.Name, nodes) != string(n.identity.NodeID()) {
			continue
		}
		j, ok := parsed[s.Since]
		if !ok {
			j = shovel.Job{VHost: s.Vhost, Name: s.Name, User: s.User, Since: s.Since}
			j.Definition, j.Broken = shovel.Parse([]byte(s.Value))
			parsed[s.Since] = j
		}
		list = append(list, j)
	}
	for since := range parsed {
		if !known[since] {
			delete(parsed, since)
		}
	}
	return list
}

func (n *running) shovelFigures() metrics.Shovels {
	f := n.shovels.Figures()
	m := metrics.Shovels{States: map[string]int{}, Forwarded: f.Forwarded, Waiting: uint64(f.Waiting)}
	for state, count := range f.States {
		m.States[string(state)] = count
	}
	return m
}

// shovelNodes are those among which shovels are spread.
func (n *running) shovelNodes(view *catalog.View) []string {
	nodes := []string{}
	for node := range view.Nodes() {
		here := node.ID == n.identity.NodeID()
		if !node.Superseded && node.State != catalog.NodeDraining && node.State != catalog.NodeLeaving && (here || n.detector.State(node.ID) != detector.Dead) {
			nodes = append(nodes, string(node.ID))
		}
	}
	return nodes
}

// placeOf is the node on which a shovel runs: each node weighs differently for each shovel, so that one that goes or comes takes along only its own.
func placeOf(vhost, name string, nodes []string) string {
	weigh := func(node string) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s\x00%s\x00%s", node, vhost, name)
		// The last bytes of what FNV is given hardly reach its upper bits.
		w := h.Sum64() * 0x9E3779B97F4A7C15
		return w ^ w>>32
	}
	if len(nodes) == 0 {
		return ""
	}
	return slices.MaxFunc(nodes, func(a, b string) int {
		switch x, y := weigh(a), weigh(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// innerListener takes connections from within the process.
type innerListener struct {
	conns chan net.Conn
	last  atomic.Uint64

	mu     sync.Mutex
	open   bool
	closed chan struct{} // when it is not open any more
}

func newInnerListener() *innerListener {
	l := &innerListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	close(l.closed)
	return l
}

// reopen opens the listener; false: it is open.
func (l *innerListener) reopen() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		return false
	}
	l.open, l.closed = true, make(chan struct{})
	return true
}

func (l *innerListener) end() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// Accept implements net.Listener.
func (l *innerListener) Accept() (net.Conn, error) {
	closed := l.end()
	select {
	case c := <-l.conns:
		return c, nil
	case <-closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *innerListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		l.open = false
		close(l.closed)
	}
	return nil
}

// Addr implements net.Listener.
func (l *innerListener) Addr() net.Addr { return innerAddr("shovel:0") }

// dial opens a connection on which user is let in without a password.
func (l *innerListener) dial(ctx context.Context, user string) (net.Conn, []amqp.Authentication, error) {
	ours, theirs := net.Pipe()
	c := innerConn{theirs, innerAddr(fmt.Sprintf("shovel:%d", l.last.Add(1)))}
	select {
	case l.conns <- c:
		return ours, []amqp.Authentication{&amqp.PlainAuth{Username: user}}, nil
	case <-l.end():
		return nil, nil, errors.Join(net.ErrClosed, ours.Close(), theirs.Close())
	case <-ctx.Done():
		return nil, nil, errors.Join(ctx.Err(), ours.Close(), theirs.Close())
	}
}

// innerAddr is the address of what is within the process; nothing else has one.
type innerAddr string

func (innerAddr) Network() string  { return "inner" }
func (a innerAddr) String() string { return string(a) }

type innerConn struct {
	net.Conn
	remote innerAddr
}

func (c innerConn) RemoteAddr() net.Addr { return c.remote }
func (c innerConn) LocalAddr() net.Addr  { return innerAddr("shovel:0") }

// innerUser is the user that a shovel logs in as; ok is false for a client.
func innerUser(response []byte, client net.Addr) (user string, ok bool) {
	if _, inner := client.(innerAddr); !inner {
		return "", false
	}
	cred, err := auth.ParseResponse(auth.MechanismPlain, response)
	return cred.User, err == nil
}
