package store_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

const (
	headBytes   = 4096 // of a segment
	recordBytes = 64   // of a record without body
	firstRecord = headBytes + recordBytes
	segmentOne  = "/s/00000001.seg"
)

func openOn(t *testing.T, fs *crashfs.FS) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{
		Dir: "/s", FS: fs, SegmentBytes: 64 << 10, TailCacheBytes: 1,
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func logs(first uint64, sizes ...int) []*raft.Log {
	var out []*raft.Log
	for i, n := range sizes {
		out = append(out, &raft.Log{Index: first + uint64(i), Term: 1, Data: make([]byte, n)})
	}
	return out
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLostWriteNeverReturns tears a write so that its second record is sound behind a bad first one, and then writes records that
// end exactly where the second one still stands.
func TestLostWriteNeverReturns(t *testing.T) {
	fs := crashfs.New()
	s := openOn(t, fs)
	must(t, s.Group(1).StoreLogs(logs(1, 128, 64)))
	must(t, s.Close())
	must(t, fs.Corrupt(segmentOne, firstRecord+4, 1))

	s = openOn(t, fs)
	if last, err := s.Group(1).LastIndex(); last != 0 || err != nil {
		t.Fatalf("last index %d, %v behind a torn write", last, err)
	}
	must(t, s.Group(1).StoreLogs(logs(1, 64))) // with the opening record as long as the torn one
	must(t, s.Close())

	s = openOn(t, fs)
	if last, err := s.Group(1).LastIndex(); last != 1 || err != nil {
		t.Fatalf("last index %d, %v: a lost entry came back", last, err)
	}
}

// TestDamagedAcknowledgedWrite tells decay from a crash: a write that later ones followed was durable.
func TestDamagedAcknowledgedWrite(t *testing.T) {
	fs := crashfs.New()
	s := openOn(t, fs)
	must(t, s.Group(1).StoreLogs(logs(1, 128)))
	must(t, s.Group(1).StoreLogs(logs(2, 128)))
	must(t, s.Close())
	must(t, fs.Corrupt(segmentOne, firstRecord+70, 1))
	_, err := store.Open(store.Options{Dir: "/s", FS: fs})
	corrupt, ok := errors.AsType[*store.CorruptError](err)
	if !ok || corrupt.Segment != 1 || corrupt.Offset != firstRecord {
		t.Fatalf("open: %v", err)
	}
}

// TestDamagedFirstWriteIsNotThrownAway: a segment whose first record is bad looks unused at first sight.
func TestDamagedFirstWriteIsNotThrownAway(t *testing.T) {
	fs := crashfs.New()
	s := openOn(t, fs)
	must(t, s.Group(1).StoreLogs(logs(1, 128)))
	must(t, s.Close())
	must(t, fs.Corrupt(segmentOne, headBytes+8, 1))
	_, err := store.Open(store.Options{Dir: "/s", FS: fs})
	if _, ok := errors.AsType[*store.CorruptError](err); !ok {
		t.Fatalf("open: %v", err)
	}
}

// fillSegments writes entries of two groups in turn until several segments are sealed, and closes the store.
func fillSegments(t *testing.T, fs *crashfs.FS) {
	t.Helper()
	s := openOn(t, fs)
	for i := uint64(1); i <= 30; i++ {
		must(t, s.Group(1).StoreLogs(logs(i, 8<<10)))
		must(t, s.Group(2).StoreLogs(logs(i, 8<<10)))
	}
	must(t, s.Close())
}

// TestDamagedSealedEntry quarantines one group and leaves the others alone.
func TestDamagedSealedEntry(t *testing.T) {
	fs := crashfs.New()
	fillSegments(t, fs)
	must(t, fs.Corrupt(segmentOne, firstRecord+5000, 1)) // in the body of group 1's first entry
	s := openOn(t, fs)
	check := func() {
		t.Helper()
		var l raft.Log
		for range 2 {
			err := s.Group(1).GetLog(1, &l)
			corrupt, ok := errors.AsType[*store.CorruptError](err)
			if !ok || corrupt.Segment != 1 || corrupt.Offset != firstRecord || corrupt.Group != 1 {
				t.Fatalf("damaged entry: %v", err)
			}
		}
		if err := s.Group(1).StoreLog(&raft.Log{Index: 31, Term: 1}); err == nil {
			t.Fatal("a quarantined group took an entry")
		}
		if _, ok := errors.AsType[*store.CorruptError](s.Group(1).Err()); !ok {
			t.Fatal("the group forgot its damage")
		}
		for i := uint64(1); i <= 30; i++ {
			must(t, s.Group(2).GetLog(i, &l))
		}
		if st := s.Stats(); st.Quarantined != 1 || st.Damaged != 1 {
			t.Fatalf("%d groups in quarantine, %d found damaged", st.Quarantined, st.Damaged)
		}
	}
	check()
	must(t, s.Close())
	s = openOn(t, fs)
	_ = s.Group(1).GetLog(1, new(raft.Log))
	check()
	// Deleting the group is the way out.
	must(t, s.DeleteGroup(1))
	if st := s.Stats(); st.Quarantined != 0 || st.Damaged != 1 {
		t.Errorf("deleted: %d groups in quarantine, %d found damaged", st.Quarantined, st.Damaged)
	}
	must(t, s.Group(1).StoreLogs(logs(1, 10)))
	must(t, s.Close())
	s = openOn(t, fs)
	must(t, s.Group(1).Err())
	if n := s.Stats().Quarantined; n != 0 {
		t.Fatalf("%d groups in quarantine after deletion", n)
	}
}

// TestGarbageFiles has what is no segment, and what programs that did not write sizes into heads left of a segment that they had not made whole.
func TestGarbageFiles(t *testing.T) {
	fs := crashfs.New()
	fillSegments(t, fs)
	for _, name := range files(t, fs, ".seg") {
		older(t, fs, "/s/"+name)
	}
	for name, content := range map[string][]byte{
		"/s/000000ff.seg": nil, "/s/00000100.seg": []byte("garbage"), "/s/00000101.seg": make([]byte, 100000), "/s/x.tmp": {1}, "/s/notes": {2}, "/s/00000102-new.tmp": {3},
	} {
		f, err := fs.Create(name)
		must(t, err)
		_, err = f.WriteAt(content, 0)
		must(t, err)
	}
	s := openOn(t, fs)
	if last, err := s.Group(2).LastIndex(); last != 30 || err != nil {
		t.Fatalf("last index %d, %v", last, err)
	}
	must(t, s.Group(2).StoreLogs(logs(31, 60<<10, 60<<10, 60<<10)))
	must(t, s.Close())
	s = openOn(t, fs)
	if last, err := s.Group(2).LastIndex(); last != 33 || err != nil {
		t.Fatalf("last index %d, %v", last, err)
	}
}

func TestDirectories(t *testing.T) {
	fs := crashfs.New()
	f, err := fs.Create("/s/foreign")
	must(t, err)
	must(t, f.Close())
	if _, err := store.Open(store.Options{Dir: "/s", FS: fs}); !errors.Is(err, store.ErrForeignDirectory) {
		t.Fatalf("foreign directory: %v", err)
	}
	for content, want := range map[string]error{"warren store 99\n": store.ErrVersion, "something": store.ErrForeignDirectory} {
		fs = crashfs.New()
		f, err = fs.Create("/s/VERSION")
		must(t, err)
		_, err = f.WriteAt([]byte(content), 0)
		must(t, err)
		if _, err := store.Open(store.Options{Dir: "/s", FS: fs}); !errors.Is(err, want) {
			t.Fatalf("version %q: %v", content, err)
		}
	}
	dir := t.TempDir()
	s, err := store.Open(store.Options{Dir: dir})
	must(t, err)
	if _, err := store.Open(store.Options{Dir: dir}); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("second opening: %v", err)
	}
	must(t, s.Close())
	must(t, s.Close())
	if err := s.Group(1).StoreLogs(logs(1, 1)); !errors.Is(err, store.ErrClosed) {
		t.Fatalf("write after close: %v", err)
	}
	s, err = store.Open(store.Options{Dir: dir})
	must(t, err)
	must(t, s.Close())
	if _, err := store.Open(store.Options{SegmentBytes: 1, LingerMax: 1 << 40}); err == nil {
		t.Fatal("bad options were taken")
	}
}

// TestFailedWriteIsFatal: after a write or sync that failed nothing is promised again.
func TestFailedWriteIsFatal(t *testing.T) {
	for _, op := range []crashfs.Op{crashfs.OpWrite, crashfs.OpSync} {
		t.Run(string(op), func(t *testing.T) {
			fs := crashfs.New()
			var fatal []error
			s, err := store.Open(store.Options{Dir: "/s", FS: fs, OnFatal: func(err error) { fatal = append(fatal, err) }})
			must(t, err)
			must(t, s.Group(1).StoreLogs(logs(1, 10)))
			fs.Fail(func(o crashfs.Op) error {
				if o == op {
					return syscall.ENOSPC
				}
				return nil
			})
			for range 2 {
				if err := s.Group(1).StoreLogs(logs(2, 10)); !errors.Is(err, syscall.ENOSPC) {
					t.Fatalf("write: %v", err)
				}
				fs.Fail(nil)
			}
			if _, ok := errors.AsType[*store.FatalError](fatal[0]); !ok || len(fatal) != 1 {
				t.Fatalf("OnFatal got %v", fatal)
			}
			if last, err := s.Group(1).LastIndex(); last != 1 || err != nil {
				t.Fatalf("last index %d, %v", last, err)
			}
			must(t, s.Close())
			// What the disk holds is either state, and the acknowledged entry is there.
			s = openOn(t, fs.Image(fs.Len(), rand.New(rand.NewPCG(1, 1))))
			if last, err := s.Group(1).LastIndex(); last < 1 || last > 2 || err != nil {
				t.Fatalf("last index %d, %v after recovery", last, err)
			}
		})
	}
}

// TestFullDisk: preparing a segment may wait for space, but an append without any room ends the process.
func TestFullDisk(t *testing.T) {
	fs := crashfs.New()
	fatal := make(chan error, 1)
	s, err := store.Open(store.Options{Dir: "/s", FS: fs, SegmentBytes: 64 << 10, DiskReserveBytes: 1000, OnFatal: func(err error) { fatal <- err }})
	must(t, err)
	if st := s.Stats(); st.DiskAlarm {
		t.Fatalf("alarm with %d bytes free", st.FreeBytes)
	}
	fs.SetFree(999)
	if st := s.Stats(); !st.DiskAlarm || st.FreeBytes != 999 {
		t.Fatalf("no alarm with %d bytes free", st.FreeBytes)
	}
	fs.Fail(func(o crashfs.Op) error {
		if o == crashfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})
	i := uint64(1)
	for ; err == nil; i++ {
		err = s.Group(1).StoreLogs(logs(i, 10<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) || !errors.Is(<-fatal, syscall.ENOSPC) || i < 6 {
		t.Fatalf("entry %d: %v", i, err)
	}
	must(t, s.Close())
}

// older makes a segment's head what programs wrote that did not put the file's size there.
func older(t *testing.T, fs *crashfs.FS, path string) {
	t.Helper()
	f, err := fs.Open(path)
	must(t, err)
	head := make([]byte, 512)
	_, err = f.ReadAt(head, 0)
	must(t, err)
	copy(head[24:], make([]byte, 8))
	binary.LittleEndian.PutUint32(head[508:], crc32.Checksum(head[:508], crc32.MakeTable(crc32.Castagnoli)))
	_, err = f.WriteAt(head, 0)
	must(t, err)
}

// TestLostFiles empties, shortens and overwrites the beginning of each segment of a log in turn: what was confirmed is not missed in silence, and
// the file that has it stays.
func TestLostFiles(t *testing.T) {
	whole := crashfs.New()
	fillSegments(t, whole)
	segments := files(t, whole, ".seg")
	if len(segments) < 4 {
		t.Fatalf("only %v", segments)
	}
	zero := func(f store.File, from, to int64) { _, err := f.WriteAt(make([]byte, to-from), from); must(t, err) }
	for what, damage := range map[string]func(f store.File){
		"empty":        func(f store.File) { must(t, f.Truncate(0)) },
		"a page":       func(f store.File) { must(t, f.Truncate(4096)) },
		"half":         func(f store.File) { must(t, f.Truncate(32<<10)) },
		"no beginning": func(f store.File) { zero(f, 0, 32<<10) },
	} {
		for _, name := range segments {
			t.Run(what+"/"+name, func(t *testing.T) {
				fs := whole.Image(whole.Len(), rand.New(rand.NewPCG(1, 1)))
				f, err := fs.Open("/s/" + name)
				must(t, err)
				damage(f)
				s, err := store.Open(store.Options{Dir: "/s", FS: fs, SegmentBytes: 64 << 10})
				if err == nil {
					last, _ := s.Group(2).LastIndex()
					t.Fatalf("the store opens with entries up to %d", last)
				}
				if corrupt, ok := errors.AsType[*store.CorruptError](err); !ok || !strings.Contains(err.Error(), name) {
					t.Errorf("%v (%v)", err, corrupt)
				}
				if now := files(t, fs, ".seg"); !slices.Equal(now, segments) {
					t.Errorf("%v are left", now)
				}
				if _, err := store.Inspect(store.Options{Dir: "/s", FS: fs}); err == nil {
					t.Error("a look into it finds nothing")
				}
			})
		}
	}
}

// TestEmptiedNewestSegmentOfOlderFolder: where heads say nothing, the footer of the segment before does.
func TestEmptiedNewestSegmentOfOlderFolder(t *testing.T) {
	fs := crashfs.New()
	fillSegments(t, fs)
	s := openOn(t, fs)
	newest := uint32(0)
	for end := time.Now().Add(time.Minute); ; {
		var out strings.Builder
		must(t, store.Dump(fs, "/s", &out))
		newest = 0
		footed := map[uint32]bool{}
		for _, text := range strings.Split(out.String(), "segment ")[1:] {
			var n uint32
			_, err := fmt.Sscanf(text, "%d:", &n)
			must(t, err)
			if footed[n] = strings.Contains(text, "footer true"); strings.Contains(text, "switch") {
				newest = max(newest, n)
			}
		}
		if newest > 1 && footed[newest-1] {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no footer: %s", out.String())
		}
	}
	must(t, s.Close())
	for _, name := range files(t, fs, ".seg") {
		older(t, fs, "/s/"+name)
	}
	f, err := fs.Open(fmt.Sprintf("/s/%08x.seg", newest))
	must(t, err)
	must(t, f.Truncate(0))
	_, err = store.Open(store.Options{Dir: "/s", FS: fs, SegmentBytes: 64 << 10})
	if _, ok := errors.AsType[*store.CorruptError](err); !ok {
		t.Fatalf("open: %v", err)
	}
}

// TestWhole: a store that has been opened once has a segment in which something stands.
func TestWhole(t *testing.T) {
	fs := crashfs.New()
	must(t, openOn(t, fs).Close())
	must(t, store.Whole(fs, "/s"))
	f, err := fs.Open(segmentOne)
	must(t, err)
	must(t, f.Truncate(0))
	if err := store.Whole(fs, "/s"); err == nil || !strings.Contains(err.Error(), "00000001.seg") {
		t.Errorf("whole: %v", err)
	}
}

// TestTruncatedTail cuts the newest file of an older program at every length around its last record.
func TestTruncatedTail(t *testing.T) {
	for cut := int64(0); cut <= 200; cut += 8 {
		fs := crashfs.New()
		s := openOn(t, fs)
		must(t, s.Group(1).StoreLogs(logs(1, 64)))
		must(t, s.Group(1).StoreLogs(logs(2, 64)))
		must(t, s.Close())
		f, err := fs.Open(segmentOne)
		must(t, err)
		older(t, fs, segmentOne)
		size := int64(firstRecord + 2*(recordBytes+64))
		must(t, f.Truncate(size-cut))
		s = openOn(t, fs)
		want := uint64(2)
		if cut > 0 {
			want = 1
		}
		if cut > recordBytes+64 {
			want = 0
		}
		if last, err := s.Group(1).LastIndex(); last != want || err != nil {
			t.Fatalf("%d bytes cut: last index %d, %v, want %d", cut, last, err, want)
		}
		must(t, s.Group(1).StoreLogs(logs(want+1, 1000)))
		must(t, s.Close())
	}
}

// TestDamagedSmallRecord: a vote that cannot be read must stop its group, and only its group, also after a restart.
func TestDamagedSmallRecord(t *testing.T) {
	fs := crashfs.New()
	s := openOn(t, fs)
	must(t, s.Group(3).SetUint64([]byte("LastVoteTerm"), 5))
	must(t, s.Group(3).Set([]byte("LastVoteCand"), []byte("candidate")))
	for i := uint64(1); i <= 60; i++ {
		must(t, s.Group(1).StoreLogs(logs(i, 8<<10)))
	}
	deadline := time.Now().Add(time.Minute)
	for written := false; !written; {
		if time.Now().After(deadline) {
			t.Fatal("no footer was written")
		}
		var out strings.Builder
		must(t, store.Dump(fs, "/s", &out))
		written = strings.Contains(out.String(), "footer true (10 records") || strings.Contains(out.String(), "footer true (9 records")
	}
	must(t, s.Close())
	must(t, fs.Corrupt(segmentOne, firstRecord+20, 1)) // the header
	for range 2 {
		s = openOn(t, fs)
		corrupt, ok := errors.AsType[*store.CorruptError](s.Group(3).Err())
		if !ok || corrupt.Offset != firstRecord {
			t.Fatalf("group with a damaged vote: %v", s.Group(3).Err())
		}
		if _, err := s.Group(3).Get([]byte("LastVoteCand")); err == nil {
			t.Fatal("a damaged vote was answered")
		}
		must(t, s.Group(1).Err())
		// Everything else in that segment dies; the evidence must not.
		last, err := s.Group(1).LastIndex()
		must(t, err)
		must(t, s.Group(1).DeleteRange(1, last-1))
		for i := last + 1; i < last+40; i++ {
			must(t, s.Group(1).StoreLogs(logs(i, 8<<10)))
		}
		must(t, s.Close())
	}
}
