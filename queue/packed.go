package queue

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// series is a list of numbers as a base and the differences from it, each in the
// same number of bytes; equal numbers take none.
type series struct {
	base  uint64
	mask  uint64
	width int
	data  []byte // padded so that eight bytes can be read at every place
}

// newSeries stores value(0) … value(n-1). The differences are taken with
// wrap-around, so that any numbers do.
func newSeries(n int, value func(int) uint64) series {
	low, high := ^uint64(0), uint64(0)
	for i := range n {
		low, high = min(low, value(i)), max(high, value(i))
	}
	s := series{base: low, width: (bits.Len64(high-low) + 7) / 8}
	if n == 0 || s.width == 0 {
		return s
	}
	s.mask = ^uint64(0) >> (64 - 8*s.width)
	s.data = make([]byte, n*s.width+8-s.width)
	for i := range n {
		for b, v := 0, value(i)-low; b < s.width; b, v = b+1, v>>8 {
			s.data[i*s.width+b] = byte(v)
		}
	}
	return s
}

func (s *series) at(i int) uint64 {
	if s.width == 0 {
		return s.base
	}
	return s.base + binary.LittleEndian.Uint64(s.data[i*s.width:])&s.mask
}

// packed is the sealed form of columns. Offsets are not stored where they follow
// from the lengths: each entry's first message has a start, and its others lie
// behind it at the distance of what comes between, length and space. Queues whose
// entries hold few messages each store index and offset of every message instead.
type packed struct {
	n        int
	length   series
	overhead series // length minus body bytes, modulo 2^32
	expires  series
	priority series

	starts []start
	space  series
	// sums[k] is the distance of value k*sumStep from the first one; empty if
	// every message takes the same space.
	sums []uint32

	index, offset series // if starts is empty
}

// start is the first message of an entry.
type start struct {
	at     int32
	offset uint32
	index  uint64
}

const (
	sumStep = 16
	// startMessagesMin is how many messages an entry must have on average for
	// starts to be smaller than one index and offset for each.
	startMessagesMin = 6
)

func pack(c *columns) *packed {
	r := c.records
	p := &packed{
		n:        len(r),
		length:   newSeries(len(r), func(i int) uint64 { return uint64(r[i].length) }),
		overhead: newSeries(len(r), func(i int) uint64 { return uint64(r[i].length - r[i].body) }),
	}
	if len(c.expires) > 0 {
		p.expires = newSeries(len(r), func(i int) uint64 { return uint64(c.expires[i]) })
	}
	if len(c.priority) > 0 {
		p.priority = newSeries(len(r), func(i int) uint64 { return uint64(c.priority[i]) })
	}
	entries := 0
	for i := range r {
		if i == 0 || r[i].index != r[i-1].index {
			entries++
		}
	}
	if entries*startMessagesMin > len(r) {
		p.index = newSeries(len(r), func(i int) uint64 { return r[i].index })
		p.offset = newSeries(len(r), func(i int) uint64 { return uint64(r[i].offset) })
		return p
	}
	p.starts = make([]start, 0, entries)
	for i := range r {
		if i == 0 || r[i].index != r[i-1].index {
			p.starts = append(p.starts, start{int32(i), r[i].offset, r[i].index})
		}
	}
	p.packOffsets(r)
	return p
}

// packOffsets stores the space behind every message. Behind the last message of
// an entry it is of no account and taken as that before it, or as the first one there is.
func (p *packed) packOffsets(r []record) {
	spaces := make([]uint32, len(r))
	last := uint32(0)
	behind := func(i int) bool {
		if i+1 == len(r) || r[i+1].index != r[i].index {
			return false
		}
		last = r[i+1].offset - r[i].offset - r[i].length
		return true
	}
	for i := 0; i < len(r) && !behind(i); i++ {
	}
	for i := range r {
		behind(i)
		spaces[i] = last
	}
	p.space = newSeries(len(r), func(i int) uint64 { return uint64(spaces[i]) })
	if p.length.width == 0 && p.space.width == 0 {
		return
	}
	sum := uint32(0)
	for i := range r {
		if i%sumStep == 0 {
			p.sums = append(p.sums, sum)
		}
		sum += r[i].length + spaces[i]
	}
	p.sums = slices.Clip(p.sums)
}

// distance is how far message i lies behind the first one, as if all were in one
// entry, modulo 2^32.
func (p *packed) distance(i int) uint32 {
	if len(p.sums) == 0 {
		return uint32(i) * uint32(p.length.base+p.space.base)
	}
	sum := p.sums[i/sumStep]
	for k := i - i%sumStep; k < i; k++ {
		sum += uint32(p.length.at(k) + p.space.at(k))
	}
	return sum
}

// sizes is everything about message i but its place.
func (p *packed) sizes(i int) Message {
	m := Message{
		Ref:       Ref{Length: uint32(p.length.at(i))},
		ExpiresAt: int64(p.expires.at(i)),
		Priority:  uint8(p.priority.at(i)),
	}
	m.BodyBytes = m.Ref.Length - uint32(p.overhead.at(i))
	return m
}

func (p *packed) at(i int) Message {
	m := p.sizes(i)
	if len(p.starts) == 0 {
		m.Ref.Index, m.Ref.Offset = p.index.at(i), uint32(p.offset.at(i))
		return m
	}
	k, found := slices.BinarySearchFunc(p.starts, int32(i), func(s start, i int32) int { return int(s.at - i) })
	if !found {
		k--
	}
	s := &p.starts[k]
	m.Ref.Index = s.index
	m.Ref.Offset = s.offset + p.distance(i) - p.distance(int(s.at))
	return m
}

// end is where the entry before start k ends.
func (p *packed) end(k int) int {
	if k < len(p.starts) {
		return int(p.starts[k].at)
	}
	return p.n
}

// walker reads columns in rising order and takes each place from the one before.
type walker struct {
	c      *columns
	i      int // of the offset
	offset uint32
	next   int // the first start behind i
}

func (w *walker) at(i int) Message {
	p := w.c.packed
	if p == nil || len(p.starts) == 0 {
		return w.c.at(i)
	}
	m := p.sizes(i)
	for w.next < len(p.starts) && int(p.starts[w.next].at) <= i {
		w.i, w.offset = int(p.starts[w.next].at), p.starts[w.next].offset
		w.next++
	}
	if i-w.i > sumStep {
		w.offset += p.distance(i) - p.distance(w.i)
		w.i = i
	}
	for ; w.i < i; w.i++ {
		w.offset += uint32(p.length.at(w.i) + p.space.at(w.i))
	}
	m.Ref.Index, m.Ref.Offset = p.starts[w.next-1].index, w.offset
	return m
}

// end is where the entry of the last message read ends; the columns are packed and have starts.
func (w *walker) end() int { return w.c.packed.end(w.next) }
