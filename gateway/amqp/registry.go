package amqp

import (
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// ConnectionInfo describes an open connection to tools.
type ConnectionInfo struct {
	// Name is "peer -> server", two addresses with ports, as RabbitMQ's tools show
	// it. It is unique among the open connections of a node.
	Name string
	// ClientName is the client's connection_name, or "".
	ClientName       string
	User, VHost      string
	Mechanism        string // of authentication
	Peer, Local      net.Addr
	TLS              *tls.ConnectionState // nil without TLS; read only
	ClientProperties wire.Table           // read only
	ChannelMax       uint16
	FrameMax         uint32 // bytes
	Heartbeat        time.Duration
	Opened           time.Time

	Channels int // open now
	// Blocked is the reason for which the connection is not read, "" for none.
	Blocked                     string
	ReceivedBytes, WrittenBytes uint64
}

// Connections describes the connections that have passed their handshake, by
// the time of their opening.
func (s *Server) Connections() []ConnectionInfo {
	all := s.connections()
	list := make([]ConnectionInfo, 0, len(all))
	for _, c := range all {
		if info, ok := c.describe(); ok {
			list = append(list, info)
		}
	}
	slices.SortFunc(list, func(a, b ConnectionInfo) int {
		if d := a.Opened.Compare(b.Opened); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list
}

// CloseConnection ends the connection of the given Name with CONNECTION_FORCED
// and the text, cut to what fits a reply. It returns at once; ok tells whether
// there was one.
func (s *Server) CloseConnection(name, text string) (ok bool) {
	return s.closeWhere(text, func(i *ConnectionInfo) bool { return i.Name == name }) > 0
}

// closeWhere ends the connections that match and returns how many they were.
func (s *Server) closeWhere(text string, match func(*ConnectionInfo) bool) (n int) {
	for _, c := range s.connections() {
		if fixed := c.facts.Load(); fixed != nil && match(fixed) {
			c.kick(broker.Errorf(broker.ConnectionForced, "%s", text))
			n++
		}
	}
	return n
}

// connectionName is the name tools use for a connection.
func connectionName(nc net.Conn) string {
	return nc.RemoteAddr().String() + " -> " + nc.LocalAddr().String()
}

// register makes an open connection visible to tools.
func (c *conn) register(props wire.Table) {
	c.facts.Store(&ConnectionInfo{
		Name: connectionName(c.nc), ClientName: c.name, User: c.user.Name, VHost: c.vhost, Mechanism: c.mechanism,
		Peer: c.nc.RemoteAddr(), Local: c.nc.LocalAddr(), TLS: c.secure, ClientProperties: props,
		ChannelMax: c.channelMax, FrameMax: c.frameMax, Heartbeat: time.Duration(c.heartbeat.Load()),
		Opened: time.Now(),
	})
}

// describe returns the facts of now; ok is false during the handshake.
func (c *conn) describe() (info ConnectionInfo, ok bool) {
	fixed := c.facts.Load()
	if fixed == nil {
		return info, false
	}
	info = *fixed
	info.Channels = int(c.channelCount.Load())
	info.ReceivedBytes, info.WrittenBytes = c.received.Load(), c.written.Load()
	c.blockMu.Lock()
	info.Blocked = c.told
	c.blockMu.Unlock()
	return info, true
}
