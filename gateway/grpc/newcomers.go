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

// newcomer is the connection from an address, nil if it has ended.
func (s *Server) newcomer(from net.Addr) *crowd.Conn {
	if c, ok := s.conns.Load(from.String()); ok {
		n, _ := c.(*counted).Conn.(*crowd.Conn) //nolint:forcetypeassert // there are no others
		return n
	}
	return nil
}
