package main

import (
	"crypto/tls"
	"net"
	"net/http"

	"github.com/warrenmq/warren/crowd"
)

// newHTTPConns lets so many connections of an HTTP listener be open. Beyond it the one that has been without a request for the longest is closed, and more
// wait only if all have one: those that are kept for a next request, or send none, must not keep out who has one, such as a health check. The server has to
// tell httpConnState of their states.
func newHTTPConns(ln net.Listener, most int) net.Listener {
	return crowd.New(ln, crowd.Bounds{Most: most})
}

// httpConnState is told by a server what becomes of a connection of newHTTPConns; see http.Server.ConnState.
func httpConnState(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c := conn.(*crowd.Conn) //nolint:forcetypeassert // the listener accepts no others
	switch state {
	case http.StateActive:
		c.Busy()
	case http.StateIdle:
		c.Idle()
	case http.StateHijacked:
		c.Leave()
	case http.StateNew, http.StateClosed: // known already
	}
}
