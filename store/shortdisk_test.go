package store_test

import (
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// shortFS has no room for files of more than most bytes.
type shortFS struct {
	store.FS
	most int64
}

type shortFile struct {
	store.File
	most int64
}

func (f shortFS) Create(name string) (store.File, error) {
	o, err := f.FS.Create(name)
	return shortFile{o, f.most}, err
}

func (o shortFile) WriteAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > o.most {
		return 0, syscall.ENOSPC
	}
	return o.File.WriteAt(b, off)
}

func (o shortFile) Allocate(size int64) error {
	if size > o.most {
		return syscall.ENOSPC
	}
	return o.File.Allocate(size)
}

// TestSmallerSegmentsOnAFullDisk: where a whole segment does not fit, a smaller one is made, and who asked to hear of it does as soon as the
// reserve is touched.
func TestSmallerSegmentsOnAFullDisk(t *testing.T) {
	disk := crashfs.New()
	o := store.Options{Dir: "/store", FS: shortFS{disk, 5 << 20}, SegmentBytes: 64 << 20, DiskReserveBytes: 1000}
	s, err := store.Open(o)
	must(t, err)
	var low atomic.Int64
	s.OnLow(func() { low.Add(1) })
	g := s.Group(1)
	index := uint64(0)
	write := func(n int) {
		t.Helper()
		for range n {
			index++
			must(t, g.StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, 256<<10)}))
		}
	}
	write(100)
	if st := s.Stats(); st.Segments < 6 || low.Load() != 0 {
		t.Errorf("%d segments, %d times low", st.Segments, low.Load())
	}
	disk.SetFree(999)
	write(100)
	if low.Load() == 0 {
		t.Error("nobody was told of the reserve")
	}
	must(t, s.Close())
}

// countsLines counts the lines of a log.
type countsLines struct{ n atomic.Int64 }

func (c *countsLines) Write(b []byte) (int, error) {
	c.n.Add(1)
	return len(b), nil
}

// TestFullDiskIsNotFilledWithLines: while there is no room for the next segment, on the disk or within a quota, that is tried again and again, and told now and then.
func TestFullDiskIsNotFilledWithLines(t *testing.T) {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		t.Run(full.Error(), func(t *testing.T) { fillDisk(t, full) })
	}
}

func fillDisk(t *testing.T, full syscall.Errno) {
	t.Helper()
	var tried atomic.Int64
	disk, lines := crashfs.New(), new(countsLines)
	s, err := store.Open(store.Options{
		Dir: "/store", FS: disk, SegmentBytes: 64 << 10, Logger: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	must(t, err)
	disk.Fail(func(op crashfs.Op) error {
		if op == crashfs.OpCreate {
			tried.Add(1)
			return full
		}
		return nil
	})
	must(t, s.Group(1).StoreLogs(logs(1, 40<<10)))
	mustWithin(t, "the segment is not tried again", func() bool { return tried.Load() >= 4 })
	disk.Fail(nil)
	must(t, s.Group(1).StoreLogs(logs(2, 40<<10)))
	must(t, s.Close())
	if n := lines.n.Load(); n != 1 {
		t.Errorf("%d attempts, %d lines", tried.Load(), n)
	}
}
