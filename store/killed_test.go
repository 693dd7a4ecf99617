package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// nearlyFull is the size of an entry behind which a write of 3000 bytes leaves less room in the segment than a process needs to begin.
const nearlyFull = 64<<10 - firstRecord - recordBytes - 3000 - 8

// killedAt checks a process that follows one which was killed before step n: whatever the disk keeps when the power fails at any moment
// after that, the store opens, and has what it told the second process.
func killedAt(t *testing.T, fs *crashfs.FS, n int, r *rand.Rand) {
	t.Helper()
	second := fs.Killed(n)
	s := openOn(t, second)
	told, err := s.Group(1).LastIndex()
	must(t, err)
	opened := second.Len()
	must(t, s.Close())
	for m := n; m <= second.Len(); m++ {
		for range 8 {
			s, err := store.Open(store.Options{Dir: "/s", FS: second.Image(m, r), SegmentBytes: 64 << 10})
			if err != nil {
				t.Fatalf("killed at %d, power failed at %d, open at %d: %v", n, m, opened, err)
			}
			last, err := s.Group(1).LastIndex()
			must(t, err)
			must(t, s.Close())
			if m >= opened && last < told {
				t.Fatalf("killed at %d, power failed at %d, open at %d: the log ends at %d, and the process was told %d", n, m, opened, last, told)
			}
		}
	}
}

// TestKilledThenPowerFails: what a process finds in the page cache behind the last sync of one that was killed is not on the disk yet. It
// may not count on it, nor write behind it, before it is.
func TestKilledThenPowerFails(t *testing.T) {
	for _, first := range []int{500, nearlyFull} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(first)))
			fs := crashfs.New()
			s := openOn(t, fs)
			must(t, s.Group(1).StoreLogs(logs(1, first)))
			n := fs.Len()
			must(t, s.Group(1).StoreLogs(logs(2, 1400, 1472)))
			until := fs.Len()
			must(t, s.Close())
			for ; n <= until; n++ {
				killedAt(t, fs, n, r)
			}
		})
	}
}

// TestSyncFailsThenPowerFails: after a sync that failed, the kernel has what was written and never writes it again by itself. The next process
// reads it, and has to write it once more before it counts.
func TestSyncFailsThenPowerFails(t *testing.T) {
	for _, first := range []int{500, nearlyFull} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			r := rand.New(rand.NewPCG(2, uint64(first)))
			fs := crashfs.New()
			s, err := store.Open(store.Options{Dir: "/s", FS: fs, SegmentBytes: 64 << 10, OnFatal: func(error) {}})
			must(t, err)
			must(t, s.Group(1).StoreLogs(logs(1, first)))
			fs.Fail(func(o crashfs.Op) error {
				if o == crashfs.OpSync {
					return syscall.EIO
				}
				return nil
			})
			if err := s.Group(1).StoreLogs(logs(2, 1400, 1472)); !errors.Is(err, syscall.EIO) {
				t.Fatalf("write: %v", err)
			}
			must(t, s.Close())
			killedAt(t, fs, fs.Len(), r)
		})
	}
}
