package queue

import (
	"math/bits"
	"slices"
)

// Numbers are kept in blocks of blockSize consecutive ones.
const (
	blockShift = 12
	blockSize  = 1 << blockShift
	blockMask  = blockSize - 1
	blockWords = blockSize / 64
)

// bitmap is one block of bits. Bit w of summary is set if word w is not zero.
type bitmap struct {
	summary uint64
	words   [blockWords]uint64
}

func (b *bitmap) has(i uint) bool { return b.words[i>>6]&(1<<(i&63)) != 0 }

func (b *bitmap) set(i uint) {
	b.words[i>>6] |= 1 << (i & 63)
	b.summary |= 1 << (i >> 6)
}

func (b *bitmap) clear(i uint) {
	w := i >> 6
	b.words[w] &^= 1 << (i & 63)
	if b.words[w] == 0 {
		b.summary &^= 1 << w
	}
}

// next returns the first set bit at or above i.
func (b *bitmap) next(i uint) (uint, bool) {
	if i >= blockSize {
		return 0, false
	}
	w := i >> 6
	if rest := b.words[w] >> (i & 63); rest != 0 {
		return i + uint(bits.TrailingZeros64(rest)), true
	}
	higher := b.summary &^ (1<<(w+1) - 1)
	if higher == 0 {
		return 0, false
	}
	w = uint(bits.TrailingZeros64(higher))
	return w<<6 + uint(bits.TrailingZeros64(b.words[w])), true
}

// stretch is how many bits are set from i on without a gap, below end.
func (b *bitmap) stretch(i, end uint) int {
	from := i
	for i < end {
		n := uint(bits.TrailingZeros64(^(b.words[i>>6] >> (i & 63))))
		if i += n; n < 64-(i-n)&63 {
			break
		}
	}
	return int(min(i, end) - from)
}

// between returns the bits from low to high, both included.
func (b *bitmap) between(low, high uint) (part bitmap) {
	first, last := low>>6, high>>6
	for w := first; w <= last; w++ {
		word := b.words[w]
		if w == first {
			word &= ^uint64(0) << (low & 63)
		}
		if w == last {
			word &= ^uint64(0) >> (63 - high&63)
		}
		if word != 0 {
			part.words[w] = word
			part.summary |= 1 << w
		}
	}
	return part
}

// subtract clears every bit that is set in o and returns how many there were.
func (b *bitmap) subtract(o *bitmap) (removed int) {
	for s := b.summary & o.summary; s != 0; s &= s - 1 {
		w := bits.TrailingZeros64(s)
		removed += bits.OnesCount64(b.words[w] & o.words[w])
		b.words[w] &^= o.words[w]
		if b.words[w] == 0 {
			b.summary &^= 1 << w
		}
	}
	return removed
}

// Set is an ordered set of numbers that are handed out densely: message ids,
// outbox ids. It costs about one bit for each number between neighbours and
// nothing where there are none. The zero Set is empty and ready.
type Set struct {
	blocks []*block // ascending by num, none empty
	n      int
	spare  *block // an empty one to use again
}

type block struct {
	num  uint64
	n    int
	bits bitmap
}

// Len is the number of members.
func (s *Set) Len() int { return s.n }

// locate returns the position of the first block whose number is at least num.
func (s *Set) locate(num uint64) int {
	last := len(s.blocks) - 1
	if last < 0 || s.blocks[0].num >= num {
		return 0
	}
	if s.blocks[last].num <= num {
		if s.blocks[last].num == num {
			return last
		}
		return last + 1
	}
	i, _ := slices.BinarySearchFunc(s.blocks, num, func(b *block, n uint64) int {
		switch {
		case b.num < n:
			return -1
		case b.num > n:
			return 1
		}
		return 0
	})
	return i
}

// Has reports whether x is a member.
func (s *Set) Has(x uint64) bool {
	i := s.locate(x >> blockShift)
	return i < len(s.blocks) && s.blocks[i].num == x>>blockShift && s.blocks[i].bits.has(uint(x&blockMask))
}

// Add makes x a member and reports whether it was not one before.
func (s *Set) Add(x uint64) bool {
	num := x >> blockShift
	i := s.locate(num)
	if i == len(s.blocks) || s.blocks[i].num != num {
		if s.spare == nil {
			s.spare = &block{}
		}
		s.spare.num = num
		s.blocks, s.spare = slices.Insert(s.blocks, i, s.spare), nil
	}
	b := s.blocks[i]
	if b.bits.has(uint(x & blockMask)) {
		return false
	}
	b.bits.set(uint(x & blockMask))
	b.n++
	s.n++
	return true
}

// Remove takes x out and reports whether it was a member.
func (s *Set) Remove(x uint64) bool {
	i := s.locate(x >> blockShift)
	if i == len(s.blocks) || s.blocks[i].num != x>>blockShift {
		return false
	}
	b := s.blocks[i]
	if !b.bits.has(uint(x & blockMask)) {
		return false
	}
	b.bits.clear(uint(x & blockMask))
	b.n--
	s.n--
	if b.n == 0 {
		s.removeBlock(i)
	}
	return true
}

// removeBlock takes out an empty block.
func (s *Set) removeBlock(i int) {
	s.spare = s.blocks[i]
	if i == 0 && len(s.blocks) > 1 {
		s.blocks[0] = nil
		s.blocks = s.blocks[1:]
		return
	}
	s.blocks = slices.Delete(s.blocks, i, i+1)
}

// subtract takes out the members of one block that are set in o.
func (s *Set) subtract(num uint64, o *bitmap) {
	i := s.locate(num)
	if i == len(s.blocks) || s.blocks[i].num != num {
		return
	}
	b := s.blocks[i]
	removed := b.bits.subtract(o)
	b.n -= removed
	s.n -= removed
	if b.n == 0 {
		s.removeBlock(i)
	}
}

// Next returns the smallest member above after.
func (s *Set) Next(after uint64) (uint64, bool) {
	if s.n == 0 || after == ^uint64(0) {
		return 0, false
	}
	x := after + 1
	num := x >> blockShift
	i := s.locate(num)
	if i < len(s.blocks) && s.blocks[i].num == num {
		if bit, ok := s.blocks[i].bits.next(uint(x & blockMask)); ok {
			return num<<blockShift | uint64(bit), true
		}
		i++
	}
	if i == len(s.blocks) {
		return 0, false
	}
	bit, _ := s.blocks[i].bits.next(0)
	return s.blocks[i].num<<blockShift | uint64(bit), true
}

// First returns the smallest member.
func (s *Set) First() (uint64, bool) {
	if s.n == 0 {
		return 0, false
	}
	bit, _ := s.blocks[0].bits.next(0)
	return s.blocks[0].num<<blockShift | uint64(bit), true
}
