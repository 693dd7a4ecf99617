package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// published is a group's newest published snapshot, immutable.
type published struct {
	id          string
	seq         uint64 // of its manifest record
	version     raft.SnapshotVersion
	index, term uint64
	config      raft.Configuration
	configIndex uint64
	installed   bool   // came from another replica
	number      uint64 // installation it belongs to if installed
	pins        []Range
	entries     uint64 // pinned entries
	bodyBytes   uint64 // of all pinned entries
	manifest    int    // bytes
	loc         loc
	record      int64 // bytes of the manifest's record
}

func snapshotID(index, term, seq uint64) string {
	return fmt.Sprintf("%d-%d-%d", term, index, seq)
}

// meta answers what raft wants to know of the snapshot; Size is exact.
func (p *published) meta() *raft.SnapshotMeta {
	return &raft.SnapshotMeta{
		Version: p.version, ID: p.id, Index: p.index, Term: p.term, Configuration: p.config.Clone(),
		ConfigurationIndex: p.configIndex, Size: p.streamBytes(),
	}
}

var errManifest = errors.New("bad manifest record")

const manifestVersion = 1

// encode is the body of a manifest record up to the manifest's own bytes; index and term are in the header: version 1 ·
// installed 1 · snapshot version 4 · entries 8 · body bytes 8 · config index 8 · config (length 4) · pins (count 4, 8+8 each) ·
// manifest length 4.
func (p *published) encode() []byte {
	le := binary.LittleEndian
	b := []byte{manifestVersion, 0}
	if p.installed {
		b[1] = 1
	}
	b = le.AppendUint32(b, uint32(p.version))
	b = le.AppendUint64(b, p.entries)
	b = le.AppendUint64(b, p.bodyBytes)
	b = le.AppendUint64(b, p.configIndex)
	config := raft.EncodeConfiguration(p.config)
	b = le.AppendUint32(b, uint32(len(config)))
	b = append(b, config...)
	b = le.AppendUint32(b, uint32(len(p.pins)))
	for _, r := range p.pins {
		b = le.AppendUint64(b, r.First)
		b = le.AppendUint64(b, r.Last)
	}
	return le.AppendUint32(b, uint32(p.manifest))
}

// decodePublished reads a manifest record; manifest aliases data.
func decodePublished(h *header, l loc, data []byte) (p *published, manifest []byte, err error) {
	c := cursor{b: data}
	if c.u8() != manifestVersion {
		return nil, nil, errManifest
	}
	installed := c.u8()
	p = &published{seq: h.seq, index: h.index, term: h.term, installed: installed == 1, number: h.aux, loc: l, record: l.bytes()}
	p.version = raft.SnapshotVersion(c.u32())
	p.entries, p.bodyBytes, p.configIndex = c.u64(), c.u64(), c.u64()
	config := c.str()
	for n := c.u32(); n > 0 && !c.bad; n-- {
		p.pins = append(p.pins, Range{First: c.u64(), Last: c.u64()})
	}
	manifest = c.take(uint64(c.u32()))
	if c.bad || len(c.b) != 0 || installed > 1 {
		return nil, nil, errManifest
	}
	if p.config, err = decodeConfiguration(config); err != nil {
		return nil, nil, err
	}
	pins, ok := normalize(p.pins)
	if !ok {
		return nil, nil, errManifest
	}
	p.pins = pins
	p.manifest = len(manifest)
	p.id = snapshotID(p.index, p.term, p.seq)
	return p, manifest, nil
}

// decodeConfiguration turns raft's panic on undecodable bytes into an error.
func decodeConfiguration(b []byte) (c raft.Configuration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: configuration: %v", errManifest, r)
		}
	}()
	return raft.DecodeConfiguration(b), nil
}
