package store

import (
	"errors"
	"fmt"
	"math"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/failpoint"
)

// sink receives one snapshot. It belongs to one goroutine.
type sink struct {
	g *Group
	p published

	local    bool // WriteManifest was called
	parser   *streamParser
	manifest []byte
	stored   index // entries of the stream, in the log under this installation and not counted yet
	done     bool
	err      error
}

var errSinkUse = errors.New("a sink takes either one WriteManifest or a stream")

// ID implements raft.SnapshotSink. After Close it is the id to open the snapshot by.
func (k *sink) ID() string { return k.p.id }

// WriteManifest implements ManifestSink.
func (k *sink) WriteManifest(manifest []byte, pins []Range) error {
	if k.done || k.local || k.parser != nil {
		return errSinkUse
	}
	rs, ok := normalize(pins)
	if !ok || len(rs) > 0 && rs[len(rs)-1].Last > k.p.index {
		return fmt.Errorf("pins of snapshot %s of group %d are no ranges up to %d: %w", k.p.id, k.g.id, k.p.index, ErrLogRange)
	}
	if len(manifest) > RecordBytesMax/2 || len(rs) > streamPinsMax {
		return fmt.Errorf("manifest of %d bytes with %d pins: %w", len(manifest), len(rs), ErrTooLarge)
	}
	k.local, k.manifest, k.p.pins = true, append([]byte{}, manifest...), rs
	return nil
}

// Write implements raft.SnapshotSink: it takes the next bytes of a stream and stores each entry as soon as it is whole.
func (k *sink) Write(b []byte) (int, error) {
	if k.done || k.local {
		return 0, errSinkUse
	}
	if k.parser == nil {
		k.parser = &streamParser{entryFn: k.store}
	}
	if k.err == nil {
		k.err = k.parser.write(b)
	}
	if k.err != nil {
		return 0, fmt.Errorf("receive snapshot %s of group %d: %w", k.p.id, k.g.id, k.err)
	}
	return len(b), nil
}

// store writes an entry without waiting for the disk; Close's manifest comes later in the same stream.
func (k *sink) store(h header, body []byte) error {
	if h.index > k.p.index || h.term > k.p.term {
		return streamErr("entry %d of term %d above the snapshot's %d of %d", h.index, h.term, k.p.index, k.p.term)
	}
	if _, _, ok := h.split(body); !ok {
		return streamErr("entry %d has malformed extensions", h.index)
	}
	h.group, h.aux = k.g.id, k.p.number
	r := record{header: h, data: body}
	k.g.wmu.Lock()
	defer k.g.wmu.Unlock()
	if err := k.g.Err(); err != nil {
		return err
	}
	var locs [1]loc
	if _, err := k.g.placeRaw(&r, locs[:]); err != nil {
		return err
	}
	k.stored.put(h.index, locs[0])
	k.p.entries++
	k.p.bodyBytes += uint64(h.bodyBytes)
	return nil
}

// Cancel implements raft.SnapshotSink; nothing of the snapshot counts afterwards. It is safe after Close.
func (k *sink) Cancel() error {
	if !k.done {
		k.discard()
	}
	return nil
}

func (k *sink) discard() {
	k.done = true
	k.stored.each(0, math.MaxUint64, func(_ uint64, l loc) bool { k.g.s.release(l); return true })
	k.stored, k.manifest, k.parser = index{}, nil, nil
}

// Close implements raft.SnapshotSink: it publishes the snapshot and returns when that is durable, or leaves no trace.
func (k *sink) Close() error {
	if k.done {
		return nil
	}
	if err := k.publish(); err != nil {
		k.discard()
		return fmt.Errorf("publish snapshot %s of group %d: %w", k.p.id, k.g.id, err)
	}
	k.done = true
	return nil
}

func (k *sink) publish() error {
	switch {
	case k.err != nil:
		return k.err
	case k.local:
	case k.parser == nil:
		return streamErr("nothing was written")
	case k.parser.state != inEnd:
		return streamErr("ends early")
	default:
		k.p.installed, k.p.pins, k.manifest = true, k.parser.pins, k.parser.manifest
	}
	g := k.g
	g.wmu.Lock()
	defer g.wmu.Unlock()
	if err := k.admissible(); err != nil {
		return err
	}
	stale := k.p.installed && g.staleTail(k.p.index, k.p.term)
	p := k.p
	p.manifest = len(k.manifest)
	r := record{header: header{kind: kindManifest, group: g.id, index: p.index, term: p.term, aux: p.number}}
	r.data = append(p.encode(), k.manifest...)
	if len(r.data) > RecordBytesMax {
		return ErrTooLarge
	}
	r.seal()
	if failpoint.Sown(failpoint.UnpinEarly) {
		g.unpin(&p)
	}
	recs := []record{r}
	var locs [1]loc
	if err := g.commit(recs, locs[:]); err != nil {
		return err
	}
	p.seq, p.loc, p.record = recs[0].seq, locs[0], locs[0].bytes()
	p.id = snapshotID(p.index, p.term, p.seq)
	k.p.id = p.id
	g.adopt(&p, &k.stored, stale)
	return nil
}

// admissible checks what the present state allows, and counts a local snapshot's entries. Called with the group's wmu held.
func (k *sink) admissible() error {
	g := k.g
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := g.usable(); err != nil {
		return err
	}
	if g.snap != nil && k.p.index < g.snap.index {
		return fmt.Errorf("index %d, published %d: %w", k.p.index, g.snap.index, ErrSnapshotStale)
	}
	if !k.local {
		return nil
	}
	k.p.entries, k.p.bodyBytes = 0, 0
	for _, pin := range k.p.pins {
		n, bytes := g.entries.sum(pin.First, pin.Last)
		if n != pin.Last-pin.First+1 {
			return &MissingPinError{Group: g.id, Index: g.entries.missing(pin.First)}
		}
		k.p.entries, k.p.bodyBytes = k.p.entries+n, k.p.bodyBytes+bytes
	}
	return nil
}

// adopt makes p the published snapshot in memory; it is durable already. An installation also ends the log at or below
// its index, in the same step. Called with wmu held.
func (g *Group) adopt(p *published, stored *index, stale bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stale = g.stale || stale
	if g.snap != nil {
		g.s.release(g.snap.loc)
	}
	g.snap = p
	if p.installed {
		g.meta.setBase(p)
		g.entries.remove(0, p.index, func(_ uint64, l loc) { g.s.release(l) })
		stored.each(0, p.index, func(i uint64, l loc) bool { g.entries.put(i, l); return true })
		g.s.installed.Add(1)
		g.s.nudge()
		return
	}
	g.dropBelow(0, g.meta.first)
}

// staleTail reports whether the log ends at index with an entry of another term. Called with wmu held.
func (g *Group) staleTail(index, term uint64) bool {
	var l raft.Log
	last, err := g.LastIndex()
	return err == nil && last == index && g.GetLog(index, &l) == nil && l.Term != term
}

// setBase is what publishing an installation does to the small state.
func (m *meta) setBase(p *published) {
	m.base = base{index: p.index, term: p.term, installation: p.number, seq: p.seq}
	if p.configIndex == p.index {
		m.base.config = raft.EncodeConfiguration(p.config)
	}
	m.first = p.index + 1
}
