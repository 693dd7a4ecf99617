package queue

import (
	"container/heap"
	"math"
	"sort"
)

// expiryRunsMax bounds the ordered runs. Queues with one time-to-live need one;
// a retry ladder of several levels needs one for each level.
const expiryRunsMax = 8

// expiryRoomKept is room in the heap that is kept for the next messages, however few there are now.
const expiryRoomKept = 256

// expiryIndex orders messages by (instant, id). Messages whose instants rise
// with their ids are kept in runs at one bit each; what fits no run is in a heap,
// from which dead messages are cleared lazily but for its top.
type expiryIndex struct {
	runs []*expiryRun
	heap expiryHeap
	dead int // entries of heap whose message is gone or expires no more
}

// expiryRun holds ids whose instants do not fall as ids rise.
type expiryRun struct {
	last int64 // instant of the newest member
	ids  Set
}

type expiryEntry struct {
	at int64
	id MessageID
}

func (a expiryEntry) before(b expiryEntry) bool {
	return a.at < b.at || a.at == b.at && a.id < b.id
}

type expiryHeap []expiryEntry

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h expiryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *expiryHeap) Push(x any)        { *h = append(*h, x.(expiryEntry)) }
func (h *expiryHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

func (x *expiryIndex) add(at int64, id MessageID) {
	var best *expiryRun
	for _, r := range x.runs {
		if r.last <= at && (best == nil || r.last > best.last) {
			best = r
		}
	}
	if best == nil && len(x.runs) < expiryRunsMax {
		best = &expiryRun{}
		x.runs = append(x.runs, best)
	}
	if best == nil {
		heap.Push(&x.heap, expiryEntry{at, id})
		return
	}
	best.last = at
	best.ids.Add(uint64(id))
}

// remove forgets id, whose message is already gone from q, or expires no more there.
func (x *expiryIndex) remove(q *Queue, id MessageID) {
	for i, r := range x.runs {
		if r.ids.Remove(uint64(id)) {
			if r.ids.Len() == 0 {
				x.runs = append(x.runs[:i], x.runs[i+1:]...)
			}
			return
		}
	}
	x.dead++
	x.shrink(q)
}

// subtract forgets the named ids of one block; heaped of them were not in runs.
func (x *expiryIndex) subtract(q *Queue, num uint64, gone *bitmap, expiring int) {
	kept := x.runs[:0]
	for _, r := range x.runs {
		before := r.ids.Len()
		r.ids.subtract(num, gone)
		expiring -= before - r.ids.Len()
		if r.ids.Len() > 0 {
			kept = append(kept, r)
		}
	}
	clear(x.runs[len(kept):])
	x.runs = kept
	x.dead += expiring
	x.shrink(q)
}

// shrink keeps the top of the heap alive and rebuilds it when most of it is dead.
func (x *expiryIndex) shrink(q *Queue) {
	for len(x.heap) > 0 && !q.expires(x.heap[0].id) {
		heap.Pop(&x.heap)
		x.dead--
	}
	if room := cap(x.heap); room > expiryRoomKept && len(x.heap) < room/4 {
		x.heap = append(make(expiryHeap, 0, 2*len(x.heap)), x.heap...)
	}
	if x.dead <= 64+len(x.heap)/2 {
		return
	}
	kept := x.heap[:0]
	for _, e := range x.heap {
		if q.expires(e.id) {
			kept = append(kept, e)
		}
	}
	x.heap, x.dead = kept, 0
	if len(kept) == 0 {
		x.heap = nil
	}
	heap.Init(&x.heap)
}

// next returns the earliest entry.
func (x *expiryIndex) next(q *Queue) (expiryEntry, bool) {
	best, found := expiryEntry{at: math.MaxInt64}, false
	for _, r := range x.runs {
		if e, ok := r.after(q, 0); ok && (!found || e.before(best)) {
			best, found = e, true
		}
	}
	if len(x.heap) > 0 && (!found || x.heap[0].before(best)) {
		best, found = x.heap[0], true
	}
	return best, found
}

// after returns the first entry of the run with an id above id.
func (r *expiryRun) after(q *Queue, id MessageID) (expiryEntry, bool) {
	n, ok := r.ids.Next(uint64(id))
	if !ok {
		return expiryEntry{}, false
	}
	m, _ := q.Get(MessageID(n))
	return expiryEntry{m.ExpiresAt, m.ID}, true
}

// later returns the first entry of the run with an instant above at. It looks at some, whatever their number.
func (r *expiryRun) later(q *Queue, at int64) (expiryEntry, bool) {
	if r.last <= at {
		return expiryEntry{}, false
	}
	blocks := r.ids.blocks
	instant := func(b *block, slot uint) int64 {
		m, _ := q.Get(MessageID(b.num<<blockShift | uint64(slot)))
		return m.ExpiresAt
	}
	i := sort.Search(len(blocks), func(i int) bool {
		slot, _ := blocks[i].bits.next(0)
		return instant(blocks[i], slot) > at
	})
	after := MessageID(0)
	if i > 0 { // the last block that begins at or below it
		b := blocks[i-1]
		n := sort.Search(blockSize, func(n int) bool {
			slot, ok := b.bits.next(uint(n))
			return !ok || instant(b, slot) > at
		})
		after = MessageID(b.num<<blockShift+uint64(n)) - 1
	}
	return r.after(q, after)
}

// walk visits the entries with an instant above after and at or below limit in order, until visit returns false. Those of runs
// that are at or below after cost nothing.
func (x *expiryIndex) walk(q *Queue, after, limit int64, visit func(expiryEntry) bool) {
	w := dueWalk{}
	for _, r := range x.runs {
		if e, ok := r.later(q, after); ok && e.at <= limit {
			heap.Push(&w, dueHead{e, r, 0})
		}
	}
	x.seek(&w, 0, after, limit)
	for len(w) > 0 {
		h := heap.Pop(&w).(dueHead)
		if (h.run != nil || q.expires(h.entry.id)) && !visit(h.entry) {
			return
		}
		if h.run != nil {
			if e, ok := h.run.after(q, h.entry.id); ok && e.at <= limit {
				heap.Push(&w, dueHead{e, h.run, 0})
			}
			continue
		}
		x.seek(&w, 2*h.node+1, after, limit)
		x.seek(&w, 2*h.node+2, after, limit)
	}
}

// seek adds the first nodes of the heap to w, from the given one down, that are above after, if they are at or below limit.
func (x *expiryIndex) seek(w *dueWalk, node int, after, limit int64) {
	switch {
	case node >= len(x.heap) || x.heap[node].at > limit:
	case x.heap[node].at > after:
		heap.Push(w, dueHead{entry: x.heap[node], node: node})
	default:
		x.seek(w, 2*node+1, after, limit)
		x.seek(w, 2*node+2, after, limit)
	}
}

// dueHead is one place that a walk has reached: in a run, or at a node of the heap.
type dueHead struct {
	entry expiryEntry
	run   *expiryRun
	node  int
}

type dueWalk []dueHead

func (w dueWalk) Len() int           { return len(w) }
func (w dueWalk) Less(i, j int) bool { return w[i].entry.before(w[j].entry) }
func (w dueWalk) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }
func (w *dueWalk) Push(x any)        { *w = append(*w, x.(dueHead)) }
func (w *dueWalk) Pop() any {
	old := *w
	h := old[len(old)-1]
	*w = old[:len(old)-1]
	return h
}
