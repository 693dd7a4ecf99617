package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// The snapshot stream, little endian; docs/formats/snapshot-stream.md describes it.
//
//	head      magic 8 · crc of the rest of head and of pins 4 · pin count 4 · manifest bytes 8 · entries 8
//	pins      first 8 · last 8, each
//	manifest  crc 4 · bytes
//	entry     body length 4 · body crc 4 · type 1 · flags 1 · zero 6 · index 8 · term 8 · appended at 8 · body
//	trailer   magic 4 · crc of everything before 4
const (
	streamMagic      = "WRNSNAP\x01" // the last byte is the version
	streamTail       = "WEND"
	streamHeadBytes  = 32
	streamEntryBytes = 40
	streamTailBytes  = 8
	streamPinsMax    = 1 << 24
)

// streamBytes is the exact length of the snapshot's stream.
func (p *published) streamBytes() int64 {
	return streamHeadBytes + 16*int64(len(p.pins)) + 4 + int64(p.manifest) +
		streamEntryBytes*int64(p.entries) + int64(p.bodyBytes) + streamTailBytes
}

// streamHead encodes head, pins and the manifest's checksum.
func streamHead(pins []Range, manifest []byte, entries uint64) []byte {
	le := binary.LittleEndian
	b := make([]byte, streamHeadBytes, streamHeadBytes+16*len(pins)+4)
	copy(b, streamMagic)
	le.PutUint32(b[12:], uint32(len(pins)))
	le.PutUint64(b[16:], uint64(len(manifest)))
	le.PutUint64(b[24:], entries)
	for _, r := range pins {
		b = le.AppendUint64(b, r.First)
		b = le.AppendUint64(b, r.Last)
	}
	le.PutUint32(b[8:], crc32.Checksum(b[12:], crcTable))
	return le.AppendUint32(b, crc32.Checksum(manifest, crcTable))
}

func streamTrailer(crc uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte(streamTail), crc)
}

func updateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, crcTable, b) }

func putStreamEntry(b []byte, h *header) {
	le := binary.LittleEndian
	clear(b[:streamEntryBytes])
	le.PutUint32(b, h.bodyBytes)
	le.PutUint32(b[4:], h.bodyCRC)
	b[8], b[9] = h.typ, h.flags&(flagExt|flagTime)
	le.PutUint64(b[16:], h.index)
	le.PutUint64(b[24:], h.term)
	le.PutUint64(b[32:], uint64(h.at))
}

// streamState is the part a parser expects next.
type streamState int

const (
	inHead streamState = iota
	inPins
	inManifest
	inEntryHead
	inEntryBody
	inTrailer
	inEnd
)

// streamParser takes a stream in pieces of any size. It holds at most one part, and never more of it than has arrived.
type streamParser struct {
	state streamState
	buf   []byte
	crc   uint32 // of everything before the part in buf
	left  uint64 // entries not seen yet

	headCRC     uint32
	pinCount    uint32
	manifestLen uint64
	entry       header

	// entryFn takes each entry as it is complete; body is its own.
	entryFn func(h header, body []byte) error

	pins     []Range
	manifest []byte
	entries  uint64
}

func streamErr(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSnapshotStream, fmt.Sprintf(format, args...))
}

// need is the length of the part expected next.
func (p *streamParser) need() uint64 {
	switch p.state {
	case inHead:
		return streamHeadBytes
	case inPins:
		return 16 * uint64(p.pinCount)
	case inManifest:
		return 4 + p.manifestLen
	case inEntryHead:
		return streamEntryBytes
	case inEntryBody:
		return uint64(p.entry.bodyBytes)
	case inTrailer:
		return streamTailBytes
	}
	return 0
}

// write consumes all of b or fails.
func (p *streamParser) write(b []byte) error {
	for {
		if p.state == inEnd {
			if len(b) > 0 {
				return streamErr("%d bytes after the end", len(b))
			}
			return nil
		}
		n := min(p.need()-uint64(len(p.buf)), uint64(len(b)))
		p.buf = append(p.buf, b[:n]...)
		b = b[n:]
		if uint64(len(p.buf)) < p.need() {
			return nil
		}
		part := p.buf
		p.buf = nil
		if err := p.part(part); err != nil {
			return err
		}
		if p.state == inEntryHead && p.left == 0 {
			p.state = inTrailer
		}
	}
}

// part takes a whole part and moves on to the next.
func (p *streamParser) part(b []byte) error {
	le := binary.LittleEndian
	if p.state == inTrailer {
		if string(b[:4]) != streamTail || le.Uint32(b[4:]) != p.crc {
			return streamErr("trailer does not match")
		}
		p.state = inEnd
		return nil
	}
	p.crc = updateCRC(p.crc, b)
	switch p.state {
	case inHead:
		return p.head(b)
	case inPins:
		return p.pinPart(b)
	case inManifest:
		if le.Uint32(b) != crc32.Checksum(b[4:], crcTable) {
			return streamErr("manifest does not match its checksum")
		}
		p.manifest = b[4:]
		p.state, p.left = inEntryHead, p.entries
	case inEntryHead:
		h := header{
			kind: kindPinned, bodyBytes: le.Uint32(b), bodyCRC: le.Uint32(b[4:]), typ: b[8], flags: b[9],
			index: le.Uint64(b[16:]), term: le.Uint64(b[24:]), at: int64(le.Uint64(b[32:])),
		}
		if h.bodyBytes > RecordBytesMax || h.flags&^(flagExt|flagTime) != 0 || h.index <= p.entry.index || !contains(p.pins, h.index) {
			return streamErr("entry %d is malformed or out of place", h.index)
		}
		p.entry, p.state = h, inEntryBody
	case inEntryBody:
		if !p.entry.bodyOK(b) {
			return streamErr("entry %d does not match its checksum", p.entry.index)
		}
		p.state = inEntryHead
		p.left--
		if p.entryFn != nil {
			return p.entryFn(p.entry, b)
		}
	}
	return nil
}

func (p *streamParser) head(b []byte) error {
	le := binary.LittleEndian
	if string(b[:8]) != streamMagic {
		return streamErr("unknown magic or version %q", b[:8])
	}
	p.headCRC, p.pinCount = crc32.Checksum(b[12:], crcTable), le.Uint32(b[12:])
	p.manifestLen, p.entries = le.Uint64(b[16:]), le.Uint64(b[24:])
	if p.pinCount > streamPinsMax || p.manifestLen > RecordBytesMax {
		return streamErr("head asks for %d pins and a manifest of %d bytes", p.pinCount, p.manifestLen)
	}
	// The checksum covers pins too: keep what the head says until they are here.
	p.pins = nil
	p.state = inPins
	p.entry.bodyCRC = le.Uint32(b[8:])
	return nil
}

func (p *streamParser) pinPart(b []byte) error {
	if crc32.Update(p.headCRC, crcTable, b) != p.entry.bodyCRC {
		return streamErr("head does not match its checksum")
	}
	p.entry = header{}
	in := make([]Range, 0, p.pinCount)
	for ; len(b) > 0; b = b[16:] {
		in = append(in, Range{First: binary.LittleEndian.Uint64(b), Last: binary.LittleEndian.Uint64(b[8:])})
	}
	pins, ok := normalize(in)
	if !ok || len(pins) != len(in) {
		return streamErr("pins are not sorted ranges")
	}
	count := uint64(0)
	for _, r := range pins {
		count += r.Last - r.First + 1
	}
	if count != p.entries {
		return streamErr("pins name %d entries, head %d", count, p.entries)
	}
	p.pins, p.state = pins, inManifest
	return nil
}

// ReadManifest reads the manifest, and nothing after it, from the stream that SnapshotStore.Open
// and FSM.Restore hand over. Errors that are not r's own match ErrSnapshotStream.
func ReadManifest(r io.Reader) (manifest []byte, err error) {
	var p streamParser
	for p.state <= inManifest {
		left := p.need() - uint64(len(p.buf))
		b := make([]byte, min(left, 1<<20))
		if _, err := io.ReadFull(r, b); err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return nil, streamErr("ends early")
			}
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		if err := p.write(b); err != nil {
			return nil, err
		}
	}
	if p.manifest == nil {
		p.manifest = []byte{}
	}
	return p.manifest, nil
}
