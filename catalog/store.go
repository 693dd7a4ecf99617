package catalog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// The keys hashicorp/raft uses in its StableStore.
var (
	keyCurrentTerm  = []byte("CurrentTerm")
	keyLastVoteTerm = []byte("LastVoteTerm")
	keyLastVoteCand = []byte("LastVoteCand")
)

// keyVote holds what raft keeps under LastVoteTerm and LastVoteCand: eight bytes of
// term, then the candidate.
var keyVote = []byte("WarrenVote")

// durable is what raft-boltdb offers.
type durable interface {
	raft.LogStore
	raft.StableStore
}

// guardedStore stands between raft and the store.
//
// Raft writes a vote as two records, first the term, then the candidate. After a crash
// in between, the node would answer a request of that term as if it had voted for
// the candidate of its vote before, without comparing logs, and two leaders of one term
// could be elected. So the term is held back in memory until the candidate comes, and
// both are written as one record. persistVote is raft's only writer of both.
//
// A failed write ends the process: what a disk has after a failed sync is unknown,
// and raft goes on with a wrong idea of its log. So does a read that fails while raft
// runs: raft panics, or asks again for ever.
//
// A follower that began with a snapshot has no entry at the snapshot's index. If it then gets entries of a leader that dies before they are
// committed, the next leader's begin right above the snapshot, and raft asks the log for the term of that entry before it puts the others in
// their place. Without an answer it refuses them, gets the same snapshot again, keeps its tail, and so for ever. So the snapshot's term is told.
type guardedStore struct {
	durable
	snapshots raft.SnapshotStore // nil: there are none
	onFatal   func(error)        // Config.OnFatal
	writes    writes
	tail      atomic.Pointer[replacedTail]

	mu sync.Mutex
	// staged is the term of a vote whose candidate was not written yet.
	staged    uint64
	hasStaged bool
}

// fail ends the process.
func (s *guardedStore) fail(what string, err error) {
	err = fmt.Errorf("%s: %w", what, err)
	if s.onFatal != nil {
		s.onFatal(err)
	}
	panic(fmt.Sprintf("catalog: %v: the store cannot be trusted any more", err))
}

// mustWrite writes, and ends the process if that fails.
func (s *guardedStore) mustWrite(what string, write func() error) {
	if err := s.writes.do(write); err != nil {
		s.fail("writing "+what, err)
	}
}

// mustRead ends the process on a failed read.
func (s *guardedStore) mustRead(what string, err error) error {
	if err != nil && !isAbsent(err) {
		s.fail("reading "+what, err)
	}
	return err
}

// StoreLog implements raft.LogStore.
func (s *guardedStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s *guardedStore) StoreLogs(l []*raft.Log) error {
	l = withSums(l)
	s.mustWrite("log entries", func() error { return s.durable.StoreLogs(l) })
	s.tail.Store(nil) // raft's last entry is another one now
	return nil
}

// DeleteRange implements raft.LogStore.
func (s *guardedStore) DeleteRange(first, last uint64) error {
	s.mustWrite("that log entries are deleted", func() error { return s.durable.DeleteRange(first, last) })
	return nil
}

// GetLog implements raft.LogStore. Of an entry that is right below the log and in a snapshot it knows the index and the term.
func (s *guardedStore) GetLog(i uint64, l *raft.Log) error {
	err := s.durable.GetLog(i, l)
	if err == nil {
		if err = takeSum(l, i); err != nil {
			err = fmt.Errorf("%w: entry %d in %s: %w", ErrDamaged, i, logFile, err)
		}
	}
	if i > 1 && errors.Is(err, raft.ErrLogNotFound) && s.snapshots != nil {
		if term, ok := s.below(i); ok {
			*l = raft.Log{Index: i, Term: term, Type: raft.LogNoop}
			return nil
		}
	}
	return s.mustRead("a log entry", err)
}

// FirstIndex implements raft.LogStore.
func (s *guardedStore) FirstIndex() (uint64, error) {
	i, err := s.durable.FirstIndex()
	return i, s.mustRead("where the log begins", err)
}

// LastIndex implements raft.LogStore.
func (s *guardedStore) LastIndex() (uint64, error) {
	i, err := s.durable.LastIndex()
	return i, s.mustRead("where the log ends", err)
}

// below returns the term of the entry at i, if the log begins behind it and a snapshot ends with it. A leader does not send it to others:
// it would have to know the entry before, and the first one it has as it is.
func (s *guardedStore) below(i uint64) (term uint64, ok bool) {
	if first, err := s.FirstIndex(); err != nil || first != i+1 {
		return 0, false
	}
	kept, err := s.snapshots.List()
	if err != nil {
		return 0, false
	}
	for _, m := range kept {
		if m.Index == i {
			return m.Term, true
		}
	}
	return 0, false
}

// SetUint64 implements raft.StableStore.
func (s *guardedStore) SetUint64(key []byte, v uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(key, keyLastVoteTerm) {
		s.staged, s.hasStaged = v, true
		return nil
	}
	if old, err := s.durable.GetUint64(key); err == nil && old == v {
		return nil // raft writes the term anew at each start
	}
	s.mustWrite(string(key), func() error { return s.durable.SetUint64(key, v) })
	return nil
}

// Set implements raft.StableStore.
func (s *guardedStore) Set(key, v []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(key, keyLastVoteCand) {
		s.mustWrite(string(key), func() error { return s.durable.Set(key, v) })
		return nil
	}
	term := s.staged
	if !s.hasStaged {
		term, _, _ = s.vote()
	}
	vote := append(binary.BigEndian.AppendUint64(nil, term), v...)
	s.mustWrite("a vote", func() error { return s.durable.Set(keyVote, vote) })
	s.hasStaged = false
	return nil
}

// vote reads the record of the vote.
func (s *guardedStore) vote() (term uint64, candidate []byte, err error) {
	b, err := s.durable.Get(keyVote)
	if err = s.mustRead("the vote", err); err != nil {
		return 0, nil, err
	}
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("%w: vote of %d bytes", ErrMalformed, len(b))
	}
	return binary.BigEndian.Uint64(b), b[8:], nil
}

// GetUint64 implements raft.StableStore.
func (s *guardedStore) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(key, keyLastVoteTerm) {
		v, err := s.durable.GetUint64(key)
		return v, s.mustRead(string(key), err)
	}
	if s.hasStaged {
		return s.staged, nil
	}
	term, _, err := s.vote()
	return term, err
}

// Get implements raft.StableStore.
func (s *guardedStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(key, keyLastVoteCand) {
		v, err := s.durable.Get(key)
		return v, s.mustRead(string(key), err)
	}
	_, candidate, err := s.vote()
	return candidate, err
}

// openBolt opens the file of log and votes.
func openBolt(path string) (s *raftboltdb.BoltStore, err error) {
	options := *bbolt.DefaultOptions
	options.NoFreelistSync = true
	options.Timeout = openTimeout
	err = checkPages(path)
	if err == nil {
		s, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &options})
	}
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("open %s: another process has it open", path)
	}
	if errors.Is(err, bbolterrors.ErrInvalid) || errors.Is(err, bbolterrors.ErrChecksum) || errors.Is(err, bbolterrors.ErrVersionMismatch) {
		return nil, fmt.Errorf("%w: open %s: %w", ErrDamaged, path, err) // neither of the pages that begin it can be read
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

// Make makes the file of an empty log in dir and returns when it is durable. It leaves one that
// is there as it is.
func Make(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the catalog's directory: %w", err)
	}
	bolt, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	if err := bolt.Close(); err != nil {
		return fmt.Errorf("make the catalog's log: %w", err)
	}
	return syncDir(dir)
}

// Whole returns nil if dir holds what Make left there, else what is missing.
func Whole(dir string) error {
	st, err := os.Stat(filepath.Join(dir, logFile))
	if err == nil && st.Size() == 0 {
		return fmt.Errorf("%s is empty", logFile)
	}
	return err
}

// writeFounding puts the first configuration into an empty log. All founding members
// write the same entry. raft.BootstrapCluster does the same but refuses to go on
// after a crash between its two writes.
func writeFounding(s *guardedStore, servers []raft.Server) error {
	term, err := s.GetUint64(keyCurrentTerm)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return fmt.Errorf("read the term: %w", err)
	}
	if term == 0 {
		if err := s.SetUint64(keyCurrentTerm, 1); err != nil {
			return err
		}
	}
	return s.StoreLog(&raft.Log{
		Index: 1, Term: 1, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(raft.Configuration{Servers: servers}),
	})
}
