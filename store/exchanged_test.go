package store_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// TestExchangedSegments: files of the log under each other's names are refused and stay; a copy of one under another name does no harm.
func TestExchangedSegments(t *testing.T) {
	fs := crashfs.New()
	fillSegments(t, fs)
	const one, two, aside = segmentOne, "/s/00000002.seg", "/s/aside"
	rename := func(from, to string) {
		t.Helper()
		must(t, fs.Rename(from, to))
	}
	names := files(t, fs, ".seg")
	rename(one, aside)
	rename(two, one)
	rename(aside, two)
	_, err := store.Open(store.Options{Dir: "/s", FS: fs})
	if corrupt, ok := errors.AsType[*store.CorruptError](err); !ok || corrupt.Segment != 2 {
		t.Fatalf("open: %v", err)
	}
	if left := files(t, fs, ".seg"); !slices.Equal(left, names) {
		t.Fatalf("of %q there are %q", names, left)
	}
	rename(two, aside)
	rename(one, two)
	rename(aside, one)
	from, err := fs.Open(one)
	must(t, err)
	size, err := from.Size()
	must(t, err)
	data := make([]byte, size)
	_, err = from.ReadAt(data, 0)
	must(t, err)
	to, err := fs.Create("/s/000000ff.seg")
	must(t, err)
	_, err = to.WriteAt(data, 0)
	must(t, err)
	s := openOn(t, fs)
	for i := uint64(1); i <= 30; i++ {
		must(t, s.Group(1).GetLog(i, new(raft.Log)))
	}
}

// TestSegmentOfAnotherLog: a segment of the same number of another log is sound by itself, and refused, wherever it is in the log.
func TestSegmentOfAnotherLog(t *testing.T) {
	content := func(fs *crashfs.FS, name string) []byte {
		t.Helper()
		f, err := fs.Open(name)
		must(t, err)
		size, err := f.Size()
		must(t, err)
		b := make([]byte, size)
		_, err = f.ReadAt(b, 0)
		must(t, err)
		return b
	}
	fill := func(extra int) *crashfs.FS {
		t.Helper()
		fs := crashfs.New()
		s := openOn(t, fs)
		must(t, s.Group(3).StoreLogs(logs(1, slices.Repeat([]int{8}, extra)...)))
		for i := uint64(1); i <= 30; i++ {
			must(t, s.Group(1).StoreLogs(logs(i, 8<<10)))
		}
		must(t, s.Close())
		return fs
	}
	names := files(t, fill(1), ".seg")
	for _, name := range []string{names[0], names[2], names[len(names)-2]} { // the last one is prepared only
		fs, other := fill(1), fill(2)
		b := content(other, "/s/"+name)
		must(t, fs.Remove("/s/"+name))
		f, err := fs.Create("/s/" + name)
		must(t, err)
		_, err = f.WriteAt(b, 0)
		must(t, err)
		_, err = store.Open(store.Options{Dir: "/s", FS: fs})
		if _, ok := errors.AsType[*store.CorruptError](err); !ok {
			t.Errorf("%s of %q: %v", name, names, err)
		}
	}
}
