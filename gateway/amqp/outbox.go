package amqp

import (
	"sync"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/gateway/unread"
)

// outContent is a message on its way to the client: basic.deliver, or
// basic.get-ok if consumer is nil.
type outContent struct {
	ctlEnd      int // bytes of the queue's ctl that go before it
	channel     uint16
	redelivered bool
	remaining   uint32 // of get-ok
	tag         uint64
	consumer    *consumer
	delivery    *broker.Delivery
}

// outQueue is what one turn of the writer takes. Frames in ctl and contents are
// interleaved as outContent.ctlEnd says. Queues come from a pool: a connection
// with nothing to send has none.
type outQueue struct {
	ctl      []byte
	contents []outContent
	dirty    []*channel // channels with confirms to fetch, written last
	getBytes int        // bodies of get-ok
	messages int        // bytes of contents, about
}

// owed is what counts against Config.WriteBufferBytes: answers that the reader
// caused and that deliveries' windows do not bound.
func (q *outQueue) owed() int { return len(q.ctl) + q.getBytes }

// reset makes q ready for reuse; ok is false if it grew too large for that.
func (q *outQueue) reset() (ok bool) {
	clear(q.contents)
	clear(q.dirty)
	*q = outQueue{ctl: q.ctl[:0], contents: q.contents[:0], dirty: q.dirty[:0]}
	return cap(q.ctl) <= ctlKept && cap(q.contents) <= contentsKept
}

// What a pooled queue may hold, in bytes and messages.
const (
	ctlKept      = 256 << 10
	contentsKept = 4096
)

// outbox collects what goes to the client. Appending never blocks; only the
// reader waits for room. Its mutex is the innermost one.
type outbox struct {
	limit int
	pools *buffers
	// unread counts what waits here and on other connections.
	unread *unread.Gauge
	wake   chan struct{} // tells the writer, capacity 1

	mu   sync.Mutex
	room sync.Cond
	q    *outQueue // nil if nothing waits
	// writing is the owed bytes of the queue that the writer has taken.
	writing int
	// writingMessages is the same of its messages.
	writingMessages int
	// held is the size of immediate messages kept for a possible return.
	held int
	// taken and wrote count the queues that the writer has taken and has done with.
	taken, wrote uint64
	waiting      bool // the writer waits for wake
	sealed       bool // nothing is appended any more
	hurry        bool // the reader does not wait for room any more
	ended        bool // the writer stops when the queue is empty
	broken       bool // the writer has stopped or shall stop at once
}

// unreadSize is what a delivery counts.
func unreadSize(d *broker.Delivery) int {
	return len(d.Body) + len(d.Properties) + contentOverhead
}

func newOutbox(limit int, pools *buffers, u *unread.Gauge) *outbox {
	o := &outbox{limit: limit, pools: pools, unread: u, wake: make(chan struct{}, 1)}
	o.room.L = &o.mu
	return o
}

// queue returns the queue to append to and wakes the writer; called with mu
// held.
func (o *outbox) queue() *outQueue {
	o.signal()
	if o.q == nil {
		o.q = o.pools.queue()
	}
	return o.q
}

// signal wakes the writer; called with mu held.
func (o *outbox) signal() {
	if o.waiting {
		o.waiting = false
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
}

// method appends a method frame.
func (o *outbox) method(channel uint16, m wire.Method) {
	o.append(func(ctl []byte) []byte { return m.AppendFrame(ctl, channel) })
}

// append appends what f does to the frames that wait.
func (o *outbox) append(f func(ctl []byte) []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.sealed {
		q := o.queue()
		q.ctl = f(q.ctl)
	}
}

// last appends a method frame after which nothing may follow.
func (o *outbox) last(m wire.Method) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return
	}
	q := o.queue()
	q.ctl = m.AppendFrame(q.ctl, 0)
	clear(q.dirty)
	q.dirty = q.dirty[:0]
	o.sealed = true
}

// answerClose appends a connection.close-ok to a sealed outbox, for closes of
// both sides that cross.
func (o *outbox) answerClose() {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queue()
	q.ctl = (&wire.ConnectionCloseOk{}).AppendFrame(q.ctl, 0)
}

// raw appends bytes that are no frame: the answer to a wrong protocol header.
func (o *outbox) raw(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.queue()
	q.ctl = append(q.ctl, b...)
	o.sealed = true
}

// content appends a message by reference.
func (o *outbox) content(c outContent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return
	}
	q := o.queue()
	c.ctlEnd = len(q.ctl)
	q.contents = append(q.contents, c)
	size := unreadSize(c.delivery)
	q.messages += size
	o.unread.Add(size)
	if c.consumer == nil {
		q.getBytes += len(c.delivery.Body)
	}
}

// giveBack appends a basic.return with a copy of the message.
func (o *outbox) giveBack(channel uint16, m *wire.BasicReturn, props wire.RawProperties, body []byte, frameMax uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return
	}
	q := o.queue()
	q.ctl = m.AppendFrame(q.ctl, channel)
	q.ctl = wire.AppendContent(q.ctl, channel, wire.ClassBasic, props, body, frameMax)
}

// confirms notes that ch has confirms to fetch.
func (o *outbox) confirms(ch *channel) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.sealed {
		q := o.queue()
		q.dirty = append(q.dirty, ch)
	}
}

// hold counts bytes kept for a possible return, negative to release them.
func (o *outbox) hold(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held += n
	if n < 0 {
		o.room.Broadcast()
	}
}

// waitRoom blocks the reader while too much waits for the client. It returns
// at once when the connection is ending.
func (o *outbox) waitRoom() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.sealed && !o.hurry && (o.owed() > o.limit || o.held > heldMax) {
		o.room.Wait()
	}
}

// waitDelivered blocks the reader before it opens a channel or starts a consumer
// while very much waits to be written. Windows bound what one consumer has there, but
// what was sent for a closed channel stays: a client that consumes and closes, again
// and again, and reads nothing would fill the memory.
func (o *outbox) waitDelivered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.sealed && !o.hurry && o.delivering() > deliveredMax {
		o.room.Wait()
	}
}

// delivering is how many bytes of messages wait; called with mu held.
func (o *outbox) delivering() int {
	if o.q == nil {
		return o.writingMessages
	}
	return o.writingMessages + o.q.messages
}

// owed is how many bytes of answers wait; called with mu held.
func (o *outbox) owed() int {
	if o.q == nil {
		return o.writing
	}
	return o.writing + o.q.owed()
}

// interrupt frees a reader that waits for room, for good.
func (o *outbox) interrupt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hurry = true
	o.room.Broadcast()
}

// nudge wakes the writer for a change of the heartbeat interval.
func (o *outbox) nudge() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.signal()
}

const (
	// deliveredMax is how many bytes of messages may wait to be written before a
	// client gets another channel or consumer.
	deliveredMax = 32 << 20
	// contentOverhead is what a message takes beside its bytes, about.
	contentOverhead = 256
)

// heldMax is how many bytes of immediate messages may wait for their verdicts
// before the reader does; one message may exceed it.
const heldMax = 4 << 20

// finish lets the writer stop once everything is written.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealed, o.ended = true, true
	o.signal()
}

// abort lets the writer stop at once and frees a waiting reader.
func (o *outbox) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sealed, o.ended, o.broken = true, true, true
	if o.q != nil {
		o.unread.Add(-o.q.messages)
		o.q = nil
	}
	o.signal()
	o.room.Broadcast()
}

// take gives the writer everything that waits. With nothing to take, done tells
// whether the writer is to stop; otherwise wake will be signalled.
func (o *outbox) take() (q *outQueue, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.q == nil || o.broken {
		o.waiting = !o.ended
		return nil, o.ended
	}
	q, o.q = o.q, nil
	o.taken++
	o.writing, o.writingMessages = q.owed(), q.messages
	return q, false
}

// written tells that the queue taken last has left.
func (o *outbox) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unread.Add(-o.writingMessages)
	o.wrote = o.taken
	o.writing, o.writingMessages = 0, 0
	o.room.Broadcast()
}

// goal is what hasWritten is to be asked for, so that everything that waits now has left. It is not 0.
func (o *outbox) goal() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.q != nil {
		return o.taken + 1
	}
	return max(1, o.taken)
}

// hasWritten tells whether the writer has done with so many queues, or with all there are.
func (o *outbox) hasWritten(goal uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wrote >= goal || o.q == nil && o.wrote == o.taken || o.broken
}
