package main

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// httpConns is an HTTP listener that lets so many connections be open. Beyond it the one that has been without a request for the longest is closed, and
// more wait only if all have one: those that are kept for a next request, or send none, must not keep out who has one, such as a health check.
type httpConns struct {
	net.Listener

	most int
	done chan struct{} // closed when the listener is

	mu    sync.Mutex
	open  map[net.Conn]*list.Element // in idle, nil when the connection has a request
	idle  list.List                  // of net.Conn, that without a request for the longest first
	freed chan struct{}              // closed when one more may be open, nil while nobody waits
	once  sync.Once
}

func newHTTPConns(ln net.Listener, most int) *httpConns {
	return &httpConns{Listener: ln, most: most, done: make(chan struct{}), open: map[net.Conn]*list.Element{}}
}

// Accept implements net.Listener.
func (l *httpConns) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	for {
		entered, wait := l.enter(conn)
		if entered {
			return conn, nil
		}
		select {
		case <-wait:
		case <-l.done:
			_ = conn.Close() // nothing was exchanged
			return nil, net.ErrClosed
		}
	}
}

// enter counts a new connection, if need be in place of an idle one. If all have a request, wait is closed when that may have changed.
func (l *httpConns) enter(conn net.Conn) (entered bool, wait <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.most {
		if l.idle.Len() == 0 {
			if l.freed == nil {
				l.freed = make(chan struct{})
			}
			return false, l.freed
		}
		old := l.idle.Remove(l.idle.Front()).(net.Conn) //nolint:forcetypeassert // the list has no others
		delete(l.open, old)
		_ = old.Close() // its server sees that
	}
	l.open[conn] = l.idle.PushBack(conn)
	return true, nil
}

// Close implements net.Listener.
func (l *httpConns) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// state is told by the server what becomes of a connection; see http.Server.ConnState.
func (l *httpConns) state(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	at, known := l.open[conn]
	if !known {
		return // it had to go for another one
	}
	switch state {
	case http.StateActive:
		if at != nil {
			l.idle.Remove(at)
			l.open[conn] = nil
		}
		return
	case http.StateIdle:
		if at == nil {
			l.open[conn] = l.idle.PushBack(conn)
		}
	case http.StateClosed, http.StateHijacked:
		if at != nil {
			l.idle.Remove(at)
		}
		delete(l.open, conn)
	case http.StateNew:
		return
	}
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}
