package queue

import "slices"

// Frozen is an immutable view of a queue's live messages.
type Frozen struct {
	chunks []*chunk
	n      int
	tail   MessageID
}

// Freeze returns a view of the queue as it is now. The queue may change while
// another goroutine walks the view.
func (q *Queue) Freeze() Frozen {
	for _, c := range q.chunks {
		c.shared = true
	}
	return Frozen{slices.Clone(q.chunks), q.n, q.tail}
}

// View is Freeze for a caller that is done before the queue changes.
func (q *Queue) View() Frozen { return Frozen{q.chunks, q.n, q.tail} }

// Len is the number of messages in the view.
func (f Frozen) Len() int { return f.n }

// Tail is the id of the newest message ever enqueued.
func (f Frozen) Tail() MessageID { return f.tail }

// All yields the messages in id order until yield returns false.
func (f Frozen) All(yield func(Message) bool) {
	for _, c := range f.chunks {
		at := walker{c: &c.cols}
		for slot, ok := c.live.next(0); ok; slot, ok = c.live.next(slot + 1) {
			m := at.at(c.index(slot))
			c.complete(&m, slot)
			if !yield(m) {
				return
			}
		}
	}
}

// Run is a message and those that follow it: n messages of consecutive ids in one entry, alike in all but their offsets, which
// are Length+Space apart.
type Run struct {
	First Message
	N     int
	Space uint32 // bytes between neighbours; 0 if N is 1
}

// Runs yields the same messages as All, many at a time where they are alike. How they are cut into runs says nothing of them.
func (f Frozen) Runs(yield func(Run) bool) {
	for _, c := range f.chunks {
		at := walker{c: &c.cols}
		alike := c.alike()
		for slot, ok := c.live.next(0); ok; {
			r := Run{First: at.at(c.index(slot)), N: 1}
			c.complete(&r.First, slot)
			if alike {
				if r.N = c.live.stretch(slot, c.first+uint(at.end())); r.N > 1 {
					r.Space = uint32(c.cols.packed.space.base)
				}
			}
			if !yield(r) {
				return
			}
			slot, ok = c.live.next(slot + uint(r.N))
		}
	}
}

// Indexes yields, ascending, the log index of every entry that has a live message, at least once each.
func (f Frozen) Indexes(yield func(uint64) bool) {
	for _, c := range f.chunks {
		p := c.cols.packed
		if p == nil || len(p.starts) == 0 || c.kept != nil {
			for slot, ok := c.live.next(0); ok; slot, ok = c.live.next(slot + 1) {
				if !yield(c.cols.at(c.index(slot)).Ref.Index) {
					return
				}
			}
			continue
		}
		for k := range p.starts {
			slot, ok := c.live.next(c.first + uint(p.starts[k].at))
			if !ok {
				break
			}
			if slot < c.first+uint(p.end(k+1)) && !yield(p.starts[k].index) {
				return
			}
		}
	}
}

// alike tells whether the messages of each entry of a chunk differ in their places only, and lie at equal distances.
func (c *chunk) alike() bool {
	p := c.cols.packed
	return p != nil && len(p.starts) > 0 && c.kept == nil && len(c.touched) == 0 &&
		p.length.width+p.overhead.width+p.expires.width+p.priority.width+p.space.width == 0
}
