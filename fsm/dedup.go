package fsm

import (
	"fmt"
	"math"

	"github.com/warrenmq/warren/queue"
)

// Bounds of what is let go of ids whose time is over: by an entry, and by each id taken.
// They spread a burst that ends over many entries.
const (
	dedupPerEntry = 1024
	dedupPerID    = 2
)

// Dedup is the ids that the queue remembers, for reading.
func (m *Machine) Dedup() *queue.DedupWindow { return &m.dedup }

// duplicate tells whether a message with this id was stored within the window. Its copy is
// not; whoever sent it is told that it is.
func (a *apply) duplicate(id queue.DedupID) bool {
	if id == (queue.DedupID{}) || !a.dedup.Has(id, a.time) {
		return false
	}
	a.counters.Duplicates++
	return true
}

// remember takes the id of a message that is stored now.
func (a *apply) remember(id queue.DedupID) {
	s := &a.settings.Dedup
	if id == (queue.DedupID{}) || s.WindowMillis == 0 {
		return
	}
	a.dedup.Expire(a.time, dedupPerID)
	a.counters.Forgotten += a.dedup.Trim(int(s.Size)-1, a.time)
	a.dedup.Add(queue.DedupEntry{ID: id, Until: a.time + min(s.WindowMillis, math.MaxInt64-a.time)})
}

// setDedup adapts the window to new settings. Ids keep the time they were taken for.
func (a *apply) setDedup(s queue.Dedup) {
	if s.WindowMillis == 0 {
		a.dedup.Clear()
		return
	}
	a.counters.Forgotten += a.dedup.Trim(int(s.Size), a.time)
}

func appendDedup(dst []byte, d queue.Dedup) []byte {
	return appendUint(appendUint(dst, uint64(d.WindowMillis)), uint64(d.Size))
}

// dedup reads what appendDedup wrote of settings that deduplicate.
func (r *reader) dedup() queue.Dedup {
	window, size := r.uvarint(), r.uvarint()
	if window == 0 || window > queue.DedupWindowMax || size == 0 || size > queue.DedupSizeMax {
		r.fail(ErrMalformed, "deduplication")
		return queue.Dedup{}
	}
	return queue.Dedup{WindowMillis: int64(window), Size: int64(size)}
}

// dedupID reads the id of a publish or transfer that has one.
func (r *reader) dedupID() (id queue.DedupID) {
	if r.err != nil || r.left() < len(id) {
		r.fail(ErrMalformed, "deduplication id")
		return id
	}
	copy(id[:], r.b[r.pos:])
	r.pos += len(id)
	if id == (queue.DedupID{}) {
		r.fail(ErrMalformed, "empty deduplication id")
	}
	return id
}

// appendWindow writes each instant as the distance from the one before.
func appendWindow(b []byte, w queue.DedupFrozen) []byte {
	b = appendUint(b, uint64(w.Len()))
	last := w.Latest
	b = appendInt(b, last)
	for e := range w.All {
		b = append(b, e.ID[:]...)
		b = appendInt(b, e.Until-last)
		last = e.Until
	}
	return b
}

// window reads the window of a machine whose settings deduplicate.
func (r *reader) window(m *Machine) {
	n, latest := r.count(len(queue.DedupID{})+1), r.varint()
	if r.err == nil && (n == 0 || int64(n) > m.settings.Dedup.Size || m.closed) {
		r.fail(ErrMalformed, "number of deduplication ids")
		return
	}
	until := latest
	for range n {
		e := queue.DedupEntry{ID: r.dedupID()}
		until += r.varint()
		if e.Until = until; r.err != nil || until <= 0 || until > latest || m.dedup.Has(e.ID, e.Until-1) {
			r.fail(ErrMalformed, "deduplication id")
			return
		}
		m.dedup.Add(e)
	}
	m.dedup.Raise(latest)
}

// checkDedup recounts the window.
func (m *Machine) checkDedup() error {
	n, latest := 0, map[queue.DedupID]int64{}
	for e := range m.dedup.Freeze().All {
		n++
		latest[e.ID] = max(latest[e.ID], e.Until)
	}
	for id, until := range latest {
		if m.dedup.Has(id, until) || !m.dedup.Has(id, until-1) {
			return fmt.Errorf("deduplication id %x is not taken until %d", id, until)
		}
	}
	if n != m.dedup.Len() || int64(n) > m.settings.Dedup.Size || n > 0 && m.closed {
		return fmt.Errorf("counted %d deduplication ids, have %d of %d, closed %v", n, m.dedup.Len(), m.settings.Dedup.Size, m.closed)
	}
	return nil
}
