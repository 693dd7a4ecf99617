package catalog

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Disk stands between a replica and its files: simulations write and read through it.
type Disk interface {
	// Log stands over the file of log and votes, which is open.
	Log(file *raftboltdb.BoltStore) interface {
		raft.LogStore
		raft.StableStore
	}
	// Snapshots stands over the folder of snapshots.
	Snapshots(folder raft.SnapshotStore) raft.SnapshotStore
}

// openDisk opens the folder of snapshots and puts Config.Disk over it and the file of the log.
func (c *Catalog) openDisk(logger hclog.Logger) (durable, raft.SnapshotStore, error) {
	folder, err := raft.NewFileSnapshotStoreWithLogger(c.cfg.Dir, snapshotsKept, logger)
	if err != nil {
		return nil, nil, fmt.Errorf("open the catalog's snapshots: %w", err)
	}
	if err := removeUnfinished(filepath.Join(c.cfg.Dir, snapshotsDir)); err != nil {
		return nil, nil, fmt.Errorf("remove unfinished snapshots of the catalog: %w", err)
	}
	if d := c.cfg.Disk; d != nil {
		return d.Log(c.bolt), d.Snapshots(folder), nil
	}
	return c.bolt, folder, nil
}

// diskStore is a store whose file may be damaged, cut or unreadable while it is used. bbolt reads the file as memory: what the disk does not give back
// is a fault, and what is no page of its own a panic, on the goroutine that asks. Here both are errors.
type diskStore struct{ durable }

// onDisk calls f and returns what it ended with.
func onDisk(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("%w: a page of %s cannot be read", ErrDamaged, logFile)
		case runtime.Error:
			err = fmt.Errorf("%w: %s: %w", ErrDamaged, logFile, r)
		default:
			err = fmt.Errorf("%w: %s: %v", ErrDamaged, logFile, r)
		}
	}()
	return f()
}

// FirstIndex implements raft.LogStore.
func (s diskStore) FirstIndex() (i uint64, err error) {
	err = onDisk(func() (e error) { i, e = s.durable.FirstIndex(); return e })
	return i, err
}

// LastIndex implements raft.LogStore.
func (s diskStore) LastIndex() (i uint64, err error) {
	err = onDisk(func() (e error) { i, e = s.durable.LastIndex(); return e })
	return i, err
}

// GetLog implements raft.LogStore.
func (s diskStore) GetLog(i uint64, l *raft.Log) error {
	return onDisk(func() error { return s.durable.GetLog(i, l) })
}

// StoreLog implements raft.LogStore.
func (s diskStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s diskStore) StoreLogs(l []*raft.Log) error {
	return onDisk(func() error { return s.durable.StoreLogs(l) })
}

// DeleteRange implements raft.LogStore.
func (s diskStore) DeleteRange(first, last uint64) error {
	return onDisk(func() error { return s.durable.DeleteRange(first, last) })
}

// Set implements raft.StableStore.
func (s diskStore) Set(key, v []byte) error {
	return onDisk(func() error { return s.durable.Set(key, v) })
}

// Get implements raft.StableStore.
func (s diskStore) Get(key []byte) (v []byte, err error) {
	err = onDisk(func() (e error) { v, e = s.durable.Get(key); return e })
	return v, err
}

// SetUint64 implements raft.StableStore.
func (s diskStore) SetUint64(key []byte, v uint64) error {
	return onDisk(func() error { return s.durable.SetUint64(key, v) })
}

// GetUint64 implements raft.StableStore.
func (s diskStore) GetUint64(key []byte) (v uint64, err error) {
	err = onDisk(func() (e error) { v, e = s.durable.GetUint64(key); return e })
	return v, err
}

// isAbsent tells whether err says that there is no such entry or key, or that the store was closed: the disk is well.
func isAbsent(err error) bool {
	return errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, bbolterrors.ErrDatabaseNotOpen) || err.Error() == keyNotFound
}

// keyNotFound is the text by which raft, too, knows a key that is not there.
const keyNotFound = "not found"
