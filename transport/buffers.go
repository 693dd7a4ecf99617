package transport

import (
	"sync"

	"github.com/warrenmq/warren/dirty"
)

// bufferTiers are the sizes of the buffers that are kept: a page, a data frame of HTTP/2 and a run of small frames.
var bufferTiers = [...]int{4 << 10, 16 << 10, runBytes}

// bufferPool lends buffers to gRPC and to outgoing messages. gRPC's own pool clears the whole of a buffer each time it lends
// it, 32 KiB for an answer of 20 bytes: a twentieth of a busy node's processor time. Whoever borrows here writes
// what is read later.
type bufferPool struct{ tiers [len(bufferTiers)]sync.Pool }

// Get implements mem.BufferPool.
func (p *bufferPool) Get(n int) *[]byte {
	for i, size := range bufferTiers {
		if n > size {
			continue
		}
		if b, ok := p.tiers[i].Get().(*[]byte); ok {
			*b = (*b)[:n]
			return b
		}
		b := make([]byte, n, size)
		return &b
	}
	b := make([]byte, n)
	return &b
}

// Put implements mem.BufferPool. A buffer that is not of one of the sizes is left to the garbage collector.
func (p *bufferPool) Put(b *[]byte) {
	for i, size := range bufferTiers {
		if cap(*b) == size {
			dirty.Spoil((*b)[:size])
			p.tiers[i].Put(b)
			return // it is somebody else's from here on
		}
	}
}
