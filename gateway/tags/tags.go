// Package tags keeps what is outstanding on a channel by its number.
package tags

import (
	"iter"
	"sort"
)

// List is an ordered set of tags with a value each: what is outstanding on a
// channel. Tags are pushed in rising order and taken in any order. The space it
// needs follows the number of outstanding tags, not their distance, and every
// operation is constant in the mean where tags are dense.
type List[T any] struct {
	entries []entry[T] // entries[head:] rise by tag; dead ones are skipped
	head    int        // entries[head] is live unless head == len(entries)
	live    int
}

type entry[T any] struct {
	tag   uint64
	value T
	live  bool
}

// Kept is how many entries an empty list keeps room for.
const Kept = 4096

// Len is how many tags are outstanding.
func (l *List[T]) Len() int { return l.live }

// Push adds tag, which is higher than every tag pushed before.
func (l *List[T]) Push(tag uint64, v T) {
	if len(l.entries) == cap(l.entries) && 2*l.live <= len(l.entries) {
		l.compact()
	}
	l.entries = append(l.entries, entry[T]{tag: tag, value: v, live: true})
	l.live++
}

func (l *List[T]) compact() {
	live := l.entries[:0]
	for _, e := range l.entries[l.head:] {
		if e.live {
			live = append(live, e)
		}
	}
	clear(l.entries[len(live):])
	l.entries, l.head = live, 0
}

// Find returns the place of a live tag, -1 if there is none.
func (l *List[T]) Find(tag uint64) int {
	if l.live == 0 || tag < l.entries[l.head].tag {
		return -1
	}
	// Without gaps the tag is here, with gaps it is before.
	end := len(l.entries)
	if at := tag - l.entries[l.head].tag; at < uint64(end-l.head) {
		i := l.head + int(at)
		if l.entries[i].tag == tag {
			if l.entries[i].live {
				return i
			}
			return -1
		}
		end = i
	}
	n := sort.Search(end-l.head, func(i int) bool { return l.entries[l.head+i].tag >= tag })
	if i := l.head + n; i < end && l.entries[i].tag == tag && l.entries[i].live {
		return i
	}
	return -1
}

// Take removes tag.
func (l *List[T]) Take(tag uint64) (v T, ok bool) {
	i := l.Find(tag)
	if i < 0 {
		return v, false
	}
	e := &l.entries[i]
	v = e.value
	*e = entry[T]{tag: e.tag}
	l.live--
	l.trim()
	return v, true
}

// TakeUpTo removes every tag up to and including tag and appends the values to
// out, in order.
func (l *List[T]) TakeUpTo(tag uint64, out []T) []T {
	for l.live > 0 && l.entries[l.head].tag <= tag {
		e := &l.entries[l.head]
		out = append(out, e.value)
		*e = entry[T]{tag: e.tag}
		l.live--
		l.trim()
	}
	return out
}

// TakeRange removes the tags from first to last, which both belong to them, and appends the values to out, in order.
func (l *List[T]) TakeRange(first, last uint64, out []T) []T {
	if l.live == 0 || first > last {
		return out
	}
	if first <= l.entries[l.head].tag {
		return l.TakeUpTo(last, out)
	}
	n := len(l.entries) - l.head
	from := sort.Search(n, func(i int) bool { return l.entries[l.head+i].tag >= first })
	for i := l.head + from; i < len(l.entries) && l.entries[i].tag <= last; i++ {
		e := &l.entries[i]
		if e.live {
			out = append(out, e.value)
			*e = entry[T]{tag: e.tag}
			l.live--
		}
	}
	l.trim()
	return out
}

// Range appends the values of the tags from first to last, which both belong to them, to out, in order, and takes none.
func (l *List[T]) Range(first, last uint64, out []T) []T {
	n := len(l.entries) - l.head
	from := sort.Search(n, func(i int) bool { return l.entries[l.head+i].tag >= first })
	for i := l.head + from; i < len(l.entries) && l.entries[i].tag <= last; i++ {
		if l.entries[i].live {
			out = append(out, l.entries[i].value)
		}
	}
	return out
}

// All passes the live tags and their values in order. The list must not be changed meanwhile.
func (l *List[T]) All() iter.Seq2[uint64, T] {
	return func(yield func(uint64, T) bool) {
		for i := range l.entries[l.head:] {
			if e := &l.entries[l.head+i]; e.live && !yield(e.tag, e.value) {
				return
			}
		}
	}
}

// DropUpTo removes every tag up to and including tag.
func (l *List[T]) DropUpTo(tag uint64) {
	for low, ok := l.Lowest(); ok && low <= tag; low, ok = l.Lowest() {
		l.Take(low)
	}
}

// trim moves the head to the first live entry.
func (l *List[T]) trim() {
	if l.live == 0 {
		l.head = 0
		if cap(l.entries) > Kept {
			l.entries = nil
		} else {
			l.entries = l.entries[:0]
		}
		return
	}
	for !l.entries[l.head].live {
		l.head++
	}
}

// Lowest returns the lowest live tag.
func (l *List[T]) Lowest() (tag uint64, ok bool) {
	if l.live == 0 {
		return 0, false
	}
	return l.entries[l.head].tag, true
}
