package store_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// heldFS is a disk whose syncs of files wait while it is held.
type heldFS struct {
	store.FS
	mu    sync.Mutex
	fault error
	syncs atomic.Int64 // begun
}

type heldFile struct {
	store.File
	fs *heldFS
}

func (f *heldFS) wrap(file store.File, err error) (store.File, error) {
	if err != nil {
		return nil, err
	}
	return heldFile{file, f}, nil
}

func (f *heldFS) Open(name string) (store.File, error)   { return f.wrap(f.FS.Open(name)) }
func (f *heldFS) Create(name string) (store.File, error) { return f.wrap(f.FS.Create(name)) }

func (f heldFile) Fdatasync() error {
	f.fs.syncs.Add(1)
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.fault != nil {
		return f.fs.fault
	}
	return f.File.Fdatasync()
}

// held opens a store and holds its disk, when it has taken so many MiB.
func held(t *testing.T, full uint64) (*heldFS, *store.Store) {
	t.Helper()
	fs := &heldFS{FS: crashfs.New()}
	s, err := store.Open(store.Options{Dir: "/s", FS: fs, TailCacheBytes: 1 << 10, OnFatal: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	// So that the present segment has room: the next one could not be prepared.
	for i := range full {
		if err := s.Group(9).StoreLogs(entriesOf(1+i, 1, 1<<20-200)); err != nil {
			t.Fatal(err)
		}
	}
	fs.mu.Lock()
	return fs, s
}

func entriesOf(from, n uint64, bytes int) (logs []*raft.Log) {
	for i := range n {
		logs = append(logs, &raft.Log{Index: from + i, Term: 1, Data: []byte(strings.Repeat("x", bytes))})
	}
	return logs
}

// notes collects what Durable said later.
type notes struct {
	mu   sync.Mutex
	list []uint64
	errs []error
}

func (n *notes) of(i uint64) func(error) {
	return func(err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.list, n.errs = append(n.list, i), append(n.errs, err)
	}
}

func (n *notes) all() ([]uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list), errors.Join(n.errs...)
}

func mustWithin(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestStagedEntriesAreReadableBeforeTheyAreDurable(t *testing.T) {
	fs, s := held(t, 0)
	g := s.Group(1)
	var later notes
	for i := range uint64(40) { // more than the tail cache may keep of what is durable
		if err := g.Stage(entriesOf(1+i, 1, 500)); err != nil {
			t.Fatal(err)
		}
		if yes, err := g.Durable(i+1, later.of(i+1)); yes || err != nil {
			t.Fatalf("entry %d is durable: %v, %v", i+1, yes, err)
		}
	}
	for i := range uint64(40) {
		if b, err := g.Read(i + 1); err != nil || len(b) != 500 {
			t.Fatalf("entry %d: %d bytes, %v", i+1, len(b), err)
		}
	}
	if last, err := g.LastIndex(); last != 40 || err != nil {
		t.Fatalf("last is %d, %v", last, err)
	}
	if got, _ := later.all(); len(got) != 0 {
		t.Fatalf("%v became durable without a sync", got)
	}
	fs.mu.Unlock()
	mustWithin(t, "not durable", func() bool { got, _ := later.all(); return len(got) == 40 })
	got, err := later.all()
	if !slices.IsSorted(got) || err != nil {
		t.Errorf("told in the order %v, %v", got, err)
	}
	for _, i := range []uint64{1, 40, 41} {
		if yes, err := g.Durable(i, later.of(i)); !yes || err != nil {
			t.Errorf("entry %d is not durable: %v", i, err)
		}
	}
	if again, _ := later.all(); len(again) != 40 {
		t.Error("told although the answer was yes")
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err := g.Stage(entriesOf(41, 2, 10)); err != nil {
		t.Fatal(err)
	}
	for i, want := range map[uint64]bool{1: true, 40: true, 41: false, 42: false} {
		if yes, err := g.Durable(i, nil); yes != want || err != nil {
			t.Errorf("entry %d is durable: %v, %v, with 41 and 42 staged behind it", i, yes, err)
		}
	}
}

// What waits for the disk, of any group, waits for everything staged before.
func TestAVoteWaitsForWhatIsStaged(t *testing.T) {
	fs, s := held(t, 0)
	if err := s.Group(1).Stage(entriesOf(1, 3, 100)); err != nil {
		t.Fatal(err)
	}
	voted := make(chan error, 1)
	go func() {
		g := s.Group(2)
		voted <- errors.Join(g.SetUint64([]byte("LastVoteTerm"), 2), g.Set([]byte("LastVoteCand"), []byte("n1")))
	}()
	select {
	case err := <-voted:
		t.Fatalf("voted before the sync: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	fs.mu.Unlock()
	if err := <-voted; err != nil {
		t.Fatal(err)
	}
	if yes, err := s.Group(1).Durable(3, nil); !yes || err != nil {
		t.Errorf("the vote is durable, the entries before it are not: %v", err)
	}
}

// Stage waits where it must: for entries that replace others, and when much is staged.
func TestStageWaits(t *testing.T) {
	small := entriesOf(1, 1, 100)
	for what, prepare := range map[string]func(*store.Group) (waits []*raft.Log){
		"replaced": func(g *store.Group) []*raft.Log { return small },
		"many bytes": func(g *store.Group) []*raft.Log {
			for i := range uint64(4) {
				if err := g.Stage(entriesOf(2+i, 1, 1<<20-200)); err != nil {
					t.Error(err)
				}
			}
			return entriesOf(6, 1, 1000)
		},
		"many calls": func(g *store.Group) []*raft.Log {
			for i := range uint64(63) {
				if err := g.Stage(entriesOf(2+i, 1, 10)); err != nil {
					t.Error(err)
				}
			}
			return entriesOf(65, 1, 10)
		},
	} {
		t.Run(what, func(t *testing.T) {
			full := uint64(0)
			if what == "many bytes" {
				full = 6
			}
			fs, s := held(t, full)
			g := s.Group(1)
			if err := g.Stage(small); err != nil {
				t.Fatal(err)
			}
			logs := prepare(g)
			done := make(chan error, 1)
			go func() { done <- g.Stage(logs) }()
			select {
			case err := <-done:
				t.Errorf("did not wait: %v", err)
			case <-time.After(30 * time.Millisecond):
			}
			fs.mu.Unlock()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if yes, err := g.Durable(logs[0].Index, nil); !yes || err != nil {
				t.Errorf("not durable after the wait: %v", err)
			}
		})
	}
}

// A failed sync is told to whoever waits, and nothing staged counts as durable after it.
func TestStagedEntriesOfAFailedSync(t *testing.T) {
	fs, s := held(t, 0)
	g := s.Group(1)
	var later notes
	for i := range uint64(3) {
		if err := g.Stage(entriesOf(1+i, 1, 100)); err != nil {
			t.Fatal(err)
		}
		if yes, err := g.Durable(i+1, later.of(i+1)); yes || err != nil {
			t.Fatalf("entry %d: %v, %v", i+1, yes, err)
		}
	}
	fs.fault = syscall.EIO
	fs.mu.Unlock()
	mustWithin(t, "nobody was told", func() bool { got, _ := later.all(); return len(got) == 3 })
	for _, err := range later.errs {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("told %v", err)
		}
	}
	if yes, err := g.Durable(2, later.of(2)); yes || !errors.Is(err, syscall.EIO) {
		t.Errorf("durable %v, %v", yes, err)
	}
	if err := g.Stage(entriesOf(4, 1, 1)); !errors.Is(err, syscall.EIO) {
		t.Errorf("staged after a failed sync: %v", err)
	}
}

// TestCrashOfStagedEntries crashes at every step while entries of two groups are staged and some of the groups' votes are
// waited for. What Durable has called durable is there, what is missing is a suffix, and a vote is there only with all that
// was staged before it.
func TestCrashOfStagedEntries(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	o := store.Options{Dir: "/s", SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10, OnFatal: func(err error) { t.Error(err) }}
	open := func(fs *crashfs.FS) *store.Store {
		o.FS = fs
		s, err := store.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	fs := crashfs.New()
	s := open(fs)
	type promise struct {
		after int // steps of the disk
		last  [2]uint64
	}
	var mu sync.Mutex
	var durable, voted []promise
	var last [2]uint64
	for n := range 60 {
		i := n % 2
		g := s.Group(store.GroupID(i + 1))
		if err := g.Stage(entriesOf(last[i]+1, 1+r.Uint64N(3), 1+r.IntN(3000))); err != nil {
			t.Fatal(err)
		}
		last[i], _ = g.LastIndex()
		upTo := last[i]
		note := func(err error) {
			p := promise{after: fs.Len()}
			p.last[i] = upTo
			mu.Lock()
			defer mu.Unlock()
			durable = append(durable, p)
		}
		if yes, err := g.Durable(upTo, note); err != nil {
			t.Fatal(err)
		} else if yes {
			note(nil)
		}
		if n%7 == 6 {
			if err := s.Group(3).Set([]byte("LastVoteCand"), []byte{byte(len(voted) + 1)}); err != nil {
				t.Fatal(err)
			}
			voted = append(voted, promise{fs.Len(), last})
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for n := range fs.Len() + 1 {
		s := open(fs.Image(n, r))
		var have [2]uint64
		for i := range have {
			g := s.Group(store.GroupID(i + 1))
			have[i], _ = g.LastIndex()
			for j := uint64(1); j <= have[i]; j++ {
				if _, err := g.Read(j); err != nil {
					t.Fatalf("crash at %d: entry %d of %d in group %d: %v", n, j, have[i], i, err)
				}
			}
		}
		for _, p := range durable {
			for i := range have {
				if p.after <= n && have[i] < p.last[i] {
					t.Fatalf("crash at %d: group %d ends at %d, %d was durable at %d", n, i, have[i], p.last[i], p.after)
				}
			}
		}
		if v, err := s.Group(3).Get([]byte("LastVoteCand")); err == nil {
			for i, want := range voted[v[0]-1].last {
				if have[i] < want {
					t.Fatalf("crash at %d: vote %d without entry %d of group %d", n, v[0], want, i)
				}
			}
		}
		if have != last {
			lost++
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if lost == 0 {
		t.Error("no crash lost anything")
	}
}
