package grpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"

	"github.com/warrenmq/warren/dirty"
)

const (
	// requestLarge is from how many bytes on a request waits for room.
	requestLarge = 16 << 10
	// requestPiece is what is read of a large one at a time.
	requestPiece = 256 << 10
)

// known is a stream whose context tells who the client is. It reads the requests itself: the library would take all that comes of one, of as many calls as
// there are, and wait for the rest for any time.
type known struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // that is how the library passes it on
	s    *Server
	room *requestRooms
	many bool // requests

	mu      sync.Mutex
	held    int64 // of the room for bytes, for the request in hand
	decoded int64 // of the room for what was decoded of it
	over    bool
}

// requestWire is a wireReader that tells how its requests are compressed.
type requestWire interface {
	wireReader
	RecvCompress() string
}

// Context implements grpc.ServerStream.
func (k *known) Context() context.Context { return k.ctx }

// RecvMsg implements grpc.ServerStream.
func (k *known) RecvMsg(m any) error {
	k.free(false)
	wire, ok := grpc.ServerTransportStreamFromContext(k.ctx).(requestWire)
	if !ok {
		return k.ServerStream.RecvMsg(m) // a test's
	}
	r := &request{known: k, wire: wire}
	err := r.begin()
	if err == nil && r.large {
		err = r.rest()
	}
	if err == nil {
		err = r.into(m)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("the stream ends within a request")
	}
	return err
}

type knownKey struct{}

// workedOn gives back the room of the request in hand of a call, which is not kept any more.
func workedOn(ctx context.Context) {
	if k, ok := ctx.Value(knownKey{}).(*known); ok {
		k.free(false)
	}
}

// roomWanted tells whether the request in hand of a call has room that others wait for.
func roomWanted(ctx context.Context) bool {
	k, ok := ctx.Value(knownKey{}).(*known)
	if !ok {
		return false
	}
	k.mu.Lock()
	held, decoded := k.held > 0, k.decoded > 0
	k.mu.Unlock()
	return held && k.room.bytes.waited() || decoded && k.room.decoded.waited()
}

// hasRoom tells whether the request in hand of a call has room that others may wait for.
func hasRoom(ctx context.Context) bool {
	k, ok := ctx.Value(knownKey{}).(*known)
	if !ok {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held > 0 || k.decoded > 0
}

// heldUp returns a context for the work on the request in hand of a call. If that has room, it ends when the work has waited for too long, since the time that
// since tells (zero: it does not wait), and others wait for the room; its cause is a *refusal then. release is to be called after the work.
func (s *Server) heldUp(ctx context.Context, since func() time.Time) (_ context.Context, release func()) {
	if !hasRoom(ctx) {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s.workers.Go(func() { // ends with ctx
		look := time.NewTicker(s.waits.stalled / 4)
		defer look.Stop()
		for {
			select {
			case <-look.C:
			case <-ctx.Done():
				return
			}
			if at := since(); !at.IsZero() && time.Since(at) >= s.waits.stalled && roomWanted(ctx) {
				cancel(refuse(codes.DeadlineExceeded, reasonStalled, "a queue has not taken the message for %v, and others wait: whether it still will is not known", s.waits.stalled))
			}
		}
	})
	return ctx, func() { cancel(nil) }
}

// keep takes over room for the request in hand, unless the call has ended.
func (k *known) keep(n, decoded int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return false
	}
	k.held += n
	k.decoded += decoded
	return true
}

// free gives the room of the request in hand back; over tells that the call has ended.
func (k *known) free(over bool) {
	k.mu.Lock()
	n, decoded := k.held, k.decoded
	k.held, k.decoded, k.over = 0, 0, k.over || over
	k.mu.Unlock()
	if n > 0 {
		k.room.bytes.free(n)
	}
	if decoded > 0 {
		k.room.decoded.free(decoded)
	}
}

// request is one that is being read.
type request struct {
	*known
	wire       requestWire
	compressed bool
	large      bool // and not read yet
	n          int
	bytes      []byte              // n of them
	lent       *[requestLarge]byte // what bytes are in, nil for a large one
}

var requestBuffers = sync.Pool{New: func() any { return new([requestLarge]byte) }}

// begin reads the request if it is small, or else its head. A stream may be silent before it for any time, a call of one request may not.
func (r *request) begin() error {
	if r.many {
		return r.first()
	}
	_, err := within(r.ctx, r.s, r.s.waits.request, func() (struct{}, error) { return struct{}{}, r.first() })
	return err
}

func (r *request) first() error {
	var head [5]byte // a byte that is 0 if it is not compressed, and its length
	if err := r.wire.ReadMessageHeader(head[:]); err != nil {
		if errors.Is(err, io.EOF) && !r.many {
			return invalid("the call has no request")
		}
		return err
	}
	n, most := binary.BigEndian.Uint32(head[1:]), r.s.requestMax()
	switch {
	case head[0] > 1:
		return invalid("the request has no such form")
	case uint64(n) > uint64(most):
		return refuse(codes.ResourceExhausted, reasonInvalid, "a request of %d bytes is larger than %d", n, most)
	}
	r.n, r.compressed = int(n), head[0] == 1
	if r.large = r.compressed || n > requestLarge; r.large {
		return nil
	}
	r.lent = requestBuffers.Get().(*[requestLarge]byte) //nolint:forcetypeassert // there is nothing else
	r.bytes = r.lent[:n]
	return r.last(r.wire.ReadMessageHeader(r.bytes))
}

// last reads the end of a call of one request.
func (r *request) last(err error) error {
	if err != nil || r.many {
		return err
	}
	var b [1]byte
	switch err := r.wire.ReadMessageHeader(b[:]); {
	case err == nil:
		return invalid("more than one request")
	case errors.Is(err, io.EOF):
		return nil
	default:
		return err
	}
}

// rest reads a large request when there is room for it. A client that does not go on with it is cut off when others wait.
func (r *request) rest() error {
	n := int64(r.n)
	if r.compressed {
		n += int64(r.s.requestMax()) // which it may become
	}
	if err := r.room.bytes.enter(r.ctx, n, r.ending()); err != nil {
		return err
	}
	if !r.keep(n, 0) {
		r.room.bytes.free(n)
		return context.Canceled
	}
	r.bytes = dirty.Lend(r.n)
	var pieces atomic.Int64
	done := r.s.apart(func() error { return r.last(r.pieces(&pieces)) })
	tick := time.NewTicker(r.s.waits.stalled)
	defer tick.Stop()
	for before := int64(-1); ; {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if now := pieces.Load(); now != before {
				before = now
			} else if r.room.bytes.waited() {
				return refuse(codes.DeadlineExceeded, reasonStalled, "the request has not gone on for %v, and others wait", r.s.waits.stalled)
			}
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
}

// ending is what ends a wait of a call of one request; who waits on a stream is told by its session.
func (r *request) ending() <-chan struct{} {
	if r.many {
		return nil
	}
	return r.s.ends()
}

func (r *request) pieces(count *atomic.Int64) error {
	for rest := r.bytes; len(rest) > 0; count.Add(1) {
		n := min(len(rest), requestPiece)
		if err := r.wire.ReadMessageHeader(rest[:n]); err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// into decodes the request. What is decoded has none of its bytes.
func (r *request) into(m any) (err error) {
	b := r.bytes
	if r.compressed {
		if b, err = r.plain(); err != nil {
			return err
		}
	}
	to := m.(proto.Message) //nolint:forcetypeassert // generated code has no others
	if r.lent == nil {
		if err := r.spread(b, to.ProtoReflect().Descriptor()); err != nil {
			return err
		}
	}
	if err := proto.Unmarshal(b, to); err != nil {
		return invalid("the request is not one")
	}
	if r.lent != nil {
		requestBuffers.Put(r.lent)
	} else {
		dirty.Return(r.bytes)
	}
	return nil
}

func (r *request) plain() ([]byte, error) {
	c := encoding.GetCompressor(r.wire.RecvCompress())
	if c == nil {
		return nil, refuse(codes.Unimplemented, "NOT_IMPLEMENTED", "the request is compressed in a way that is not known")
	}
	most := r.s.requestMax()
	from, err := c.Decompress(bytes.NewReader(r.bytes))
	if err != nil {
		return nil, invalid("the request cannot be decompressed")
	}
	b, err := io.ReadAll(io.LimitReader(from, int64(most)+1))
	switch {
	case err != nil:
		return nil, invalid("the request cannot be decompressed")
	case len(b) > most:
		return nil, refuse(codes.ResourceExhausted, reasonInvalid, "a request is larger than %d bytes when decompressed", most)
	}
	return b, nil
}

// requestMax is how large a request may be.
func (s *Server) requestMax() int { return s.cfg.MessageBytesMax + requestMore }

// requestRooms are what large requests have at a node, as they come and when they are decoded. Whoever has room for the latter has it for the former.
type requestRooms struct{ bytes, decoded requestRoom }

// requestRoom is the room of a node for large requests that are being read, or have been and are worked on. Whoever waits for it is served in the order of coming;
// nobody has room that waits for more.
type requestRoom struct {
	most int64 // bytes; one that is alone may have more. 0: no bound

	mu    sync.Mutex
	used  int64
	queue []*roomWait
}

type roomWait struct {
	n    int64
	room chan struct{} // closed when it has been taken
}

func (o *requestRoom) fits(n int64) bool { return o.most == 0 || o.used == 0 || o.used+n <= o.most }

// enter takes room when there is some.
func (o *requestRoom) enter(ctx context.Context, n int64, ending <-chan struct{}) error {
	o.mu.Lock()
	if len(o.queue) == 0 && o.fits(n) {
		o.used += n
		o.mu.Unlock()
		return nil
	}
	w := &roomWait{n, make(chan struct{})}
	o.queue = append(o.queue, w)
	o.mu.Unlock()
	var err error
	select {
	case <-w.room:
		return nil
	case <-ending:
		err = refuse(codes.Unavailable, reasonLeaving, "the node leaves")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	o.leave(w)
	return err
}

// leave ends a wait that may have been served.
func (o *requestRoom) leave(w *roomWait) {
	o.mu.Lock()
	defer o.mu.Unlock()
	waits := false
	for i, other := range o.queue {
		if waits = other == w; waits {
			o.queue = append(o.queue[:i], o.queue[i+1:]...)
			break
		}
	}
	if !waits {
		o.used -= w.n
	}
	o.serve()
}

func (o *requestRoom) free(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used -= n
	o.serve()
}

func (o *requestRoom) serve() {
	for len(o.queue) > 0 && o.fits(o.queue[0].n) {
		w := o.queue[0]
		o.queue = o.queue[1:]
		o.used += w.n
		close(w.room)
	}
}

// waited tells whether somebody waits.
func (o *requestRoom) waited() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.queue) > 0
}
