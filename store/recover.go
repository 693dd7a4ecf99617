package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// RecoveryStats say what Open found.
type RecoveryStats struct {
	Segments    int
	Records     int   // read one by one; those known from footers are not
	CutBytes    int64 // of the torn tail
	Quarantined int   // groups
	Duration    time.Duration
}

// recovered gathers the records of one group in any order: seq decides, not the place.
type recovered struct {
	small   []smallRecord
	entries []entryRecord
	damage  *CorruptError

	damageSeq uint64 // of the damaged record
}

// smallRecord is anything but an entry, with its body.
type smallRecord struct {
	header
	loc  loc
	body []byte
}

type entryRecord struct {
	index, seq, installation uint64
	kind                     kind
	loc                      loc
}

// recover reads the directory into memory and leaves the wal ready to start.
func (s *Store) recover() error {
	spares, blank, err := s.openSegments()
	if err != nil {
		return err
	}
	groups := make(map[GroupID]*recovered)
	active, off, last, err := s.scanAll(groups, blank)
	if err != nil {
		return err
	}
	for _, n := range blank {
		if err := s.fs.Remove(filepath.Join(s.o.Dir, segmentName(n))); err != nil {
			return err
		}
	}
	if err := s.adoptSpares(spares, active); err != nil {
		return err
	}
	for id, r := range groups {
		g := newGroup(s, id)
		s.groups[id] = g
		g.restore(r)
		if g.damage != nil {
			s.recovery.Quarantined++
		}
	}
	s.recovery.Segments = len(s.segs)
	epoch := epochOf(last) + 1
	s.installations.Store(epoch << epochShift)
	s.wal.fs, s.wal.cache, s.wal.fatal = s.fs, &s.cache, s.o.OnFatal
	s.wal.linger, s.wal.segmentBytes = s.o.LingerMax, s.o.SegmentBytes
	s.wal.grow = func(size int64) { s.grow <- size }
	s.wal.sealed = func(*segment) { s.nudge() }
	if active == nil {
		s.numbers++
		active, err = s.create(s.numbers, min(firstSegmentBytes, s.o.SegmentBytes), true)
		if err != nil {
			return err
		}
		s.segs[active.number], off = active, segmentHeadBytes
	} else if err := active.settle(off); err != nil {
		return err
	}
	s.findHot(active, off)
	s.wal.start(active, off, epoch<<epochShift-1)
	return nil
}

// openSegments opens every segment file and removes what an interrupted preparation or copy left. It returns the names of files
// kept for reuse, whose numbers count as given out, since records that were written under them may still be inside; and the numbers of
// blank files, which are for scanAll to judge.
func (s *Store) openSegments() (spares []string, blank []uint32, err error) {
	names, err := s.fs.ReadDir(s.o.Dir)
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(names)
	var others []otherFile
	for _, name := range names {
		path := filepath.Join(s.o.Dir, name)
		// The same number twice is nothing that a crash leaves, but perhaps a backup of files that changed meanwhile.
		if number, ok := parseSpareName(name); ok && s.segs[number] == nil {
			spares = append(spares, name)
			s.numbers = max(s.numbers, number)
			continue
		}
		if strings.HasSuffix(name, tempSuffix) && s.looksOnly {
			continue
		}
		if strings.HasSuffix(name, tempSuffix) {
			if err := s.fs.Remove(path); err != nil {
				return nil, nil, err
			}
			continue
		}
		number, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		s.numbers = max(s.numbers, number)
		seg, what, is, err := s.openSegment(path, number)
		switch {
		case err != nil:
			return nil, nil, err
		case what == fileSegment:
			s.segs[number] = seg
		case what == fileBlank:
			blank = append(blank, number)
		default:
			others = append(others, otherFile{path, number, is})
		}
	}
	return spares, blank, s.removeOthers(others)
}

// otherFile is a file with the head of another number than its name has.
type otherFile struct {
	path       string
	number, is uint32
}

// removeOthers removes what a crash leaves, and copies of segments that are there. A file is used again under a higher number only, so that one
// with a lower number in its head is a segment that somebody has renamed, or exchanged for another one.
func (s *Store) removeOthers(others []otherFile) error {
	for _, o := range others {
		if o.is < o.number && s.segs[o.is] == nil {
			return &CorruptError{Segment: o.number, Reason: fmt.Sprintf("the file is segment %d under another name", o.is)}
		}
	}
	if s.looksOnly {
		return nil
	}
	for _, o := range others {
		if err := s.fs.Remove(o.path); err != nil {
			return err
		}
	}
	return nil
}

// openSegment returns nil for a file that is no segment, and the number in its head.
func (s *Store) openSegment(path string, number uint32) (seg *segment, what fileKind, is uint32, err error) {
	f, err := s.fs.Open(path)
	if err != nil {
		return nil, 0, 0, err
	}
	seg = &segment{number: number, file: f, path: path}
	what, is, err = seg.identify()
	if err != nil || what != fileSegment {
		return nil, what, is, errors.Join(err, f.Close())
	}
	return seg, what, is, nil
}

// fileKind is what a file with the name of a segment is.
type fileKind int

const (
	fileSegment fileKind = iota
	// fileOther says that it is whole under another number: a crash undid the renaming of a file that was already being used again.
	fileOther
	// fileBlank says that neither a head nor a first record stands in it: it was never made, or it is damaged.
	fileBlank
)

// identify reads the head, and the number in it. Without a sound one the file counts only if a record stands in it for its name.
func (g *segment) identify() (what fileKind, is uint32, err error) {
	if g.size, err = g.file.Size(); err != nil {
		return 0, 0, err
	}
	b := make([]byte, 512)
	if g.size >= 512 {
		if err := readFull(g.file, b, 0); err != nil {
			return 0, 0, err
		}
	}
	head, ok, err := decodeSegmentHead(b)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", g.path, err)
	}
	if ok {
		g.cold, g.made = head.cold, head.made
		if head.number != g.number {
			return fileOther, head.number, nil
		}
		return fileSegment, g.number, nil
	}
	first, sound, err := g.scanner().at(segmentHeadBytes)
	if err != nil || !sound {
		return fileBlank, 0, err
	}
	g.cold = first.kind != kindOpen && first.kind != kindSwitch
	return fileSegment, g.number, nil
}

func (g *segment) scanner() *scanner {
	return &scanner{f: g.file, number: g.number, size: g.size, anyOrder: g.cold}
}

// scanAll reads every segment. The active one is the newest that was ever written to; prepared ones behind it
// hold nothing and go.
func (s *Store) scanAll(groups map[GroupID]*recovered, blank []uint32) (active *segment, off int64, last uint64, err error) {
	numbers := s.segmentNumbers()
	ends := make(map[uint32]closed) // sealed segments, as their successors tell
	for _, n := range numbers {
		seg := s.segs[n]
		if seg.cold {
			continue
		}
		prev, c, used, err := seg.scanner().predecessor()
		if err != nil {
			return nil, 0, 0, err
		}
		if used {
			active = seg
			ends[prev] = c
		}
	}
	if err := s.missing(active, blank); err != nil {
		return nil, 0, 0, err
	}
	for _, n := range numbers {
		seg := s.segs[n]
		if active == nil || n > active.number && !seg.cold {
			if err := s.discard(seg); err != nil {
				return nil, 0, 0, err
			}
			continue
		}
		end, high, err := s.scanSegment(seg, seg == active, ends[n].end, groups)
		if err != nil {
			return nil, 0, 0, err
		}
		if c := ends[n]; c.end != 0 && seg != active && (c.end != end || !c.by(high)) {
			return nil, 0, 0, &CorruptError{Segment: n, Offset: end, Reason: "the next segment continues another one: one of them is of another node or time"}
		}
		seg.end, last = end, max(last, high)
		if seg == active {
			off = end
		} else {
			seg.sealed.Store(true)
		}
	}
	return active, off, last, nil
}

// missing tells damage by what is not there. Files get their names when they are made, segments are written to in the order of their
// numbers, and one gets its footer when the next has its first record on disk; only a program from before files were made under other names
// left blank ones, each time one at most, and behind the others.
func (s *Store) missing(active *segment, blank []uint32) error {
	for n, seg := range s.segs {
		if seg.made > seg.size {
			return &CorruptError{Segment: n, Offset: seg.size, Reason: fmt.Sprintf("the file was made with %d bytes, and has %d", seg.made, seg.size)}
		}
	}
	for _, n := range blank {
		if active != nil && n < active.number || len(blank)+len(s.segs) > 1 && active == nil || s.madeBefore(n) {
			return &CorruptError{Segment: n, Reason: "the file has lost its beginning"}
		}
	}
	if active == nil {
		return nil
	}
	_, end, _, err := active.readFooter()
	if err != nil || end == 0 {
		return err
	}
	lost := active.number + 1
	if len(blank) > 0 {
		lost = blank[0]
	}
	return &CorruptError{Segment: lost, Reason: fmt.Sprintf("no record, but segment %d before it was finished", active.number)}
}

// madeBefore reports whether a program that gives files their names when they are made has made one with a number below n.
func (s *Store) madeBefore(n uint32) bool {
	for number, seg := range s.segs {
		if number < n && seg.made > 0 {
			return true
		}
	}
	return false
}

func (s *Store) segmentNumbers() []uint32 {
	numbers := make([]uint32, 0, len(s.segs))
	for n := range s.segs {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// discard takes out a prepared segment that no finished write reached; its file is kept for later if it has the size.
func (s *Store) discard(seg *segment) error {
	off, used, err := seg.scanner().later(segmentHeadBytes, 0)
	if err != nil {
		return err
	}
	if used || seg.cold {
		return &CorruptError{Segment: seg.number, Offset: segmentHeadBytes, Reason: fmt.Sprintf("bad first record before a sound later one at %d", off)}
	}
	delete(s.segs, seg.number)
	if s.looksOnly {
		return seg.file.Close()
	}
	return s.retire(seg)
}

// scanSegment hands the records of one segment to their groups.
func (s *Store) scanSegment(seg *segment, active bool, want int64, groups map[GroupID]*recovered) (end int64, last uint64, err error) {
	sc := seg.scanner()
	if !active {
		known, high, ok, err := s.useFooter(seg, groups)
		if err != nil || ok {
			return known, high, err
		}
		if known != 0 {
			want, sc.size = known, known
		}
	}
	if seg.cold && want == 0 {
		return 0, 0, &CorruptError{Segment: seg.number, Offset: locatorOffset, Reason: "no footer in a segment of copies"}
	}
	end, last, err = sc.run(!active, func(r *found) error {
		s.recovery.Records++
		seg.note(&r.header)
		if r.flags&flagBatch != 0 {
			seg.newest = r.off
		}
		gather(groups, seg.number, r)
		return nil
	})
	if err != nil {
		return 0, 0, fmt.Errorf("scan segment %d: %w", seg.number, err)
	}
	if !active {
		if want != 0 && end != want {
			return 0, 0, &CorruptError{Segment: seg.number, Offset: end, Reason: fmt.Sprintf("no record where one was written; records end at %d", want)}
		}
		return end, last, nil
	}
	off, damaged, err := sc.later(end, last)
	if err != nil {
		return 0, 0, err
	}
	if damaged {
		return 0, 0, &CorruptError{Segment: seg.number, Offset: end, Reason: fmt.Sprintf("bad record before a sound later one at %d", off)}
	}
	if r, ok, err := sc.at(end); err == nil && ok {
		s.recovery.CutBytes += padded(r.bodyBytes)
	}
	return end, last, nil
}

// settle makes the newest write durable, as far as recovery has accepted it: up to end. It may be one that a process was killed in, so that only the
// page cache has it; and after a sync that failed, the kernel counts what is there as written. Behind it nothing may stand before, for
// a record that begins a write says that all before it is durable.
func (g *segment) settle(end int64) error {
	if g.newest == 0 {
		return nil
	}
	b := make([]byte, min(windowBytes, end-g.newest))
	for off := g.newest; off < end; off += int64(len(b)) {
		b = b[:min(int64(len(b)), end-off)]
		if err := readFull(g.file, b, off); err != nil {
			return err
		}
		if _, err := g.file.WriteAt(b, off); err != nil {
			return err
		}
	}
	return g.file.Fdatasync()
}

// useFooter hands over the records of a sealed segment without reading entries. Without a sound footer the end of
// the records may still be known.
func (s *Store) useFooter(seg *segment, groups map[GroupID]*recovered) (end int64, last uint64, ok bool, err error) {
	items, end, ok, err := seg.readFooter()
	if err != nil || !ok {
		return end, 0, false, err
	}
	sc := seg.scanner()
	for i := range items {
		t := &items[i]
		last = max(last, t.seq)
		r := found{header: header{kind: t.kind, group: t.group, seq: t.seq, index: t.index, aux: t.aux, bodyBytes: t.bodyBytes}, off: int64(t.off)}
		seg.note(&r.header)
		if t.kind != kindEntry && t.kind != kindPinned && t.kind != kindSwitch && t.kind != kindOpen {
			s.recovery.Records++
			r = sc.reread(t)
		}
		gather(groups, seg.number, &r)
	}
	seg.footed, seg.groups = true, groupSetOf(items)
	return end, last, true, nil
}

// gather notes one record for its group.
func gather(groups map[GroupID]*recovered, segment uint32, r *found) {
	if r.kind == kindOpen || r.kind == kindSwitch {
		return
	}
	g := groups[r.group]
	if g == nil {
		g = &recovered{}
		groups[r.group] = g
	}
	l := loc{segment: segment, off: uint32(r.off), bodyBytes: r.bodyBytes}
	if r.badBody {
		g.damage = &CorruptError{Group: r.group, Segment: segment, Offset: r.off, Reason: r.damage()}
		g.damageSeq = max(g.damageSeq, r.seq)
		return
	}
	if r.kind == kindEntry || r.kind == kindPinned {
		g.entries = append(g.entries, entryRecord{index: r.index, seq: r.seq, installation: r.aux, kind: r.kind, loc: l})
		return
	}
	g.small = append(g.small, smallRecord{header: r.header, loc: l, body: append([]byte{}, r.body...)})
}
