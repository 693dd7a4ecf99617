package store_test

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// TestModel compares a store with the model after every operation and restart.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := crashfs.New()
		o := store.Options{
			Dir: "/s", FS: fs, SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10,
			OnFatal: func(err error) { panic(err) },
		}
		s, err := store.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		d := &driver{s: s, m: newModel(2), term: 1, pick: func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }}
		defer func() { _ = d.s.Close() }()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			if d.pick(15) == 0 {
				if err := d.s.Close(); err != nil {
					t.Fatal(err)
				}
				if d.s, err = store.Open(o); err != nil {
					t.Fatal(err)
				}
			} else if _, err := d.step(); err != nil {
				t.Fatal(err)
			}
			if err := d.m.verify(d.s); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// crashRun is one chain of crashes from a seed.
type crashRun struct {
	t    *testing.T
	r    *rand.Rand
	d    driver
	fs   *crashfs.FS
	o    store.Options
	wrap func(store.FS) store.FS // nil for nothing in between
	seed uint64

	freed, copied, recycled uint64
}

// mark is a state of the model and the journal's length when it was reached.
type mark struct {
	after   int
	state   model
	between []model // before this state
	durable bool
}

func (c *crashRun) open(fs *crashfs.FS) (*store.Store, error) {
	o := c.o
	o.FS = fs
	if c.wrap != nil {
		o.FS = c.wrap(fs)
	}
	return store.Open(o)
}

// candidates lists the states that a disk may have after a crash right before journal step n.
func candidates(marks []mark, n int) (out []model) {
	k := 0
	for k+1 < len(marks) && marks[k+1].after <= n {
		k++
	}
	j := k
	for j > 0 && !marks[j].durable {
		j--
	}
	for i := j; i <= k; i++ {
		out = append(out, marks[i].state)
	}
	for i := j + 1; i <= k+1 && i < len(marks); i++ {
		out = append(append(out, marks[i].between...), marks[i].state)
	}
	return out
}

// match opens an image and finds the state it holds.
func (c *crashRun) match(fs *crashfs.FS, n int, marks []mark) (*store.Store, model) {
	c.t.Helper()
	o := c.o
	o.FS = fs
	seen, err := look(o)
	if errors.Is(err, iofs.ErrNotExist) {
		seen, err = nil, nil // the crash came before there was a store
	}
	if err != nil {
		c.t.Fatalf("seed %d: inspect after crash at %d: %v", c.seed, n, err)
	}
	s, err := c.open(fs)
	if err != nil {
		c.t.Fatalf("seed %d: open after crash at %d: %v", c.seed, n, err)
	}
	if err := agrees(s, seen); err != nil {
		c.t.Fatalf("seed %d: after crash at %d: %v", c.seed, n, err)
	}
	var errs []error
	for _, m := range candidates(marks, n) {
		err := m.verify(s)
		if err == nil {
			return s, m.clone()
		}
		errs = append(errs, err)
	}
	c.t.Fatalf("seed %d: crash at %d of %d: no possible state: %v", c.seed, n, marks[len(marks)-1].after, errors.Join(errs...))
	return nil, nil
}

// generation works on the store, crashes at random places, and goes on from one of the images.
func (c *crashRun) generation(steps, images int) {
	c.t.Helper()
	marks := []mark{{state: c.d.m.clone(), durable: true}}
	for range steps {
		out, err := c.d.step()
		if err != nil {
			c.t.Fatalf("seed %d: %v", c.seed, err)
		}
		marks = append(marks, mark{after: c.fs.Len(), state: c.d.m.clone(), between: out.between, durable: out.durable})
	}
	old := c.fs
	st := c.d.s.Stats()
	c.freed, c.copied, c.recycled = c.freed+st.FreedSegments, c.copied+st.CopiedBytes, c.recycled+st.Prepared.Recycled
	if err := c.d.s.Close(); err != nil {
		c.t.Fatal(err)
	}
	for i := range images {
		n := c.r.IntN(old.Len() + 1)
		fs := old.Image(n, c.r)
		s, m := c.match(fs, n, marks)
		if i == images-1 {
			c.d.s, c.d.m, c.fs = s, m, fs
			return
		}
		if err := s.Close(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestCrash builds disk images as crashes may leave them, also crashes during recovery, and checks that each holds every
// acknowledged operation, the one under way in part or not at all, and nothing else.
func TestCrash(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			c := &crashRun{t: t, r: r, fs: crashfs.New(), seed: seed}
			c.o = store.Options{Dir: "/s", SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10, OnFatal: func(err error) { panic(err) }}
			s, err := c.open(c.fs)
			if err != nil {
				t.Fatal(err)
			}
			c.d = driver{s: s, m: newModel(3), term: 1, pick: r.IntN}
			for range 8 {
				c.generation(50, 12)
			}
			if err := c.d.s.Close(); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d segments freed, %d recycled, %d bytes copied", c.freed, c.recycled, c.copied)
			if c.recycled == 0 {
				t.Error("no segment was recycled")
			}
		})
	}
}

// TestCrashAtPublish crashes at every step of publishing a snapshot that pins nothing, on top of one that pins entries
// all over the log: until the new one is there, the old one has all it pins.
func TestCrashAtPublish(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := &crashRun{t: t, r: r, fs: crashfs.New()}
	c.o = store.Options{Dir: "/s", SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10, OnFatal: func(err error) { panic(err) }}
	s, err := c.open(c.fs)
	if err != nil {
		t.Fatal(err)
	}
	c.d = driver{s: s, m: newModel(1), term: 1, pick: r.IntN, waits: true}
	g, sg := &c.d.m[0], s.Group(groupID(0))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fill := func() {
		for range 20 {
			_, err := c.d.appendLogs(0)
			must(err)
		}
	}
	publish := func(pinned func(i uint64) bool) {
		index := g.last()
		g.snap, g.pins = modelSnap{index, g.log[index].term, c.d.text(200)}, map[uint64]string{}
		var ranges []store.Range
		for i := uint64(1); i <= index; i++ {
			if data, ok := g.read(i); ok && pinned(i) {
				g.pins[i] = data
				ranges = append(ranges, store.Range{First: i, Last: i})
			}
		}
		k, err := sg.Snapshots().Create(1, index, g.snap.term, config, 1, nil)
		must(err)
		must(k.(store.ManifestSink).WriteManifest([]byte(g.snap.manifest), ranges))
		must(k.Close())
	}
	fill()
	publish(func(i uint64) bool { return i%5 == 0 })
	low, index := g.lowest(), g.snap.index
	g.compactTo(index)
	must(sg.DeleteRange(low, index))
	fill()
	marks := []mark{{after: c.fs.Len(), state: c.d.m.clone(), durable: true}}
	publish(func(uint64) bool { return false })
	marks = append(marks, mark{after: c.fs.Len(), state: c.d.m.clone(), durable: true})
	must(s.Close())
	for n := marks[0].after; n <= marks[1].after; n++ {
		s, _ := c.match(c.fs.Image(n, r), n, marks)
		must(s.Close())
	}
}
