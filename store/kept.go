package store

import (
	"encoding/binary"
	"slices"
)

// What a segment says of groups that are gone: the memory of a deleted group, and that of a cut, is needed as long as records from
// before it are on disk. They are in few segments, while one old entry keeps a segment for years.

// groupSet is an immutable set of groups, ascending: the differences as varints. Ids are dense, so that
// ten thousand take some 12 KiB.
type groupSet []byte

func groupSetOf(items []item) groupSet {
	ids := make([]GroupID, 0, len(items))
	last, known := GroupID(0), false
	for i := range items {
		t := &items[i]
		// A deletion brings nothing back; the other kinds belong to no group.
		if t.kind == kindDeleted || t.kind == kindOpen || t.kind == kindSwitch || known && t.group == last {
			continue
		}
		last, known = t.group, true
		ids = append(ids, t.group)
	}
	slices.Sort(ids)
	var set groupSet
	before := GroupID(0)
	for _, id := range slices.Compact(ids) {
		set = binary.AppendUvarint(set, uint64(id-before))
		before = id
	}
	return slices.Clip(set)
}

func (s groupSet) each(f func(GroupID)) {
	for id := GroupID(0); len(s) > 0; {
		d, n := binary.Uvarint(s)
		id += GroupID(d)
		f(id)
		s = s[n:]
	}
}

// forget drops what only mattered to records that are gone from disk: cuts, and the memory of deleted groups.
func (s *Store) forget() {
	oldest := s.oldestUnlisted()
	low := make(map[GroupID]uint64) // a seq below all that is on disk of the group, for groups with something to forget
	for _, g := range s.all() {
		g.mu.RLock()
		if g.meta.born > 0 || len(g.meta.cuts) > 0 {
			low[g.id] = oldest
		}
		g.mu.RUnlock()
	}
	if len(low) == 0 {
		return
	}
	for _, seg := range s.sealedSegments() {
		if !seg.footed {
			continue
		}
		seg.groups.each(func(id GroupID) {
			if n, ok := low[id]; ok {
				low[id] = min(n, seg.seqLow)
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, oldest := range low {
		g := s.groups[id]
		if g == nil {
			continue
		}
		g.mu.Lock()
		g.meta.cuts = slices.DeleteFunc(g.meta.cuts, func(c truncation) bool { return c.seq < oldest })
		if g.meta.born < oldest {
			g.meta.born = 0
			if !g.trace && !g.handed {
				delete(s.groups, id)
			}
		}
		g.mu.Unlock()
	}
}

// oldestUnlisted is a seq below that of any record in a segment whose groups are not known: the active one, and those that are sealed and
// have no footer yet.
func (s *Store) oldestUnlisted() uint64 {
	s.wal.mu.Lock()
	oldest := s.wal.active.seqLow
	s.wal.mu.Unlock()
	for _, seg := range s.sealedSegments() {
		if !seg.footed {
			oldest = min(oldest, seg.seqLow)
		}
	}
	return oldest
}
