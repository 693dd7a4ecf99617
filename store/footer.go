package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A sealed segment gets a footer behind its records: what recovery wants to know of each without reading bodies. Sector 1 of
// the file says where it is; it is written after the footer is durable, so that a footer is whole or absent.
const (
	footerMagic  = "WFOOTER\x01"
	locatorMagic = "WLOCATE\x01"
	itemBytes    = 48
)

// item is a record's line in the footer.
type item struct {
	off       uint32
	bodyBytes uint32
	kind      kind
	group     GroupID
	seq       uint64
	index     uint64
	aux       uint64
}

func (t *item) loc(segment uint32) loc { return loc{segment, t.off, t.bodyBytes} }

func itemOf(r *found) item {
	return item{off: uint32(r.off), bodyBytes: r.bodyBytes, kind: r.kind, group: r.group, seq: r.seq, index: r.index, aux: r.aux}
}

// encodeFooter is: magic 8 · count 4 · crc of the items 4 · items of offset 4, body length 4, kind 1, zero 7, group, seq, index, aux 8 each.
func encodeFooter(items []item) []byte {
	le := binary.LittleEndian
	b := make([]byte, 16, 16+itemBytes*len(items))
	copy(b, footerMagic)
	le.PutUint32(b[8:], uint32(len(items)))
	for i := range items {
		t := &items[i]
		b = le.AppendUint32(b, t.off)
		b = le.AppendUint32(b, t.bodyBytes)
		b = append(b, byte(t.kind), 0, 0, 0, 0, 0, 0, 0)
		for _, v := range [...]uint64{uint64(t.group), t.seq, t.index, t.aux} {
			b = le.AppendUint64(b, v)
		}
	}
	le.PutUint32(b[12:], crc32.Checksum(b[16:], crcTable))
	return b
}

// decodeFooter checks a footer whose records end at end.
func decodeFooter(b []byte, end int64) (items []item, ok bool) {
	le := binary.LittleEndian
	if len(b) < 16 || string(b[:8]) != footerMagic || crc32.Checksum(b[16:], crcTable) != le.Uint32(b[12:]) ||
		uint64(len(b)-16) != itemBytes*uint64(le.Uint32(b[8:])) {
		return nil, false
	}
	items = make([]item, 0, (len(b)-16)/itemBytes)
	for b = b[16:]; len(b) > 0; b = b[itemBytes:] {
		t := item{
			off: le.Uint32(b), bodyBytes: le.Uint32(b[4:]), kind: kind(b[8]),
			group: GroupID(le.Uint64(b[16:])), seq: le.Uint64(b[24:]), index: le.Uint64(b[32:]), aux: le.Uint64(b[40:]),
		}
		if t.kind == 0 || t.kind > kindMax || int64(t.off) < segmentHeadBytes || int64(t.off)+padded(t.bodyBytes) > end {
			return nil, false
		}
		items = append(items, t)
	}
	return items, true
}

// encodeLocator is one sector: magic 8 · end of records 8 · footer length 8 · segment number 4 · crc at 508.
func encodeLocator(number uint32, end, length int64) []byte {
	b := make([]byte, sectorBytes)
	copy(b, locatorMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(end))
	binary.LittleEndian.PutUint64(b[16:], uint64(length))
	binary.LittleEndian.PutUint32(b[24:], number)
	binary.LittleEndian.PutUint32(b[sectorBytes-4:], crc32.Checksum(b[:sectorBytes-4], crcTable))
	return b
}

func decodeLocator(b []byte, number uint32) (end, length int64, ok bool) {
	if len(b) < sectorBytes || string(b[:8]) != locatorMagic || binary.LittleEndian.Uint32(b[24:]) != number ||
		binary.LittleEndian.Uint32(b[sectorBytes-4:]) != crc32.Checksum(b[:sectorBytes-4], crcTable) {
		return 0, 0, false
	}
	end, length = int64(binary.LittleEndian.Uint64(b[8:])), int64(binary.LittleEndian.Uint64(b[16:]))
	return end, length, end >= segmentHeadBytes && length >= 16 && length <= 1<<36
}

// readFooter returns the segment's items and the end of its records. ok is false if it has no sound footer; a
// known end is still returned then.
func (g *segment) readFooter() (items []item, end int64, ok bool, err error) {
	b := make([]byte, sectorBytes)
	if g.size < segmentHeadBytes {
		return nil, 0, false, nil
	}
	if err := readFull(g.file, b, locatorOffset); err != nil {
		return nil, 0, false, err
	}
	end, length, ok := decodeLocator(b, g.number)
	if !ok {
		return nil, 0, false, nil
	}
	if size, err := g.file.Size(); err != nil || end+length > size {
		return nil, end, false, err
	}
	b = make([]byte, length)
	if readFull(g.file, b, end) != nil { // the records say the same
		return nil, end, false, nil
	}
	items, ok = decodeFooter(b, end)
	return items, end, ok, nil
}

// writeFooter makes a footer durable, then its locator. The file may grow beyond size by it.
func (g *segment) writeFooter(items []item) error {
	b := encodeFooter(items)
	if _, err := g.file.WriteAt(b, g.end); err != nil {
		return err
	}
	if err := g.file.Fdatasync(); err != nil {
		return err
	}
	if _, err := g.file.WriteAt(encodeLocator(g.number, g.end, int64(len(b))), locatorOffset); err != nil {
		return err
	}
	if err := g.file.Fdatasync(); err != nil {
		return err
	}
	g.footed, g.tracked, g.items, g.groups = true, false, nil, groupSetOf(items)
	return nil
}

// listItems names every record of a sealed segment, whose records are durable.
func (g *segment) listItems() (items []item, err error) {
	if g.tracked {
		return g.items, nil
	}
	if g.footed {
		items, _, ok, err := g.readFooter()
		if err != nil || ok {
			return items, err
		}
	}
	sc := g.scanner()
	sc.size = g.end
	end, _, err := sc.run(true, func(r *found) error {
		items = append(items, itemOf(r))
		return nil
	})
	switch {
	case err != nil:
		err = &CorruptError{Segment: g.number, Offset: end, Reason: "cannot be read: " + err.Error()}
	case end != g.end:
		err = &CorruptError{Segment: g.number, Offset: end, Reason: "no record where one was written"}
	}
	return items, err
}

// footers gives the sealed segments their footers. One that does not fit on a full disk, or of which the records cannot be listed,
// stays without until the keeper comes again: it keeps no other from being freed but the next, see freeable. False
// means that the log has failed or closes.
func (s *Store) footers(sealed []*segment) bool {
	waited := false
	for _, seg := range sealed {
		if seg.footed {
			continue
		}
		if !waited && s.wal.barrier() != nil {
			return false
		}
		waited = true
		items, err := seg.listItems()
		if err == nil {
			err = seg.writeFooter(items)
		}
		if err == nil {
			continue
		}
		if _, corrupt := errors.AsType[*CorruptError](err); !corrupt && !noSpace(err) {
			s.wal.fail(&FatalError{Op: fmt.Sprintf("write footer of segment %d", seg.number), Err: err}, nil)
			return false
		}
		s.log.Warn("segment has no footer", "segment", seg.number, "err", err)
	}
	return true
}
