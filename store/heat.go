package store

import (
	"cmp"
	"slices"
)

// hotBytes is how much of the end of the stream of writes counts as written lately.
const hotBytes = 64 << 20

// findHot notes in which segment the newest hotBytes of the stream begin; written is how far the active one is filled.
func (s *Store) findHot(active *segment, written int64) {
	stream := make([]*segment, 0, len(s.segs))
	for _, seg := range s.segs {
		if !seg.cold && seg != active {
			stream = append(stream, seg)
		}
	}
	slices.SortFunc(stream, func(a, b *segment) int { return cmp.Compare(b.number, a.number) })
	s.hotFrom = active.number
	for _, seg := range stream {
		if written >= hotBytes {
			return
		}
		written += seg.end
		s.hotFrom = seg.number
	}
}

// Heat returns how many bytes of the group's entries are among the newest 64 MiB that the node had written when the
// store was opened, or came later. After a start it tells which groups were in use before. Entries that
// were copied to a cold segment since do not count.
func (g *Group) Heat() int64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var bytes int64
	for _, r := range slices.Backward(g.entries.runs) {
		for _, l := range slices.Backward(r.locs) {
			if l.segment == 0 {
				continue
			}
			if l.segment < g.s.hotFrom {
				return bytes // older entries lie in older segments, or in cold ones
			}
			if !g.s.cold(l.segment) {
				bytes += int64(l.bodyBytes)
			}
		}
	}
	return bytes
}

// cold tells whether a segment holds copies.
func (s *Store) cold(number uint32) bool {
	s.segMu.RLock()
	defer s.segMu.RUnlock()
	seg := s.segs[number]
	return seg == nil || seg.cold
}
