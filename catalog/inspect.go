package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// Inspected is a catalog as the folder of a stopped node gives it: its newest snapshot and everything in the log above that.
type Inspected struct {
	View *View
	// What is above Snapshot, in the log here up to Last, is not known to be committed.
	Snapshot, SnapshotTerm uint64
	First, Last, LastTerm  uint64
	Term, VoteTerm         uint64
	VotedFor               string
	Servers                []raft.Server // of the newest configuration
}

// ErrInUse is returned when a node has the catalog open.
var ErrInUse = errors.New("catalog: in use by a running node, which can be asked instead")

// Inspect reads the catalog in dir without changing anything.
func Inspect(dir string) (*Inspected, error) {
	path := filepath.Join(dir, "log.db")
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	err := checkPages(path)
	var bolt *raftboltdb.BoltStore
	if err == nil {
		bolt, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{ReadOnly: true, Timeout: openTimeout}})
	}
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	in, err := inspect(dir, bolt)
	return in, errors.Join(err, bolt.Close())
}

func inspect(dir string, bolt *raftboltdb.BoltStore) (*Inspected, error) {
	m := newMachine(func(*applied) {})
	in := &Inspected{}
	if err := in.restore(filepath.Join(dir, "snapshots"), m); err != nil {
		return nil, err
	}
	store := &guardedStore{durable: bolt}
	in.Term, _ = store.GetUint64(keyCurrentTerm)
	if term, candidate, err := store.vote(); err == nil {
		in.VoteTerm, in.VotedFor = term, string(candidate)
	}
	var errs [2]error
	in.First, errs[0] = bolt.FirstIndex()
	in.Last, errs[1] = bolt.LastIndex()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("read the catalog's log: %w", err)
	}
	in.LastTerm = in.SnapshotTerm
	for i := max(in.First, 1); i <= in.Last && in.Last > 0; i++ {
		if err := in.apply(bolt, m, i); err != nil {
			return nil, fmt.Errorf("entry %d of the catalog: %w", i, err)
		}
	}
	in.View = m.view.Load()
	return in, nil
}

// apply applies an entry unless the snapshot has it.
func (in *Inspected) apply(bolt *raftboltdb.BoltStore, m *machine, i uint64) (err error) {
	var l raft.Log
	err = bolt.GetLog(i, &l)
	if errors.Is(err, raft.ErrLogNotFound) && i <= in.Snapshot {
		return nil // a hole that a snapshot has left, see cutReplaced
	}
	if err == nil {
		err = takeSum(&l, i)
	}
	if err != nil {
		return err
	}
	in.LastTerm = l.Term
	if i <= in.Snapshot {
		return nil
	}
	return in.take(m, &l)
}

// take applies an entry above the snapshot. A machine that cannot go on panics; here that is an error.
func (in *Inspected) take(m *machine, l *raft.Log) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	switch l.Type {
	case raft.LogConfiguration:
		in.Servers = raft.DecodeConfiguration(l.Data).Servers
	case raft.LogCommand:
		m.apply(l.Index, l.Data)
	}
	return nil
}

// restore takes the newest sound snapshot in dir, where hashicorp/raft's file store keeps one in each folder. None is no error.
func (in *Inspected) restore(dir string, m *machine) error {
	folders, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var found []error
	for _, f := range folders {
		meta, err := snapshotMeta(filepath.Join(dir, f.Name()))
		if err == nil && meta.Index > in.Snapshot {
			if err = restoreFrom(filepath.Join(dir, f.Name()), meta, m); err == nil {
				in.Snapshot, in.SnapshotTerm, in.Servers = meta.Index, meta.Term, meta.Configuration.Servers
			}
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) { // it may have been removed meanwhile
			found = append(found, fmt.Errorf("snapshot %s: %w", f.Name(), err))
		}
	}
	if in.Snapshot == 0 {
		return errors.Join(found...)
	}
	return nil
}

// fileMeta is what raft's file store writes beside a snapshot.
type fileMeta struct {
	raft.SnapshotMeta
	CRC []byte
}

func snapshotMeta(folder string) (m fileMeta, err error) {
	b, err := os.ReadFile(filepath.Join(folder, "meta.json"))
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(b, &m)
}

func restoreFrom(folder string, meta fileMeta, m *machine) error {
	f, err := os.Open(filepath.Join(folder, "state.bin"))
	if err != nil {
		return err
	}
	defer f.Close()
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if string(sum.Sum(nil)) != string(meta.CRC) {
		return errors.New("its checksum does not match")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return fsm{m}.Restore(io.NopCloser(f))
}
