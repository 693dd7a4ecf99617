package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
)

// PeerStatus is what the mesh knows about the way to a node.
type PeerStatus struct {
	Node NodeID
	// Up is true while a link to the node is established.
	Up bool
	// Refused is true when the newest dial was refused by the node's host: the
	// process is certainly dead.
	Refused bool
	// LastAnswered is the sending time of the newest ping that was answered.
	LastAnswered time.Time
	// LastHeard is when anything last came over a stream that the node opened; zero if there is none now.
	LastHeard time.Time
	// RTT is the round trip of that ping.
	RTT time.Duration
	// Support is what the node said in that answer of its support for this one.
	Support Support
	// ClockOffset is how far the node's clock (see Mesh.Clock) is ahead of this one's, within half the round trip of the
	// fastest answer to a ping that its process has given of late. ClockKnown is false until the first.
	ClockOffset time.Duration
	ClockKnown  bool
	// Process identifies the run of the node's process the link leads or last led
	// to; 0 before the first link.
	Process uint64
	// Level is the newest level that the node's program and this one both know, as of the link or the last one; 0 before the
	// first.
	Level int
	// Err is why the link is down, nil while it is up or was never tried.
	Err error
}

// peer keeps the outgoing link to one node: one goroutine dials, then reads; one
// more writes while a link is up.
type peer struct {
	m  *Mesh
	id NodeID

	mu           sync.Mutex
	sess         *session      // nil while down
	up           chan struct{} // closed while up
	tried        chan struct{} // closed and replaced after each failed attempt
	pinned       bool          // named by SetPeers
	lastUse      time.Time
	refused      bool
	lastAnswered time.Time
	rtt          time.Duration
	support      Support
	clock        clockSample
	process      uint64
	level        int
	err          error  // of the newest failed attempt or lost link; nil while up
	told         uint16 // code of the refusal that the log has; 0 if none since the link was up
	gone         bool   // removed from the mesh; nothing may wait on it
	// dialAddr is the address of the newest attempt, dialEnd gives it up; nil while none is under way.
	dialAddr string
	dialEnd  context.CancelFunc

	kick chan struct{} // capacity 1: dial now
}

func newPeer(m *Mesh, id NodeID) *peer {
	return &peer{m: m, id: id, up: make(chan struct{}), tried: make(chan struct{}), kick: make(chan struct{}, 1), lastUse: time.Now()}
}

func (p *peer) status() PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PeerStatus{
		Node: p.id, Up: p.sess != nil, Refused: p.refused, LastAnswered: p.lastAnswered, RTT: p.rtt, Support: p.support, Process: p.process, Err: p.err, Level: p.level,
		ClockOffset: p.clock.offset, ClockKnown: p.clock.known(),
	}
}

// current returns the session, or nil.
func (p *peer) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastUse = time.Now()
	return p.sess
}

// await waits for a session until stop or timeout. With failFast it gives up as
// soon as an attempt has failed.
func (p *peer) await(stop <-chan struct{}, timeout <-chan time.Time, failFast bool) (*session, error) {
	for {
		p.mu.Lock()
		p.lastUse = time.Now()
		sess, up, tried, err, gone := p.sess, p.up, p.tried, p.err, p.gone
		p.mu.Unlock()
		switch {
		case sess != nil:
			return sess, nil
		case gone:
			return nil, ErrPeerDown
		case failFast && err != nil && !errors.Is(err, errLinkLost):
			return nil, fmt.Errorf("%w: %w", ErrPeerDown, err)
		}
		var failed <-chan struct{}
		if failFast {
			failed = tried
		}
		select {
		case <-up:
		case <-failed:
		case <-stop:
			return nil, ErrClosed
		case <-p.m.done:
			return nil, ErrClosed
		case <-timeout:
			return nil, errNoLink
		}
	}
}

// errNoLink is the end of a wait for a link.
var errNoLink = fmt.Errorf("%w: no link within the wait", ErrPeerDown)

// errLinkLost marks the state between the loss of a link and the next attempt.
var errLinkLost = errors.New("link lost")

// answered records an answered ping, what the node's clock showed and how often it has turned away.
func (p *peer) answered(sent time.Time, rtt time.Duration, clock int64, s Support) {
	ours := p.m.clockAt(sent.Add(rtt / 2))
	p.mu.Lock()
	if sent.After(p.lastAnswered) {
		p.lastAnswered, p.rtt, p.support = sent, rtt, s
		p.clock = p.clock.better(clockSample{offset: time.Duration(clock-ours) * time.Millisecond, doubt: rtt / 2, taken: sent, process: s.Process})
	}
	p.mu.Unlock()
}

// answeredSince returns the time of the newest answered ping, not before began.
func (p *peer) answeredSince(began time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lastAnswered.After(began) {
		return p.lastAnswered
	}
	return began
}

// hurry asks for a dial at once: the node was just heard from.
func (p *peer) hurry() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// readdress has the node dialled where it is now, if the newest attempt was made, or is being made, somewhere else: at an address
// that nobody has any more an attempt ends by its time only.
func (p *peer) readdress() {
	addr, ok := p.m.cfg.Resolve(p.id)
	p.mu.Lock()
	elsewhere := ok && p.sess == nil && p.dialAddr != "" && p.dialAddr != addr
	if elsewhere && p.dialEnd != nil {
		p.dialEnd()
	}
	p.mu.Unlock()
	if elsewhere {
		p.hurry()
	}
}

// idle reports whether the peer may be dropped.
func (p *peer) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.pinned && time.Since(p.lastUse) > p.m.cfg.IdleMax
}

// run dials, serves the link, and dials again, until the mesh closes or the peer is
// idle. It is the peer's own goroutine.
func (p *peer) run(ctx context.Context) {
	defer p.m.forgetPeer(p)
	pause := p.m.cfg.RedialMin
	for ctx.Err() == nil {
		if p.idle() && p.m.dropIdle(p) {
			return
		}
		linked := p.connectAndServe(ctx)
		if linked {
			pause = p.m.cfg.RedialMin
		}
		wait := pause/2 + rand.N(pause/2+1)
		pause = min(pause*2, p.m.cfg.RedialMax)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-p.kick:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// connectAndServe makes one attempt and, when it succeeds, stays with the link until it
// ends. It reports whether there was a link.
func (p *peer) connectAndServe(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sess, conn, err := p.connect(ctx, cancel)
	if err != nil {
		p.attemptFailed(err)
		return false
	}
	defer conn.Close()
	p.established(sess)
	var writer sync.WaitGroup
	writer.Go(sess.write)
	stopIdle, stopSilence := p.watchIdle(sess), sess.watchSilence()
	sess.read()
	stopIdle()
	stopSilence()
	writer.Wait()
	p.ended(sess)
	return true
}

// watchIdle ends the session of an unpinned peer when nothing used it for long.
func (p *peer) watchIdle(sess *session) (stop func()) {
	return repeat(p.m.cfg.IdleMax, func() {
		if p.idle() {
			sess.fail(errIdle)
		}
	})
}

// repeat calls f again and again, with a pause before each call; none is running or to come when stop has returned. It costs a timer, not a
// goroutine.
func repeat(pause time.Duration, f func()) (stop func()) {
	var (
		mu      sync.Mutex
		timer   *time.Timer
		stopped bool
	)
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(pause, func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			f()
			timer.Reset(pause)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

var errIdle = errors.New("link was idle")

// attemptFailed records a failed dial or handshake.
func (p *peer) attemptFailed(err error) {
	p.mu.Lock()
	refused := errors.Is(err, syscall.ECONNREFUSED)
	changed := refused != p.refused
	first := p.err == nil || errors.Is(p.err, errLinkLost)
	if r, ok := errors.AsType[*RemoteError](err); ok && r.Code != p.told { // somebody is there by now, and will not have it
		first, p.told = true, r.Code
	}
	p.refused, p.err = refused, err
	close(p.tried)
	p.tried = make(chan struct{})
	p.mu.Unlock()
	if p.m.ctx.Err() != nil {
		return
	}
	if first {
		p.m.cfg.Logger.Info("link to peer cannot be made", "peer", string(p.id), "err", err)
	}
	if changed {
		p.m.peerChanged(p.status())
	}
}

func (p *peer) established(sess *session) {
	p.mu.Lock()
	p.sess, p.err, p.told, p.refused, p.process, p.level = sess, nil, 0, false, sess.process, sess.level
	p.lastUse = time.Now()
	close(p.up)
	p.mu.Unlock()
	p.m.stats.linksMade.Add(1)
	p.m.cfg.Logger.Info("link to peer is up", "peer", string(p.id), "epoch", sess.epoch)
	p.m.peerChanged(p.status())
}

// detach takes a session that fails out of use.
func (p *peer) detach(sess *session, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sess == sess {
		p.sess = nil
		p.up = make(chan struct{})
		p.err = fmt.Errorf("%w: %w", errLinkLost, cause)
	}
}

// ended reports the end of a link when its goroutines are done with it.
func (p *peer) ended(sess *session) {
	p.m.stats.linksLost.Add(1)
	if p.m.ctx.Err() == nil {
		p.m.cfg.Logger.Info("link to peer is down", "peer", string(p.id), "err", sess.cause)
	}
	p.m.peerChanged(p.status())
}

// dialled is a gRPC connection that remembers why its socket could not be opened.
type dialled struct {
	*grpc.ClientConn
	mu  sync.Mutex
	err error
}

// explain prefers the socket's error to gRPC's description of it.
func (d *dialled) explain(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	return err
}

// open prepares a connection to addr; it is dialled at the first use.
func (m *Mesh) open(addr string) (*dialled, error) {
	d := &dialled{}
	creds := insecure.NewCredentials()
	if m.cfg.Secure != nil {
		creds = newClientCreds(m.cfg.Secure, m.cfg.Dial)
	}
	cc, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := m.cfg.Dial(ctx, addr)
			d.mu.Lock()
			d.err = err
			d.mu.Unlock()
			return c, err
		}),
		grpc.WithNoProxy(), experimental.WithBufferPool(m.pool),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(),
		grpc.WithStaticStreamWindowSize(streamWindowBytes), grpc.WithStaticConnWindowSize(connWindowBytes),
		grpc.WithReadBufferSize(readBufferBytes), grpc.WithWriteBufferSize(writeBufferBytes),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}),
			grpc.MaxCallRecvMsgSize(grpcBytesMax), grpc.MaxCallSendMsgSize(grpcBytesMax)),
	)
	if err != nil {
		return nil, err
	}
	d.ClientConn = cc
	return d, nil
}

// dial resolves the peer and prepares a connection to it.
func (p *peer) dial() (*dialled, error) {
	addr, err := p.resolve()
	if err != nil {
		return nil, err
	}
	return p.m.open(addr)
}

func (p *peer) resolve() (string, error) {
	if p.m.cfg.ClusterID() == "" {
		return "", ErrVirgin
	}
	addr, ok := p.m.cfg.Resolve(p.id)
	if !ok {
		return "", fmt.Errorf("%w: %s", ErrUnresolved, p.id)
	}
	return addr, nil
}

// attempt notes where the node is being dialled, for readdress.
func (p *peer) attempt(addr string, end context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialAddr, p.dialEnd = addr, end
}

// connect dials and shakes hands.
func (p *peer) connect(ctx context.Context, cancel context.CancelFunc) (*session, *dialled, error) {
	addr, err := p.resolve()
	if err != nil {
		return nil, nil, err
	}
	conn, err := p.m.open(addr)
	if err != nil {
		return nil, nil, err
	}
	p.attempt(addr, cancel)
	defer p.attempt(addr, nil)
	timer := time.AfterFunc(p.m.cfg.DialTimeout, cancel)
	sess, err := p.shake(ctx, cancel, conn)
	if err == nil {
		if err = sess.prove(); err != nil {
			err = fmt.Errorf("greet %s: %w", p.id, err)
		}
	}
	if !timer.Stop() && ctx.Err() != nil {
		err = fmt.Errorf("handshake with %s: %w", p.id, ErrTimeout)
	}
	if err != nil {
		cancel()
		conn.Close()
		return nil, nil, err
	}
	return sess, conn, nil
}

func (p *peer) shake(ctx context.Context, cancel context.CancelFunc, conn *dialled) (*session, error) {
	m := p.m
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, linkMethod)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", p.id, conn.explain(err))
	}
	h := hello{
		versionMin: uint16(m.cfg.LevelMin()), version: uint16(m.cfg.Level), cluster: m.cfg.ClusterID(),
		from: m.cfg.Local, to: p.id, process: m.process,
	}
	if err := stream.SendMsg(rawBytes(h.encode())); err != nil {
		return nil, fmt.Errorf("greet %s: %w", p.id, conn.explain(err))
	}
	var msg rawMessage
	if err := stream.RecvMsg(&msg); err != nil {
		return nil, fmt.Errorf("greet %s: %w", p.id, conn.explain(err))
	}
	w, err := decodeReply(msg.take())
	if err != nil {
		return nil, fmt.Errorf("greet %s: %w", p.id, err)
	}
	if w.version < h.versionMin || w.version > h.version {
		return nil, fmt.Errorf("greet %s: %w: welcome of version %d, offered were %d to %d", p.id, errMalformed, w.version, h.versionMin, h.version)
	}
	if w.node != p.id {
		return nil, fmt.Errorf("greet %s: %w", p.id, &RemoteError{Code: CodeTarget, Text: fmt.Sprintf("%s answers at that address", w.node)})
	}
	sess := &session{
		p: p, stream: stream, epoch: w.epoch, process: w.process, level: int(w.version), cancel: cancel, codec: raftCodec{self: []byte(p.id)},
		out: newOutbox(m.cfg.QueueBytesMax, m.pool), pending: map[uint64]func([]byte, error){}, done: make(chan struct{}),
	}
	sess.out.grant(int64(min(w.window, 1<<30)))
	sess.reader = messageSequence{epoch: w.epoch, limit: m.cfg.FrameBytesMax}
	sess.writer = messageWriter{epoch: w.epoch, send: func(msg *rawMessage) error {
		m.stats.messagesOut.Add(1)
		return stream.SendMsg(msg)
	}}
	return sess, nil
}
