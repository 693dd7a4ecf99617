package grpc

import (
	"net"
	"time"

	"github.com/warrenmq/warren/crowd"
)

// newcomerMin is how long a connection has at least for its first call that needs a login.
const newcomerMin = time.Second

// newcomers bounds the open connections of ln. Where there are as many the oldest on which nobody has logged in makes room for another, so that who says
// nothing keeps no client out; without one the other waits.
func newcomers(ln net.Listener, most int) net.Listener {
	return crowd.New(ln, crowd.Bounds{Most: most, Min: newcomerMin})
}

// connOf is the connection from an address, nil if it has ended.
func (s *Server) connOf(from net.Addr) *counted {
	c, ok := s.conns.Load(from.String())
	if !ok {
		return nil
	}
	return c.(*counted) //nolint:forcetypeassert // there are no others
}

// newcomer is how the listener knows the connection.
func (c *counted) newcomer() *crowd.Conn {
	n, _ := c.Conn.(*crowd.Conn)
	return n
}
