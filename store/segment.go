package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"sync/atomic"
)

const (
	segmentMagic   = "WARRENSG"
	segmentVersion = 1
	// segmentHeadBytes precede the records: sector 0 the head, sector 1 the locator of the footer.
	segmentHeadBytes = 4096
	locatorOffset    = sectorBytes
	sectorBytes      = 512 // what a disk writes whole or not at all

	segmentSuffix = ".seg"
	tempSuffix    = ".tmp"
	unmadeSuffix  = "-new" + tempSuffix // of a segment that is not prepared yet
)

// segment is one file of records. A sealed one never changes except for its footer.
type segment struct {
	number uint32 // ascending; part of every header's checksum
	cold   bool   // holds copies sorted by group instead of the stream of writes
	made   int64  // size that the head says it was made with, 0 if it says none; only recovery uses it
	newest int64  // where the last write begins, 0 if that is not known; only recovery uses it
	file   File
	path   string
	size   int64 // bytes prepared on disk

	// live counts the bytes of entries and manifests that somebody still needs. It rises when a record is
	// placed, before any index knows it, and falls when the last reference goes.
	live atomic.Int64
	// refs counts readers inside the file, open snapshots and open sinks. It rises only while live > 0.
	refs atomic.Int64
	// ahead is what a reader of a backlog has left behind, and what has been read ahead of it.
	ahead readAhead
	// sealed says that no record will be added; the fields below are constant then.
	sealed atomic.Bool

	end     int64  // first byte after the records
	seqLow  uint64 // lowest and highest seq inside
	seqHigh uint64
	items   []item // all records if tracked, until the footer is written
	tracked bool
	footed  bool     // only the keeper uses it
	groups  groupSet // if footed: those with records inside, but for deletions; only the keeper uses it
	stuck   int64    // live bytes that a gathering could not move, 0 if none; only the keeper uses it
	stuckAt uint64   // Store.installed then; only the keeper uses it
}

func segmentName(number uint32) string { return fmt.Sprintf("%08x%s", number, segmentSuffix) }

// unmadeName is the name of a new file while it is made ready; Open removes what has it.
func unmadeName(number uint32) string { return fmt.Sprintf("%08x%s", number, unmadeSuffix) }

// spareName is the name of a freed file that waits to be used again; number is its last one.
func spareName(number uint32) string { return fmt.Sprintf("%08x%s", number, tempSuffix) }

// parseSegmentName is the inverse of segmentName.
func parseSegmentName(name string) (number uint32, ok bool) { return parseNumber(name, segmentSuffix) }

// parseSpareName is the inverse of spareName.
func parseSpareName(name string) (number uint32, ok bool) { return parseNumber(name, tempSuffix) }

func parseNumber(name, suffix string) (number uint32, ok bool) {
	base, found := strings.CutSuffix(name, suffix)
	if !found || len(base) != 8 {
		return 0, false
	}
	if _, err := fmt.Sscanf(base, "%08x", &number); err != nil || fmt.Sprintf("%08x", number) != base {
		return 0, false
	}
	return number, number != 0
}

// segmentHead is what a file says of itself.
type segmentHead struct {
	number uint32
	cold   bool
	// made is the size that the file had when it got its name: no crash leaves it shorter. Programs that did not know it wrote 0.
	made int64
}

// encode is one sector: magic 8 · version 4 · number 4 · cold 1 · zero 7 · made 8 · zero · crc at 508.
func (h segmentHead) encode() []byte {
	b := make([]byte, sectorBytes)
	copy(b, segmentMagic)
	binary.LittleEndian.PutUint32(b[8:], segmentVersion)
	binary.LittleEndian.PutUint32(b[12:], h.number)
	if h.cold {
		b[16] = 1
	}
	binary.LittleEndian.PutUint64(b[24:], uint64(h.made))
	binary.LittleEndian.PutUint32(b[sectorBytes-4:], crc32.Checksum(b[:sectorBytes-4], crcTable))
	return b
}

// decodeSegmentHead answers ok false for a head that was never written whole, or is damaged, and an error for one
// from another version.
func decodeSegmentHead(b []byte) (h segmentHead, ok bool, err error) {
	if len(b) < sectorBytes || string(b[:8]) != segmentMagic ||
		binary.LittleEndian.Uint32(b[sectorBytes-4:]) != crc32.Checksum(b[:sectorBytes-4], crcTable) {
		return segmentHead{}, false, nil
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != segmentVersion {
		return segmentHead{}, false, fmt.Errorf("segment version %d: %w", v, ErrVersion)
	}
	return segmentHead{number: binary.LittleEndian.Uint32(b[12:]), cold: b[16] == 1, made: int64(binary.LittleEndian.Uint64(b[24:]))}, true, nil
}

// readFull reads exactly len(b) bytes.
func readFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// itemsMax bounds the footer gathered while a segment is written, 12 MiB; above it the segment is read again instead.
const itemsMax = 256 << 10

// track adds a record that the wal placed to the footer to come.
func (g *segment) track(h *header, off int64) {
	g.note(h)
	if !g.tracked {
		return
	}
	if len(g.items) == itemsMax {
		g.tracked, g.items = false, nil
		return
	}
	g.items = append(g.items, item{off: uint32(off), bodyBytes: h.bodyBytes, kind: h.kind, group: h.group, seq: h.seq, index: h.index, aux: h.aux})
}

// note widens the bounds by a record.
func (g *segment) note(h *header) {
	if g.seqLow == 0 || h.seq < g.seqLow {
		g.seqLow = h.seq
	}
	g.seqHigh = max(g.seqHigh, h.seq)
}
