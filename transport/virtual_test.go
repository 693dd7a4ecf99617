package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// pipeNet is a network inside one synctest bubble.
type pipeNet struct {
	mu        sync.Mutex
	listeners map[string]*pipeListener
	cut       map[string]bool // addresses nobody reaches
	conns     map[string][]net.Conn
}

type pipeListener struct {
	addr   string
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.addr) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

func (n *pipeNet) listen(addr string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &pipeListener{addr: addr, accept: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[addr] = l
	return l
}

func (n *pipeNet) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	cut := n.cut[addr]
	n.mu.Unlock()
	if l == nil || cut {
		return nil, errors.New("unreachable")
	}
	c, s := net.Pipe()
	select {
	case l.accept <- s:
		n.mu.Lock()
		n.conns[addr] = append(n.conns[addr], c)
		n.mu.Unlock()
		return c, nil
	case <-l.done:
	case <-ctx.Done():
	}
	return nil, errors.New("unreachable")
}

// sever makes an address unreachable, or reachable again.
func (n *pipeNet) sever(addr string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[addr] = cut
	for _, c := range n.conns[addr] {
		c.Close()
	}
	n.conns[addr] = nil
}

// TestMinutesOfVirtualTime shows that the mesh runs in a synctest bubble, which the
// simulator builds on: raft with production timers over an in-memory network.
func TestMinutesOfVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nw := &pipeNet{listeners: map[string]*pipeListener{}, cut: map[string]bool{}, conns: map[string][]net.Conn{}}
		ids := []NodeID{"n1/1", "n2/1", "n3/1"}
		var meshes []*Mesh
		var rs []*replica
		for _, id := range ids {
			m, err := New(Config{
				Local: id, Listener: nw.listen(string(id)), ClusterID: func() string { return "c" },
				Resolve: func(n NodeID) (string, bool) { return string(n), true }, Dial: nw.dial,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { m.Close() })
			m.SetPeers(ids)
			meshes = append(meshes, m)
		}
		for _, m := range meshes {
			rs = append(rs, startReplica(t, m, 2, func(rc *raft.Config) {
				rc.HeartbeatTimeout, rc.ElectionTimeout, rc.LeaderLeaseTimeout = 30*time.Second, 30*time.Second, 15*time.Second
				rc.CommitTimeout = 5 * time.Second
			}, ids...))
		}
		time.Sleep(2 * time.Minute)
		apply(t, rs, "first")
		for i := range ids {
			start := time.Now()
			nw.sever(string(ids[i]), true)
			time.Sleep(time.Minute)
			nw.sever(string(ids[i]), false)
			time.Sleep(time.Minute)
			apply(t, rs, fmt.Sprint("again", i))
			if d := time.Since(start); d < 2*time.Minute {
				t.Fatalf("only %v passed", d)
			}
		}
		sameTape(t, rs, 4)
		for _, m := range meshes {
			for _, id := range ids {
				if !m.Peer(id).Up {
					t.Errorf("%s does not reach %s", m.cfg.Local, id)
				}
			}
		}
	})
}
