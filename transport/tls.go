package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Secure is how connections between nodes are secured. The configurations are used for the
// mesh's whole life and have "h2" as ALPN protocol: what changes they look up at each handshake.
type Secure struct {
	Server, Client *tls.Config
	// Plain serves connections without TLS as well, and dials without it those who do not speak
	// it. It is for the time in which a running cluster turns TLS on, and protects nothing.
	Plain bool
}

// renewPause is the time between two links that are made anew, renewMax that for all of them, renewRetry that until another attempt at those that stay.
const (
	renewPause = time.Second
	renewMax   = time.Minute
	renewRetry = 10 * time.Second
)

var errRenewed = errors.New("certificates were replaced")

// RenewLinks makes the links that this node has dialled anew, one after the other, so that both
// ends are checked by the certificates of now. It returns at once. A call during the work of another begins again.
//
// A link that cannot be made anew now, because the other end's certificate has expired while it was open, stays until it can; not if authorities were
// replaced: what they have signed counts no longer.
func (m *Mesh) RenewLinks(authorities bool) {
	ctx, cancel := context.WithCancel(m.ctx)
	m.mu.Lock()
	if m.renewing != nil {
		m.renewing()
	}
	m.renewing = cancel
	m.renewHard = m.renewHard || authorities
	hard := m.renewHard
	peers := make([]*peer, 0, len(m.peers))
	for _, p := range m.peers {
		peers = append(peers, p)
	}
	m.mu.Unlock()
	if !m.spawn(func() {
		defer cancel()
		peers, ended := m.renewEach(ctx, peers, hard)
		if ended {
			m.mu.Lock()
			m.renewHard = m.renewHard && ctx.Err() != nil // what came meanwhile begins again
			m.mu.Unlock()
		}
		for ended && len(peers) > 0 && sleep(ctx, renewRetry) {
			peers, ended = m.renewEach(ctx, peers, false)
		}
	}) {
		cancel()
	}
}

// renewEach ends the links to peers, which dial again by themselves, and returns those whose links have stayed; ended is false if ctx came first.
func (m *Mesh) renewEach(ctx context.Context, peers []*peer, hard bool) (stayed []*peer, ended bool) {
	for _, p := range peers {
		if !sleep(ctx, min(renewPause, renewMax/time.Duration(len(peers)))) {
			return nil, false
		}
		p.mu.Lock()
		sess := p.sess
		p.mu.Unlock()
		if sess == nil {
			continue
		}
		if !hard {
			if err := p.tryTLS(ctx); err != nil {
				m.cfg.Logger.Warn("a link stays as it is, it cannot be made with the new certificates", "peer", string(p.id), "err", err)
				stayed = append(stayed, p)
				continue
			}
		}
		sess.fail(errRenewed)
	}
	return stayed, true
}

// sleep waits for d; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// tryTLS tells why a handshake with the peer fails now, at either end. It says nothing of peers that need none.
func (p *peer) tryTLS(ctx context.Context) error {
	secure := p.m.cfg.Secure
	if secure == nil || secure.Plain {
		return nil
	}
	addr, err := p.resolve()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.m.cfg.DialTimeout)
	defer cancel()
	raw, err := p.m.cfg.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	conn, _, err := newClientCreds(secure, p.m.cfg.Dial).ClientHandshake(ctx, addr, raw)
	if err != nil {
		return err
	}
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetReadDeadline(at); err != nil {
			return err
		}
	}
	_, err = conn.Read(make([]byte, 1)) // a server that has taken this end's certificate speaks first
	return err
}

// refusedTLS logs a connection that failed its handshake, at most one a second.
func (m *Mesh) refusedTLS(addr net.Addr, err error) {
	m.stats.hellosRefused.Add(1)
	if m.mayLogRefusal() {
		m.cfg.Logger.Warn("refused a connection to the cluster address", "peer", addr.String(), "err", err)
	}
}

// serverCreds are the listener's end of a Secure.
type serverCreds struct {
	credentials.TransportCredentials // of TLS

	plain   bool
	refused func(net.Addr, error)
}

func newServerCreds(s *Secure, refused func(net.Addr, error)) credentials.TransportCredentials {
	return &serverCreds{credentials.NewTLS(s.Server), s.Plain, refused}
}

// tlsHandshakeRecord is the first byte that a client of TLS sends.
const tlsHandshakeRecord = 0x16

// ServerHandshake implements credentials.TransportCredentials. gRPC has set a deadline.
func (c *serverCreds) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if c.plain {
		first := make([]byte, 1)
		if _, err := io.ReadFull(raw, first); err != nil {
			return nil, nil, err
		}
		raw = &begunConn{Conn: raw, first: first}
		if first[0] != tlsHandshakeRecord {
			return insecure.NewCredentials().ServerHandshake(raw)
		}
	}
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil && !errors.Is(err, io.EOF) { // who goes away was not refused
		c.refused(raw.RemoteAddr(), err)
	}
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (c *serverCreds) Clone() credentials.TransportCredentials {
	clone := *c
	clone.TransportCredentials = c.TransportCredentials.Clone()
	return &clone
}

// begunConn is a connection of which a byte was read.
type begunConn struct {
	net.Conn

	first []byte
}

func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// clientCreds are the dialler's end of a Secure that takes plain connections too.
type clientCreds struct {
	credentials.TransportCredentials // of TLS

	dial func(context.Context, string) (net.Conn, error)
}

func newClientCreds(s *Secure, dial func(context.Context, string) (net.Conn, error)) credentials.TransportCredentials {
	secure := credentials.NewTLS(s.Client)
	if !s.Plain {
		return secure
	}
	return &clientCreds{secure, dial}
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *clientCreds) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	addr := raw.RemoteAddr().String()
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err == nil || !foreign(err) {
		return conn, info, err
	}
	_ = raw.Close() // nothing can be said on it any more
	again, dialErr := c.dial(ctx, addr)
	if dialErr != nil {
		return nil, nil, fmt.Errorf("without TLS: %w (with TLS: %w)", dialErr, err)
	}
	return insecure.NewCredentials().ClientHandshake(ctx, authority, again)
}

// Clone implements credentials.TransportCredentials.
func (c *clientCreds) Clone() credentials.TransportCredentials {
	return &clientCreds{c.TransportCredentials.Clone(), c.dial}
}

// foreign tells whether a handshake failed because the other end does not speak TLS: it answered
// something else, or hung up. Who speaks it and refuses says so with an alert.
func foreign(err error) bool {
	var header tls.RecordHeaderError
	return errors.As(err, &header) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
