package store

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// slab is a stretch of one segment as it was appended: buf[i] stands at base+i of the file, which is the beginning of a page. Bytes below
// used never change again, so that readers share them; garbage collection frees a slab after its last reader.
type slab struct {
	segment uint32
	base    int64
	off     int64 // of the first record
	known   int   // where what is known of the file begins in buf: the slab before ends in the first page
	buf     []byte
	used    int // guarded by wal.mu, as the next
	// unsynced are the bytes that are not durable yet: nobody may look for them in the file.
	unsynced int
}

// newSlab makes room for n bytes of records or more at off. before, which may be nil, is the slab of the same segment that ends there.
func newSlab(segment uint32, off, n int64, before *slab) *slab {
	base := off &^ (PageBytes - 1)
	lead := int(off - base)
	b := &slab{segment: segment, base: base, off: off, known: lead, used: lead}
	b.buf = make([]byte, (int64(lead)+n+PageBytes-1)&^(PageBytes-1)) // so large that the runtime gives whole pages
	if before != nil && base >= before.base+int64(before.known) {
		copy(b.buf, before.buf[base-before.base:before.used])
		b.known = 0
	}
	return b
}

// pages returns the part of buf from the beginning of the page that from lies in up to the last whole page below to, and puts what
// follows up to to into tail, a page that is zero behind it. It returns the place of the first byte. ok is false if the slab does not know all of it,
// or is not at the beginning of a page in memory.
func (b *slab) pages(from, to int, tail []byte) (whole, rest []byte, off int64, ok bool) {
	from &^= PageBytes - 1
	whole = b.buf[from : to&^(PageBytes-1)]
	if from < b.known || !onPage(b.buf) || !onPage(tail) {
		return nil, nil, 0, false
	}
	if end := to &^ (PageBytes - 1); end < to {
		clear(tail[copy(tail, b.buf[end:to]):])
		rest = tail
	}
	return whole, rest, b.base + int64(from), true
}

// onPage reports whether b begins where File.WriteDirect needs it.
func onPage(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%PageBytes == 0 }

const (
	// tailGrowth times Options.TailCacheBytes is what the tail cache grows to while what is read has left it just before.
	tailGrowth = 2
	// tailRest is after how many slabs of which nobody needed what it has grown by the tail cache becomes smaller again.
	tailRest = 32
)

// tailCache holds the newest slabs of the node, oldest first. The slabs are the write buffers themselves:
// caching copies nothing and needs no state per entry.
//
// A replica applies an entry, or a consumer gets a message, a moment after it was written: the same moment is a few hundred KiB of
// a slow stream and more than bytesMax of a fast one. So the places of the slabs that left last are remembered, and a read of one of them makes the cache
// larger, up to tailGrowth times bytesMax; a backlog is read from far behind and changes nothing.
type tailCache struct {
	mu       sync.RWMutex
	slabs    []*slab // ascending by (segment, off)
	bytes    int64
	bytesMax int64 // bound, if nobody reads further back
	grown    int64 // what is added to it
	extra    int   // how many of slabs lie beyond bytesMax
	left     []leftSlab
	quiet    int // slabs added since somebody read what lies beyond bytesMax

	// missed and used say that somebody has read, since the newest slab was added, what has just left, and what lies beyond bytesMax.
	missed, used atomic.Bool
}

// leftSlab is the place of a slab that is not in memory any more.
type leftSlab struct {
	segment  uint32
	from, to int64
}

// add makes b the newest slab and forgets the oldest ones above the bound; b itself always stays, and what is not durable yet. The
// wal's mu is held.
func (c *tailCache) add(b *slab) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adapt()
	c.slabs = append(c.slabs, b)
	c.bytes += int64(len(b.buf))
	drop := 0
	for c.bytes > c.bytesMax+c.grown && drop < len(c.slabs)-1 && c.slabs[drop].unsynced == 0 {
		old := c.slabs[drop]
		c.bytes -= int64(len(old.buf))
		c.left = append(c.left, leftSlab{old.segment, old.off, old.base + int64(old.used)})
		drop++
	}
	c.slabs = slices.Delete(c.slabs, 0, drop)
	if n := len(c.left) - int((tailGrowth-1)*c.bytesMax/slabBytes); n > 0 {
		c.left = slices.Delete(c.left, 0, n)
	}
	c.extra = 0
	for over := c.bytes - c.bytesMax; over > 0 && c.extra < len(c.slabs)-1; c.extra++ {
		over -= int64(len(c.slabs[c.extra].buf))
	}
}

// adapt makes the cache larger or smaller by a slab. Called with mu held.
func (c *tailCache) adapt() {
	missed, used := c.missed.Swap(false), c.used.Swap(false)
	if missed {
		c.grown = min(c.grown+slabBytes, (tailGrowth-1)*c.bytesMax)
	}
	if missed || used {
		c.quiet = 0
		return
	}
	if c.quiet++; c.quiet > tailRest {
		c.grown = max(c.grown-slabBytes, 0)
	}
}

// shed forgets all but the newest slab, which is appended to.
func (c *tailCache) shed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.slabs); n > 1 {
		c.slabs = slices.Clone(c.slabs[n-1:])
		c.bytes = int64(len(c.slabs[0].buf))
	}
	c.grown, c.extra, c.left = 0, 0, nil
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
		c.miss(l)
		return nil
	}
	b := c.slabs[p-1]
	from := int64(l.off) - b.base
	to := from + headerBytes + int64(l.bodyBytes)
	if to > int64(len(b.buf)) {
		return nil
	}
	if p <= c.extra && !c.used.Load() {
		c.used.Store(true)
	}
	return b.buf[from:to:to]
}

// miss notes that something was asked for that is not there. Called with mu held for reading.
func (c *tailCache) miss(l loc) {
	for i := range c.left {
		if b := &c.left[i]; b.segment == l.segment && b.from <= int64(l.off) && int64(l.off) < b.to {
			c.missed.Store(true)
			return
		}
	}
}

// readCache holds records read from disk lately, oldest out first. A place is never used twice, so nothing in it goes bad.
type readCache struct {
	mu       sync.Mutex
	records  map[loc][]byte
	order    []loc // by age, from head on
	head     int
	bytes    int64
	bytesMax int64
}

func (c *readCache) get(l loc) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[l]
}

// add keeps a checked record, header and body.
func (c *readCache) add(l loc, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(len(b)) > c.bytesMax || c.records[l] != nil {
		return
	}
	if c.records == nil {
		c.records = make(map[loc][]byte)
	}
	c.records[l] = b
	c.order = append(c.order, l)
	c.bytes += int64(len(b))
	for ; c.bytes > c.bytesMax; c.head++ {
		c.bytes -= int64(len(c.records[c.order[c.head]]))
		delete(c.records, c.order[c.head])
	}
	if c.head > len(c.order)/2 {
		c.order = slices.Delete(c.order, 0, c.head)
		c.head = 0
	}
}

// shed forgets everything.
func (c *readCache) shed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records, c.order, c.head, c.bytes = nil, nil, 0, 0
}

func (c *tailCache) size() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.bytes
}
