package store

import (
	"slices"
	"sync"
)

// slab is a stretch of one segment as it was appended: buf[i] stands at off+i of the file. Bytes below
// used never change again, so that readers share them; garbage collection frees a slab after its last reader.
type slab struct {
	segment uint32
	off     int64
	buf     []byte
	used    int // guarded by wal.mu
}

// tailCache holds the newest slabs of the node, oldest first. The slabs are the write buffers themselves:
// caching copies nothing and needs no state per entry.
type tailCache struct {
	mu       sync.RWMutex
	slabs    []*slab // ascending by (segment, off)
	bytes    int64
	bytesMax int64
}

// add makes b the newest slab and forgets the oldest ones above the bound; b itself always stays.
func (c *tailCache) add(b *slab) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slabs = append(c.slabs, b)
	c.bytes += int64(len(b.buf))
	drop := 0
	for c.bytes > c.bytesMax && drop < len(c.slabs)-1 {
		c.bytes -= int64(len(c.slabs[drop].buf))
		drop++
	}
	c.slabs = slices.Delete(c.slabs, 0, drop)
}

// get returns the record at l, header and body, or nil if it is no longer in memory.
func (c *tailCache) get(l loc) []byte {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p, _ := slices.BinarySearchFunc(c.slabs, l, func(b *slab, l loc) int {
		if b.segment < l.segment || b.segment == l.segment && b.off <= int64(l.off) {
			return -1
		}
		return 1
	})
	if p == 0 || c.slabs[p-1].segment != l.segment {
		return nil
	}
	b := c.slabs[p-1]
	from := int64(l.off) - b.off
	to := from + headerBytes + int64(l.bodyBytes)
	if to > int64(len(b.buf)) {
		return nil
	}
	return b.buf[from:to:to]
}

func (c *tailCache) size() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.bytes
}
