package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// recycleOptions make segments of 64 KiB, of which every file has the size to be used again.
func recycleOptions(fs store.FS) store.Options {
	return store.Options{Dir: "/s", FS: fs, SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10, OnFatal: func(err error) { panic(err) }}
}

// flow writes n entries of about 4 KiB behind index and drops all but the last four, so that segments fill and die.
func flow(t *testing.T, g *store.Group, index uint64, n int) uint64 {
	t.Helper()
	for range n {
		index++
		must(t, g.StoreLog(&raft.Log{Index: index, Term: 1, Data: bytes.Repeat([]byte{byte(index)}, 4000)}))
		if index > 4 {
			must(t, g.DeleteRange(1, index-4))
		}
	}
	return index
}

// flowUntil goes on until enough segments were recycled.
func flowUntil(t *testing.T, s *store.Store, index, recycled uint64) uint64 {
	t.Helper()
	for end := time.Now().Add(time.Minute); s.Stats().Prepared.Recycled < recycled; {
		if time.Now().After(end) {
			t.Fatalf("%+v", s.Stats().Prepared)
		}
		index = flow(t, s.Group(1), index, 10)
	}
	return index
}

func wantFlow(t *testing.T, s *store.Store, last uint64) {
	t.Helper()
	g := s.Group(1)
	if got, err := g.LastIndex(); got != last || err != nil {
		t.Fatalf("last index %d, %v, want %d", got, err, last)
	}
	for i := last - 3; i <= last; i++ {
		var l raft.Log
		if err := g.GetLog(i, &l); err != nil || !bytes.Equal(l.Data, bytes.Repeat([]byte{byte(i)}, 4000)) {
			t.Fatalf("entry %d: %d bytes, %v", i, len(l.Data), err)
		}
	}
}

func files(t *testing.T, fs store.FS, suffix string) (out []string) {
	t.Helper()
	names, err := fs.ReadDir("/s")
	must(t, err)
	for _, n := range names {
		if strings.HasSuffix(n, suffix) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// TestSparesAreUsedAgain: in a log that flows no segment is prepared by writing all of it, before and after a restart, and
// no number is given out twice.
func TestSparesAreUsedAgain(t *testing.T) {
	fs := crashfs.New()
	s, err := store.Open(recycleOptions(fs))
	must(t, err)
	index := flowUntil(t, s, 0, 20)
	st := s.Stats()
	// A starved keeper frees segments late, and then new ones are made.
	if st.Prepared.Zeroed >= st.Prepared.Recycled || st.Spares > 4 || st.SpareBytes > 5*64<<10 {
		t.Errorf("%+v, %d spares of %d bytes", st.Prepared, st.Spares, st.SpareBytes)
	}
	for s.Stats().Spares == 0 {
		index = flow(t, s.Group(1), index, 3)
	}
	must(t, s.Close())
	spares, segments := files(t, fs, ".tmp"), files(t, fs, ".seg")
	if len(spares) == 0 || len(spares) > 4 {
		t.Fatalf("%v left for reuse", spares)
	}
	newest := max(spares[len(spares)-1], segments[len(segments)-1])[:8]

	s, err = store.Open(recycleOptions(fs))
	must(t, err)
	wantFlow(t, s, index)
	if st := s.Stats(); st.Spares+int(st.Prepared.Recycled)+1 < len(spares) { // one may just be on its way
		t.Errorf("%d of %d spares taken over", st.Spares, len(spares))
	}
	index = flowUntil(t, s, index, uint64(len(spares)))
	if st := s.Stats(); st.Prepared.Zeroed > st.Prepared.Recycled {
		t.Errorf("%+v after the restart", st.Prepared)
	}
	for _, name := range files(t, fs, ".seg") {
		if !slices.Contains(segments, name) && name[:8] <= newest {
			t.Errorf("%s was made when %s had been", name, newest)
		}
	}
	wantFlow(t, s, index)
	must(t, s.Close())
}

// refusesSpares gives a freed file no new name, as a disk may that has no room even for that, if there is another one.
type refusesSpares struct {
	*crashfs.FS
	left atomic.Int64
}

func (f *refusesSpares) Rename(from, to string) error {
	if names, err := f.ReadDir("/s"); err != nil || f.left.Load() == 0 || !strings.HasSuffix(from, ".tmp") || strings.Contains(from, "-") ||
		strings.Count(strings.Join(names, " "), ".tmp") < 2 {
		return errors.Join(err, f.FS.Rename(from, to))
	}
	f.left.Add(-1)
	return syscall.ENOSPC
}

// TestSpareThatIsNotToBeUsedIsRemoved: a freed file that could not be used again takes no space until the next start.
func TestSpareThatIsNotToBeUsedIsRemoved(t *testing.T) {
	fs := &refusesSpares{FS: crashfs.New()}
	s, err := store.Open(recycleOptions(fs))
	must(t, err)
	index := flowUntil(t, s, 0, 5)
	fs.left.Store(1)
	for end := time.Now().Add(time.Minute); fs.left.Load() > 0; {
		if time.Now().After(end) {
			t.Fatal("no freed file was used again")
		}
		index = flow(t, s.Group(1), index, 10)
	}
	index = flow(t, s.Group(1), index, 100)
	must(t, s.Close())
	if left, st := files(t, fs, ".tmp"), s.Stats(); len(left) != st.Spares {
		t.Errorf("%v on the disk, %d spares", left, st.Spares)
	}
	s, err = store.Open(recycleOptions(fs))
	must(t, err)
	wantFlow(t, s, index)
	must(t, s.Close())
}

// TestSparesKeepTheirNumbers: a number counts as given out as long as a file is kept that had it.
func TestSparesKeepTheirNumbers(t *testing.T) {
	fs := crashfs.New()
	s, err := store.Open(recycleOptions(fs))
	must(t, err)
	index := flow(t, s.Group(1), 0, 3)
	must(t, s.Close())
	f, err := fs.Create("/s/00000077.tmp")
	must(t, err)
	must(t, f.Truncate(64<<10))
	for _, name := range []string{"/s/00000078-cold.tmp", "/s/00000079.tmp"} { // one has a foreign name, one another size
		_, err = fs.Create(name)
		must(t, err)
	}
	s, err = store.Open(recycleOptions(fs))
	must(t, err)
	if got := files(t, fs, ".tmp"); slices.Contains(got, "00000078-cold.tmp") || slices.Contains(got, "00000079.tmp") {
		t.Errorf("kept for reuse: %v", got)
	}
	index = flow(t, s.Group(1), index, 40)
	must(t, s.Close())
	for _, name := range files(t, fs, ".seg") {
		if name > "00000001.seg" && name < "0000007a.seg" {
			t.Errorf("%s was made although 00000079 was given out", name)
		}
	}
	s, err = store.Open(recycleOptions(fs))
	must(t, err)
	wantFlow(t, s, index)
	must(t, s.Close())
}

// TestSpareWithTheNumberOfASegment: a copy of the directory, made while it changed, may hold both. The segment counts, and no
// file serves twice.
func TestSpareWithTheNumberOfASegment(t *testing.T) {
	fs := crashfs.New()
	s, err := store.Open(recycleOptions(fs))
	must(t, err)
	index := flow(t, s.Group(1), 0, 30)
	must(t, s.Close())
	for _, name := range files(t, fs, ".seg") {
		f, err := fs.Create("/s/" + strings.TrimSuffix(name, ".seg") + ".tmp")
		must(t, err)
		must(t, f.Truncate(64<<10))
	}
	s, err = store.Open(recycleOptions(fs))
	must(t, err)
	index = flow(t, s.Group(1), index, 100)
	must(t, s.Close())
	s, err = store.Open(recycleOptions(fs))
	must(t, err)
	wantFlow(t, s, index)
	must(t, s.Close())
}

// TestSparesAreGivenUp: a disk that is nearly full gets them back, all but one.
func TestSparesAreGivenUp(t *testing.T) {
	fs := crashfs.New()
	o := recycleOptions(fs)
	o.DiskReserveBytes = 1000
	s, err := store.Open(o)
	must(t, err)
	g := s.Group(1)
	index := uint64(0)
	for ; s.Stats().Spares < 3; index++ { // many die at once
		must(t, g.StoreLog(&raft.Log{Index: index + 1, Term: 1, Data: make([]byte, 4000)}))
		if index%100 == 99 {
			must(t, g.DeleteRange(1, index-1))
			time.Sleep(time.Duration(10+index/100) * time.Millisecond)
		}
		if index > 10000 {
			t.Fatalf("%d spares", s.Stats().Spares)
		}
	}
	fs.SetFree(999)
	for end := time.Now().Add(time.Minute); s.Stats().Spares > 1 || len(files(t, fs, ".tmp")) > 1; index++ {
		if time.Now().After(end) {
			t.Fatalf("%d spares on a full disk", s.Stats().Spares)
		}
		must(t, g.StoreLog(&raft.Log{Index: index + 1, Term: 1, Data: make([]byte, 4000)}))
		if index%100 == 99 {
			must(t, g.DeleteRange(1, index-1))
		}
	}
	must(t, s.Close())
}

// TestCrashAtRecycle crashes at every step of work in which each segment is a file that was one before: whatever of the
// new writes is on disk, what the file held before never counts.
func TestCrashAtRecycle(t *testing.T) {
	seeds, images := uint64(3), 3
	if testing.Short() {
		seeds, images = 1, 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			c := &crashRun{t: t, r: r, fs: crashfs.New(), seed: seed, o: recycleOptions(nil)}
			s, err := c.open(c.fs)
			must(t, err)
			c.d = driver{s: s, m: newModel(2), term: 1, pick: r.IntN}
			for range 400 { // until there are files to be used again
				_, err := c.d.step()
				must(t, err)
			}
			must(t, s.Close())
			// The journal begins anew, with a disk that has it all.
			c.fs = c.fs.Image(c.fs.Len(), r)
			s, err = c.open(c.fs)
			must(t, err)
			c.d.s = s
			marks := []mark{{after: c.fs.Len(), state: c.d.m.clone(), durable: true}}
			for range 60 {
				out, err := c.d.step()
				must(t, err)
				marks = append(marks, mark{after: c.fs.Len(), state: c.d.m.clone(), between: out.between, durable: out.durable})
			}
			st := s.Stats()
			must(t, s.Close())
			for n := marks[0].after; n <= c.fs.Len(); n++ {
				for range images {
					s, _ := c.match(c.fs.Image(n, r), n, marks)
					must(t, s.Close())
				}
			}
			t.Logf("%d steps, %+v", c.fs.Len()-marks[0].after, st.Prepared)
			if st.Prepared.Recycled == 0 {
				t.Error("no segment was recycled")
			}
		})
	}
}

// FuzzStaleFile gives the store a file with any bytes to use again, and ends the process in the middle of a write. What is
// recovered is what was written.
func FuzzStaleFile(f *testing.F) {
	fs := crashfs.New()
	s, err := store.Open(recycleOptions(fs))
	if err != nil {
		f.Fatal(err)
	}
	for i := range uint64(14) {
		if err := s.Group(1).StoreLog(&raft.Log{Index: i + 1, Term: 1, Data: bytes.Repeat([]byte{byte(i)}, 4000)}); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	file, err := fs.Open(segmentOne)
	if err != nil {
		f.Fatal(err)
	}
	old := make([]byte, 64<<10)
	if _, err := file.ReadAt(old, 0); err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(8) {
		f.Add(old, seed)
	}
	f.Add(old[headBytes:headBytes+4096], uint64(8))
	f.Fuzz(func(t *testing.T, stale []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 4))
		fs := crashfs.New()
		s, err := store.Open(recycleOptions(fs))
		must(t, err)
		index := flow(t, s.Group(1), 0, 3)
		must(t, s.Close())
		spare, err := fs.Create("/s/0000007f.tmp")
		must(t, err)
		must(t, spare.Truncate(64<<10))
		for off := 0; len(stale) > 0 && off < 64<<10; off += len(stale) {
			_, err := spare.WriteAt(stale[:min(len(stale), 64<<10-off)], int64(off))
			must(t, err)
		}
		must(t, spare.Fdatasync())
		must(t, fs.SyncDir("/s"))
		s, err = store.Open(recycleOptions(fs))
		must(t, err)
		index = flow(t, s.Group(1), index, 4+r.IntN(20))
		for s.Stats().Prepared.Recycled == 0 { // the next segment is the stale file
			time.Sleep(time.Millisecond)
		}
		durable := fs.Len()
		flow(t, s.Group(1), index, 1)
		must(t, s.Close())
		image := fs.Image(durable+r.IntN(fs.Len()-durable+1), r)
		s, err = store.Open(recycleOptions(image))
		must(t, err)
		if last, err := s.Group(1).LastIndex(); err != nil || last != index && last != index+1 {
			t.Fatalf("last index %d, %v, want %d or one more", last, err, index)
		} else {
			wantFlow(t, s, last)
		}
		must(t, s.Close())
	})
}
