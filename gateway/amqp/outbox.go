package amqp

import (
	"sync"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
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
// interleaved as outContent.ctlEnd says.
type outQueue struct {
	ctl      []byte
	contents []outContent
	dirty    []*channel // channels with confirms to fetch, written last
	getBytes int        // bodies of get-ok
}

func (q *outQueue) empty() bool { return len(q.ctl) == 0 && len(q.contents) == 0 && len(q.dirty) == 0 }

// owed is what counts against Config.WriteBufferBytes: answers that the reader
// caused and that deliveries' windows do not bound.
func (q *outQueue) owed() int { return len(q.ctl) + q.getBytes }

// reset makes q ready for reuse and lets go of what was unusually large.
func (q *outQueue) reset() {
	if cap(q.ctl) > ctlKept {
		q.ctl = nil
	}
	if cap(q.contents) > contentsKept {
		q.contents = nil
	}
	clear(q.contents)
	clear(q.dirty)
	*q = outQueue{ctl: q.ctl[:0], contents: q.contents[:0], dirty: q.dirty[:0]}
}

const (
	ctlKept      = 64 << 10
	contentsKept = 4096
)

// outbox collects what goes to the client. Appending never blocks; only the
// reader waits for room. Its mutex is the innermost one.
type outbox struct {
	limit int
	wake  chan struct{} // tells the writer, capacity 1

	mu   sync.Mutex
	room sync.Cond
	q    outQueue
	// writing is the owed bytes of the queue that the writer has taken.
	writing int
	// held is the size of immediate messages kept for a possible return.
	held    int
	waiting bool // the writer waits for wake
	sealed  bool // nothing is appended any more
	hurry   bool // the reader does not wait for room any more
	ended   bool // the writer stops when the queue is empty
	broken  bool // the writer has stopped or shall stop at once
}

func newOutbox(limit int) *outbox {
	o := &outbox{limit: limit, wake: make(chan struct{}, 1)}
	o.room.L = &o.mu
	return o
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
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.sealed {
		o.q.ctl = m.AppendFrame(o.q.ctl, channel)
		o.signal()
	}
}

// last appends a method frame after which nothing may follow.
func (o *outbox) last(m wire.Method) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return
	}
	o.q.ctl = m.AppendFrame(o.q.ctl, 0)
	clear(o.q.dirty)
	o.q.dirty = o.q.dirty[:0]
	o.sealed = true
	o.signal()
}

// answerClose appends a connection.close-ok to a sealed outbox, for closes of
// both sides that cross.
func (o *outbox) answerClose() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.q.ctl = (&wire.ConnectionCloseOk{}).AppendFrame(o.q.ctl, 0)
	o.signal()
}

// raw appends bytes that are no frame: the answer to a wrong protocol header.
func (o *outbox) raw(b []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.q.ctl = append(o.q.ctl, b...)
	o.sealed = true
	o.signal()
}

// content appends a message by reference.
func (o *outbox) content(c outContent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return
	}
	c.ctlEnd = len(o.q.ctl)
	o.q.contents = append(o.q.contents, c)
	if c.consumer == nil {
		o.q.getBytes += len(c.delivery.Body)
	}
	o.signal()
}

// giveBack appends a basic.return with a copy of the message.
func (o *outbox) giveBack(channel uint16, m *wire.BasicReturn, props wire.RawProperties, body []byte, frameMax uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sealed {
		return
	}
	o.q.ctl = m.AppendFrame(o.q.ctl, channel)
	o.q.ctl = wire.AppendContent(o.q.ctl, channel, wire.ClassBasic, props, body, frameMax)
	o.signal()
}

// confirms notes that ch has confirms to fetch.
func (o *outbox) confirms(ch *channel) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.sealed {
		o.q.dirty = append(o.q.dirty, ch)
		o.signal()
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
	for !o.sealed && !o.hurry && (o.q.owed()+o.writing > o.limit || o.held > heldMax) {
		o.room.Wait()
	}
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
	o.q.reset()
	o.signal()
	o.room.Broadcast()
}

// take gives the writer everything that waits, in exchange for an empty queue.
// With nothing to take, done tells whether the writer is to stop; otherwise
// wake will be signalled.
func (o *outbox) take(spare outQueue) (q outQueue, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.broken {
		return spare, true
	}
	if o.q.empty() {
		o.waiting = !o.ended
		return spare, o.ended
	}
	q, o.q = o.q, spare
	o.writing = q.owed()
	return q, false
}

// written tells that the queue taken last has left.
func (o *outbox) written() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = 0
	o.room.Broadcast()
}
