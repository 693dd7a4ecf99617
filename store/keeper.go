package store

import (
	"cmp"
	"fmt"
	"slices"
)

// keep is the keeper: it gives sealed segments footers, frees those nobody needs, and gathers what is alive in nearly dead
// ones, until the store closes. It works when something was sealed or released, never on a timer.
func (s *Store) keep() {
	for {
		select {
		case <-s.stop:
			return
		case <-s.wake:
		}
		s.dropSpares()
		sealed := s.sealedSegments()
		if !s.footers(sealed) {
			continue
		}
		freed := s.free(sealed)
		// What was gathered from goes, and what was sealed meanwhile has its turn, before it gathers again. What was freed may be the
		// room for a footer, and without that, what keeps the next segment is gone.
		if s.gather() || freed && slices.ContainsFunc(sealed, func(seg *segment) bool { return !seg.footed }) {
			s.nudge()
		}
	}
}

// stopping reports whether Close was called.
func (s *Store) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// sealedSegments lists the segments that will not change any more, oldest first.
func (s *Store) sealedSegments() []*segment {
	s.segMu.RLock()
	defer s.segMu.RUnlock()
	var out []*segment
	for _, seg := range s.segs {
		if seg.sealed.Load() {
			out = append(out, seg)
		}
	}
	slices.SortFunc(out, func(a, b *segment) int { return cmp.Compare(a.number, b.number) })
	return out
}

// free lets go of segments that hold nothing alive and have no reader, and reports whether any went. What small state they hold is
// written again before, and is durable before a file goes.
func (s *Store) free(sealed []*segment) (freed bool) {
	dead := freeable(sealed)
	if len(dead) == 0 {
		return false
	}
	dead, err := s.checkpoint(dead)
	if err != nil || len(dead) == 0 {
		return false // the wal has failed or closes, or everything dead is evidence of damage
	}
	if err := s.removeSegments(dead); err != nil {
		s.wal.fail(&FatalError{Op: "remove segments", Err: err}, nil)
		return false
	}
	s.forget()
	return true
}

// freeable picks the dead ones of all sealed segments, oldest first. A written one stays as long as the one before it is there and has no
// footer: then it alone says where the other's records end, and without that recovery could not tell a damaged
// record from the end. Its own footer it does not need: what it says is of records that go with it. A file without records is no part
// of the stream: it is left from a preparation that failed, of which a crash took back the removal.
func freeable(sealed []*segment) (dead []*segment) {
	ended := true // whether the end of the written segment before is known without a later one
	for _, seg := range sealed {
		if (seg.cold || ended) && seg.live.Load() == 0 && seg.refs.Load() == 0 {
			dead = append(dead, seg)
		}
		if !seg.cold && seg.end > segmentHeadBytes {
			ended = seg.footed
		}
	}
	return dead
}

// checkpoint writes the small state of every group that has a part of it in one of the dead segments, and returns the segments that
// may go: not those that hold the only sign of a group's damage.
func (s *Store) checkpoint(dead []*segment) ([]*segment, error) {
	for _, g := range s.all() {
		held, err := g.checkpoint(dead)
		if err != nil {
			return nil, fmt.Errorf("write state of group %d: %w", g.id, err)
		}
		if held {
			dead = slices.DeleteFunc(slices.Clone(dead), func(seg *segment) bool { return g.holds(seg.number) })
		}
	}
	return dead, s.wal.barrier()
}

// holds reports whether small records of the group may stand in a segment.
func (g *Group) holds(segment uint32) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.placing || g.metaLow != 0 && g.metaLow <= segment && segment <= g.metaHigh
}

// checkpoint writes the group's small state if a dead segment holds a part of it; held says that it must stay there.
func (g *Group) checkpoint(dead []*segment) (held bool, err error) {
	touched := func() bool {
		return slices.ContainsFunc(dead, func(seg *segment) bool { return g.holds(seg.number) })
	}
	if !touched() {
		return false, nil
	}
	g.wmu.Lock()
	defer g.wmu.Unlock()
	g.mu.RLock()
	damaged, deleted := g.damage != nil, g.deleted
	m := g.meta
	m.alive = g.trace
	data := m.encode()
	g.mu.RUnlock()
	if deleted { // since the groups were listed: the record of that may be in a dead segment, too
		if heir := g.s.existing(g.id); heir != nil {
			return heir.checkpoint(dead)
		}
		return false, nil
	}
	if damaged || !touched() {
		return damaged, nil
	}
	recs := []record{{header: header{kind: kindState, group: g.id}, data: data}}
	recs[0].seal()
	var locs [1]loc
	if _, err := g.s.wal.append(recs, locs[:]); err != nil {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.metaLow, g.metaHigh = locs[0].segment, locs[0].segment
	return false, nil
}

// removeSegments takes dead segments out of the store and makes that durable.
func (s *Store) removeSegments(dead []*segment) error {
	s.segMu.Lock()
	for _, seg := range dead {
		delete(s.segs, seg.number)
	}
	s.segMu.Unlock()
	for _, seg := range dead {
		if err := s.retire(seg); err != nil {
			return err
		}
		s.reclaimed.freed.Add(1)
		s.log.Debug("segment freed", "segment", seg.number, "cold", seg.cold)
	}
	return s.fs.SyncDir(s.o.Dir)
}
