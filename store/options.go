package store

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// GroupID names one Raft group. Zero is not a group.
type GroupID uint64

// Options configure a store. Only Dir is required.
type Options struct {
	// Dir holds everything; it must be empty, absent or a store. One process at a time.
	Dir string
	// FS is the file system, the operating system's when nil.
	FS FS
	// SegmentBytes is the size of a full-grown segment, default 64 MiB. Smaller ones free space
	// sooner and cost more switches; a record larger than it gets a segment of its own.
	SegmentBytes int64
	// TailCacheBytes bounds the newest appended bytes kept in memory for replication and fresh
	// deliveries of all groups together, default 8 MiB; while what is read has just left, twice as many are kept. A quarter more holds entries read from disk lately, because
	// one entry carries many messages that are asked for one by one.
	TailCacheBytes int64
	// LingerMax is how long the flusher waits for more groups before a sync, at most 300 µs. It waits only
	// when several groups wrote during the last sync and less than 64 KiB is buffered. Default 0, never.
	LingerMax time.Duration
	// DiskReserveBytes is the free space below which Stats reports DiskAlarm. Default two segments.
	DiskReserveBytes int64
	// Logger receives recovery, reclaim and damage events; discarded when nil.
	Logger *slog.Logger
	// OnFatal is called once, with a *FatalError, when a write or sync failed: the process must end.
	// When it returns, every call fails. It runs on a goroutine of the store and must not call Close. Default panics.
	OnFatal func(error)
}

// Bounds of the store.
const (
	// RecordBytesMax bounds the body of one record: an entry, or a manifest.
	RecordBytesMax = 1 << 30

	lingerMax         = 300 * time.Microsecond
	lingerBytesMax    = 64 << 10
	pendingBytesMax   = 32 << 20 // appenders wait above it
	slabBytes         = 1 << 20
	firstSegmentBytes = 1 << 20
	segmentBytesMin   = 64 << 10
	segmentBytesMax   = 1 << 30
)

func (o *Options) setDefaults() {
	if o.FS == nil {
		o.FS = OSFS{}
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.TailCacheBytes == 0 {
		o.TailCacheBytes = 8 << 20
	}
	if o.DiskReserveBytes == 0 {
		o.DiskReserveBytes = 2 * o.SegmentBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnFatal == nil {
		o.OnFatal = func(err error) { panic(err) }
	}
}

func (o *Options) validate() error {
	var errs []error
	if o.Dir == "" {
		errs = append(errs, errors.New("no directory given (Dir)"))
	}
	if o.SegmentBytes < segmentBytesMin || o.SegmentBytes > segmentBytesMax {
		errs = append(errs, fmt.Errorf("SegmentBytes %d is not in %d..%d", o.SegmentBytes, segmentBytesMin, segmentBytesMax))
	}
	if o.TailCacheBytes < 0 {
		errs = append(errs, fmt.Errorf("TailCacheBytes %d is negative", o.TailCacheBytes))
	}
	if o.LingerMax < 0 || o.LingerMax > lingerMax {
		errs = append(errs, fmt.Errorf("LingerMax %v is not in 0..%v", o.LingerMax, lingerMax))
	}
	if o.DiskReserveBytes < 0 {
		errs = append(errs, fmt.Errorf("DiskReserveBytes %d is negative", o.DiskReserveBytes))
	}
	return errors.Join(errs...)
}
