package queue

import (
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
)

// Queue is the set of live messages of one queue. Its owner is the replicated
// machine; readers are serialised with it by the caller. The zero Queue is empty
// and ready.
type Queue struct {
	chunks []*chunk // ascending by num, none but the last without live messages
	tail   MessageID
	n      int
	bytes  int64   // body bytes of live messages
	stored int64   // encoded bytes of live messages
	lanes  []*lane // descending by priority, none empty
	spare  *lane   // an empty one to use again
	expiry expiryIndex
}

// emptyChunkMax bounds what an empty queue keeps for the next message, so that
// one that is mostly empty does not allocate for each.
const emptyChunkMax = 64

// lane is the live messages of one priority.
type lane struct {
	priority uint8
	ids      Set
	bytes    int64
}

// PriorityTotal is the size of one lane.
type PriorityTotal struct {
	Priority uint8
	Messages int
	Bytes    int64 // body bytes
}

// Len is the number of live messages, held ones included.
func (q *Queue) Len() int { return q.n }

// Bytes is the sum of the body bytes of live messages.
func (q *Queue) Bytes() int64 { return q.bytes }

// Stored is the sum of the encoded lengths of live messages in the log.
func (q *Queue) Stored() int64 { return q.stored }

// Tail is the id of the newest message ever enqueued, 0 if there was none.
func (q *Queue) Tail() MessageID { return q.tail }

// locate returns the position of the first chunk whose number is at least num.
func (q *Queue) locate(num uint64) int {
	last := len(q.chunks) - 1
	if last < 0 || q.chunks[0].num >= num {
		return 0
	}
	if c := q.chunks[last]; c.num <= num {
		if c.num == num {
			return last
		}
		return last + 1
	}
	i, _ := slices.BinarySearchFunc(q.chunks, num, func(c *chunk, n uint64) int {
		switch {
		case c.num < n:
			return -1
		case c.num > n:
			return 1
		}
		return 0
	})
	return i
}

// find returns the position of the chunk that holds the live message id.
func (q *Queue) find(id MessageID) (int, bool) {
	num := uint64(id) >> blockShift
	i := q.locate(num)
	return i, i < len(q.chunks) && q.chunks[i].num == num && q.chunks[i].live.has(slotOf(id))
}

func slotOf(id MessageID) uint { return uint(id & blockMask) }

// writable returns the chunk at i, cloned before if a frozen view holds it.
func (q *Queue) writable(i int) *chunk {
	c := q.chunks[i]
	if c.shared {
		c = c.clone()
		q.chunks[i] = c
	}
	return c
}

// Has reports whether id is live.
func (q *Queue) Has(id MessageID) bool {
	_, ok := q.find(id)
	return ok
}

// Get returns the live message id.
func (q *Queue) Get(id MessageID) (Message, bool) {
	i, ok := q.find(id)
	if !ok {
		return Message{}, false
	}
	return q.chunks[i].message(slotOf(id)), true
}

// NextLive returns the first live message of any lane with an id above after.
func (q *Queue) NextLive(after MessageID) (Message, bool) {
	if after >= q.tail {
		return Message{}, false
	}
	id := after + 1
	num := uint64(id) >> blockShift
	i := q.locate(num)
	if i < len(q.chunks) && q.chunks[i].num == num {
		if slot, ok := q.chunks[i].live.next(slotOf(id)); ok {
			return q.chunks[i].message(slot), true
		}
		i++
	}
	if i >= len(q.chunks) || q.chunks[i].n == 0 {
		return Message{}, false
	}
	slot, _ := q.chunks[i].live.next(0)
	return q.chunks[i].message(slot), true
}

// Next returns the first live message of the lane with an id above after.
func (q *Queue) Next(priority uint8, after MessageID) (Message, bool) {
	l := q.lane(priority)
	if l == nil {
		return Message{}, false
	}
	id, ok := l.ids.Next(uint64(after))
	if !ok {
		return Message{}, false
	}
	return q.Get(MessageID(id))
}

// Priorities yields the priorities that have live messages, highest first. The
// queue must not change meanwhile.
func (q *Queue) Priorities() iter.Seq[uint8] {
	return func(yield func(uint8) bool) {
		for _, l := range q.lanes {
			if !yield(l.priority) {
				return
			}
		}
	}
}

// Highest returns the highest priority that has live messages below the given one; from 256 it begins.
// ok is false if there is none.
func (q *Queue) Highest(below int) (priority uint8, ok bool) {
	for _, l := range q.lanes {
		if int(l.priority) < below {
			return l.priority, true
		}
	}
	return 0, false
}

// TotalPerPriority returns the sizes of the lanes that have live messages,
// highest priority first.
func (q *Queue) TotalPerPriority() []PriorityTotal {
	t := make([]PriorityTotal, len(q.lanes))
	for i, l := range q.lanes {
		t[i] = PriorityTotal{l.priority, l.ids.Len(), l.bytes}
	}
	return t
}

// NextExpiry returns the earliest instant at which a live message expires.
func (q *Queue) NextExpiry() (instant int64, ok bool) {
	e, ok := q.expiry.next(q)
	return e.at, ok
}

// Due yields the live messages whose instant is at or below now, by instant and
// id, until yield returns false. The queue must not change meanwhile.
func (q *Queue) Due(now int64, yield func(Message) bool) { q.DueAfter(math.MinInt64, now, yield) }

// DueAfter is Due for instants above after only.
func (q *Queue) DueAfter(after, now int64, yield func(Message) bool) {
	q.expiry.walk(q, after, now, func(e expiryEntry) bool {
		m, _ := q.Get(e.id)
		return yield(m)
	})
}

// NextExpiryAfter returns the earliest instant above now at which a live message
// expires, 0 if there is none.
func (q *Queue) NextExpiryAfter(now int64) (instant int64) {
	q.expiry.walk(q, now, math.MaxInt64, func(e expiryEntry) bool {
		instant = e.at
		return false
	})
	return instant
}

func (q *Queue) lane(priority uint8) *lane {
	for _, l := range q.lanes {
		if l.priority == priority {
			return l
		}
	}
	return nil
}

func (q *Queue) laneFor(priority uint8) *lane {
	if l := q.lane(priority); l != nil {
		return l
	}
	if q.spare == nil {
		q.spare = &lane{}
	}
	i := 0
	for i < len(q.lanes) && q.lanes[i].priority > priority {
		i++
	}
	l := q.spare
	l.priority, q.spare = priority, nil
	q.lanes = slices.Insert(q.lanes, i, l)
	return l
}

func (q *Queue) dropEmptyLanes() {
	q.lanes = slices.DeleteFunc(q.lanes, func(l *lane) bool {
		if l.ids.Len() > 0 {
			return false
		}
		q.spare = l
		return true
	})
}

// Append enqueues m under the next id, which it returns.
func (q *Queue) Append(m Message) MessageID {
	m.ID = q.tail + 1
	q.insert(&m)
	return m.ID
}

// Restore puts m back under its own id, which must be above the tail. It serves
// to build a queue from a manifest, in id order.
func (q *Queue) Restore(m Message) error {
	if m.ID <= q.tail {
		return fmt.Errorf("restore message %d: not above %d", m.ID, q.tail)
	}
	q.insert(&m)
	return nil
}

// SkipTo raises the tail, as for messages enqueued and removed again.
func (q *Queue) SkipTo(tail MessageID) { q.tail = max(q.tail, tail) }

func (q *Queue) insert(m *Message) {
	num, slot := uint64(m.ID)>>blockShift, slotOf(m.ID)
	last := len(q.chunks) - 1
	if last < 0 || q.chunks[last].num != num {
		switch {
		case last < 0:
		case q.chunks[last].n == 0:
			q.dropChunk(last)
		default:
			q.writable(last).seal()
		}
		q.chunks = append(q.chunks, &chunk{num: num, first: slot})
		last = len(q.chunks) - 1
	}
	c := q.writable(last)
	for c.first+uint(c.cols.len()) < slot { // ids skipped by a restore
		c.cols.append(&Message{Ref: m.Ref})
	}
	c.cols.append(m)
	c.live.set(slot)
	c.n++
	if m.Attempt != 0 || m.Failed != 0 {
		c.setTouch(slot, m.Attempt, m.Failed)
	}
	q.tail = m.ID
	q.n++
	q.bytes += int64(m.BodyBytes)
	q.stored += int64(m.Ref.Length)
	l := q.laneFor(m.Priority)
	l.ids.Add(uint64(m.ID))
	l.bytes += int64(m.BodyBytes)
	if m.ExpiresAt != 0 {
		q.expiry.add(m.ExpiresAt, m.ID)
	}
}

// Touch sets the counts of the live message id.
func (q *Queue) Touch(id MessageID, attempt, failed uint32) bool {
	i, ok := q.find(id)
	if ok {
		q.writable(i).setTouch(slotOf(id), attempt, failed)
	}
	return ok
}

// StopTTL takes the instant of expiry from the live message id, for good. It reports
// whether there was one.
func (q *Queue) StopTTL(id MessageID) bool {
	m, ok := q.Get(id)
	if !ok || m.ExpiresAt == 0 {
		return false
	}
	i, _ := q.find(id)
	q.writable(i).touch(slotOf(id)).stopped = true
	q.expiry.remove(q, id)
	return true
}

// expires reports whether id is live and has an instant of expiry, if it ever had one.
func (q *Queue) expires(id MessageID) bool {
	i, ok := q.find(id)
	return ok && !q.chunks[i].stopped(slotOf(id))
}

// Remove takes the live message id out and returns it.
func (q *Queue) Remove(id MessageID) (Message, bool) {
	i, ok := q.find(id)
	if !ok {
		return Message{}, false
	}
	m := q.chunks[i].message(slotOf(id))
	q.takeOut(i, id, &m)
	return m, true
}

// takeOut removes the live message id of the chunk at i, of which m has the sizes and the instant of expiry.
func (q *Queue) takeOut(i int, id MessageID, m *Message) {
	q.writable(i).remove(slotOf(id))
	q.dropIfEmpty(i)
	q.n--
	q.bytes -= int64(m.BodyBytes)
	q.stored -= int64(m.Ref.Length)
	l := q.lane(m.Priority)
	l.ids.Remove(uint64(id))
	l.bytes -= int64(m.BodyBytes)
	if l.ids.Len() == 0 {
		q.dropEmptyLanes()
	}
	if m.ExpiresAt != 0 {
		q.expiry.remove(q, id)
	}
}

func (q *Queue) dropIfEmpty(i int) {
	if c := q.chunks[i]; c.n == 0 && (i < len(q.chunks)-1 || c.cols.len() >= emptyChunkMax) {
		q.dropChunk(i)
	}
}

func (q *Queue) dropChunk(i int) {
	if i == 0 && len(q.chunks) > 1 {
		q.chunks[0] = nil
		q.chunks = q.chunks[1:]
		return
	}
	q.chunks = slices.Delete(q.chunks, i, i+1)
}

// RemoveRange takes out every live message of the range, appends their ids to
// gone as coalesced ranges and returns it with their number.
func (q *Queue) RemoveRange(r IDRange, gone []IDRange) ([]IDRange, int) {
	if r.First == r.Last { // what consumers who take turns acknowledge
		return q.removeOne(r.First, gone)
	}
	before := q.n
	r.First, r.Last = max(r.First, 1), min(r.Last, q.tail)
	for r.First <= r.Last {
		i := q.locate(uint64(r.First) >> blockShift)
		if i == len(q.chunks) {
			break
		}
		c := q.chunks[i]
		r.First = max(r.First, c.id(0))
		if r.First > r.Last {
			break
		}
		end := min(r.Last, c.id(blockMask))
		cut := c.live
		if r.First > c.id(c.first) || end < r.Last || end < c.id(blockMask) {
			cut = c.live.between(slotOf(r.First), slotOf(end))
		}
		gone = q.removeSlots(i, &cut, gone)
		r.First = end + 1
	}
	return gone, before - q.n
}

// removeOne is RemoveRange for a single id.
func (q *Queue) removeOne(id MessageID, gone []IDRange) ([]IDRange, int) {
	i, ok := q.find(id)
	if !ok {
		return gone, 0
	}
	c := q.chunks[i]
	m := c.cols.sizes(c.index(slotOf(id)))
	if c.stopped(slotOf(id)) {
		m.ExpiresAt = 0
	}
	q.takeOut(i, id, &m)
	return AppendID(gone, id), 1
}

// removeSlots takes out the live messages of one chunk that are set in cut.
func (q *Queue) removeSlots(i int, cut *bitmap, gone []IDRange) []IDRange {
	if cut.summary == 0 {
		return gone
	}
	c := q.writable(i)
	expiring, n := 0, 0
	var l *lane
	for s := cut.summary; s != 0; s &= s - 1 {
		w := bits.TrailingZeros64(s)
		for word := cut.words[w]; word != 0; word &= word - 1 {
			slot := uint(w<<6 + bits.TrailingZeros64(word))
			m := c.cols.sizes(c.index(slot))
			gone = AppendID(gone, c.id(slot))
			n++
			q.bytes -= int64(m.BodyBytes)
			q.stored -= int64(m.Ref.Length)
			if m.ExpiresAt != 0 && !c.stopped(slot) {
				expiring++
			}
			if l == nil || l.priority != m.Priority {
				l = q.lane(m.Priority)
			}
			l.bytes -= int64(m.BodyBytes)
		}
	}
	q.n -= n
	c.n -= n
	c.live.subtract(cut)
	if len(c.touched) > 0 {
		c.touched = slices.DeleteFunc(c.touched, func(t touch) bool { return cut.has(uint(t.slot)) })
	}
	c.thin()
	num := c.num
	q.dropIfEmpty(i)
	for _, l := range q.lanes {
		l.ids.subtract(num, cut)
	}
	q.dropEmptyLanes()
	if expiring > 0 {
		q.expiry.subtract(q, num, cut, expiring)
	}
	return gone
}

// Untouched reports whether no live message of the range has ever come back
// after a delivery.
func (q *Queue) Untouched(r IDRange) bool {
	for i := q.locate(uint64(r.First) >> blockShift); i < len(q.chunks) && q.chunks[i].id(0) <= r.Last; i++ {
		c := q.chunks[i]
		if len(c.touched) == 0 {
			continue
		}
		k, _ := c.touchAt(slotOf(max(r.First, c.id(0))))
		if k < len(c.touched) && c.id(uint(c.touched[k].slot)) <= r.Last {
			return false
		}
	}
	return true
}

// AppendID adds id to ranges, widening the last one if id follows it.
func AppendID(ranges []IDRange, id MessageID) []IDRange {
	if n := len(ranges); n > 0 && ranges[n-1].Last+1 == id {
		ranges[n-1].Last = id
		return ranges
	}
	return append(ranges, IDRange{id, id})
}
