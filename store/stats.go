package store

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Stats is one reading of the store's counters.
type Stats struct {
	Segments     int
	SegmentBytes int64 // of all segment files
	LiveBytes    int64 // of entries and manifests somebody still needs
	Groups       int
	Quarantined  int    // groups that answer CorruptError
	Damaged      uint64 // groups found damaged since Open, by Open too; those that were deleted meanwhile count as well

	Records      uint64 // appended since Open
	WrittenBytes uint64 // appended since Open
	Syncs        uint64 // since Open
	// SyncTimes tells how long these took.
	SyncTimes    SyncTimes
	PendingBytes int // appended and not durable yet
	CacheBytes   int64

	FreedSegments   uint64        // deleted or kept for recycling since Open
	CopiedBytes     uint64        // of live records moved to cold segments since Open
	SyncOutstanding time.Duration // how long the present write has been under way, 0 if none is

	// Prepared counts the segments made ready for use since Open, by the way it was done.
	Prepared PreparedStats
	// Spares counts the freed segments kept for recycling, SpareBytes sums their sizes; SegmentBytes leaves them out.
	Spares     int
	SpareBytes int64

	FreeBytes uint64 // on the file system; 0 if unknown
	// DiskAlarm says that FreeBytes is below Options.DiskReserveBytes: block publishers now, for an append
	// that finds no space ends the process.
	DiskAlarm bool

	Recovery RecoveryStats
}

// PreparedStats are numbers of segments.
type PreparedStats struct {
	Recycled uint64 // a freed segment's file was used again
	Reserved uint64 // space was allocated and not written
	Zeroed   uint64 // filled with zeroes

	ZeroedBytes uint64 // of zeroes that were written
}

// SyncTimeClasses is the number of classes of durations of syncs.
const SyncTimeClasses = 24

// SyncTimes are the durations of syncs since Open.
type SyncTimes struct {
	// Classes[i] counts those of less than 2^i µs and not less than half of it; the last,
	// which begins at 4 s, has no end.
	Classes [SyncTimeClasses]uint64
	Sum     time.Duration
}

// syncTimes is SyncTimes in the making.
type syncTimes struct {
	classes [SyncTimeClasses]atomic.Uint64
	sum     atomic.Int64
}

func (t *syncTimes) note(d time.Duration) {
	t.classes[min(bits.Len64(uint64(max(0, d.Microseconds()))), SyncTimeClasses-1)].Add(1)
	t.sum.Add(int64(d))
}

func (t *syncTimes) read() (s SyncTimes) {
	for i := range t.classes {
		s.Classes[i] = t.classes[i].Load()
	}
	s.Sum = time.Duration(t.sum.Load())
	return s
}

type reclaimCounters struct {
	freed  atomic.Uint64
	copied atomic.Uint64
}

type prepareCounters struct {
	recycled, reserved, zeroed, zeroedBytes atomic.Uint64
}

func (c *prepareCounters) read() PreparedStats {
	return PreparedStats{Recycled: c.recycled.Load(), Reserved: c.reserved.Load(), Zeroed: c.zeroed.Load(), ZeroedBytes: c.zeroedBytes.Load()}
}

// Stats reads the counters; it visits every group and asks the file system for its free space.
func (s *Store) Stats() Stats {
	st := Stats{
		SyncTimes: s.wal.syncTimes.read(),
		Records:   s.wal.records.Load(), WrittenBytes: s.wal.written.Load(), Syncs: s.wal.syncs.Load(),
		CacheBytes: s.cache.size(), FreedSegments: s.reclaimed.freed.Load(), Damaged: s.damages.Load(), CopiedBytes: s.reclaimed.copied.Load(),
		SyncOutstanding: s.SyncOutstanding(), Recovery: s.recovery, Prepared: s.prepared.read(),
	}
	s.spareMu.Lock()
	st.Spares = len(s.spares)
	for _, seg := range s.spares {
		st.SpareBytes += seg.size
	}
	s.spareMu.Unlock()
	s.segMu.RLock()
	st.Segments = len(s.segs)
	for _, seg := range s.segs {
		st.SegmentBytes += seg.size
		st.LiveBytes += seg.live.Load()
	}
	s.segMu.RUnlock()
	for _, g := range s.all() {
		g.mu.RLock()
		if g.trace {
			st.Groups++
		}
		if g.damage != nil {
			st.Quarantined++
		}
		g.mu.RUnlock()
	}
	s.wal.mu.Lock()
	st.PendingBytes = s.wal.pending
	s.wal.mu.Unlock()
	if free, err := s.fs.Free(s.o.Dir); err == nil {
		st.FreeBytes = free
		st.DiskAlarm = free < uint64(s.o.DiskReserveBytes)
	}
	return st
}

// DiskAlarm is Stats' DiskAlarm without the rest, which grows with the number of groups.
func (s *Store) DiskAlarm() bool { return s.alarm() }

// alarm reports whether the reserve is touched.
func (s *Store) alarm() bool {
	_, alarm := s.space()
	return alarm
}

// space tells what is free, and whether the reserve is touched.
func (s *Store) space() (free int64, alarm bool) {
	n, err := s.fs.Free(s.o.Dir)
	return int64(min(n, math.MaxInt64)), err == nil && n < uint64(s.o.DiskReserveBytes)
}

// Usage says what a group keeps on disk.
type Usage struct {
	LogEntries, LogBytes       uint64 // in the log; bytes of bodies, without headers
	PinnedEntries, PinnedBytes uint64 // below the log, kept by the published snapshot alone
	SnapshotIndex              uint64 // of the published snapshot, 0 if none
	SnapshotBytes              int64  // of its stream
}

// Usage is cheap: it does not look at single entries.
func (g *Group) Usage() Usage {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var u Usage
	first := max(g.meta.first, 1)
	u.LogEntries, u.LogBytes = g.entries.sum(first, ^uint64(0))
	u.PinnedEntries, u.PinnedBytes = g.entries.sum(0, first-1)
	if g.snap != nil {
		u.SnapshotIndex, u.SnapshotBytes = g.snap.index, g.snap.streamBytes()
	}
	return u
}

// SyncCost tells how many syncs there have been, and the time in which the log wrote and synced. It is cheap.
func (s *Store) SyncCost() (syncs uint64, took time.Duration) {
	return s.wal.syncs.Load(), time.Duration(s.wal.flushed.Load())
}

// SyncOutstanding tells how long the present write, or an append's wait for a next segment, has been under way; 0 if
// there is none. It is cheap. A disk that hangs shows here first.
func (s *Store) SyncOutstanding() time.Duration {
	var longest time.Duration
	for _, since := range [...]int64{s.wal.syncSince.Load(), s.wal.starvedSince.Load()} {
		if since != 0 {
			longest = max(longest, time.Duration(s.wal.clock()-since))
		}
	}
	return longest
}
