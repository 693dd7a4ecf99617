package catalog

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// brokenDisk fails to read or to write.
type brokenDisk struct {
	durable
	read, write error
}

func (b *brokenDisk) StoreLogs(l []*raft.Log) error {
	if b.write != nil {
		return b.write
	}
	return b.durable.StoreLogs(l)
}

func (b *brokenDisk) DeleteRange(first, last uint64) error {
	return errors.Join(b.write, b.durable.DeleteRange(first, last))
}
func (b *brokenDisk) Set(k, v []byte) error { return errors.Join(b.write, b.durable.Set(k, v)) }
func (b *brokenDisk) SetUint64(k []byte, v uint64) error {
	return errors.Join(b.write, b.durable.SetUint64(k, v))
}

func (b *brokenDisk) GetLog(i uint64, l *raft.Log) error {
	if b.read != nil {
		return b.read
	}
	return b.durable.GetLog(i, l)
}

func (b *brokenDisk) LastIndex() (uint64, error) { return 0, b.read }

func (b *brokenDisk) Get(k []byte) ([]byte, error) {
	if b.read != nil {
		return nil, b.read
	}
	return b.durable.Get(k)
}

// ended runs f and returns what OnFatal was told, nil if it was not called.
func ended(d durable, f func(s *guardedStore)) (fatal error) {
	type end struct{}
	s := &guardedStore{durable: d, onFatal: func(err error) {
		fatal = err
		panic(end{}) // it must not return
	}}
	defer func() {
		if r := recover(); r != nil && r != (end{}) {
			panic(r)
		}
	}()
	f(s)
	return fatal
}

// TestBrokenDiskEndsTheProcess has each call that raft makes fail: raft would panic, go on with a wrong idea of its log, or cast a vote twice.
func TestBrokenDiskEndsTheProcess(t *testing.T) {
	for what, f := range map[string]func(s *guardedStore){
		"writing log entries":              func(s *guardedStore) { _ = s.StoreLog(&raft.Log{Index: 1, Term: 1}) },
		"writing that log entries are del": func(s *guardedStore) { _ = s.DeleteRange(1, 1) },
		"writing CurrentTerm":              func(s *guardedStore) { _ = s.SetUint64(keyCurrentTerm, 7) },
		"writing a vote":                   func(s *guardedStore) { _ = s.Set(keyLastVoteCand, []byte("n1")) },
	} {
		if err := ended(&brokenDisk{durable: raft.NewInmemStore(), write: syscall.ENOSPC}, f); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, f := range map[string]func(s *guardedStore){
		"reading a log entry":        func(s *guardedStore) { _ = s.GetLog(1, new(raft.Log)) },
		"reading where the log ends": func(s *guardedStore) { _, _ = s.LastIndex() },
		"reading the vote":           func(s *guardedStore) { _ = s.Set(keyLastVoteCand, []byte("n1")) },
	} {
		if err := ended(&brokenDisk{durable: raft.NewInmemStore(), read: syscall.EIO}, f); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, f := range []func(s *guardedStore){
		func(s *guardedStore) { _ = s.GetLog(1, new(raft.Log)) },
		func(s *guardedStore) { _, _ = s.Get(keyLastVoteCand) },
		func(s *guardedStore) { _, _ = s.GetUint64(keyCurrentTerm) },
	} {
		if err := ended(raft.NewInmemStore(), f); err != nil {
			t.Errorf("what is not there is taken for a broken disk: %v", err)
		}
	}
}

// TestCutWhileInUse cuts the file of log and votes under the process that has it open, to each page: a read or a write of what is gone is an error
// that names the file, not the end of the process by a signal.
func TestCutWhileInUse(t *testing.T) {
	const entries = 60
	whole, err := os.ReadFile(filepath.Join(soundFolder(t, entries), logFile))
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	failed := 0
	for what, f := range map[string]func(s diskStore) error{
		"reading": func(s diskStore) error {
			for i := uint64(1); i <= entries; i++ {
				if err := s.GetLog(i, new(raft.Log)); err != nil {
					return err
				}
			}
			return nil
		},
		"the end":  func(s diskStore) error { _, err := s.LastIndex(); return err },
		"the vote": func(s diskStore) error { _, err := s.GetUint64(keyCurrentTerm); return err },
		"writing":  func(s diskStore) error { return s.StoreLog(&raft.Log{Index: entries + 1, Term: 1}) },
		"deleting": func(s diskStore) error { return s.DeleteRange(1, entries) },
	} {
		for size := 0; size < len(whole) && size < 16*page; size += page {
			path := filepath.Join(t.TempDir(), logFile)
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
			bolt, err := openBolt(path) // not closed: bbolt keeps the locks of what panicked
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, int64(size)); err != nil {
				t.Fatal(err)
			}
			if err := f(diskStore{bolt}); err != nil {
				failed++
				if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), logFile) {
					t.Errorf("%s, cut to %d bytes: %v", what, size, err)
				}
			}
		}
	}
	if failed == 0 {
		t.Error("nothing failed")
	}
	t.Logf("%d failed", failed)
}
