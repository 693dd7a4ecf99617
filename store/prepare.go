package store

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	// sparesMax bounds the freed segments kept for use as the next one.
	sparesMax = 4
	// reserveWriteBytes is the mean size of a write from which segments are reserved instead of filled with zeroes: there
	// the two cost the same (docs/adr/0014-recycled-segments.md).
	reserveWriteBytes = 64 << 10
	// Segments grow, fourfold each time, while one fills within growWithin or there are manySegments. A node with little
	// to do stays with small ones: what it writes to prepare them is never much more than what it writes into them.
	growWithin   = 4 * time.Second
	manySegments = 8
	// prepareWithin is how long the active segment must last from when the next one is prepared.
	prepareWithin = 2 * time.Second
)

// prepare is the preparer: it makes the next segment while the active one fills.
func (s *Store) prepare() {
	for {
		select {
		case <-s.stop:
			return
		case size := <-s.grow:
			seg := s.prepareOne(s.enough(size))
			if seg == nil {
				return
			}
			s.segMu.Lock()
			s.segs[seg.number] = seg
			s.segMu.Unlock()
			s.wal.offer(seg)
		}
	}
}

// enough is the size of the next segment when the wal asks for one of that size.
func (s *Store) enough(size int64) int64 {
	s.segMu.RLock()
	defer s.segMu.RUnlock()
	if len(s.segs) >= manySegments {
		size *= 4
	}
	return min(size, s.o.SegmentBytes)
}

// prepareOne repeats while the disk is full, or too many files are open, and the active segment still has room; nil when stopped or failed. On a full disk a smaller
// file that is there already does, too, and then a smaller new one.
func (s *Store) prepareOne(size int64) *segment {
	const retryEvery, tellEvery = 200 * time.Millisecond, 10 * time.Second
	var told time.Time
	for {
		seg, err := s.makeReady(size)
		if noSpace(err) {
			if least := s.largestSpare(); least > 0 {
				seg, err = s.makeReady(min(least, size))
			}
		}
		for less := size / 4; noSpace(err) && less >= firstSegmentBytes; less /= 4 {
			seg, err = s.makeReady(less)
		}
		s.tellLow()
		if err == nil {
			s.log.Debug("segment prepared", "segment", seg.number, "bytes", seg.size, "by", s.prepared.read())
			return seg
		}
		if !passing(err) || s.wal.needy() {
			s.wal.fail(&FatalError{Op: "prepare segment", Err: err}, nil)
			return nil
		}
		if now := time.Now(); now.Sub(told) >= tellEvery { // the log may be on the same disk
			told = now
			s.log.Warn("no room while preparing a segment", "err", err)
		}
		select {
		case <-s.stop:
			return nil
		case <-time.After(retryEvery):
		}
	}
}

// OnLow has f called when the preparer has touched the reserve: segments are what takes space, so nobody hears of it sooner. f must not block.
func (s *Store) OnLow(f func()) { s.low.Store(&f) }

func (s *Store) tellLow() {
	if f := s.low.Load(); f != nil && s.alarm() {
		(*f)()
	}
}

// passing tells whether what a segment lacks may come: space on the disk, or a file that the process may open.
func passing(err error) bool {
	return noSpace(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// noSpace tells whether the disk is full, or what this user may have of it.
func noSpace(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// makeReady makes a segment of that size, of a freed file or a new one.
func (s *Store) makeReady(size int64) (*segment, error) {
	s.segMu.Lock()
	s.numbers++
	number := s.numbers
	s.segMu.Unlock()
	seg, err := s.recycle(number, size)
	if seg == nil && err == nil {
		seg, err = s.create(number, size, s.wal.writeBytesMean() < reserveWriteBytes)
	}
	if err != nil {
		return nil, err
	}
	s.dropSmaller(size)
	return seg, nil
}

// retire makes a segment's file a spare or removes it. A spare has a temporary name, so that recovery never reads it; the name
// keeps its last number, so that the number is not used again.
func (s *Store) retire(seg *segment) error {
	if !seg.cold && s.wanted(seg.size) {
		path := filepath.Join(s.o.Dir, spareName(seg.number))
		if err := s.fs.Rename(seg.path, path); err != nil {
			return err
		}
		seg.path = path
		return s.addSpare(seg)
	}
	return s.remove(seg)
}

// wanted reports whether a file of that size is kept for reuse: not one too small for what comes next, nor one that a large
// record or a larger SegmentBytes made. While the disk is nearly full it is the first one, be it small: a larger one may not fit.
func (s *Store) wanted(size int64) bool {
	if size < segmentBytesMin || size >= s.o.SegmentBytes*5/4 {
		return false
	}
	alarm := s.alarm()
	s.spareMu.Lock()
	defer s.spareMu.Unlock()
	if alarm {
		return len(s.spares) == 0
	}
	return size >= s.spareMin
}

// addSpare keeps a file that has its spare's name, and removes the smallest when there are too many.
func (s *Store) addSpare(seg *segment) error {
	s.spareMu.Lock()
	s.spares = append(s.spares, seg)
	slices.SortStableFunc(s.spares, func(a, b *segment) int { return cmp.Compare(b.size, a.size) })
	var surplus *segment
	if len(s.spares) > sparesMax {
		surplus = s.spares[sparesMax]
		s.spares = s.spares[:sparesMax]
	}
	s.spareMu.Unlock()
	if surplus == nil {
		return nil
	}
	return s.remove(surplus)
}

func (s *Store) remove(seg *segment) error {
	return errors.Join(seg.file.Close(), s.fs.Remove(seg.path))
}

// dropSpares gives the spares but one back to the file system while that is nearly full. One stays: what is acked then is written
// to the log, too, and a segment whose space is there already cannot fail.
func (s *Store) dropSpares() {
	if !s.alarm() {
		return
	}
	s.spareMu.Lock()
	n := min(1, len(s.spares))
	surplus := slices.Clone(s.spares[n:])
	s.spares = s.spares[:n]
	s.spareMu.Unlock()
	s.removeSpares(surplus)
}

// dropSmaller removes the spares that are smaller than what was made ready just now, for segments do not shrink. While the disk is
// nearly full they stay, for a larger one may not fit next time.
func (s *Store) dropSmaller(size int64) {
	if s.alarm() {
		return
	}
	s.spareMu.Lock()
	n := s.sparesOf(size)
	small := slices.Clone(s.spares[n:])
	s.spares = s.spares[:n]
	s.spareMu.Unlock()
	s.removeSpares(small)
}

func (s *Store) removeSpares(surplus []*segment) {
	for _, seg := range surplus {
		if err := s.remove(seg); err != nil {
			s.log.Warn("freed segment not removed", "segment", seg.number, "err", err)
		}
	}
}

// sparesOf counts the spares that have that size. Called with spareMu held.
func (s *Store) sparesOf(size int64) int {
	n := len(s.spares)
	for n > 0 && s.spares[n-1].size < size {
		n--
	}
	return n
}

// largestSpare is the size of the largest spare, 0 if there is none.
func (s *Store) largestSpare() int64 {
	s.spareMu.Lock()
	defer s.spareMu.Unlock()
	if len(s.spares) == 0 {
		return 0
	}
	return s.spares[0].size
}

// takeSpare returns the smallest file that has that size, nil if there is none.
func (s *Store) takeSpare(size int64) *segment {
	s.spareMu.Lock()
	defer s.spareMu.Unlock()
	s.spareMin = size
	n := s.sparesOf(size)
	if n == 0 {
		return nil
	}
	old := s.spares[n-1]
	s.spares = slices.Delete(s.spares, n-1, n)
	return old
}

// recycle makes a freed file the segment number, nil if there is none. Old records in it do not count: their checksums
// cover another number, and no number that one of them has is given out again. The new head is durable before
// the file has the name under which recovery reads it.
func (s *Store) recycle(number uint32, size int64) (*segment, error) {
	old := s.takeSpare(size)
	if old == nil {
		return nil, nil
	}
	seg := &segment{number: number, file: old.file, path: filepath.Join(s.o.Dir, segmentName(number)), size: old.size, tracked: true}
	head := make([]byte, segmentHeadBytes)
	copy(head, segmentHead{number: number, made: seg.size}.encode())
	_, err := seg.file.WriteAt(head, 0)
	if err == nil {
		err = seg.file.Fdatasync()
	}
	if err == nil {
		err = s.fs.Rename(old.path, seg.path)
	}
	if err == nil {
		err = s.fs.SyncDir(s.o.Dir)
	}
	if err != nil { // the next attempt takes another number, so that nobody would come back to the file
		_ = old.file.Close()
		_ = s.fs.Remove(old.path)
		_ = s.fs.Remove(seg.path)
		return nil, fmt.Errorf("prepare segment %d of a freed one: %w", number, err)
	}
	s.prepared.recycled.Add(1)
	return seg, nil
}

// adoptSpares takes over the files that a process before left for reuse, and removes those that do not fit.
func (s *Store) adoptSpares(left []string, active *segment) error {
	s.spareMin = min(firstSegmentBytes, s.o.SegmentBytes)
	if active != nil {
		s.spareMin = min(active.size, s.o.SegmentBytes)
	}
	for _, name := range left {
		path := filepath.Join(s.o.Dir, name)
		f, err := s.fs.Open(path)
		if err != nil {
			return err
		}
		number, _ := parseSpareName(name)
		seg := &segment{number: number, file: f, path: path}
		if seg.size, err = f.Size(); err != nil {
			return errors.Join(err, f.Close())
		}
		if s.wanted(seg.size) {
			err = s.addSpare(seg)
		} else {
			err = s.remove(seg)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// create prepares a segment and makes it durable, then gives it its name: a file with a segment's name was whole once. Full of real zeroes, a write into it changes no metadata of the file
// system, which halves the cost of a small sync. With large writes that no longer shows, and writing everything twice
// does: then the space is only reserved.
func (s *Store) create(number uint32, size int64, zeroes bool) (*segment, error) {
	unmade, path := filepath.Join(s.o.Dir, unmadeName(number)), filepath.Join(s.o.Dir, segmentName(number))
	f, err := s.fs.Create(unmade)
	if err != nil {
		return nil, fmt.Errorf("create segment %d: %w", number, err)
	}
	err = s.fill(f, number, size, zeroes)
	if err == nil {
		err = s.fs.Rename(unmade, path)
	}
	if err != nil {
		_ = f.Close()
		_ = s.fs.Remove(unmade)
		return nil, fmt.Errorf("prepare segment %d: %w", number, err)
	}
	if err := s.fs.SyncDir(s.o.Dir); err != nil {
		_ = f.Close()
		_ = s.fs.Remove(path)
		return nil, fmt.Errorf("sync directory for segment %d: %w", number, err)
	}
	return &segment{number: number, file: f, path: path, size: size, tracked: true}, nil
}

func (s *Store) fill(f File, number uint32, size int64, zeroes bool) error {
	err := errors.ErrUnsupported
	if !zeroes {
		if err = f.Allocate(size); err == nil {
			s.prepared.reserved.Add(1)
		}
	}
	if errors.Is(err, errors.ErrUnsupported) {
		err = zeroFill(f, size)
		s.prepared.zeroed.Add(1)
		s.prepared.zeroedBytes.Add(uint64(size))
	}
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(segmentHead{number: number, made: size}.encode(), 0); err != nil {
		return err
	}
	return f.Fdatasync()
}

func zeroFill(f File, size int64) error {
	const step = 256 << 10
	zero := make([]byte, min(step, size))
	for off := int64(0); off < size; off += step {
		if _, err := f.WriteAt(zero[:min(step, size-off)], off); err != nil {
			return err
		}
		if off%(8<<20) == 0 && off > 0 { // in steps, so that the flusher's sync does not wait behind all of it
			if err := f.Fdatasync(); err != nil {
				return err
			}
		}
	}
	return nil
}
