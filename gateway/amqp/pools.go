package amqp

import "sync"

// buffers are the pools of a server's connections, so that an idle one holds
// nothing.
type buffers struct {
	queues sync.Pool // *outQueue
	writes sync.Pool // *[]byte, of the writers
	bodies sync.Pool // *[]byte, of messages that come in many frames
}

func (p *buffers) queue() *outQueue {
	if q, ok := p.queues.Get().(*outQueue); ok {
		return q
	}
	return new(outQueue)
}

func (p *buffers) putQueue(q *outQueue) {
	if q.reset() {
		p.queues.Put(q)
	}
}

func (p *buffers) write() *[]byte {
	if b, ok := p.writes.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 4<<10)
	return &b
}

func (p *buffers) putWrite(b *[]byte) {
	if cap(*b) <= writeKept {
		*b = (*b)[:0]
		p.writes.Put(b)
	}
}

// body returns a buffer for a message of size bytes. Space beyond bodyStep is not
// taken before a part of the body has come.
func (p *buffers) body(size int) *[]byte {
	if b, ok := p.bodies.Get().(*[]byte); ok && (cap(*b) >= size || cap(*b) >= bodyStep) {
		return b
	}
	b := make([]byte, 0, min(size, bodyStep))
	return &b
}

func (p *buffers) putBody(b *[]byte) {
	if cap(*b) <= bodyKept {
		*b = (*b)[:0]
		p.bodies.Put(b)
	}
}
