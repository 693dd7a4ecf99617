package grpc

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/contain"
)

// protocolName is what operators see of connections.
const protocolName = "gRPC"

// session is a stream's connection at the broker, with its channel. The goroutine that reads the stream uses the channel and
// so do the ends of the session: whoever does holds work.
type session struct {
	s    *Server
	ctx  context.Context         //nolint:containedctx // the session's own
	stop context.CancelCauseFunc // with a *refusal, or nil when the client has ended it
	done chan struct{}           // closed when nothing is left of it
	// releasing outlives ctx: it is that of what the session gives back. rush ends it.
	releasing context.Context //nolint:containedctx // the session's own
	rush      context.CancelFunc

	number uint64 // of the server's sessions
	// over ends the session with the token that says what its user may do, nil if none does.
	over   *time.Timer
	vhost  string
	opened time.Time

	work   sync.Mutex
	conn   *broker.Conn
	ch     *broker.Channel
	closed bool

	kind   string       // of shared
	shared contain.Lock // the sink's

	leaving    chan struct{}           // closed when the session is to come to its end
	why        atomic.Pointer[refusal] // why it is, set before
	unanswered func() bool             // whether answers are missing
}

// vhostOf is the virtual host that a client means.
func vhostOf(name string) string {
	if name == "" {
		return "/"
	}
	return name
}

// begin opens a session for the caller of ctx. Whoever gets one closes it.
func (s *Server) begin(ctx context.Context, vhost string, sink sink, unanswered func() bool) (*session, error) {
	x := &session{s: s, number: s.numbers.Add(1), vhost: vhostOf(vhost), opened: time.Now(), done: make(chan struct{}), leaving: make(chan struct{}), unanswered: unanswered}
	x.kind, x.shared = sink.lock()
	x.ctx, x.stop = context.WithCancelCause(ctx)
	x.releasing, x.rush = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if x.conn, err = s.connect(ctx, vhost, func(e *broker.Error) { x.end(refusalOf(e)) }); err != nil {
		x.stop(nil)
		x.rush()
		return nil, err
	}
	if x.ch, err = x.conn.OpenChannel(ctx, sink); err != nil {
		x.stop(nil)
		x.conn.Close(x.releasing)
		x.rush()
		return nil, err
	}
	x.ch.Names(uint16(x.number))
	s.mu.Lock()
	s.sessions[x] = struct{}{}
	if u := callerOf(ctx).user; u.Rights != nil && !u.Until.IsZero() { // no user can be deleted to end it
		x.over = time.AfterFunc(time.Until(u.Until), func() { x.end(refusalOf(broker.CredentialExpired())) })
	}
	why, tooMany := s.leaving, len(s.sessions) > s.cfg.ConnectionsMax
	s.mu.Unlock()
	if tooMany {
		x.close()
		return nil, refuse(codes.ResourceExhausted, reasonTooMany, "the node has %d streams, which is as many as it takes", s.cfg.ConnectionsMax)
	}
	if why != nil {
		x.leave(why) // it came between
	}
	return x, nil
}

func (s *Server) connect(ctx context.Context, vhost string, kick func(*broker.Error)) (*broker.Conn, error) {
	c := callerOf(ctx)
	if err := checkName("vhost", vhost); err != nil {
		return nil, err
	}
	return s.broker.Open(ctx, c.user, vhostOf(vhost), broker.ConnInfo{Protocol: protocolName, Peer: c.peer, Local: c.local, Kick: kick})
}

// moment does one piece of work in a connection of its own.
func (s *Server) moment(ctx context.Context, vhost string, work func(ctx context.Context, c *broker.Conn) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c, err := s.connect(ctx, vhost, func(e *broker.Error) { stop(e) })
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	if err = work(ctx, c); err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// end ends the session. It may be called from any goroutine and does not block.
func (x *session) end(why *refusal) { x.stop(why) }

// leave asks the session to come to its end when it has answered what it has read.
func (x *session) leave(why *refusal) {
	if x.why.CompareAndSwap(nil, why) {
		close(x.leaving)
	}
}

// leaves is why the node ends the session, nil if it does not.
func (x *session) leaves() error {
	if why := x.why.Load(); why != nil {
		return why
	}
	return nil
}

// use runs f with the channel unless the session has been closed.
func (x *session) use(f func(ch *broker.Channel) error) error {
	x.work.Lock()
	defer x.work.Unlock()
	if x.closed {
		return x.cause()
	}
	return f(x.ch)
}

// awaitSettled waits until the queues' logs have what the client has settled, unless the session or the node's work ends before.
func (x *session) awaitSettled() error {
	ctx, cancel := context.WithCancel(x.ctx)
	defer cancel()
	x.s.workers.Go(func() { // ends with the wait
		select {
		case <-x.leaving:
			cancel()
		case <-ctx.Done():
		}
	})
	err := x.use(func(ch *broker.Channel) error { return ch.AwaitSettled(ctx) })
	switch {
	case err == nil:
		return nil
	case x.ctx.Err() != nil:
		return x.cause()
	}
	return x.leaves()
}

// cause is why the session has ended.
func (x *session) cause() error {
	if err := context.Cause(x.ctx); err != nil {
		return err
	}
	return refuse(codes.Canceled, "CANCELLED", "the stream has ended")
}

// close gives everything back to the broker. What the reader is doing with the channel ends first.
func (x *session) close() {
	x.stop(nil)
	if x.over != nil {
		x.over.Stop()
	}
	x.work.Lock()
	defer x.work.Unlock()
	x.closed = true
	x.conn.Close(x.releasing)
	x.rush()
	x.s.mu.Lock()
	delete(x.s.sessions, x)
	x.s.mu.Unlock()
	close(x.done)
}

// run has send pass on what the client gets, until it ends, or the session does: a client that reads nothing holds send up, until
// the call has returned.
func (x *session) run(send func() error) error {
	select {
	case err := <-x.s.apart(send):
		return err
	case <-x.ctx.Done():
		return x.cause()
	}
}

// firstOf waits for the first request of a stream, for a while.
func firstOf[T any](ctx context.Context, s *Server, recv func() (T, error)) (T, error) {
	return within(ctx, s, s.waits.open, recv)
}

// within waits for a request for so long.
func within[T any](ctx context.Context, s *Server, wait time.Duration, recv func() (T, error)) (T, error) {
	var none, req T
	got := s.apart(func() (err error) {
		req, err = recv()
		return err
	})
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-got:
		return req, err
	case <-timer.C:
		return none, refuse(codes.DeadlineExceeded, reasonOpenTimeout, "no request came on the stream in %v", wait)
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
