package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// footlessFS has no room for the footers of some files.
type footlessFS struct {
	store.FS
	refuse func(name string) bool
	part   bool // writes as far as there is room
}

type footlessFile struct {
	store.File
	refuse func() bool
	part   bool
}

func (f footlessFS) file(name string, o store.File, err error) (store.File, error) {
	return footlessFile{o, func() bool { return f.refuse(filepath.Base(name)) }, f.part}, err
}

func (f footlessFS) Open(name string) (store.File, error) {
	o, err := f.FS.Open(name)
	return f.file(name, o, err)
}

func (f footlessFS) Create(name string) (store.File, error) {
	o, err := f.FS.Create(name)
	return f.file(name, o, err)
}

func (o footlessFile) WriteAt(b []byte, off int64) (int, error) {
	if bytes.HasPrefix(b, []byte("WFOOTER")) && o.refuse() {
		n := 0
		if o.part {
			n, _ = o.File.WriteAt(b[:len(b)/2], off)
		}
		return n, syscall.ENOSPC
	}
	return o.File.WriteAt(b, off)
}

// TestFullDiskFrees: on a full disk the footer of what was sealed last does not fit. What is dead is freed all the same, with and without
// footers, and the log goes on in it for as long as it likes, also over a start.
func TestFullDiskFrees(t *testing.T) {
	var full atomic.Bool
	disk := crashfs.New()
	disk.Fail(func(op crashfs.Op) error {
		if op == crashfs.OpCreate && full.Load() {
			return syscall.ENOSPC
		}
		return nil
	})
	fs := footlessFS{FS: disk, refuse: func(string) bool { return full.Load() }}
	s, err := store.Open(recycleOptions(fs))
	must(t, err)
	index := uint64(0)
	put := func(n int) {
		t.Helper()
		for range n {
			index++
			must(t, s.Group(1).StoreLog(&raft.Log{Index: index, Term: 1, Data: make([]byte, 200)}))
		}
	}
	consume := func() { must(t, s.Group(1).DeleteRange(1, index-1)) }
	freed := func(n uint64) {
		t.Helper()
		mustWithin(t, "dead segments are not freed", func() bool { return s.Stats().FreedSegments >= n })
	}
	const segment = 240 // entries, of which the footer has 11 KiB
	put(8*segment + segment*3/4)
	mustWithin(t, "the next one is prepared", func() bool {
		st := s.Stats()
		return st.Segments == int(st.Prepared.Zeroed) && st.Segments >= 10
	})
	full.Store(true)
	disk.SetFree(0)
	put(segment / 2)
	consume()
	freed(9)
	for start := range 2 {
		for range 2 {
			n := s.Stats().FreedSegments
			put(segment)
			consume()
			freed(n + 1)
		}
		if start == 0 {
			must(t, s.Close())
			s, err = store.Open(recycleOptions(fs))
			must(t, err)
		}
	}
	if last, err := s.Group(1).LastIndex(); last != index || err != nil {
		t.Fatalf("last index %d, %v, want %d", last, err, index)
	}
	must(t, s.Close())
}

// emptySegment makes a segment that was prepared and never written to.
func emptySegment(t *testing.T, fs store.FS, number uint32) {
	t.Helper()
	like, err := fs.Open(segmentOne)
	must(t, err)
	head := make([]byte, 512)
	_, err = like.ReadAt(head, 0)
	must(t, err)
	binary.LittleEndian.PutUint32(head[12:], number)
	binary.LittleEndian.PutUint32(head[508:], crc32.Checksum(head[:508], crc32.MakeTable(crc32.Castagnoli)))
	f, err := fs.Create(fmt.Sprintf("/s/%08x.seg", number))
	must(t, err)
	must(t, f.Truncate(64<<10))
	_, err = f.WriteAt(head, 0)
	must(t, err)
}

// TestSegmentBehindOneWithoutFooter: it stays although it is dead, for it says where the records before it end: one of them that is damaged
// is not taken for the end. That holds with an empty segment in between, too. With a footer it goes.
func TestSegmentBehindOneWithoutFooter(t *testing.T) {
	disk := crashfs.New()
	o := recycleOptions(footlessFS{FS: disk, refuse: func(name string) bool { return name == filepath.Base(segmentOne) }})
	s, err := store.Open(o)
	must(t, err)
	must(t, s.Group(2).StoreLogs(logs(1, 100)))
	must(t, s.Close())
	_, err = disk.Create("/s/00000005.tmp") // numbers go on behind it
	must(t, err)
	s, err = store.Open(o)
	must(t, err)
	index := flow(t, s.Group(1), 0, 10)
	must(t, s.Group(2).StoreLogs(logs(2, 100)))
	for range 2 {
		index = flow(t, s.Group(1), index, 90)
		mustWithin(t, "no segment is freed", func() bool { return s.Stats().FreedSegments >= 4 })
		must(t, s.Close())
		if got := files(t, disk, ".seg"); !slices.Contains(got, "00000001.seg") || !slices.Contains(got, "00000006.seg") {
			t.Fatalf("%v are left", got)
		}
		emptySegment(t, disk, 3)
		s, err = store.Open(o)
		must(t, err)
	}
	must(t, s.Close())
	hurt := disk.Image(disk.Len(), rand.New(rand.NewPCG(1, 1)))
	must(t, hurt.Corrupt(segmentOne, firstRecord+8, 1))
	s, err = store.Open(recycleOptions(hurt))
	if _, ok := errors.AsType[*store.CorruptError](err); !ok {
		t.Errorf("a damaged segment was opened: %v", err)
		must(t, s.Close())
	}
	s, err = store.Open(recycleOptions(disk))
	must(t, err)
	wantFlow(t, s, index)
	if last, err := s.Group(2).LastIndex(); last != 2 || err != nil {
		t.Errorf("last index %d, %v", last, err)
	}
	mustWithin(t, "the sixth segment stays", func() bool { return !slices.Contains(files(t, disk, ".seg"), "00000006.seg") })
	must(t, s.Close())
}

// TestCrashWithoutFooters crashes where two of three footers do not fit, for a while or until their segments are dead.
func TestCrashWithoutFooters(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r, mine := rand.New(rand.NewPCG(seed, 5)), rand.New(rand.NewPCG(seed, 6))
			c := &crashRun{t: t, r: r, fs: crashfs.New(), seed: seed, o: recycleOptions(nil)}
			refused := 0
			c.wrap = func(fs store.FS) store.FS {
				return footlessFS{FS: fs, part: true, refuse: func(string) bool { // only the keeper asks
					if mine.IntN(3) == 0 {
						return false
					}
					refused++
					return true
				}}
			}
			s, err := c.open(c.fs)
			must(t, err)
			c.d = driver{s: s, m: newModel(3), term: 1, pick: r.IntN}
			for range 6 {
				c.generation(60, 12)
			}
			must(t, c.d.s.Close())
			t.Logf("%d footers refused, %d segments freed, %d recycled, %d bytes copied", refused, c.freed, c.recycled, c.copied)
			if refused == 0 || c.freed == 0 {
				t.Error("no segment without a footer, or none freed")
			}
		})
	}
}

// TestSmallSpareIsBetterThanNone: a larger segment does not fit on the disk, and there is a file of the size before: the log goes on in that.
func TestSmallSpareIsBetterThanNone(t *testing.T) {
	fs := crashfs.New()
	o := recycleOptions(fs)
	o.SegmentBytes = 64 << 20
	s, err := store.Open(o) // with a segment of 1 MiB, which is filled fast
	must(t, err)
	index := flow(t, s.Group(1), 0, 1)
	must(t, s.Close())
	spare, err := fs.Create("/s/00000077.tmp")
	must(t, err)
	must(t, spare.Truncate(1<<20))
	fs.Fail(func(op crashfs.Op) error {
		if op == crashfs.OpCreate {
			return syscall.ENOSPC
		}
		return nil
	})
	o.OnFatal = func(err error) { t.Error(err) }
	s, err = store.Open(o)
	must(t, err)
	for range 300 {
		index++
		must(t, s.Group(1).StoreLog(&raft.Log{Index: index, Term: 1, Data: bytes.Repeat([]byte{byte(index)}, 4000)}))
	}
	if st := s.Stats(); st.Prepared.Recycled != 1 {
		t.Errorf("%+v", st.Prepared)
	}
	must(t, s.Close())
	fs.Fail(nil)
	s, err = store.Open(o)
	must(t, err)
	wantFlow(t, s, index)
	must(t, s.Close())
}
