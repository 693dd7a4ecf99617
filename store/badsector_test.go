package store_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// badSectors is a disk that does not give back some bytes of a file.
type badSectors struct {
	*crashfs.FS
	name     string
	from, to int64
}

type badFile struct {
	store.File
	from, to int64
}

func (f badSectors) Open(name string) (store.File, error) {
	o, err := f.FS.Open(name)
	if err != nil || name != f.name {
		return o, err
	}
	return badFile{o, f.from, f.to}, nil
}

func (o badFile) ReadAt(b []byte, off int64) (int, error) {
	if off < o.to && off+int64(len(b)) > o.from {
		return 0, syscall.EIO
	}
	return o.File.ReadAt(b, off)
}

// sealedSegments writes a segment with an entry of group 1, a key of group 2 right behind it, and an entry of group 3, and others behind that. It returns
// where these are.
func sealedSegments(t *testing.T) (fs *crashfs.FS, key, last int64) {
	t.Helper()
	fs = crashfs.New()
	s := openOn(t, fs)
	must(t, s.Group(1).StoreLogs(logs(1, 8000)))
	must(t, s.Group(2).Set([]byte("key"), []byte("value")))
	must(t, s.Group(3).StoreLogs(logs(1, 8000)))
	for i := uint64(1); s.Stats().Segments < 4; i++ {
		must(t, s.Group(4).StoreLogs(logs(i, 8000)))
	}
	must(t, s.Close())
	key = firstRecord + recordBytes + 8000
	return fs, key, key + recordBytes + 16
}

// TestBadSectors: what the disk does not give back of an older segment is the damage of one group, also for a process that starts, and others have what they had.
func TestBadSectors(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to func(key, last int64) int64
		footless bool
		damaged  store.GroupID // 0: none when the store opens
	}{
		{name: "an entry", from: func(key, _ int64) int64 { return key - 1000 }, to: func(key, _ int64) int64 { return key - 500 }},
		{name: "an entry behind a small record", from: func(_, last int64) int64 { return last + 600 }, to: func(_, last int64) int64 { return last + 1112 }},
		{name: "a small record", from: func(key, _ int64) int64 { return key }, to: func(key, _ int64) int64 { return key + 80 }, damaged: 2},
		{name: "an entry of a segment without footer", from: func(_, last int64) int64 { return last + 600 }, to: func(_, last int64) int64 { return last + 1112 }, footless: true, damaged: 3},
		{name: "a footer", from: func(int64, int64) int64 { return 1 << 20 }, to: func(int64, int64) int64 { return 1<<20 + 1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, key, last := sealedSegments(t)
			bad := badSectors{fs, segmentOne, c.from(key, last), c.to(key, last)}
			if c.footless {
				must(t, fs.Corrupt(segmentOne, 512, 1))
			}
			if c.name == "a footer" {
				bad.from, bad.to = footerOf(t, fs)
			}
			s, err := store.Open(store.Options{Dir: "/s", FS: bad, SegmentBytes: 64 << 10, TailCacheBytes: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			for id := store.GroupID(1); id <= 4; id++ {
				err := s.Group(id).Err()
				if corrupt, ok := errors.AsType[*store.CorruptError](err); ok != (id == c.damaged) || ok && !strings.Contains(corrupt.Reason, "cannot be read: input/output error") {
					t.Errorf("group %d: %v", id, err)
				}
			}
			var l raft.Log
			must(t, s.Group(4).GetLog(1, &l))
			if v, err := s.Group(2).Get([]byte("key")); c.damaged != 2 && (err != nil || string(v) != "value") {
				t.Errorf("key: %q, %v", v, err)
			}
		})
	}
}

// footerOf is where the footer of the first segment is.
func footerOf(t *testing.T, fs *crashfs.FS) (from, to int64) {
	t.Helper()
	f, err := fs.Open(segmentOne)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	i := strings.Index(string(b), "WFOOTER\x01")
	if i < 0 {
		t.Fatal("no footer")
	}
	return int64(i), size
}

// TestBadSectorAtTheEnd: a crash leaves no such thing, and what was acknowledged there is not to be taken for a write that was never finished.
func TestBadSectorAtTheEnd(t *testing.T) {
	fs := crashfs.New()
	s := openOn(t, fs)
	must(t, s.Group(1).StoreLogs(logs(1, 3000)))
	must(t, s.Group(1).StoreLogs(logs(2, 3000)))
	must(t, s.Close())
	for _, at := range []int64{firstRecord + 1000, firstRecord + recordBytes + 3000 + 1000} {
		_, err := store.Open(store.Options{Dir: "/s", FS: badSectors{fs, segmentOne, at, at + 512}, SegmentBytes: 64 << 10})
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("open with a bad sector at %d: %v", at, err)
		}
	}
}
