package transport

import (
	"encoding/binary"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/warrenmq/warren/dirty"
)

// Lanes of an outbox. Order is kept within a lane; the writer alternates.
const (
	laneRaft  = 0 // raft, calls and answers
	laneApp   = 1 // application messages, under the receiver's window
	laneCount = 2
)

const (
	frameHeadMax = 11        // kind and length of a frame
	partBytes    = 512 << 10 // payload of a part of a frame that exceeds a message
	runBytes     = 32 << 10  // buffer for consecutive small frames
	copyBytesMax = 8 << 10   // larger payloads travel by reference
	urgentMax    = 64 << 10  // pings, pongs and credits waiting; more means that nobody writes
)

// batch is a piece of a message under construction: whole frames only.
type batch struct {
	parts    mem.BufferSlice
	run      *[]byte // open buffer of small frames, nil if none
	bytes    int
	appBytes int64 // application payload, for the receiver's window
	part     bool  // nothing may join: it is not under the window
	rest     bool  // continues a frame begun in the batch before; no window applies
}

func (b *batch) copyIn(pool mem.BufferPool, p []byte) {
	for len(p) > 0 {
		if b.run == nil {
			b.run = pool.Get(runBytes)
			*b.run = (*b.run)[:0]
		}
		n := min(len(p), cap(*b.run)-len(*b.run))
		*b.run = append(*b.run, p[:n]...)
		p = p[n:]
		if len(*b.run) == cap(*b.run) {
			b.seal(pool)
		}
	}
}

// seal closes the open run.
func (b *batch) seal(pool mem.BufferPool) {
	if b.run != nil {
		b.parts = append(b.parts, mem.NewBuffer(b.run, pool))
		b.run = nil
	}
}

// add appends a frame and returns its size. The memory of a body that is ours is returned when it is not read any more.
func (b *batch) add(pool mem.BufferPool, head []byte, body pieces, ours bool) int {
	b.copyIn(pool, head)
	n := len(head)
	for _, p := range body {
		n += len(p)
		switch {
		case len(p) <= copyBytesMax:
			b.copyIn(pool, p)
			if ours {
				dirty.Return(p)
			}
		case ours:
			b.seal(pool)
			b.parts = append(b.parts, mem.NewBuffer(&p, returning{}))
		default:
			b.seal(pool)
			b.parts = append(b.parts, mem.SliceBuffer(p))
		}
	}
	b.bytes += n
	return n
}

// returning is where the payloads of application messages go that were written.
type returning struct{}

// Get implements mem.BufferPool; nobody calls it.
func (returning) Get(n int) *[]byte {
	b := dirty.Lend(n)
	return &b
}

// Put implements mem.BufferPool.
func (returning) Put(b *[]byte) { dirty.Return(*b) }

type lane struct {
	id    uint8
	queue []*batch
	bytes int // queued, not yet taken by the writer; at most bound plus a frame
}

// tail returns the batch that takes the next frame of the given size.
func (l *lane) tail(size int) *batch {
	if n := len(l.queue); n > 0 && !l.queue[n-1].part && l.queue[n-1].bytes+size <= messageBytesMax {
		return l.queue[n-1]
	}
	b := new(batch)
	l.queue = append(l.queue, b)
	return b
}

// outbox is the bounded queue between the producers of frames and the one writer
// of a stream. The mutex guards everything; producers never wait inside.
type outbox struct {
	pool  mem.BufferPool
	bound int

	mu     sync.Mutex
	lanes  [laneCount]lane
	urgent []byte        // encoded control frames, sent before anything else
	credit int64         // application bytes that may still be sent; may dip below 0 by one message
	gated  bool          // credit applies
	turn   int           // lane that goes first next time
	room   chan struct{} // closed when room appears; nil if nobody waits
	dead   bool

	wake chan struct{} // capacity 1: something to send
}

func newOutbox(bound int, pool mem.BufferPool) *outbox {
	o := &outbox{pool: pool, bound: bound, wake: make(chan struct{}, 1)}
	for i := range o.lanes {
		o.lanes[i].id = uint8(i)
	}
	return o
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// appendHead appends the head of a frame: kind, length of all that follows, and the
// leading fields.
func appendHead(b []byte, kind uint8, fields []byte, bodyBytes int) []byte {
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(fields)+bodyBytes))
	return append(b, fields...)
}

// hasRoom tells whether a lane takes a quarter of its bound and a frame of any size on top, which counts half of it at most.
func (o *outbox) hasRoom(ln int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lanes[ln].bytes <= o.bound/4
}

// put queues one frame. It fails with ErrPeerDown when the stream is gone and with
// ErrBacklog when the lane is full. The body must not be changed afterwards.
func (o *outbox) put(ln int, kind uint8, fields []byte, body ...[]byte) error {
	bodyBytes := pieces(body).bytes()
	size := len(fields) + bodyBytes + frameHeadMax
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return ErrPeerDown
	}
	l := &o.lanes[ln]
	// A frame counts half the bound at most, or a large one would starve behind
	// small ones that always find room.
	if l.bytes > 0 && l.bytes+min(size, o.bound/2) > o.bound {
		return ErrBacklog
	}
	var app int64
	if ln == laneApp {
		app = int64(bodyBytes)
	}
	var buf [64]byte
	if size <= messageBytesMax {
		b := l.tail(size)
		b.appBytes += app
		l.bytes += b.add(o.pool, appendHead(buf[:0], kind, fields, bodyBytes), body, kind == frameApp)
	} else {
		o.putParts(l, app, kind, fields, body)
	}
	o.poke()
	return nil
}

// putParts queues a frame too large for a message as parts of one, so that pings
// and the other lane pass between them. The window is charged with the first part:
// the receiver returns credit for whole frames only.
func (o *outbox) putParts(l *lane, app int64, kind uint8, fields []byte, body pieces) {
	left := body.bytes()
	total := uint64(1 + len(fields) + left)
	lead := append([]byte{kind}, fields...)
	var buf [64]byte
	for first := true; left > 0; first = false {
		n := min(left, partBytes)
		var part pieces
		part, body = body.head(n)
		left -= n
		info := binary.AppendUvarint([]byte{l.id}, total)
		if first {
			info = append(info, lead...)
		}
		b := &batch{part: true, rest: !first}
		if first {
			b.appBytes = app
		}
		l.bytes += b.add(o.pool, appendHead(buf[:0], framePart, info, n), part, false)
		l.queue = append(l.queue, b)
	}
}

// hasUrgent tells whether control frames wait.
func (o *outbox) hasUrgent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.urgent) > 0
}

// putUrgent queues a control frame before everything else. It reports false when
// the peer has not taken such frames for long.
func (o *outbox) putUrgent(kind uint8, body []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.urgent) > urgentMax {
		return false
	}
	o.urgent = append(o.urgent, kind)
	o.urgent = binary.AppendUvarint(o.urgent, uint64(len(body)))
	o.urgent = append(o.urgent, body...)
	o.poke()
	return true
}

// waitRoom returns a channel that is closed when room may have appeared.
func (o *outbox) waitRoom() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}

// grant sets the first window, addCredit returns consumed bytes to it.
func (o *outbox) grant(window int64) {
	o.mu.Lock()
	o.gated, o.credit = true, window
	o.mu.Unlock()
}

func (o *outbox) addCredit(n int64) {
	o.mu.Lock()
	o.credit += n
	o.mu.Unlock()
	o.poke()
}

// take removes the next message's content: urgent frames and at most
// messageBytesMax of queued batches. ok is false when there is nothing that may be
// sent.
func (o *outbox) take() (parts mem.BufferSlice, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.urgent) > 0 {
		parts = append(parts, mem.SliceBuffer(o.urgent))
		o.urgent = nil
	}
	size := 0
	for i := range laneCount {
		ln := (o.turn + i) % laneCount
		l := &o.lanes[ln]
		if len(l.queue) == 0 {
			continue
		}
		b := l.queue[0]
		if ln == laneApp && o.gated && o.credit <= 0 && !b.rest {
			continue
		}
		if size > 0 && size+b.bytes > messageBytesMax {
			continue
		}
		b.seal(o.pool)
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if len(l.queue) == 0 {
			l.queue = nil
		}
		l.bytes -= b.bytes
		o.credit -= b.appBytes
		size += b.bytes
		parts = append(parts, b.parts...)
	}
	o.turn = (o.turn + 1) % laneCount
	if size > 0 && o.room != nil {
		close(o.room)
		o.room = nil
	}
	return parts, len(parts) > 0
}

// kill drops what is queued and wakes every waiter.
func (o *outbox) kill() {
	o.mu.Lock()
	o.dead = true
	o.lanes = [laneCount]lane{}
	o.urgent = nil
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
	o.mu.Unlock()
	o.poke()
}

// queued returns the bytes waiting in all lanes.
func (o *outbox) queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for i := range o.lanes {
		n += o.lanes[i].bytes
	}
	return n
}
