package amqp

import "sort"

// tagList is an ordered set of tags with a value each: what is outstanding on a
// channel. Tags are pushed in rising order and taken in any order. The space it
// needs follows the number of outstanding tags, not their distance, and every
// operation is constant in the mean where tags are dense.
type tagList[T any] struct {
	entries []tagEntry[T] // entries[head:] rise by tag; dead ones are skipped
	head    int           // entries[head] is live unless head == len(entries)
	live    int
}

type tagEntry[T any] struct {
	tag   uint64
	value T
	live  bool
}

// tagsKept is how many entries an empty list keeps room for.
const tagsKept = 4096

func (l *tagList[T]) len() int { return l.live }

// push adds tag, which is higher than every tag pushed before.
func (l *tagList[T]) push(tag uint64, v T) {
	if len(l.entries) == cap(l.entries) && 2*l.live <= len(l.entries) {
		l.compact()
	}
	l.entries = append(l.entries, tagEntry[T]{tag: tag, value: v, live: true})
	l.live++
}

func (l *tagList[T]) compact() {
	kept := l.entries[:0]
	for _, e := range l.entries[l.head:] {
		if e.live {
			kept = append(kept, e)
		}
	}
	clear(l.entries[len(kept):])
	l.entries, l.head = kept, 0
}

// find returns the place of a live tag, -1 if there is none.
func (l *tagList[T]) find(tag uint64) int {
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

// take removes tag.
func (l *tagList[T]) take(tag uint64) (v T, ok bool) {
	i := l.find(tag)
	if i < 0 {
		return v, false
	}
	e := &l.entries[i]
	v = e.value
	*e = tagEntry[T]{tag: e.tag}
	l.live--
	l.trim()
	return v, true
}

// takeUpTo removes every tag up to and including tag and appends the values to
// out, in order.
func (l *tagList[T]) takeUpTo(tag uint64, out []T) []T {
	for l.live > 0 && l.entries[l.head].tag <= tag {
		e := &l.entries[l.head]
		out = append(out, e.value)
		*e = tagEntry[T]{tag: e.tag}
		l.live--
		l.trim()
	}
	return out
}

// dropUpTo removes every tag up to and including tag.
func (l *tagList[T]) dropUpTo(tag uint64) {
	for low, ok := l.lowest(); ok && low <= tag; low, ok = l.lowest() {
		l.take(low)
	}
}

// trim moves the head to the first live entry.
func (l *tagList[T]) trim() {
	if l.live == 0 {
		l.head = 0
		if cap(l.entries) > tagsKept {
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

// lowest returns the lowest live tag.
func (l *tagList[T]) lowest() (tag uint64, ok bool) {
	if l.live == 0 {
		return 0, false
	}
	return l.entries[l.head].tag, true
}
