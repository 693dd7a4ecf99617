package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Store is one node's log. It owns the directory, three goroutines (flusher, preparer, keeper) and
// the state of all groups.
type Store struct {
	o     Options
	fs    FS
	log   *slog.Logger
	lock  io.Closer
	wal   wal
	cache tailCache
	reads readCache

	segMu   sync.RWMutex
	segs    map[uint32]*segment
	numbers uint32 // newest segment number given out
	hotFrom uint32 // where what was written lately began at the start, see Group.Heat; constant

	mu     sync.Mutex
	groups map[GroupID]*Group

	installations atomic.Uint64 // numbers of sinks, never repeated: the epoch is in the high bits

	installed atomic.Uint64 // snapshots that were installed since the start

	spareMu  sync.Mutex
	spares   []*segment // freed files, for the preparer, the largest first
	spareMin int64      // smaller ones are not kept

	grow   chan int64    // to the preparer, capacity 1
	wake   chan struct{} // to the keeper, capacity 1
	stop   chan struct{}
	closed atomic.Bool
	tasks  sync.WaitGroup

	damaged atomic.Pointer[func(GroupID, *CorruptError)] // see OnDamage
	damages atomic.Uint64                                // groups found damaged
	low     atomic.Pointer[func()]                       // see OnLow

	looksOnly bool // nothing on disk may change, and nothing is appended: see Inspect

	recovery  RecoveryStats
	reclaimed reclaimCounters
	prepared  prepareCounters
}

// Open recovers the store in o.Dir, or makes a new one, and starts its goroutines. Errors callers decide by:
// ErrLocked, ErrForeignDirectory, ErrVersion, *CorruptError. Damage that can be laid to one group does not fail
// Open: that group answers *CorruptError, and Stats counts it.
func Open(o Options) (*Store, error) {
	o.setDefaults()
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("store options: %w", err)
	}
	s := &Store{
		o: o, fs: o.FS, log: o.Logger, segs: make(map[uint32]*segment), groups: make(map[GroupID]*Group),
		grow: make(chan int64, 1), wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	s.cache.bytesMax, s.reads.bytesMax = o.TailCacheBytes, o.TailCacheBytes/4
	lock, err := openDir(o.FS, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Dir, err)
	}
	s.lock = lock
	began := time.Now()
	if err := s.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", o.Dir, err), s.shut())
	}
	s.tasks.Go(s.wal.flush)
	s.tasks.Go(s.prepare)
	s.tasks.Go(s.keep)
	if err := s.announce(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", o.Dir, err), s.Close())
	}
	s.recovery.Duration = time.Since(began)
	s.nudge()
	s.log.Info("store open", "dir", o.Dir, "segments", s.recovery.Segments, "records", s.recovery.Records,
		"cut_bytes", s.recovery.CutBytes, "duration", s.recovery.Duration)
	return s, nil
}

// announce starts this process's epoch on disk before anybody may write.
func (s *Store) announce() error {
	recs := []record{{header: header{kind: kindOpen}}}
	recs[0].seal()
	var locs [1]loc
	t, err := s.wal.append(recs, locs[:])
	if err != nil {
		return err
	}
	return t.wait()
}

// Group returns the view of one group. It leaves no trace on disk before its first write.
func (s *Store) Group(id GroupID) *Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[id]
	if g == nil {
		g = newGroup(s, id)
		s.groups[id] = g
	}
	g.handed = true
	return g
}

// Groups lists the groups that have something on disk, ascending. Deleted groups have not.
func (s *Store) Groups() []GroupID {
	var ids []GroupID
	for _, g := range s.all() {
		g.mu.RLock()
		if g.trace {
			ids = append(ids, g.id)
		}
		g.mu.RUnlock()
	}
	slices.Sort(ids)
	return ids
}

// all copies the set of groups, so that no lock is held while each is visited.
func (s *Store) all() []*Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Group, 0, len(s.groups))
	for _, g := range s.groups {
		out = append(out, g)
	}
	return out
}

// DeleteGroup forgets everything of a group, also of a damaged one, and returns when that is durable. Handles given out
// before answer ErrGroupDeleted; the id may be used again. Deleting an unknown group does nothing.
func (s *Store) DeleteGroup(id GroupID) error {
	s.mu.Lock()
	g := s.groups[id]
	s.mu.Unlock()
	if g == nil {
		return nil
	}
	g.wmu.Lock()
	defer g.wmu.Unlock()
	g.mu.RLock()
	deleted, trace := g.deleted, g.trace
	g.mu.RUnlock()
	if deleted || !trace {
		return nil
	}
	recs := []record{{header: header{kind: kindDeleted, group: id}}}
	recs[0].seal()
	var locs [1]loc
	if err := g.commit(recs, locs[:]); err != nil {
		return fmt.Errorf("delete group %d: %w", id, err)
	}
	heir := newGroup(s, id)
	heir.meta.born = recs[0].seq
	heir.touch(locs[0].segment)
	s.mu.Lock()
	s.groups[id] = heir
	s.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deleted = true
	g.entries.remove(0, ^uint64(0), func(_ uint64, l loc) { s.release(l) })
	if g.snap != nil {
		s.release(g.snap.loc)
		g.snap = nil
	}
	return nil
}

// acquire returns the segment of a record that some index holds, with a reference to give back. It is called
// under the lock of that index.
func (s *Store) acquire(l loc) *segment {
	s.segMu.RLock()
	defer s.segMu.RUnlock()
	seg := s.segs[l.segment]
	seg.refs.Add(1)
	return seg
}

// release takes back what a record's place added to its segment. The zero loc is nothing.
func (s *Store) release(l loc) {
	if l.segment == 0 {
		return
	}
	s.segMu.RLock()
	seg := s.segs[l.segment]
	s.segMu.RUnlock()
	n := l.bytes()
	live := seg.live.Add(-n)
	if !seg.sealed.Load() {
		return
	}
	if limit := seg.sparseBytes(); live == 0 || live < limit && live+n >= limit {
		s.nudge()
	}
}

// nudge lets the keeper look whether there is something to do.
func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Shed forgets what is in memory only to be read sooner: a node that has nothing to do gives it back. What was appended lately
// is read from disk afterwards.
func (s *Store) Shed() {
	s.wal.mu.Lock()
	if s.wal.idle() { // what is not on disk yet is read from memory
		s.cache.shed()
	}
	s.wal.mu.Unlock()
	s.reads.shed()
}

// readRecord returns a record from memory or disk; the body is shared. Damage is a bare *CorruptError. The caller
// holds a reference to seg. keep says that the record will be asked for again.
func (s *Store) readRecord(seg *segment, l loc, keep bool) (h header, body []byte, err error) {
	b := s.cache.get(l)
	if b == nil {
		b = s.reads.get(l)
	}
	cached := b != nil
	if !cached {
		b = make([]byte, headerBytes+int(l.bodyBytes))
		if keep {
			s.readAhead(seg, int64(l.off), int64(len(b)))
		}
		if err := readFull(seg.file, b, int64(l.off)); err != nil {
			return header{}, nil, s.unreadable(l, err)
		}
	}
	h, ok := parseHeader(b, l.segment, int64(l.off))
	if !ok || h.bodyBytes != l.bodyBytes {
		return header{}, nil, &CorruptError{Segment: l.segment, Offset: int64(l.off), Reason: "bad header"}
	}
	body = b[headerBytes:]
	if !cached && !h.bodyOK(body) {
		return header{}, nil, &CorruptError{Segment: l.segment, Offset: int64(l.off), Reason: "body does not match its checksum"}
	}
	if !cached && keep {
		s.reads.add(l, b)
	}
	return h, body, nil
}

// unreadable is the error for a record that could not be read. One that the disk does not give back is as good as damaged: asking again does not help
// who waits for it, and other replicas have it.
func (s *Store) unreadable(l loc, err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &CorruptError{Segment: l.segment, Offset: int64(l.off), Reason: "file ends inside a record"}
	case errors.Is(err, os.ErrClosed):
		return fmt.Errorf("read segment %d at %d: %w", l.segment, l.off, err)
	}
	return &CorruptError{Segment: l.segment, Offset: int64(l.off), Reason: "cannot be read: " + err.Error()}
}

// Close writes what was appended, stops the goroutines and releases the directory. Calls after
// it fail with ErrClosed; readers of snapshots must be closed before. It is safe twice.
func (s *Store) Close() error {
	if !s.closed.CompareAndSwap(false, true) {
		return nil
	}
	s.wal.close()
	close(s.stop)
	s.tasks.Wait()
	return s.shut()
}

// shut closes the files and the directory's lock.
func (s *Store) shut() error {
	var errs []error
	s.segMu.Lock()
	defer s.segMu.Unlock()
	for _, seg := range s.segs {
		errs = append(errs, seg.file.Close())
	}
	for _, seg := range s.spares {
		errs = append(errs, seg.file.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
