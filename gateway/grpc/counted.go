package grpc

import (
	"net"
	"sync"
	"sync/atomic"
)

// Figures are of a server's clients.
type Figures struct {
	Connections int    // open now, of any service
	Accepted    uint64 // connections ever
	Sessions    int    // streams and publishing calls at work
}

// Figures tells of the clients.
func (s *Server) Figures() Figures {
	return Figures{Connections: int(s.open.Load()), Accepted: s.accepted.Load(), Sessions: s.Sessions()}
}

// counting counts the connections of a listener.
type counting struct {
	net.Listener
	open     *atomic.Int64
	accepted *atomic.Uint64
	conns    *sync.Map // by the client's address
}

func (l counting) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted.Add(1)
	l.open.Add(1)
	c := &counted{Conn: conn}
	name := conn.RemoteAddr().String()
	l.conns.Store(name, c)
	c.ended = sync.OnceFunc(func() {
		l.open.Add(-1)
		l.conns.CompareAndDelete(name, c)
	})
	return c, nil
}

type counted struct {
	net.Conn
	ended func()
	// known: somebody has logged in on it. openCalls are its calls that need no login.
	known     atomic.Bool
	openCalls atomic.Int32
}

func (c *counted) Close() error {
	c.ended()
	return c.Conn.Close()
}
