package store

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/warrenmq/warren/failpoint"
)

// kind says what a record means. The numbers are on disk: never reuse one.
type kind uint8

const (
	kindOpen     kind = 1  // a process opened the store; starts an epoch
	kindSwitch   kind = 2  // first record of a segment; names the end of the one before
	kindEntry    kind = 3  // a Raft log entry
	kindPinned   kind = 4  // an entry received with a snapshot; counts once its manifest is published
	kindFirst    kind = 5  // the log begins at Index
	kindTruncate kind = 6  // entries from Index on are gone
	kindStable   kind = 7  // one key and its value
	kindVote     kind = 8  // term and candidate of the last vote, together
	kindManifest kind = 9  // a published snapshot
	kindDeleted  kind = 10 // the group ends; nothing before counts
	kindState    kind = 11 // all small state of a group, replacing earlier small records

	kindMax = kindState
)

const (
	headerBytes = 64

	flagBatch = 1 << 0 // first record of a write: everything before it is durable
	flagExt   = 1 << 1 // the body begins with the length and bytes of Log.Extensions
	flagTime  = 1 << 2 // At is set
)

// crcTable is Castagnoli's polynomial, which processors compute.
var crcTable = crc32.MakeTable(crc32.Castagnoli)

// header is the fixed part of a record, 64 bytes, little endian:
//
//	0 crc of segment number, offset and bytes 4..63 · 4 body length · 8 body crc · 12 kind · 13 log type
//	14 flags · 15 zero · 16 group · 24 seq · 32 index · 40 term · 48 appended at, Unix ns · 56 aux
//
// Its checksum covers its own place, so that bytes left by an earlier life of the file never pass.
// Body and header have separate checksums: a body's is computed before its place is known.
type header struct {
	bodyBytes uint32
	bodyCRC   uint32
	kind      kind
	typ       uint8
	flags     uint8
	group     GroupID
	seq       uint64 // order of all records of a store; a copy keeps it
	index     uint64
	term      uint64
	at        int64
	aux       uint64 // kindPinned, kindManifest: the installation it belongs to
}

// record is a header with its body, not yet placed.
type record struct {
	header
	ext    []byte
	data   []byte
	pieces [][]byte // what follows data
	raw    bool     // data is the whole body, extensions included
}

// padded returns the room a record with that body takes.
func padded(bodyBytes uint32) int64 { return headerBytes + (int64(bodyBytes)+7)&^7 }

// seal computes the fields that follow from the body.
func (r *record) seal() {
	crc := uint32(0)
	n := len(r.data)
	if len(r.ext) > 0 {
		r.flags |= flagExt
		var l [4]byte
		binary.LittleEndian.PutUint32(l[:], uint32(len(r.ext)))
		crc = crc32.Update(crc, crcTable, l[:])
		crc = crc32.Update(crc, crcTable, r.ext)
		n += 4 + len(r.ext)
	}
	crc = crc32.Update(crc, crcTable, r.data)
	for _, p := range r.pieces {
		crc = crc32.Update(crc, crcTable, p)
		n += len(p)
	}
	r.bodyCRC, r.bodyBytes = crc, uint32(n)
}

// put writes a sealed record to dst, which has padded(bodyBytes) bytes, for its place on disk.
func (r *record) put(dst []byte, segment uint32, off int64) {
	b := dst[headerBytes:]
	if r.flags&flagExt != 0 && !r.raw {
		binary.LittleEndian.PutUint32(b, uint32(len(r.ext)))
		b = b[4+copy(b[4:], r.ext):]
	}
	b = b[copy(b, r.data):]
	for _, p := range r.pieces {
		b = b[copy(b, p):]
	}
	clear(b)
	r.header.put(dst[:headerBytes], segment, off)
}

func (h *header) put(b []byte, segment uint32, off int64) {
	le := binary.LittleEndian
	le.PutUint32(b[4:], h.bodyBytes)
	le.PutUint32(b[8:], h.bodyCRC)
	b[12], b[13], b[14], b[15] = byte(h.kind), h.typ, h.flags, 0
	le.PutUint64(b[16:], uint64(h.group))
	le.PutUint64(b[24:], h.seq)
	le.PutUint64(b[32:], h.index)
	le.PutUint64(b[40:], h.term)
	le.PutUint64(b[48:], uint64(h.at))
	le.PutUint64(b[56:], h.aux)
	le.PutUint32(b, headerCRC(b, segment, off))
}

func headerCRC(b []byte, segment uint32, off int64) uint32 {
	// The place byte by byte: an array given to crc32.Update would be allocated for each record.
	crc := ^uint32(0)
	if failpoint.Sown(failpoint.TakeStale) {
		segment = 0
	}
	for i := range 4 {
		crc = crcTable[byte(crc)^byte(segment>>(8*i))] ^ crc>>8
	}
	for i := range 8 {
		crc = crcTable[byte(crc)^byte(off>>(8*i))] ^ crc>>8
	}
	return crc32.Update(^crc, crcTable, b[4:headerBytes])
}

// parseHeader reads the header that stands at off of segment; ok is false when there is none.
func parseHeader(b []byte, segment uint32, off int64) (h header, ok bool) {
	if len(b) < headerBytes || b[12] == 0 || b[12] > byte(kindMax) {
		return header{}, false
	}
	le := binary.LittleEndian
	if le.Uint32(b) != headerCRC(b, segment, off) {
		return header{}, false
	}
	h = header{
		bodyBytes: le.Uint32(b[4:]), bodyCRC: le.Uint32(b[8:]), kind: kind(b[12]), typ: b[13], flags: b[14],
		group: GroupID(le.Uint64(b[16:])), seq: le.Uint64(b[24:]), index: le.Uint64(b[32:]), term: le.Uint64(b[40:]),
		at: int64(le.Uint64(b[48:])), aux: le.Uint64(b[56:]),
	}
	return h, h.bodyBytes <= RecordBytesMax
}

// bodyOK reports whether body is the one the header was sealed with.
func (h *header) bodyOK(body []byte) bool {
	return len(body) == int(h.bodyBytes) && crc32.Checksum(body, crcTable) == h.bodyCRC
}

// split parts a body into extensions and data, which alias it.
func (h *header) split(body []byte) (ext, data []byte, ok bool) {
	if h.flags&flagExt == 0 {
		return nil, body, true
	}
	if len(body) < 4 {
		return nil, nil, false
	}
	n := int64(binary.LittleEndian.Uint32(body))
	if n > int64(len(body)-4) {
		return nil, nil, false
	}
	return body[4 : 4+n : 4+n], body[4+n:], true
}

// setTime keeps a log's time; the zero time has no nanoseconds and is a cleared flag.
func (h *header) setTime(t time.Time) {
	if !t.IsZero() {
		h.at, h.flags = t.UnixNano(), h.flags|flagTime
	}
}

func (h *header) time() time.Time {
	if h.flags&flagTime == 0 {
		return time.Time{}
	}
	return time.Unix(0, h.at)
}

// A seq is an epoch (24 bits) and a counter (40 bits). Each Open starts a new epoch, so that records of
// a lost write can never continue those written over them.
const epochShift = 40

func epochOf(seq uint64) uint64 { return seq >> epochShift }
