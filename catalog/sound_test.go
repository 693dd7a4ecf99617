package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// soundFolder makes a catalog's folder with n entries of a log and returns it.
func soundFolder(t *testing.T, n uint64) (dir string) {
	t.Helper()
	dir = t.TempDir()
	bolt, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	s := &guardedStore{durable: bolt}
	for i := uint64(1); i <= n; i++ {
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: bytes.Repeat([]byte{byte(i)}, 500)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetUint64(keyCurrentTerm, 1); err != nil {
		t.Fatal(err)
	}
	if err := bolt.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// look opens a folder as a node does and reads its log.
func look(dir string) error {
	bolt, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		return err
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return errors.Join(err, bolt.Close())
	}
	_, err = (&guardedStore{durable: bolt, snapshots: snapshots}).checkHistory(dir)
	return errors.Join(err, bolt.Close())
}

// TestDamagedPages overwrites each page of the file of log and votes, and cuts it: that is an error which names the file, or nothing is missing.
func TestDamagedPages(t *testing.T) {
	const entries = 60
	whole, err := os.ReadFile(filepath.Join(soundFolder(t, entries), logFile))
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	try := func(what string, content []byte) (refused bool) {
		dir := t.TempDir()
		path := filepath.Join(dir, logFile)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		err := look(dir)
		if err != nil && (!bytes.Contains([]byte(err.Error()), []byte(path)) || !errors.Is(err, ErrDamaged)) {
			t.Errorf("%s: %v", what, err)
		}
		return err != nil
	}
	if try("whole", whole) {
		t.Fatal("a whole file is refused")
	}
	refused := 0
	for what, content := range map[string][]byte{
		"one byte": whole[:1], "a hundred bytes": whole[:100], "its beginning overwritten": append(bytes.Repeat([]byte{7}, 2*page), whole[2*page:]...),
	} {
		if !try(what, content) {
			t.Errorf("%s is taken", what)
		}
	}
	for p := 2; p < len(whole)/page; p++ {
		for what, b := range map[string]byte{"zeroes": 0, "ones": 0xff, "sevens": 7} {
			bad := bytes.Clone(whole)
			copy(bad[p*page:], bytes.Repeat([]byte{b}, page))
			if try(fmt.Sprintf("%s in page %d", what, p), bad) {
				refused++
			}
		}
	}
	for p := 2; p < len(whole)/page/2; p++ {
		if try(fmt.Sprintf("%d pages", p), whole[:p*page]) {
			refused++
		}
	}
	if refused < 30 {
		t.Errorf("only %d of these were refused", refused)
	}
}

// TestDamagedEntry changes a byte of an entry's command: it is not applied.
func TestDamagedEntry(t *testing.T) {
	dir := soundFolder(t, 20)
	path := filepath.Join(dir, logFile)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; ; { // in all copies that bbolt has left
		i := bytes.Index(content[at:], bytes.Repeat([]byte{7}, 500))
		if i < 0 {
			break
		}
		content[at+i+100] ^= 1
		at += i + 500
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := look(dir); !errors.Is(err, ErrDamaged) || !bytes.Contains([]byte(err.Error()), []byte("entry 7 in "+path)) {
		t.Errorf("look: %v", err)
	}
	if _, err := Inspect(dir); err == nil {
		t.Error("inspect finds nothing")
	}
}

// TestEntriesOfOlderPrograms have no checksum, and those of a newer one are read by an older one, which looks at Data alone.
func TestEntriesOfOlderPrograms(t *testing.T) {
	dir := t.TempDir()
	bolt, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	defer bolt.Close()
	s := &guardedStore{durable: bolt}
	if err := bolt.StoreLog(&raft.Log{Index: 1, Term: 1, Data: []byte("old")}); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLog(&raft.Log{Index: 2, Term: 1, Data: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"old", "new"} {
		var l, raw raft.Log
		if err := s.GetLog(uint64(i+1), &l); err != nil || string(l.Data) != want || l.Extensions != nil {
			t.Errorf("entry %d: %+v, %v", i+1, l, err)
		}
		if err := bolt.GetLog(uint64(i+1), &raw); err != nil || string(raw.Data) != want {
			t.Errorf("entry %d as it is kept: %+v, %v", i+1, raw, err)
		}
	}
}

// TestLostSnapshot damages and removes the snapshot that a log continues.
func TestLostSnapshot(t *testing.T) {
	for what, damage := range map[string]func(dir string) error{
		"changed": func(dir string) error { return os.WriteFile(filepath.Join(dir, "state.bin"), []byte("bad"), 0o600) },
		"gone":    os.RemoveAll,
	} {
		for _, log := range []bool{true, false} {
			t.Run(fmt.Sprint(what, " log ", log), func(t *testing.T) {
				dir := t.TempDir()
				snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, raftLogger(slog.New(slog.DiscardHandler)))
				if err != nil {
					t.Fatal(err)
				}
				_, trans := raft.NewInmemTransport("")
				defer trans.Close()
				sink, err := snapshots.Create(raft.SnapshotVersionMax, 10, 1, raft.Configuration{}, 1, trans)
				if err == nil {
					_, err = io.WriteString(sink, "state")
				}
				if err = errors.Join(err, sink.Close()); err != nil {
					t.Fatal(err)
				}
				bolt, err := openBolt(filepath.Join(dir, logFile))
				if err == nil && log {
					err = (&guardedStore{durable: bolt}).StoreLog(&raft.Log{Index: 11, Term: 1})
				}
				if err = errors.Join(err, bolt.Close()); err != nil {
					t.Fatal(err)
				}
				if err := look(dir); err != nil {
					t.Fatalf("a sound one is refused: %v", err)
				}
				if err := damage(filepath.Join(dir, snapshotsDir, sink.ID())); err != nil {
					t.Fatal(err)
				}
				if err := look(dir); !errors.Is(err, ErrDamaged) && (log || what == "changed") {
					t.Errorf("look: %v", err)
				}
			})
		}
	}
}
