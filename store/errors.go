package store

import (
	"errors"
	"fmt"
)

// Errors callers decide by. A missing log entry is raft.ErrLogNotFound itself, never one of these.
var (
	// ErrLocked says that another process has the directory open.
	ErrLocked = errors.New("store directory is locked by another process")
	// ErrClosed answers every call after Close.
	ErrClosed = errors.New("store is closed")
	// ErrForeignDirectory says that the directory holds files that are not a store's.
	ErrForeignDirectory = errors.New("directory is not empty and not a store")
	// ErrVersion says that the directory was written by an unknown version of the format.
	ErrVersion = errors.New("unknown store version")
	// ErrNotFound answers Get and GetUint64 of a missing key; raft compares this text.
	ErrNotFound = errors.New("not found")
	// ErrSnapshotStale refuses to publish a snapshot older than the published one.
	ErrSnapshotStale = errors.New("snapshot is older than the published one")
	// ErrSnapshotStream says that bytes written to a sink, or given to ReadManifest, are not a snapshot stream.
	ErrSnapshotStream = errors.New("bad snapshot stream")
	// ErrSnapshotUnknown answers Open of an id that is not the published snapshot's.
	ErrSnapshotUnknown = errors.New("unknown snapshot")
	// ErrGroupDeleted answers every call on a handle whose group was deleted.
	ErrGroupDeleted = errors.New("group is deleted")
	// ErrLogRange refuses a deletion that would leave a hole in the middle of the log,
	// or a write or truncation at or below the published snapshot.
	ErrLogRange = errors.New("log range not allowed")
	// ErrTooLarge refuses a record above RecordBytesMax.
	ErrTooLarge = errors.New("record too large")
)

// CorruptError reports bytes on disk that fail their checksum or contradict other records. It is
// sticky: a group in which it was met answers every later call with it until it is deleted.
type CorruptError struct {
	Group   GroupID // 0 when the damage cannot be laid to one group
	Segment uint32
	Offset  int64
	Reason  string
}

func (e *CorruptError) Error() string {
	group := ""
	if e.Group != 0 {
		group = fmt.Sprintf(" group %d", e.Group)
	}
	return fmt.Sprintf("corrupt store: %s offset %d%s: %s", segmentName(e.Segment), e.Offset, group, e.Reason)
}

// MissingPinError refuses a local snapshot whose pins name an entry the store no longer holds.
type MissingPinError struct {
	Group GroupID
	Index uint64
}

func (e *MissingPinError) Error() string {
	return fmt.Sprintf("snapshot of group %d pins entry %d, which is not in the log", e.Group, e.Index)
}

// FatalError carries a failed write or sync. What is on disk is unknown after it, so that no
// retry is sound: the process has to end and recover.
type FatalError struct {
	Op  string
	Err error
}

func (e *FatalError) Error() string { return fmt.Sprintf("store %s: %v", e.Op, e.Err) }

// Unwrap gives the cause, for example ENOSPC.
func (e *FatalError) Unwrap() error { return e.Err }
