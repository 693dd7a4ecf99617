package amqp

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/warrenmq/warren/amqp"
)

// ErrServerClosed is returned by Serve after CloseListeners or Shutdown.
var ErrServerClosed = errors.New("amqp gateway: server is shut down")

// Server accepts and serves AMQP connections.
type Server struct {
	cfg    Config
	broker Broker
	log    *slog.Logger

	// blocked is the reason why publishers are not read, "" for none.
	blocked atomic.Pointer[string]
	stats   counters
	pools   buffers
	// assembly is the room for messages that are still arriving.
	assembly *assembly
	// strangers paces the log of connections without a login.
	strangers strangers
	quiet     atomic.Pointer[chan struct{}] // closed when quiet ends; nil: not quiet
	quietMu   sync.Mutex                    // held while it begins or ends

	mu        sync.Mutex
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	greeting  list.List // of *conn: those that have not said who they are, the oldest first
	opened    int       // of conns: those that took a place under OpenMax
	closed    bool
	wg        sync.WaitGroup // connections
}

// New returns a server that serves b.
func New(cfg Config, b Broker) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, broker: b, log: cfg.Logger, assembly: newAssembly(cfg.AssemblyBytesNodeMax),
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}
	s.blocked.Store(new(string))
	return s, nil
}

// Serve accepts connections from ln until CloseListeners or Shutdown, and closes ln. It may run
// for several listeners at once.
func (s *Server) Serve(ln net.Listener) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errors.Join(ErrServerClosed, ln.Close())
	}
	s.listeners[ln] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, ln)
		s.mu.Unlock()
		_ = ln.Close() // closed already on the way here, or not worth a word
	}()
	const pauseMax = time.Second
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		if err == nil {
			pause = 0
			s.start(nc)
			continue
		}
		if !s.listens(ln) {
			return ErrServerClosed
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("amqp gateway: accept: %w", err)
		}
		// Out of file descriptors or the like: it passes when connections end.
		pause = min(max(2*pause, 5*time.Millisecond), pauseMax)
		s.log.Warn("accept failed", "err", err, "pause", pause)
		time.Sleep(pause)
	}
}

// listens tells whether ln is not closed by CloseListeners.
func (s *Server) listens(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.listeners[ln]
	return ok
}

// greetingMin is how long a client has at least to say who it is.
const greetingMin = time.Second

// start serves nc on its own goroutine, or closes it.
func (s *Server) start(nc net.Conn) {
	s.mu.Lock()
	full, old := len(s.conns) >= s.cfg.ConnectionsMax, (*conn)(nil)
	if full && !s.closed {
		old = s.dismissLocked(time.Now())
		full = old == nil
	}
	if s.closed || full {
		s.mu.Unlock()
		_ = nc.Close()
		if full {
			s.refuse("connection limit reached", nc)
		}
		return
	}
	c := newConn(s, nc)
	s.conns[c] = struct{}{}
	c.greets = s.greeting.PushBack(c)
	s.wg.Add(1)
	s.mu.Unlock()
	if old != nil {
		old.drop()
		s.refuse("connection limit reached, one that has not said who it is makes room", old.nc)
	}
	s.stats.accepted.Add(1)
	go func() {
		defer s.wg.Done()
		defer close(c.done)
		defer func() {
			s.mu.Lock()
			s.greetedLocked(c)
			delete(s.conns, c)
			if c.placed {
				s.opened--
			}
			s.mu.Unlock()
			s.stats.closed.Add(1)
			s.stats.channelsClosed.Add(uint64(len(c.channels)))
		}()
		c.run()
	}()
}

// place gives c one of the places for open connections, which it has until it ends; false: all are taken.
func (s *Server) place(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened >= s.cfg.OpenMax {
		s.stats.refused.Add(1)
		return false
	}
	s.opened++
	c.placed = true
	return true
}

// refuse counts a connection that is not served because there are too many.
func (s *Server) refuse(why string, nc net.Conn) {
	s.stats.refused.Add(1)
	s.strangers.say(s.log, slog.LevelWarn, why, slog.Any("peer", directAddr(nc)), slog.Int("limit", s.cfg.ConnectionsMax))
}

// dismissLocked takes the oldest connection that has not said who it is and has had the time for it out of those that count, so that who says nothing
// keeps no client out. It is not one whose login is being looked at: where many log in at a time they would drive each other out. Nil: there is none.
func (s *Server) dismissLocked(now time.Time) *conn {
	front := s.greeting.Front()
	if front == nil {
		return nil
	}
	old := front.Value.(*conn) //nolint:forcetypeassert // the list has no others
	if now.Sub(old.arrived) < greetingMin {
		return nil
	}
	s.greetedLocked(old)
	delete(s.conns, old)
	return old
}

// greeted notes that a client has said who it is.
func (s *Server) greeted(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greetedLocked(c)
}

func (s *Server) greetedLocked(c *conn) {
	if c.greets != nil {
		s.greeting.Remove(c.greets)
		c.greets = nil
	}
}

// drop ends a connection at once: nothing waits for its socket, as the end of TLS does.
func (c *conn) drop() {
	c.cancel()
	c.out.abort()
	_ = innermost(c.nc).Close()
}

// innermost is the socket under TLS and what a proxy says.
func innermost(nc net.Conn) net.Conn {
	for {
		switch c := nc.(type) {
		case interface{ NetConn() net.Conn }:
			nc = c.NetConn()
		case interface{ Raw() net.Conn }:
			nc = c.Raw()
		default:
			return nc
		}
	}
}

// directAddr is the address of who is connected, client or proxy. It waits for nobody.
func directAddr(nc net.Conn) net.Addr { return innermost(nc).RemoteAddr() }

func (s *Server) connections() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// SetBlocked stops reading from publishing connections while reason is not
// empty, such as "low on memory" or "low on memory & disk".
func (s *Server) SetBlocked(reason string) {
	s.blocked.Store(&reason)
	for _, c := range s.connections() {
		c.updateBlocked()
	}
}

// serverProperties are the first thing a client learns.
func (s *Server) serverProperties() wire.Table {
	capabilities := wire.Table{}
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
		"connection.blocked", "consumer_priorities", "authentication_failure_close",
		"per_consumer_qos", "direct_reply_to",
	} {
		capabilities.Set(name, true)
	}
	t := wire.Table{}
	t.Set("capabilities", capabilities)
	t.Set("cluster_name", s.cfg.ClusterName)
	t.Set("copyright", "The Warren authors")
	t.Set("information", "Licensed under the Apache License 2.0")
	t.Set("platform", "Go")
	t.Set("product", s.cfg.Product)
	t.Set("version", s.cfg.Version)
	return t
}

// Stats are totals since the server was made, and gauges of now.
type Stats struct {
	Connections        int    // open now, handshakes included
	ConnectionsMax     int    // that may be open
	Accepted, Refused  uint64 // connections; refused at ConnectionsMax or OpenMax
	Closed             uint64 // accepted ones that have ended
	ChannelsOpened     uint64
	ChannelsClosed     uint64
	HandshakesFailed   uint64
	HeartbeatsMissed   uint64 // connections closed for it
	ChannelErrors      uint64 // channel.close sent
	ConnectionErrors   uint64 // connection.close sent
	Published, Returns uint64 // messages
	Bursts             uint64 // turns of readers that flushed something
}

type counters struct {
	accepted, refused, handshakesFailed, heartbeatsMissed atomic.Uint64
	closed, channelsOpened, channelsClosed                atomic.Uint64
	channelErrors, connectionErrors                       atomic.Uint64
	published, returns, bursts                            atomic.Uint64
}

// Stats returns the current figures.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	open := len(s.conns)
	s.mu.Unlock()
	c := &s.stats
	return Stats{
		Closed: c.closed.Load(), ChannelsClosed: c.channelsClosed.Load(), ChannelsOpened: c.channelsOpened.Load(),
		Connections: open, ConnectionsMax: min(s.cfg.ConnectionsMax, s.cfg.OpenMax), Accepted: c.accepted.Load(), Refused: c.refused.Load(),
		HandshakesFailed: c.handshakesFailed.Load(), HeartbeatsMissed: c.heartbeatsMissed.Load(),
		ChannelErrors: c.channelErrors.Load(), ConnectionErrors: c.connectionErrors.Load(),
		Published: c.published.Load(), Returns: c.returns.Load(), Bursts: c.bursts.Load(),
	}
}
