package amqp

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// conn is one client's connection. Its fields belong to the reader's goroutine
// unless they say otherwise.
type conn struct {
	srv *Server
	nc  net.Conn
	to  net.Conn // what is written to: nc, or the socket itself that a proxy has made
	log *slog.Logger
	out *outbox
	in  inbound
	fr  *wire.FrameReader

	ctx    context.Context // ends with the connection or a kick
	cancel context.CancelFunc

	user       broker.User
	vhost      string
	name       string               // the client's connection_name
	mechanism  string               // of its login
	verified   bool                 // it has shown a certificate that was verified
	peer       string               // whom that names, "" for nobody
	secure     *tls.ConnectionState // nil without TLS
	broker     Conn                 // nil until connection.open
	frameMax   uint32               // negotiated; the writer reads it after the first content
	channelMax uint16
	// cancelNotify and blockedNotify are the client's capabilities.
	cancelNotify, blockedNotify, failureClose bool

	// channelsMu is held to change channels, and by those who read it on other goroutines.
	channelsMu  sync.Mutex
	channels    map[uint16]*channel
	current     *channel      // the channel of the last frame, to spare the map
	touched     []*channel    // with something to settle or flush at the end of the burst
	waits       func()        // passOn, for the broker
	late        []lateChannel // closed a moment ago
	assembled   int           // bytes of messages that are still arriving
	reserved    int64         // room for them
	published   uint64        // since the last burst
	isPublisher bool          // has published once

	// heartbeat is the negotiated interval in nanoseconds, for the writer.
	heartbeat atomic.Int64
	// sender is closed when the writer has ended. sending is held by the writer from before
	// a write until the consumers have been told of it.
	sender  chan struct{}
	sending sync.Mutex
	done    chan struct{} // closed when the connection has ended
	arrived time.Time
	greets  *list.Element // in the server's greeting until the client has said who it is; guarded by the server's mu
	expiry  *time.Timer   // ends the connection with the token that it was opened with, nil: it had none
	placed  bool          // has a place under OpenMax; guarded by the server's mu

	// Any goroutine:
	failures          chan struct{}                  // capacity 1: the broker has ended channels
	facts             atomic.Pointer[ConnectionInfo] // nil during the handshake
	channelCount      atomic.Int32
	received, written atomic.Uint64 // bytes
	kicked            atomic.Pointer[broker.Error]
	grown             atomic.Int64 // when a message in many frames was last begun or continued, Unix time in ns
	atRest            atomic.Bool  // quiet, and everything read has its answers
	spared            atomic.Bool  // read on while the server is quiet: it is to end in a later wave
	blockMu           sync.Mutex
	// Guarded by blockMu.
	publisher bool   // has published
	open      bool   // connection.open-ok was sent
	told      string // reason of connection.blocked, "" if not blocked
	unblocked chan struct{}
	ending    bool               // the reader waits for the peer's goodbye only: nothing wakes it
	rushed    bool               // the broker is not waited for
	hurry     context.CancelFunc // ends the newest context of releasing
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, nc: nc, to: nc, log: s.log,
		out:      newOutbox(s.cfg.WriteBufferBytes, &s.pools, s.cfg.Unread),
		channels: map[uint16]*channel{}, sender: make(chan struct{}), done: make(chan struct{}),
		failures: make(chan struct{}, 1), arrived: time.Now(),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.waits = c.passOn
	c.in = inbound{c: c}
	c.fr = wire.NewFrameReader(&c.in)
	return c
}

// run serves the connection until it ends and everything about it is released.
func (c *conn) run() {
	defer c.nc.Close()
	defer c.cancel()
	c.log = c.log.With("peer", c.nc.RemoteAddr().String()) // a proxy may be late to tell it
	if _, secure := c.nc.(*tls.Conn); !secure {
		c.to = innermost(c.nc) // a proxy's header only comes in
	}
	log := c.log
	go func() { // ends when the outbox is finished or aborted, waited for below
		defer close(c.sender)
		c.write(log)
	}()
	if tcp, ok := c.nc.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true) // the writer batches
	}
	c.end(c.live())
	if c.expiry != nil {
		c.expiry.Stop()
	}
	for _, ch := range c.channels {
		c.unreserve(&ch.publish)
	}
	c.out.finish()
	<-c.sender
}

// serve handles frames until the connection ends; the error says how.
func (c *conn) serve() error {
	for {
		if !c.fr.Ready() {
			c.endBurst()
			if err := c.whileBlocked(); err != nil {
				return err
			}
		}
		f, err := c.fr.Next()
		if err != nil {
			return err
		}
		if err := c.frame(f); err != nil {
			return err
		}
	}
}

// endBurst passes on what a burst of frames collected.
func (c *conn) endBurst() {
	c.passOn()
	c.out.waitRoom()
}

// passOn is endBurst for who is about to wait for something else, in the middle of a burst: what came before, on any channel, is not to wait for that.
func (c *conn) passOn() {
	for i, ch := range c.touched {
		ch.touched = false
		ch.flush()
		c.touched[i] = nil
	}
	c.touched = c.touched[:0]
	if c.published > 0 {
		c.srv.stats.published.Add(c.published)
		c.srv.stats.bursts.Add(1)
		c.published = 0
	}
}

// frame handles one frame. An error ends the connection.
func (c *conn) frame(f wire.Frame) error {
	switch f.Type {
	case wire.FrameMethod:
		if f.Channel == 0 {
			return c.connectionMethod(f.Payload)
		}
		return c.channelMethod(f)
	case wire.FrameHeartbeat:
		if f.Channel != 0 {
			return wire.Errorf(wire.UnexpectedFrame, 0, "heartbeat on channel %d", f.Channel)
		}
		return nil
	default:
		return c.content(f)
	}
}

// connectionMethod handles a method on channel 0 of an open connection.
func (c *conn) connectionMethod(payload []byte) error {
	m, err := wire.Decode(payload)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *wire.ConnectionClose:
		return errClientClosed
	case *wire.ConnectionCloseOk:
		return nil // answers a close we did not send: harmless
	case *wire.ConnectionUpdateSecret:
		return c.updateSecret(m)
	default:
		return wire.Errorf(wire.ChannelError, m.ID(), "unexpected method %s on channel 0 of a running connection", m.Name())
	}
}

// operation bounds one blocking call of the broker.
func (c *conn) operation() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, c.srv.cfg.OperationTimeout)
}

// kick ends the connection with connection.close. It does not block and may be
// called from any goroutine; only the first call counts.
func (c *conn) kick(why *broker.Error) {
	if !c.kicked.CompareAndSwap(nil, why) {
		return
	}
	c.cancel()
	c.out.interrupt()
	c.blockMu.Lock()
	defer c.blockMu.Unlock()
	c.wake()
	c.freeReader()
}

// wake makes a read of the socket end at once; called with blockMu held. The wait for the
// peer's close-ok is not cut short: a socket closed under what the peer still sends loses the close.
func (c *conn) wake() {
	if !c.ending {
		_ = c.nc.SetReadDeadline(past()) // a closed socket has no reader
	}
}

// cut ends the connection without a word.
func (c *conn) cut() {
	c.cancel()
	c.out.abort()
	_ = c.nc.Close()
}

// end says goodbye as the error demands and releases what the broker keeps.
func (c *conn) end(err error) {
	if why := c.kicked.Load(); why != nil {
		err = protocolError(why, 0)
	}
	protocol, isProtocol := errors.AsType[*wire.Error](err)
	switch {
	case errors.Is(err, errClientClosed):
		c.release(false)
		c.out.last(&wire.ConnectionCloseOk{})
		c.out.finish()
		<-c.sender
		c.drain(false)
		c.log.Debug("connection closed by client", "user", c.user.Name)
	case isProtocol:
		c.srv.stats.connectionErrors.Add(1)
		c.logClose(protocol)
		c.out.last(protocol.ConnectionClose())
		c.release(true)
		c.drain(protocol.Code != wire.FrameError)
	default:
		c.logEnd(err)
		c.release(false)
	}
}

func (c *conn) logClose(err *wire.Error) {
	level := slog.LevelWarn
	if err.Code == wire.ConnectionForced {
		level = slog.LevelInfo
	}
	attrs := []slog.Attr{slog.Any("err", err)}
	if err.Code == wire.InternalError && err.Err != nil {
		attrs = append(attrs, slog.Any("cause", err.Err)) // the client saw none of it
	}
	c.say(level, "closing connection", attrs...)
}

func (c *conn) logEnd(err error) {
	switch {
	case errors.Is(err, errHeartbeat):
		c.srv.stats.heartbeatsMissed.Add(1)
		c.log.Warn("missed heartbeats from client", "user", c.user.Name, "interval", time.Duration(c.heartbeat.Load()))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		c.log.Debug("client closed the socket without closing the connection", "user", c.user.Name)
	case errors.Is(err, errWrongProtocol): // that is said already
	default:
		c.say(slog.LevelInfo, "connection ended", slog.Any("err", err))
	}
}

// releasing is the context of what is given back to the broker: it outlives that of the connection, and ends with rush.
func (c *conn) releasing() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), c.srv.cfg.OperationTimeout)
	c.blockMu.Lock()
	defer c.blockMu.Unlock()
	if c.rushed {
		cancel()
	}
	c.hurry = cancel
	return ctx, cancel
}

// rush cuts the connection, and leaves to the broker what it has not got to by now.
func (c *conn) rush() {
	c.cut()
	c.blockMu.Lock()
	defer c.blockMu.Unlock()
	c.rushed = true
	if c.hurry != nil {
		c.hurry()
	}
}

// release gives everything back to the broker: channels, unsettled deliveries,
// exclusive queues. It works on when the connection's context has ended. With queued the client
// reads what is to be written yet.
func (c *conn) release(queued bool) {
	noAck := false
	for _, ch := range c.channels {
		ch.silence()
		noAck = noAck || ch.noAck
	}
	if c.broker == nil {
		return
	}
	if noAck {
		c.awaitWritten(queued)
	}
	ctx, cancel := c.releasing()
	defer cancel()
	for _, ch := range c.channels {
		ch.flush()
		ch.closeBroker(ctx)
	}
	c.broker.Close(ctx)
	c.broker = nil
}

// drain reads and forgets what the peer still sends, so that closing the socket
// does not destroy what was written. It ends with the peer's close-ok (if frames
// can still be told apart), the end of the stream, or the close timeout.
func (c *conn) drain(frames bool) {
	c.in.final(c.srv.cfg.CloseTimeout)
	if !frames {
		if half, ok := c.to.(interface{ CloseWrite() error }); ok {
			c.out.finish()
			<-c.sender
			_ = half.CloseWrite() // the peer may be gone already
		}
		_, _ = io.Copy(io.Discard, c.nc)
		return
	}
	for {
		f, err := c.fr.Next()
		if err != nil {
			return
		}
		if f.Type != wire.FrameMethod || f.Channel != 0 {
			continue
		}
		switch m, _ := wire.Decode(f.Payload); m.(type) {
		case *wire.ConnectionCloseOk:
			return
		case *wire.ConnectionClose:
			c.out.answerClose()
		}
	}
}

// inbound is the socket as the frame reader sees it: it keeps the deadlines.
type inbound struct {
	c        *conn
	timeout  time.Duration // silence that ends the connection, 0 for any
	deadline time.Time     // what is set at the socket
	fixed    bool          // deadline stays as it is
}

func past() time.Time { return time.Unix(1, 0) }

// until sets a fixed deadline, for the handshake.
func (in *inbound) until(t time.Time) {
	in.fixed = true
	_ = in.c.nc.SetReadDeadline(t) // reads report a closed socket
}

// silence ends the connection when nothing comes for d; 0 allows any silence.
func (in *inbound) silence(d time.Duration) {
	in.fixed, in.timeout, in.deadline = false, d, time.Time{}
	_ = in.c.nc.SetReadDeadline(time.Time{})
}

// final sets the deadline for the rest of the connection, kicked or not.
func (in *inbound) final(d time.Duration) {
	in.c.blockMu.Lock()
	in.c.ending = true
	in.c.blockMu.Unlock()
	in.until(time.Now().Add(d))
	in.timeout = -1
}

// Read implements io.Reader.
func (in *inbound) Read(b []byte) (int, error) {
	for {
		n, err := in.read(b)
		if n > 0 || err == nil || in.timeout < 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !in.woken() {
			return n, in.explain(err)
		}
	}
}

// woken tells whether a deadline has passed early for the reader to look around. A quiet one waits at the top of
// the next turn.
func (in *inbound) woken() bool { return in.c.attended() || in.c.hushed() }

// read is one read of the socket, behind the wait of a quiet server.
func (in *inbound) read(b []byte) (int, error) {
	for {
		if err := in.await(); err != nil {
			return 0, err
		}
		if !in.fixed && in.timeout > 0 {
			// Setting the deadline costs as much as a small read: do it when an
			// eighth of it has passed. A peer that was not read for a while has a whole
			// interval again.
			now := time.Now()
			if in.deadline.Sub(now) < in.timeout {
				in.deadline = now.Add(in.timeout + in.timeout/8)
				if err := in.c.nc.SetReadDeadline(in.deadline); err != nil {
					return 0, err
				}
			}
		}
		if in.timeout >= 0 && in.c.kicked.Load() != nil {
			return 0, errKicked
		}
		if in.timeout < 0 || !in.woken() {
			break
		}
		// It was woken before the deadline was set, which has undone that.
	}
	n, err := in.c.nc.Read(b)
	in.c.received.Add(uint64(n))
	return n, err
}

// await waits while the connection is quiet.
func (in *inbound) await() error {
	if in.timeout < 0 || !in.c.hushed() {
		return nil
	}
	return in.c.whileQuiet()
}

// explain says what the end of a deadline means.
func (in *inbound) explain(err error) error {
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	switch {
	case in.timeout >= 0 && in.c.kicked.Load() != nil:
		return errKicked
	case in.fixed:
		return errHandshakeLate
	}
	return errHeartbeat
}
