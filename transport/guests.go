package transport

import (
	"context"
	"net"

	grpcpeer "google.golang.org/grpc/peer"

	"github.com/warrenmq/warren/crowd"
)

// guests is the listener of a mesh. It keeps few of the connections on which no node of the cluster has shown itself: whoever reaches the address can
// open any number, and each takes one of the files of the process, without which the log ends it. When there are too many the oldest is closed, and
// not the newest refused: that may be a node, which shows itself at once.
type guests struct{ *crowd.Listener }

// newGuests bounds such connections of ln. closed is told of each that is closed.
func newGuests(ln net.Listener, most int, closed func(net.Addr)) guests {
	return guests{crowd.New(ln, crowd.Bounds{Most: most, Closed: closed})}
}

// guest is a connection to a mesh's listener.
type guest struct{ *crowd.Conn }

// guestAddr is the address of a connection's other end, by which a handler of gRPC finds the connection.
type guestAddr struct {
	net.Addr

	conn guest
}

// Accept implements net.Listener.
func (l guests) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return guest{conn.(*crowd.Conn)}, nil //nolint:forcetypeassert // it accepts no others
}

// RemoteAddr implements net.Conn.
func (g guest) RemoteAddr() net.Addr { return guestAddr{g.Conn.RemoteAddr(), g} }

// known keeps the connection of a call or stream, whose context it takes: a node of the cluster uses it.
func known(ctx context.Context) {
	if p, ok := grpcpeer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(guestAddr); ok {
			addr.conn.Leave()
		}
	}
}
