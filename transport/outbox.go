package transport

import (
	"encoding/binary"
	"sync"

	"google.golang.org/grpc/mem"
)

// Lanes of an outbox. Order is kept within a lane; the writer alternates.
const (
	laneRaft  = 0 // raft, calls and answers
	laneApp   = 1 // application messages, under the receiver's window
	laneCount = 2
)

const (
	runBytes     = 32 << 10 // buffer for consecutive small frames
	copyBytesMax = 8 << 10  // larger payloads travel by reference
	urgentMax    = 64 << 10 // pings, pongs and credits waiting; more means that nobody writes
)

// batch is a piece of a message under construction: whole frames only.
type batch struct {
	parts    mem.BufferSlice
	run      *[]byte // open buffer of small frames, nil if none
	bytes    int
	appBytes int64 // application payload, for the receiver's window
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

func (b *batch) add(pool mem.BufferPool, head, body []byte) {
	b.copyIn(pool, head)
	if len(body) <= copyBytesMax {
		b.copyIn(pool, body)
	} else {
		b.seal(pool)
		b.parts = append(b.parts, mem.SliceBuffer(body))
	}
	b.bytes += len(head) + len(body)
}

type lane struct {
	queue []*batch
	bytes int // queued, not yet taken by the writer; at most bound plus one frame
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
	return &outbox{pool: pool, bound: bound, wake: make(chan struct{}, 1)}
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// frameHead builds the head of a frame: kind, length of all that follows, and the
// leading fields.
func frameHead(kind uint8, fields []byte, bodyBytes int) []byte {
	b := make([]byte, 0, 1+binary.MaxVarintLen64+len(fields))
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(len(fields)+bodyBytes))
	return append(b, fields...)
}

// put queues one frame. It fails with ErrPeerDown when the stream is gone and with
// ErrBacklog when the lane is full. The body must not be changed afterwards.
func (o *outbox) put(ln int, head, body []byte) error {
	size := len(head) + len(body)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead {
		return ErrPeerDown
	}
	l := &o.lanes[ln]
	if l.bytes > 0 && l.bytes+size > o.bound {
		return ErrBacklog
	}
	var b *batch
	if n := len(l.queue); n > 0 && l.queue[n-1].bytes+size <= messageBytesMax {
		b = l.queue[n-1]
	} else {
		b = new(batch)
		l.queue = append(l.queue, b)
	}
	b.add(o.pool, head, body)
	if ln == laneApp {
		b.appBytes += int64(len(body))
	}
	l.bytes += size
	o.poke()
	return nil
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
// messageBytesMax of queued batches, or a single larger frame. ok is false when
// there is nothing that may be sent.
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
		if len(l.queue) == 0 || (ln == laneApp && o.gated && o.credit <= 0) {
			continue
		}
		b := l.queue[0]
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
