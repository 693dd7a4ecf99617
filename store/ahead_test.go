package store

import (
	"testing"

	"github.com/hashicorp/raft"
)

// TestReadAheadFollowsReaders: what is read one after the other is asked for ahead, a few times for many reads; single reads are not.
func TestReadAheadFollowsReaders(t *testing.T) {
	var a readAhead
	asked := func(off, n int64) int64 {
		from, to := a.note(off, n)
		return to - from
	}
	if asked(4096, 1000) != 0 || asked(40<<20, 1000) != 0 || asked(9<<20, 1000) != 0 {
		t.Error("reads far apart are followed")
	}
	calls, bytes := 0, int64(0)
	for off := int64(10 << 20); off < 20<<20; off += 1000 {
		if n := asked(off, 1000); n > 0 {
			calls, bytes = calls+1, bytes+n
		}
	}
	if calls < 5 || calls > 15 || bytes < 10<<20 || bytes > 14<<20 {
		t.Errorf("%d bytes were asked for in %d calls for 10 MiB", bytes, calls)
	}
}

type aheadFS struct {
	FS
	asked map[string]int64
}

type aheadFile struct {
	File
	fs   *aheadFS
	name string
}

func (f aheadFile) WillNeed(_, n int64) { f.fs.asked[f.name] += n }

func (a *aheadFS) Open(name string) (File, error) {
	f, err := a.FS.Open(name)
	return aheadFile{f, a, name}, err
}

func (a *aheadFS) Create(name string) (File, error) {
	f, err := a.FS.Create(name)
	return aheadFile{f, a, name}, err
}

// TestBacklogIsReadAhead reads a backlog that is not in memory over several segments: each but the first is asked for before it is reached.
func TestBacklogIsReadAhead(t *testing.T) {
	fs := &aheadFS{FS: OSFS{}, asked: map[string]int64{}}
	s := openTest(t, Options{Dir: t.TempDir(), FS: fs, SegmentBytes: 1 << 20, TailCacheBytes: 1})
	g := s.Group(1)
	for i := uint64(1); i <= 500; i++ {
		if err := g.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 16<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := uint64(1); i <= 500; i++ {
		if _, err := g.Read(i); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Stats().Segments; len(fs.asked) < n-2 {
		t.Errorf("%d of %d segments were read ahead", len(fs.asked), n)
	}
}
