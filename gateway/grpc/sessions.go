package grpc

import (
	"cmp"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
)

// ConnectionInfo describes a client's connection to tools: the streams of one user in one virtual host on one connection of
// HTTP/2. Calls that are no streams are over too soon to be shown.
type ConnectionInfo struct {
	// Name is "peer -> server", two addresses with ports, as of AMQP's connections. Where several users or virtual hosts share a
	// connection, " (user@vhost)" is behind it for all but the first.
	Name        string
	User, VHost string
	Mechanism   string // PLAIN or EXTERNAL
	Agent       string // what the client's library says of itself
	Peer, Local net.Addr
	TLS         *tls.ConnectionState // nil without TLS; read only
	Opened      time.Time            // the oldest stream
	Streams     int
}

// Connections describes the connections that have streams, by the time of their opening.
func (s *Server) Connections() []ConnectionInfo {
	list := []ConnectionInfo{}
	for _, group := range s.grouped() {
		info := group.info
		info.Streams = len(group.sessions)
		list = append(list, info)
	}
	return list
}

// CloseConnection ends the streams of a connection, and reports whether there was one of that name.
func (s *Server) CloseConnection(name, text string) bool {
	for _, group := range s.grouped() {
		if group.info.Name == name {
			for _, x := range group.sessions {
				x.end(refuse(codes.Unavailable, "CONNECTION_FORCED", "%s", text))
			}
			return true
		}
	}
	return false
}

type sessionGroup struct {
	info     ConnectionInfo
	sessions []*session
}

// all are the open sessions, in the order of their opening.
func (s *Server) all() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.sessions), func(a, b *session) int { return cmp.Compare(a.number, b.number) })
}

// grouped are the sessions by connection, user and virtual host.
func (s *Server) grouped() []*sessionGroup {
	all := s.all()
	type key struct{ link, user, vhost string }
	groups, first := map[key]*sessionGroup{}, map[string]bool{}
	var list []*sessionGroup
	for _, x := range all {
		c := callerOf(x.ctx)
		k := key{c.peer.String() + " -> " + c.local.String(), c.user.Name, x.vhost}
		g := groups[k]
		if g == nil {
			g = &sessionGroup{info: ConnectionInfo{
				Name: k.link, User: k.user, VHost: k.vhost, Mechanism: c.mechanism, Agent: c.agent, Peer: c.peer, Local: c.local, TLS: c.tls, Opened: x.opened,
			}}
			if first[k.link] {
				g.info.Name += " (" + k.user + "@" + k.vhost + ")"
			}
			first[k.link] = true
			groups[k] = g
			list = append(list, g)
		}
		g.sessions = append(g.sessions, x)
	}
	return list
}
