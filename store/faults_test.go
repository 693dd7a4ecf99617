package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// diskFault is what is wrong with a disk: from some operation of a kind on, a few of these, or all, fail.
type diskFault struct {
	op    crashfs.Op
	err   syscall.Errno
	after atomic.Int64
	times atomic.Int64
}

func (f *diskFault) fail(op crashfs.Op) error {
	if op != f.op || f.after.Add(-1) >= 0 || f.times.Add(-1) < 0 {
		return nil
	}
	return f.err
}

func anyFault(r *rand.Rand) *diskFault {
	ops := []crashfs.Op{crashfs.OpCreate, crashfs.OpWrite, crashfs.OpSync, crashfs.OpTruncate, crashfs.OpRename, crashfs.OpRemove, crashfs.OpSyncDir}
	f := &diskFault{op: ops[r.IntN(len(ops))], err: []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.EMFILE}[r.IntN(3)]}
	f.after.Store(r.Int64N(30))
	f.times.Store([]int64{1, 2, 1 << 40}[r.IntN(3)])
	return f
}

// TestFaults has operations of the disk fail, of each kind and with each error, and the process end by that or be killed. Whatever was acknowledged is
// there afterwards, also when the power fails, and nothing else.
func TestFaults(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	ended := map[string]int{}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			var fatal atomic.Bool
			c := &crashRun{t: t, r: r, fs: crashfs.New(), seed: seed}
			c.o = store.Options{Dir: "/s", SegmentBytes: 64 << 10, TailCacheBytes: 1 << 10, OnFatal: func(error) { fatal.Store(true) }}
			s, err := c.open(c.fs)
			must(t, err)
			c.d = driver{s: s, m: newModel(3), term: 1, pick: r.IntN}
			for range 10 {
				f := anyFault(r)
				if fatal.Store(false); c.faulty(f, &fatal) {
					ended[fmt.Sprint(f.op, " ", f.err)]++
				}
			}
			must(t, c.d.s.Close())
		})
	}
	t.Log(ended)
}

// faulty works on a store until its disk has ended the process, or for a while, and goes on with what that has left. It reports whether the disk did.
func (c *crashRun) faulty(f *diskFault, fatal *atomic.Bool) (ended bool) {
	c.t.Helper()
	old, base := c.fs, c.fs.Len()
	marks := []mark{{after: base, state: c.d.m.clone(), durable: true}}
	old.Fail(f.fail)
	for range 60 {
		out, err := c.d.step()
		marks = append(marks, mark{after: old.Len(), state: c.d.m.clone(), between: out.between, durable: out.durable && err == nil})
		if err != nil {
			if !fatal.Load() {
				c.t.Fatalf("seed %d: %s %v: %v", c.seed, f.op, f.err, err)
			}
			ended = true
			break
		}
	}
	_ = c.d.s.Close() // it may have ended already
	old.Fail(nil)
	for range 4 { // what a loss of power leaves then
		n := base + c.r.IntN(old.Len()+1-base)
		s, _ := c.match(old.Image(n, c.r), n, marks)
		must(c.t, s.Close())
	}
	n := old.Len()
	if c.r.IntN(2) == 0 {
		n = base + c.r.IntN(old.Len()+1-base)
	}
	next := old.Killed(n)
	if c.r.IntN(2) == 0 {
		next = old.Image(n, c.r)
	}
	s, m := c.match(next, n, slices.Clone(marks))
	c.d.s, c.d.m, c.fs = s, m, next
	return ended
}
