package transport

import (
	"container/list"
	"context"
	"net"
	"sync"

	grpcpeer "google.golang.org/grpc/peer"
)

// guests is the listener of a mesh. It keeps few of the connections on which no node of the cluster has shown itself: whoever reaches the address can
// open any number, and each takes one of the files of the process, without which the log ends it. When there are too many the oldest is closed, and
// not the newest refused: that may be a node, which shows itself at once.
type guests struct {
	net.Listener

	most   int
	closed func(net.Addr) // told of each that is closed

	mu      sync.Mutex
	unknown list.List // of *guest, the oldest first
}

// guest is a connection to a mesh's listener.
type guest struct {
	net.Conn

	of *guests
	at *list.Element // in of.unknown, nil when it is not there; guarded by of.mu
}

// guestAddr is the address of a connection's other end, by which a handler of gRPC finds the connection.
type guestAddr struct {
	net.Addr

	conn *guest
}

// Accept implements net.Listener.
func (l *guests) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: conn, of: l}
	if old := l.enter(g); old != nil {
		_ = old.Conn.Close() // nothing that counts was said on it
		l.closed(old.Conn.RemoteAddr())
	}
	return g, nil
}

// enter notes a new connection, and returns the one that has to go for it, if any.
func (l *guests) enter(g *guest) (old *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unknown.Len() >= l.most {
		old = l.unknown.Remove(l.unknown.Front()).(*guest) //nolint:forcetypeassert // the list has no others
		old.at = nil
	}
	g.at = l.unknown.PushBack(g)
	return old
}

// leave takes a connection from those that may be closed.
func (l *guests) leave(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.at != nil {
		l.unknown.Remove(g.at)
		g.at = nil
	}
}

// RemoteAddr implements net.Conn.
func (g *guest) RemoteAddr() net.Addr { return guestAddr{g.Conn.RemoteAddr(), g} }

// Close implements net.Conn.
func (g *guest) Close() error {
	g.of.leave(g)
	return g.Conn.Close()
}

// known keeps the connection of a call or stream, whose context it takes: a node of the cluster uses it.
func known(ctx context.Context) {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(guestAddr); ok {
			addr.conn.of.leave(addr.conn)
		}
	}
}
