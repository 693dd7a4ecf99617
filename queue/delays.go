package queue

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// Delay says until when a returned message is not handed out again.
type Delay struct {
	ID    MessageID
	Until int64 // machine time in ms
}

// Delays are the returned messages that wait out their retry delay. The zero Delays
// is empty and ready.
type Delays struct {
	until map[MessageID]int64
	heap  delayHeap // by (instant, id); may hold entries that until has not, or has otherwise
	most  int       // there were since the map was made
}

// Len is the number of delayed messages.
func (d *Delays) Len() int { return len(d.until) }

// Until returns the instant at which id is ready again, 0 if it is not delayed.
func (d *Delays) Until(id MessageID) int64 { return d.until[id] }

// Set delays id until the instant, whatever was before.
func (d *Delays) Set(id MessageID, until int64) {
	if d.until == nil {
		d.until = map[MessageID]int64{}
	}
	if d.until[id] == until {
		return
	}
	d.until[id] = until
	heap.Push(&d.heap, Delay{id, until})
	d.shrink()
}

// delaysRoomKept is room that is kept for the next delays, however few there are now.
const delaysRoomKept = 256

// shrink builds the list anew when most of the heap is of no use any more, or most of the room: a map keeps its own.
func (d *Delays) shrink() {
	n := len(d.until)
	d.most = max(d.most, n)
	if len(d.heap) <= 64+2*n && (d.most <= delaysRoomKept || n >= d.most/4) {
		return
	}
	until := make(map[MessageID]int64, n)
	d.heap = make(delayHeap, 0, n)
	for id, at := range d.until {
		until[id] = at
		d.heap = append(d.heap, Delay{id, at})
	}
	d.until, d.most = until, n
	heap.Init(&d.heap)
}

// Remove ends the delay of id, if there is one.
func (d *Delays) Remove(id MessageID) {
	delete(d.until, id)
	d.shrink()
}

// RemoveRange ends the delays of a range.
func (d *Delays) RemoveRange(r IDRange) {
	if len(d.until) == 0 {
		return
	}
	defer d.shrink()
	if uint64(r.Last-r.First) >= uint64(len(d.until)) {
		maps.DeleteFunc(d.until, func(id MessageID, _ int64) bool { return id >= r.First && id <= r.Last })
		return
	}
	for id := r.First; id <= r.Last; id++ {
		delete(d.until, id)
	}
}

// Next returns the earliest instant, 0 if there is none.
func (d *Delays) Next() int64 {
	for len(d.heap) > 0 {
		if top := d.heap[0]; d.until[top.ID] == top.Until {
			return top.Until
		}
		heap.Pop(&d.heap)
	}
	return 0
}

// Pop ends the earliest delay if its instant is not after now.
func (d *Delays) Pop(now int64) (id MessageID, ok bool) {
	if at := d.Next(); at == 0 || at > now {
		return 0, false
	}
	top := heap.Pop(&d.heap).(Delay)
	delete(d.until, top.ID)
	d.shrink()
	return top.ID, true
}

// Lapse ends the delays whose instants are not after now.
func (d *Delays) Lapse(now int64) {
	for ok := len(d.until) > 0; ok; {
		_, ok = d.Pop(now)
	}
}

// All lists the delays by id.
func (d *Delays) All() []Delay {
	list := d.List()
	SortDelays(list)
	return list
}

// List is All in no order, in a tenth of the time.
func (d *Delays) List() []Delay {
	list := make([]Delay, 0, len(d.until))
	for id, at := range d.until {
		list = append(list, Delay{id, at})
	}
	return list
}

// SortDelays puts a list in the order of ids.
func SortDelays(list []Delay) {
	slices.SortFunc(list, func(a, b Delay) int { return cmp.Compare(a.ID, b.ID) })
}

type delayHeap []Delay

func (h delayHeap) Len() int { return len(h) }
func (h delayHeap) Less(i, j int) bool {
	return h[i].Until < h[j].Until || h[i].Until == h[j].Until && h[i].ID < h[j].ID
}
func (h delayHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *delayHeap) Push(x any)   { *h = append(*h, x.(Delay)) }
func (h *delayHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
