package store

import "sync"

const (
	// aheadBytes is how much of a backlog is read ahead: some ten milliseconds of a fast consumer.
	aheadBytes = 2 << 20
	// aheadGap is how far apart two reads may be of which the second follows the first.
	aheadGap = 1 << 20
)

// readAhead is what a segment knows of its readers. What was written is not in the kernel's cache, and a queue
// reads its backlog entry by entry: each would wait for the disk.
type readAhead struct {
	mu   sync.Mutex
	last int64 // end of the newest read
	upTo int64 // end of what the kernel was asked to read
}

// note takes in a read of n bytes at off and returns what to read ahead of it, nothing in most cases.
func (a *readAhead) note(off, n int64) (from, to int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	follows := off >= a.last && off < a.last+aheadGap && a.last > 0
	a.last = off + n
	if !follows {
		a.upTo = 0
		return 0, 0
	}
	if a.upTo-a.last > aheadBytes/2 {
		return 0, 0
	}
	from, a.upTo = max(a.upTo, a.last), a.last+aheadBytes
	return from, a.upTo
}

// readAhead asks for what follows a read, into the next segment if there is one. The caller holds a reference to seg.
func (s *Store) readAhead(seg *segment, off, n int64) {
	from, to := seg.ahead.note(off, n)
	if from == to {
		return
	}
	if f, ok := seg.file.(aheadReader); ok {
		f.WillNeed(from, to-from)
	}
	if !seg.sealed.Load() || to <= seg.end || seg.cold {
		return
	}
	s.segMu.RLock()
	next := s.segs[seg.number+1]
	if next != nil && next.live.Load() > 0 {
		next.refs.Add(1) // it rises while something is alive
	} else {
		next = nil
	}
	s.segMu.RUnlock()
	if next == nil {
		return
	}
	defer next.refs.Add(-1)
	next.ahead.mu.Lock()
	fresh := next.ahead.upTo == 0
	if fresh {
		next.ahead.last, next.ahead.upTo = segmentHeadBytes, aheadBytes
	}
	next.ahead.mu.Unlock()
	if f, ok := next.file.(aheadReader); ok && fresh {
		f.WillNeed(0, aheadBytes)
	}
}
