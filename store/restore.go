package store

import (
	"cmp"
	"slices"
)

// restore computes a group's state from its records. Every rule goes by seq, so that copies and segments freed out of order
// change nothing. It runs before the group has other users.
func (g *Group) restore(r *recovered) {
	slices.SortFunc(r.small, func(a, b smallRecord) int { return cmp.Compare(a.seq, b.seq) })
	for i := range r.small {
		if err := g.replay(&r.small[i]); err != nil && r.damage == nil {
			s := &r.small[i]
			r.damage = &CorruptError{Group: g.id, Segment: s.loc.segment, Offset: int64(s.loc.off), Reason: err.Error()}
		}
	}
	for i := range r.small {
		if s := &r.small[i]; s.seq >= g.meta.born {
			g.touch(s.loc.segment)
		}
	}
	if r.damage != nil && r.damageSeq < g.meta.born {
		r.damage = nil
	}
	slices.SortFunc(r.entries, func(a, b entryRecord) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.seq, b.seq))
	})
	for i := range r.entries {
		e := &r.entries[i]
		if !g.counts(e) {
			continue
		}
		g.trace = true
		if e.index >= g.meta.first || g.snap != nil && contains(g.snap.pins, e.index) {
			g.entries.put(e.index, e.loc)
		}
	}
	if g.snap != nil {
		g.trace = true
		g.s.segs[g.snap.loc.segment].live.Add(g.snap.loc.bytes())
		g.verifyPins(r)
	}
	g.entries.each(0, ^uint64(0), func(_ uint64, l loc) bool {
		g.s.segs[l.segment].live.Add(l.bytes())
		return true
	})
	g.damage = r.damage
	if g.damage != nil {
		g.touch(g.damage.Segment)
		g.trace = true
		g.s.damages.Add(1)
		g.s.log.Error("group quarantined", "group", uint64(g.id), "err", g.damage)
	}
}

// replay applies one small record; they come in order of seq.
func (g *Group) replay(r *smallRecord) error {
	m := &g.meta
	g.trace = r.kind != kindDeleted
	switch r.kind {
	case kindFirst:
		m.first = r.index
	case kindTruncate:
		m.cuts = append(m.cuts, truncation{from: r.index, seq: r.seq})
	case kindStable:
		key, val, ok := decodeStable(r.body)
		if !ok {
			return errMeta
		}
		m.keys[key] = val
	case kindVote:
		m.voteTerm, m.voteCand = r.term, append([]byte{}, r.body...)
	case kindManifest:
		p, _, err := decodePublished(&r.header, r.loc, r.body)
		if err != nil {
			return err
		}
		g.snap = p
		if p.installed {
			m.setBase(p)
		}
	case kindDeleted:
		g.meta = meta{keys: make(map[string][]byte), born: r.seq}
		g.snap = nil
	case kindState:
		st, err := decodeMeta(r.body)
		if err != nil {
			return err
		}
		if g.snap != nil && g.snap.seq < st.born {
			g.snap = nil
		}
		g.trace = st.alive
		g.meta = st
	}
	return nil
}

// counts tells whether an entry's record still means anything.
func (g *Group) counts(e *entryRecord) bool {
	m := &g.meta
	if e.seq < m.born {
		return false
	}
	if e.kind == kindPinned {
		return m.base.index != 0 && e.installation == m.base.installation
	}
	if e.index <= m.base.index && e.seq < m.base.seq {
		return false
	}
	for _, c := range m.cuts {
		if e.index >= c.from && e.seq < c.seq {
			return false
		}
	}
	return true
}

// verifyPins makes sure that everything the published snapshot names is there.
func (g *Group) verifyPins(r *recovered) {
	n := uint64(0)
	for _, pin := range g.snap.pins {
		k, _ := g.entries.sum(pin.First, pin.Last)
		n += k
	}
	if n != g.snap.entries && r.damage == nil {
		r.damage = &CorruptError{
			Group: g.id, Segment: g.snap.loc.segment, Offset: int64(g.snap.loc.off),
			Reason: "entries pinned by the published snapshot are missing",
		}
	}
}
