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
