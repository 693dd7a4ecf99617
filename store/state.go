package store

import (
	"fmt"
	"io"
)

// OpenState opens a state that is no snapshot of the group: a manifest as of index with the entries that it needs, as the stream of a
// snapshot (docs/formats/snapshot-stream.md) of exactly size bytes. What the pins name stays on disk until the reader is closed,
// whatever the group publishes meanwhile. The manifest is the reader's. A pin that is gone already is a *MissingPinError.
func (g *Group) OpenState(index uint64, manifest []byte, pins []Range) (r io.ReadCloser, size int64, err error) {
	rs, ok := normalize(pins)
	if !ok || len(rs) > 0 && rs[len(rs)-1].Last > index {
		return nil, 0, fmt.Errorf("pins of a state of group %d at %d are no ranges up to there: %w", g.id, index, ErrLogRange)
	}
	if len(manifest) > RecordBytesMax/2 || len(rs) > streamPinsMax {
		return nil, 0, fmt.Errorf("manifest of %d bytes with %d pins: %w", len(manifest), len(rs), ErrTooLarge)
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := g.usable(); err != nil {
		return nil, 0, err
	}
	p := &published{index: index, pins: rs, manifest: len(manifest)}
	for _, pin := range rs {
		n, bytes := g.entries.sum(pin.First, pin.Last)
		if n != pin.Last-pin.First+1 {
			return nil, 0, &MissingPinError{Group: g.id, Index: g.entries.missing(pin.First)}
		}
		p.entries, p.bodyBytes = p.entries+n, p.bodyBytes+bytes
	}
	return g.reader(p, manifest), p.streamBytes(), nil
}

// reader makes a reader of p, whose manifest is given unless it is in a record. Called with mu held.
func (g *Group) reader(p *published, manifest []byte) *snapshotReader {
	r := &snapshotReader{g: g, p: p, manifest: manifest, segments: make(map[uint32]*segment)}
	if manifest == nil {
		r.hold(p.loc)
	}
	for _, pin := range p.pins {
		g.entries.each(pin.First, pin.Last, func(i uint64, l loc) bool {
			r.hold(l)
			r.entries = append(r.entries, pinned{i, l})
			return true
		})
	}
	return r
}
