package store

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// truncation is a cut of the log: entries from index on that were written before seq are gone. It is kept as long as
// an older segment may still hold such entries.
type truncation struct {
	from uint64
	seq  uint64
}

// base is the newest installed snapshot. Entries at or below index that were written before seq are gone, and
// pinned records count only under its installation number.
type base struct {
	index, term  uint64
	installation uint64
	seq          uint64
	// config is the encoded Raft configuration if the entry at index was one. Only then does the store know that
	// entry itself and not just its term.
	config []byte
}

// meta is the small durable state of a group: what a state record holds. A group's owner guards it.
type meta struct {
	first    uint64 // entries below are not part of the log; 0 as 1
	voteTerm uint64
	voteCand []byte // nil if there was never a vote
	keys     map[string][]byte
	base     base
	born     uint64 // seq of the deletion of an earlier group of this id; nothing up to it counts
	cuts     []truncation
	alive    bool // in a state record: the group exists; false for the memory of a deleted one
}

var errMeta = errors.New("bad group state")

const metaVersion = 1

// encode is: version 1 · alive 1 · first 8 · born 8 · vote term 8 · has vote 1 · candidate · base (index, term, installation, seq 8 each,
// config) · cuts (count 4, from and seq 8 each) · keys (count 4, key, value). Byte strings carry a length of 4.
func (m *meta) encode() []byte {
	b := []byte{metaVersion}
	u64 := func(v uint64) { b = binary.LittleEndian.AppendUint64(b, v) }
	u32 := func(v int) { b = binary.LittleEndian.AppendUint32(b, uint32(v)) }
	str := func(s []byte) { u32(len(s)); b = append(b, s...) }
	flag := func(v bool) {
		if v {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	flag(m.alive)
	u64(m.first)
	u64(m.born)
	u64(m.voteTerm)
	flag(m.voteCand != nil)
	str(m.voteCand)
	u64(m.base.index)
	u64(m.base.term)
	u64(m.base.installation)
	u64(m.base.seq)
	str(m.base.config)
	u32(len(m.cuts))
	for _, c := range m.cuts {
		u64(c.from)
		u64(c.seq)
	}
	u32(len(m.keys))
	for _, k := range slices.Sorted(maps.Keys(m.keys)) {
		str([]byte(k))
		str(m.keys[k])
	}
	return b
}

func decodeMeta(b []byte) (m meta, err error) {
	c := cursor{b: b}
	if c.u8() != metaVersion {
		return meta{}, errMeta
	}
	alive := c.u8()
	m.alive = alive == 1
	m.first, m.born, m.voteTerm = c.u64(), c.u64(), c.u64()
	voted := c.u8()
	if m.voteCand = c.str(); voted == 0 {
		c.bad = c.bad || len(m.voteCand) > 0
		m.voteCand = nil
	}
	m.base = base{index: c.u64(), term: c.u64(), installation: c.u64(), seq: c.u64(), config: c.str()}
	if len(m.base.config) == 0 {
		m.base.config = nil
	}
	for n := c.u32(); n > 0 && !c.bad; n-- {
		m.cuts = append(m.cuts, truncation{from: c.u64(), seq: c.u64()})
	}
	m.keys = make(map[string][]byte)
	for n := c.u32(); n > 0 && !c.bad; n-- {
		k := c.str()
		m.keys[string(k)] = c.str()
	}
	if c.bad || len(c.b) != 0 || voted > 1 || alive > 1 {
		return meta{}, errMeta
	}
	return m, nil
}

// cursor reads little endian fields; once one was missing, bad is set and all later ones are zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n uint64) []byte {
	if c.bad || uint64(len(c.b)) < n {
		c.bad = true
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) u8() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// str copies, so that a decoded value never keeps a file's buffer alive.
func (c *cursor) str() []byte {
	b := c.take(uint64(c.u32()))
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
