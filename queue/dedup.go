package queue

import (
	"maps"
	"slices"
)

// DedupID stands for the deduplication id of a message: a digest, so that every id takes
// the same room whatever a client chooses. The zero DedupID is none.
type DedupID [16]byte

// Dedup says how a queue drops copies of messages that publishers send again. The zero
// Dedup is not at all.
type Dedup struct {
	WindowMillis int64 // how long an id is remembered; 0: not at all
	Size         int64 // how many ids are remembered at most
}

// Bounds and default of Dedup. A remembered id takes 40 to 100 bytes of memory on each
// replica and 18 bytes of a manifest.
const (
	DedupWindowMax   = 315_360_000_000 // ms, ten years
	DedupSizeMax     = 1_000_000
	DedupSizeDefault = 100_000
)

// DedupEntry is one id of a window.
type DedupEntry struct {
	ID    DedupID
	Until int64 // machine time in ms from which the id is free again
}

// dedupChunk is how many entries are allocated and let go together.
const dedupChunk = 256

// DedupWindow remembers the ids of messages that were stored, oldest first. Ids whose time
// is over may stay for a while; Has does not find them. The zero DedupWindow is empty and
// ready. Its owner is the replicated machine.
type DedupWindow struct {
	chunks [][]DedupEntry // all but the last full
	first  int            // of the oldest entry, in the first chunk
	n      int
	until  map[DedupID]int64
	most   int // ids there were since the map was made
	// latest is no less than any entry's Until: the highest since the window was empty.
	latest int64
}

// Len is the number of entries, those whose time is over included.
func (w *DedupWindow) Len() int { return w.n }

// Has reports whether id is taken at the instant now.
func (w *DedupWindow) Has(id DedupID, now int64) bool {
	until, ok := w.until[id]
	return ok && until > now
}

// Raise sets the instant before which the window is not cleared as a whole. It serves to
// build a window as it was.
func (w *DedupWindow) Raise(latest int64) { w.latest = max(w.latest, latest) }

// Add takes an id that Has does not find.
func (w *DedupWindow) Add(e DedupEntry) {
	if w.until == nil {
		w.until = map[DedupID]int64{}
	}
	w.until[e.ID] = e.Until
	w.most = max(w.most, len(w.until))
	w.latest = max(w.latest, e.Until)
	last := len(w.chunks) - 1
	if last < 0 || len(w.chunks[last]) == dedupChunk {
		w.chunks = append(w.chunks, nil)
		last++
	}
	w.chunks[last] = append(w.chunks[last], e)
	w.n++
}

// Expire lets go of up to limit of the oldest entries whose time is over at the instant
// now, and of all of them at once if that is so for every entry.
func (w *DedupWindow) Expire(now int64, limit int) {
	if w.n > 0 && w.latest <= now {
		w.Clear()
		return
	}
	for ; limit > 0 && w.n > 0 && w.chunks[0][w.first].Until <= now; limit-- {
		w.drop()
	}
}

// Trim lets go of the oldest entries until n are left, and returns how many of them were
// not over at the instant now.
func (w *DedupWindow) Trim(n int, now int64) (early uint64) {
	for w.n > n {
		if w.drop().Until > now {
			early++
		}
	}
	return early
}

// Clear forgets everything.
func (w *DedupWindow) Clear() { *w = DedupWindow{} }

// drop lets go of the oldest entry. Frozen windows may share it.
func (w *DedupWindow) drop() DedupEntry {
	e := w.chunks[0][w.first]
	if w.n == 1 {
		w.Clear()
		return e
	}
	// An id whose time was over may have been taken again behind this entry.
	if w.until[e.ID] == e.Until {
		delete(w.until, e.ID)
		w.shrink()
	}
	w.n--
	if w.first++; w.first == dedupChunk {
		w.chunks[0], w.first = nil, 0
		w.chunks = w.chunks[1:]
	}
	return e
}

// dedupRoomKept is how many ids the map keeps room for, however few there are now.
const dedupRoomKept = 256

// shrink makes the map anew when most of its room is empty: it would keep that.
func (w *DedupWindow) shrink() {
	if n := len(w.until); w.most > dedupRoomKept && n < w.most/4 {
		until := make(map[DedupID]int64, n)
		maps.Copy(until, w.until)
		w.until, w.most = until, n
	}
}

// DedupFrozen is a window as it was at one moment. It shares what is never changed.
type DedupFrozen struct {
	chunks [][]DedupEntry
	first  int
	n      int
	// Latest is what Raise is for.
	Latest int64
}

// Freeze returns the window as it is now, in time in proportion to the number of chunks.
func (w *DedupWindow) Freeze() DedupFrozen {
	return DedupFrozen{slices.Clone(w.chunks), w.first, w.n, w.latest}
}

// Len is the number of entries.
func (f DedupFrozen) Len() int { return f.n }

// All yields the entries, oldest first.
func (f DedupFrozen) All(yield func(DedupEntry) bool) {
	first := f.first
	for _, c := range f.chunks {
		for _, e := range c[first:] {
			if !yield(e) {
				return
			}
		}
		first = 0
	}
}
