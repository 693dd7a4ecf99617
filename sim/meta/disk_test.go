package meta

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// TestPowerFailsAtEachWrite stores and deletes entries on a disk whose process ends at each write in turn, or between a write and its sync. What it leaves can be
// opened and has all that was over, and of what was not over all or nothing.
func TestPowerFailsAtEachWrite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	torn := 0
	for after := range 25 {
		for _, what := range []place{atWrite, atSync} {
			dir, over := folder(t), uint64(0)
			d := &disk{dir: dir, turn: make(chan struct{}, 1), rnd: r, tell: func([]*raft.Log, uint64, uint64) {}, broken: &fault{os.ErrClosed, what, after}}
			file := open(t, dir)
			ended := false
			d.die = func(error) {
				ended = true
				torn += len(d.pending)
				d.mu.Lock()
				d.over = true
				d.mu.Unlock()
				image := folder(t)
				if err := d.image(image, r.IntN(4) == 0, r); err != nil {
					t.Fatal(err)
				}
				left := open(t, image)
				first, _ := left.FirstIndex()
				last, _ := left.LastIndex()
				if last != over && last != over+1 {
					t.Fatalf("%s %d: %d entries were over, and the log ends with %d", what, after, over, last)
				}
				for i := max(first, 1); i <= last; i++ {
					var l raft.Log
					if err := left.GetLog(i, &l); err != nil || string(l.Data) != fmt.Sprint("entry ", i) {
						t.Fatalf("%s %d: entry %d is %q, %v", what, after, i, l.Data, err)
					}
				}
				if err := left.Close(); err != nil {
					t.Fatal(err)
				}
			}
			logs := d.Log(file)
			for i := uint64(1); !ended; i++ {
				if i%7 == 0 {
					first, _ := logs.FirstIndex()
					_ = logs.DeleteRange(first, i-3)
				}
				if ended {
					break
				}
				if _ = logs.StoreLog(&raft.Log{Index: i, Term: 1, Data: fmt.Append(nil, "entry ", i)}); !ended {
					over = i
				}
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if torn == 0 {
		t.Error("nothing was under way at any end: bbolt does not write by what is watched")
	}
}

func open(t *testing.T, dir string) *raftboltdb.BoltStore {
	t.Helper()
	file, err := raftboltdb.NewBoltStore(filepath.Join(dir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	return file
}
