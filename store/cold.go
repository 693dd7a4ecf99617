package store

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

const (
	// A written segment is copied when less than this share of it is alive, a cold one when less than this share of a whole
	// segment is. What is copied is then at most two thirds of what a written one frees.
	coldShareNum, coldShareDen = 2, 5
	// gatherCountMax is the number of candidates that are worth a copy even if they free little.
	gatherCountMax = 8
	// gatherAge is how many segments are newer than one that is gathered: what flows through dies in a while by
	// itself, and a copy of it is for nothing. While space is short nothing is too young.
	gatherAge = 4
)

// sparseBytes is how many live bytes are too few for the records that a sealed segment has.
func (g *segment) sparseBytes() int64 {
	return (g.end - segmentHeadBytes) * coldShareNum / coldShareDen
}

// sparse reports whether a segment's live rest is worth moving together with others.
func (s *Store) sparse(seg *segment) bool {
	limit := seg.sparseBytes()
	if seg.cold {
		limit = s.o.SegmentBytes * coldShareNum / coldShareDen
	}
	live := seg.live.Load()
	return live > 0 && live < limit
}

// candidates picks the oldest sparse segments whose live rests fit one cold segment together, if moving them frees
// enough. While space is short few are enough, but then a cold one must be as dead as a written one: with any dead byte taken for a gain
// each ack in it would copy all the rest again, and without dead bytes a copy of it would be its next candidate.
func (s *Store) candidates() []*segment {
	free, alarm := s.space()
	room := s.o.SegmentBytes - segmentHeadBytes
	if alarm {
		room = min(room, free/2) // the other half is for the log's next segment
	}
	out, gain := s.pick(room, func(seg *segment) bool { return alarm || !s.young(seg) })
	if gain >= s.o.SegmentBytes || len(out) >= gatherCountMax {
		return out
	}
	if alarm {
		out, _ = s.pick(room, func(seg *segment) bool { return seg.live.Load() < seg.sparseBytes() })
		return out
	}
	return nil
}

// young reports whether a written segment has few newer ones.
func (s *Store) young(seg *segment) bool {
	return !seg.cold && seg.number+gatherAge > s.wal.segment()
}

// pick returns the oldest sparse segments that may be copied, as many as have room together, and what that frees.
func (s *Store) pick(room int64, may func(*segment) bool) (out []*segment, gain int64) {
	for _, seg := range s.sealedSegments() {
		if !seg.footed || !s.sparse(seg) || seg.refs.Load() > 0 || s.isStuck(seg) || !may(seg) {
			continue
		}
		if n := seg.live.Load(); n <= room {
			out = append(out, seg)
			room -= n
			gain += seg.size - n
		}
	}
	return out, gain
}

// moved is one record on its way to a cold segment.
type moved struct {
	item
	from, to loc
}

// gather copies the live rest of sparse segments into one cold segment sorted by group and index, so that a long backlog reads sequentially,
// and reports whether it moved anything. A crash leaves the sources, or both with the same seqs, of which recovery
// takes either.
func (s *Store) gather() bool {
	installed := s.installed.Load()
	sources := s.candidates()
	if len(sources) == 0 || s.stopping() {
		return false
	}
	moves, err := s.liveItems(sources)
	if err != nil {
		s.log.Warn("sparse segments not gathered", "segments", len(sources), "err", err)
		return false
	}
	if len(moves) == 0 { // what is alive there belongs to damaged groups or is on its way
		markStuck(sources, installed)
		return false
	}
	cold, err := s.writeCold(moves)
	if err != nil {
		s.log.Warn("cold segment not written", "err", err)
		return false
	}
	if cold == nil {
		return false
	}
	s.segMu.Lock()
	s.segs[cold.number] = cold
	s.segMu.Unlock()
	s.adoptMoves(moves)
	markStuck(sources, installed)
	s.log.Debug("segments gathered", "sources", len(sources), "cold", cold.number, "records", len(moves))
	return true
}

// markStuck remembers what a gathering left behind that began after so many installations: trying again makes no sense before
// something there has died, or a snapshot was installed whose entries were on their way.
func markStuck(sources []*segment, installed uint64) {
	for _, seg := range sources {
		seg.stuck, seg.stuckAt = seg.live.Load(), installed
	}
}

func (s *Store) isStuck(seg *segment) bool {
	return seg.live.Load() == seg.stuck && s.installed.Load() == seg.stuckAt
}

// liveItems lists what the indexes still hold in sources, by group and index; a group's manifest comes last.
func (s *Store) liveItems(sources []*segment) ([]moved, error) {
	var moves []moved
	for _, seg := range sources {
		items, err := seg.listItems()
		if err != nil {
			return nil, err
		}
		for _, t := range items {
			if t.kind.isData() && s.held(&t, t.loc(seg.number)) {
				moves = append(moves, moved{item: t, from: t.loc(seg.number)})
			}
		}
	}
	slices.SortFunc(moves, func(a, b moved) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(b2i(a.kind == kindManifest), b2i(b.kind == kindManifest)), cmp.Compare(a.index, b.index))
	})
	return moves, nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// existing returns a group without making it.
func (s *Store) existing(id GroupID) *Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups[id]
}

// held reports whether a sound group's state names the record at l.
func (s *Store) held(t *item, l loc) bool {
	g := s.existing(t.group)
	if g == nil {
		return false
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.damage != nil {
		return false
	}
	if t.kind == kindManifest {
		return g.snap != nil && g.snap.loc == l
	}
	at, ok := g.entries.get(t.index)
	return ok && at == l
}

// writeCold makes a durable cold segment of the moves and notes their new places. nil without an error: the store is closing.
func (s *Store) writeCold(moves []moved) (cold *segment, err error) {
	s.segMu.Lock()
	s.numbers++
	number := s.numbers
	s.segMu.Unlock()
	temp := filepath.Join(s.o.Dir, fmt.Sprintf("%08x-cold%s", number, tempSuffix))
	f, err := s.fs.Create(temp)
	if err != nil {
		return nil, err
	}
	cold = &segment{number: number, cold: true, file: f, path: filepath.Join(s.o.Dir, segmentName(number)), end: segmentHeadBytes}
	whole, err := s.fillCold(cold, moves)
	if err == nil && whole {
		err = s.fs.Rename(temp, cold.path)
	}
	if err != nil || !whole {
		return nil, errors.Join(err, f.Close(), s.fs.Remove(temp))
	}
	if err := s.fs.SyncDir(s.o.Dir); err != nil { // the copies may come back when what they copy is forgotten
		s.wal.fail(&FatalError{Op: "publish cold segment", Err: err}, nil)
		return nil, errors.Join(err, f.Close())
	}
	cold.size = cold.end
	cold.sealed.Store(true)
	return cold, nil
}

// fillCold writes records, footer and head; whole is false when the store closes meanwhile.
func (s *Store) fillCold(cold *segment, moves []moved) (whole bool, err error) {
	if _, err := cold.file.WriteAt(append(segmentHead{number: cold.number, cold: true}.encode(), make([]byte, segmentHeadBytes-sectorBytes)...), 0); err != nil {
		return false, err
	}
	var items []item
	var buf []byte
	flush := func() error {
		_, err := cold.file.WriteAt(buf, cold.end-int64(len(buf)))
		buf = buf[:0]
		return err
	}
	for i := range moves {
		m := &moves[i]
		if s.stopping() {
			return false, nil
		}
		h, body, err := s.source(m.from)
		if c, corrupt := errors.AsType[*CorruptError](err); corrupt {
			if g := s.existing(m.group); g != nil {
				s.tellDamage(m.group, g.quarantine(c))
			}
			continue
		}
		if err != nil {
			return false, err
		}
		r := record{header: h, data: body, raw: true}
		r.flags &^= flagBatch
		n := padded(h.bodyBytes)
		buf = slices.Grow(buf, int(n))[:len(buf)+int(n)]
		r.put(buf[len(buf)-int(n):], cold.number, cold.end)
		m.to = loc{cold.number, uint32(cold.end), h.bodyBytes}
		m.off = m.to.off
		items = append(items, m.item)
		cold.note(&h)
		cold.live.Add(n)
		cold.end += n
		if len(buf) >= windowBytes {
			if err := flush(); err != nil {
				return false, err
			}
		}
	}
	if err := flush(); err != nil {
		return false, err
	}
	s.reclaimed.copied.Add(uint64(cold.end - segmentHeadBytes))
	return true, cold.writeFooter(items)
}

// source reads a record to copy, from disk or memory.
func (s *Store) source(l loc) (header, []byte, error) {
	s.segMu.RLock()
	seg := s.segs[l.segment]
	s.segMu.RUnlock()
	return s.readRecord(seg, l, false)
}

// adoptMoves points the groups to the copies of what they still hold.
func (s *Store) adoptMoves(moves []moved) {
	for i := range moves {
		m := &moves[i]
		if m.to.segment == 0 {
			continue // it could not be read
		}
		if g := s.existing(m.group); g == nil || !g.move(m) {
			s.release(m.to)
		} else {
			s.release(m.from)
		}
	}
}

// move replaces a place; false if the group no longer holds the record there.
func (g *Group) move(m *moved) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.kind == kindManifest {
		if g.snap == nil || g.snap.loc != m.from {
			return false
		}
		p := *g.snap
		p.loc = m.to
		g.snap = &p
		return true
	}
	if at, ok := g.entries.get(m.index); !ok || at != m.from {
		return false
	}
	g.entries.put(m.index, m.to)
	return true
}
