package store

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// Inherit makes a snapshot at index and term the first thing that the group has: the manifest, and the entries of pins, which are copied from
// another group. That one is not changed. It returns when the snapshot is durable; a crash before leaves the group without it.
// It is an error if the group has a log or a snapshot, or if the other one lacks a pinned entry.
func (g *Group) Inherit(from *Group, index, term uint64, config raft.Configuration, manifest []byte, pins []Range) error {
	fail := func(err error) error { return fmt.Errorf("group %d inherits from group %d: %w", g.id, from.id, err) }
	if list, err := g.Snapshots().List(); err != nil || len(list) > 0 {
		return fail(orSo(err, ErrSnapshotStale))
	}
	if last, err := g.LastIndex(); err != nil || last > 0 {
		return fail(orSo(err, ErrLogRange))
	}
	held, err := from.holdAll(pins)
	if err != nil {
		return fail(err)
	}
	defer func() {
		for _, h := range held {
			h.segment.refs.Add(-1)
		}
		g.s.nudge()
	}()
	sink, err := g.Snapshots().Create(raft.SnapshotVersionMax, index, term, config, index, nil)
	if err != nil {
		return fail(err)
	}
	if err := from.sendAll(sink, held, manifest, pins); err != nil {
		_ = sink.Cancel() // nothing of it counts either way
		return fail(err)
	}
	if err := sink.Close(); err != nil {
		return fail(err)
	}
	return nil
}

func orSo(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// heldEntry is an entry whose segment stays as long as it is referenced.
type heldEntry struct {
	pinned
	segment *segment
}

// holdAll keeps all entries of the ranges readable.
func (g *Group) holdAll(pins []Range) (held []heldEntry, err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := g.usable(); err != nil {
		return nil, err
	}
	for _, pin := range pins {
		if n, _ := g.entries.sum(pin.First, pin.Last); n != pin.Last-pin.First+1 {
			err = &MissingPinError{Group: g.id, Index: g.entries.missing(pin.First)}
			break
		}
		g.entries.each(pin.First, pin.Last, func(i uint64, l loc) bool {
			held = append(held, heldEntry{pinned{i, l}, g.s.acquire(l)})
			return true
		})
	}
	if err != nil {
		for _, h := range held {
			h.segment.refs.Add(-1)
		}
		return nil, err
	}
	return held, nil
}

// sendAll writes the stream of a snapshot that has these entries.
func (g *Group) sendAll(sink raft.SnapshotSink, held []heldEntry, manifest []byte, pins []Range) error {
	crc := uint32(0)
	send := func(chunks ...[]byte) (err error) {
		for _, c := range chunks {
			crc = updateCRC(crc, c)
			if _, err = sink.Write(c); err != nil {
				return err
			}
		}
		return nil
	}
	if err := send(streamHead(pins, manifest, uint64(len(held))), manifest); err != nil {
		return err
	}
	head := make([]byte, streamEntryBytes)
	for _, e := range held {
		h, body, err := g.load(e.segment, e.loc, e.index, false)
		if err != nil {
			return err
		}
		putStreamEntry(head, &h)
		if err := send(head, body); err != nil {
			return err
		}
	}
	return send(streamTrailer(crc))
}
