package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// crowdRun is some groups of one store, each with somebody who works on it beside the others.
type crowdRun struct {
	t  *testing.T
	r  *rand.Rand
	fs *crashfs.FS
	o  store.Options
	s  *store.Store
	m  []model // of one group each
}

// work has everybody do some steps at once and returns what each group went through.
func (c *crowdRun) work(steps int) [][]mark {
	c.t.Helper()
	all := make([][]mark, len(c.m))
	var wg sync.WaitGroup
	for i := range c.m {
		r := rand.New(rand.NewPCG(c.r.Uint64(), uint64(i)))
		d := &driver{s: c.s, m: c.m[i].clone(), term: 1, pick: r.IntN, shift: i}
		for _, e := range d.m[0].log {
			d.term = max(d.term, e.term)
		}
		d.term = max(d.term, d.m[0].snap.term)
		all[i] = []mark{{after: c.fs.Len(), state: d.m.clone(), durable: true}}
		wg.Go(func() {
			for range steps {
				out, err := d.step()
				if err != nil {
					c.t.Errorf("group %d: %v", i, err)
					return
				}
				all[i] = append(all[i], mark{after: c.fs.Len(), state: d.m.clone(), between: out.between, durable: out.durable})
			}
		})
	}
	wg.Wait()
	return all
}

// match opens what is left of a disk and finds a state for each group.
func (c *crowdRun) match(fs *crashfs.FS, n int, all [][]mark) (*store.Store, []model) {
	c.t.Helper()
	o := c.o
	o.FS = fs
	s, err := store.Open(o)
	if err != nil {
		c.t.Fatalf("open after crash at %d: %v", n, err)
	}
	var found []model
	for i, marks := range all {
		var errs []error
		for _, m := range candidates(marks, n) {
			err := m[0].verify(s.Group(groupID(i)))
			if errs = append(errs, err); err == nil {
				found = append(found, m.clone())
				break
			}
		}
		if len(found) <= i {
			c.t.Fatalf("group %d: crash at %d: no possible state: %v", i, n, errors.Join(errs...))
		}
	}
	return s, found
}

// TestCrashOfMany is TestCrash with several who work on a store at once, and processes that are killed: what one group makes durable, deletes or frees is
// in the same segments as what the others do.
func TestCrashOfMany(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := &crowdRun{t: t, r: rand.New(rand.NewPCG(seed, 11)), fs: crashfs.New()}
			c.o = store.Options{Dir: "/s", FS: c.fs, SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10, OnFatal: func(err error) { panic(err) }}
			for range 5 {
				c.m = append(c.m, newModel(1))
			}
			var err error
			c.s, err = store.Open(c.o)
			must(t, err)
			for range 8 {
				base := c.fs.Len()
				all := c.work(25)
				must(t, c.s.Close())
				if t.Failed() {
					return
				}
				for range 8 {
					n := base + c.r.IntN(c.fs.Len()+1-base)
					s, _ := c.match(c.fs.Image(n, c.r), n, all)
					must(t, s.Close())
				}
				n := base + c.r.IntN(c.fs.Len()+1-base)
				next := c.fs.Killed(n)
				if c.r.IntN(2) == 0 {
					next = c.fs.Image(n, c.r)
				}
				c.s, c.m = c.match(next, n, all)
				c.fs = next
			}
			must(t, c.s.Close())
		})
	}
}
