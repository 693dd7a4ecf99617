package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
)

// scanner reads the records of one segment in order through a window.
type scanner struct {
	f      io.ReaderAt
	number uint32
	size   int64 // of the file
	win    []byte
	winOff int64
	// anyOrder says that seqs need not follow each other: the records are copies.
	anyOrder bool
}

const windowBytes = 1 << 20

// bytes returns n bytes at off, valid until the next call; nil at the end of the file.
func (s *scanner) bytes(off, n int64) ([]byte, error) {
	if off+n > s.size {
		return nil, nil
	}
	if off < s.winOff || off+n > s.winOff+int64(len(s.win)) {
		want := min(max(n, windowBytes), s.size-off)
		if int64(cap(s.win)) < want {
			s.win = make([]byte, want)
		}
		s.win, s.winOff = s.win[:want], off
		err := readFull(s.f, s.win, off)
		if err != nil && want > n && !errors.Is(err, io.ErrUnexpectedEOF) { // what the disk does not give back may lie behind what is asked for
			s.win = s.win[:n]
			err = readFull(s.f, s.win, off)
		}
		if err != nil {
			s.win = s.win[:0]
			if errors.Is(err, io.ErrUnexpectedEOF) {
				return nil, nil
			}
			return nil, err
		}
	}
	return s.win[off-s.winOff : off-s.winOff+n], nil
}

// found is one record on disk; body is valid until the next call of the scanner.
type found struct {
	header
	off     int64
	body    []byte
	badBody bool  // the header is sound and the body is not
	unread  error // why the body, or all of it, could not be read
}

// damage says what is wrong with a record of which the body is bad.
func (r *found) damage() string {
	if r.unread != nil {
		return "cannot be read: " + r.unread.Error()
	}
	return "body does not match its checksum"
}

// at reads the record at off; ok is false if no sound header stands there. A body that cannot be read is a bad one: whose it is is known.
func (s *scanner) at(off int64) (r found, ok bool, err error) {
	b, err := s.bytes(off, headerBytes)
	if err != nil || b == nil {
		return found{}, false, err
	}
	h, ok := parseHeader(b, s.number, off)
	if !ok {
		return found{}, false, nil
	}
	r = found{header: h, off: off}
	b, r.unread = s.bytes(off+headerBytes, int64(h.bodyBytes))
	r.body, r.badBody = b, b == nil && h.bodyBytes > 0 || !h.bodyOK(b)
	return r, true, nil
}

// follows reports whether a record with seq next may stand right behind one with seq prev.
func follows(prev uint64, next *found) bool {
	return prev == 0 || next.seq == prev+1 || next.kind == kindOpen && epochOf(next.seq) > epochOf(prev)
}

// run calls fn for the records from the segment's beginning up to the first place where none can stand, and
// returns that place and the last seq. A record with a damaged body ends the run unless sealed is set.
func (s *scanner) run(sealed bool, fn func(*found) error) (end int64, last uint64, err error) {
	end = segmentHeadBytes
	for {
		r, ok, err := s.at(end)
		if err != nil {
			return end, last, err
		}
		if ok && r.unread != nil && !sealed {
			return end, last, r.unread // a crash leaves the end of a log torn, and readable
		}
		if !ok || r.badBody && !sealed || !s.anyOrder && !follows(last, &r) {
			return end, last, nil
		}
		if err := fn(&r); err != nil {
			return end, last, err
		}
		end, last = end+padded(r.bodyBytes), max(last, r.seq)
	}
}

// later looks behind a cut for a record that began a write after the one with seq last had been made durable.
// One there means that acknowledged bytes before it were damaged, which no crash does.
func (s *scanner) later(cut int64, last uint64) (off int64, ok bool, err error) {
	for off = cut; ; off += 8 {
		b, err := s.bytes(off, headerBytes)
		if err != nil || b == nil {
			return 0, false, err
		}
		if b[12] == 0 || b[12] > byte(kindMax) || b[14]&flagBatch == 0 {
			continue
		}
		if h, sound := parseHeader(b, s.number, off); sound && h.seq > last+1 {
			return off, true, nil
		}
	}
}

// reread reads the record that a footer names at its place.
func (s *scanner) reread(t *item) found {
	r, ok, err := s.at(int64(t.off))
	if err != nil || !ok || r.kind != t.kind || r.group != t.group || r.seq != t.seq {
		return found{header: header{kind: t.kind, group: t.group, seq: t.seq, bodyBytes: t.bodyBytes}, off: int64(t.off), badBody: true, unread: err}
	}
	return r
}

// closed is how a segment ends, as the first record of the next one says: the end of its records, and the newest seq that was given out by then.
type closed struct {
	end int64
	seq uint64
}

// by reports whether a segment whose newest record has the seq high may have been the one before. A process that had found it full has
// written nothing into it: it counts from the last seq of the epoch before its own.
func (c closed) by(high uint64) bool {
	return c.seq == high || c.seq > high && epochOf(c.seq+1) > epochOf(c.seq)
}

// predecessor returns how the previous segment ends that this one's first record names; used is false
// if there is no such record.
func (s *scanner) predecessor() (number uint32, c closed, used bool, err error) {
	r, ok, err := s.at(segmentHeadBytes)
	if err != nil || !ok || r.badBody {
		return 0, closed{}, false, cmp.Or(err, r.unread)
	}
	if r.kind != kindSwitch || len(r.body) != switchBodyBytes {
		return 0, closed{}, true, nil
	}
	le := binary.LittleEndian
	return le.Uint32(r.body), closed{int64(le.Uint64(r.body[4:])), le.Uint64(r.body[12:])}, true, nil
}
