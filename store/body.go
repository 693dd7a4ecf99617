package store

import (
	"errors"
	"hash/crc32"

	"github.com/hashicorp/raft"
)

// ErrDamagedBody says that the data of an entry is not what the sender's log has: it was damaged on the way, or in memory here or there.
// Nothing of the call was stored.
var ErrDamagedBody = errors.New("the data of the entry does not match the checksum that it came with")

// Body is the data of an entry that lies in pieces.
type Body struct {
	// Pieces follow each other. They are copied.
	Pieces [][]byte
	// Sum is what Checksum has answered where the data comes from, if Summed.
	Sum    uint32
	Summed bool
}

// damaged reports whether a sealed record with the body is not what the sum says.
func (b *Body) damaged(r *record) bool {
	if !b.Summed {
		return false
	}
	if r.flags&flagExt != 0 {
		return b.Sound() != nil
	}
	return r.bodyCRC != b.Sum
}

// Sound returns ErrDamagedBody if the body is not what its sum says.
func (b *Body) Sound() error {
	if !b.Summed {
		return nil
	}
	sum := uint32(0)
	for _, p := range b.Pieces {
		sum = crc32.Update(sum, crcTable, p)
	}
	if sum != b.Sum {
		return ErrDamagedBody
	}
	return nil
}

// dataBytes is the length of the data of a record.
func (r *record) dataBytes() int {
	n := len(r.data)
	for _, p := range r.pieces {
		n += len(p)
	}
	return n
}

// StoreBodies is StoreLogs with the data of each entry in bodies, in place of raft.Log.Data, unless bodies is nil. It is read in one pass before anything is
// stored, the one that makes the checksum of the record: if that is another than the body's, the answer is ErrDamagedBody.
func (g *Group) StoreBodies(logs []*raft.Log, bodies []Body) error {
	if len(logs) == 0 {
		return nil
	}
	recs, err := g.entryRecords(logs, bodies)
	if err != nil {
		return err
	}
	g.wmu.Lock()
	defer g.wmu.Unlock()
	if err := g.admits(logs); err != nil {
		return err
	}
	return g.storeRecords(recs)
}

// Checksum returns the CRC-32C of the data of an entry of the log, as it was when the entry was stored. ok is false if the entry is not in memory, is of
// another term or has extensions.
func (g *Group) Checksum(index, term uint64) (sum uint32, ok bool) {
	g.mu.RLock()
	l, there := g.entries.get(index)
	there = there && index >= g.meta.first && g.usable() == nil
	g.mu.RUnlock()
	if !there {
		return 0, false
	}
	b := g.s.cache.get(l)
	if b == nil {
		b = g.s.reads.get(l)
	}
	if b == nil {
		return 0, false
	}
	h, sound := parseHeader(b, l.segment, int64(l.off))
	if !sound || h.group != g.id || h.index != index || h.term != term || h.flags&flagExt != 0 {
		return 0, false
	}
	return h.bodyCRC, true
}
