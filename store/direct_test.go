package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// TestWriteDirect writes pages to a real file in two parts and reads them back the usual way, with what was there around them.
func TestWriteDirect(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f, err := OSFS{}.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := bytes.Repeat([]byte("old!"), 8*PageBytes/4)
	if _, err := f.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name, name+"2"); err != nil { // as a recycled segment's
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	copy(buf, bytes.Repeat([]byte("new"), 2*PageBytes))
	err = f.WriteDirect(buf[:2*PageBytes], buf[8*PageBytes:9*PageBytes], 3*PageBytes)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the file system has no direct writes")
	}
	if err != nil {
		t.Fatal(err)
	}
	copy(want[3*PageBytes:], buf[:2*PageBytes])
	clear(want[5*PageBytes : 6*PageBytes])
	if err := f.Fdatasync(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := readFull(f, got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the file differs (%v)", err)
	}
}

// watched counts the ways in which a file was written.
type watched struct {
	File
	direct, other *int
	refuse        bool
}

func (w watched) WriteDirect(b, tail []byte, off int64) error {
	if w.refuse {
		return errors.ErrUnsupported
	}
	*w.direct++
	return w.File.WriteDirect(b, tail, off)
}

func (w watched) WriteAt(b []byte, off int64) (int, error) {
	if off >= segmentHeadBytes && b[len(b)-1] != 0 {
		*w.other++
	}
	return w.File.WriteAt(b, off)
}

type watchedFS struct {
	FS
	direct, other int
	refuse        bool
}

func (w *watchedFS) Open(name string) (File, error) {
	f, err := w.FS.Open(name)
	return watched{f, &w.direct, &w.other, w.refuse}, err
}

func (w *watchedFS) Create(name string) (File, error) {
	f, err := w.FS.Create(name)
	return watched{f, &w.direct, &w.other, w.refuse}, err
}

// TestLogIsWrittenDirect appends across pages, slabs, segments and restarts: all goes past the page cache but the first page after a restart,
// whose beginning only the disk knows; and a file system that cannot do it gets it the other way.
func TestLogIsWrittenDirect(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		fs := &watchedFS{FS: OSFS{}, refuse: refuse}
		s := openTest(t, Options{Dir: t.TempDir(), FS: fs, SegmentBytes: 256 << 10, TailCacheBytes: 1})
		next := uint64(1)
		for round := range 3 {
			g := s.Group(1)
			for range 100 {
				if err := g.StoreLog(&raft.Log{Index: next, Term: 1, Data: bytes.Repeat([]byte{'x'}, int(next%7)*1001+1)}); err != nil {
					t.Fatal(err)
				}
				next++
			}
			for i := uint64(1); i < next; i++ {
				if b, err := g.Read(i); err != nil || len(b) != int(i%7)*1001+1 {
					t.Fatalf("round %d: entry %d has %d bytes, %v", round, i, len(b), err)
				}
			}
			s = reopen(t, s)
		}
		if refuse && fs.direct > 0 || !refuse && fs.direct == 0 {
			t.Errorf("%d direct writes, refused: %v", fs.direct, refuse)
		}
	}
}
