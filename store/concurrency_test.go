package store

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestManyGroupsAtOnce lets groups write, snapshot, compact, vote, read, send snapshots and disappear while segments are freed and
// gathered under them.
func TestManyGroupsAtOnce(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 256 << 10, TailCacheBytes: 64 << 10, LingerMax: 100 * time.Microsecond})
	const groups, entries = 8, 120
	var done atomic.Bool
	var readers sync.WaitGroup
	readers.Go(func() {
		for !done.Load() {
			s.Stats()
			s.Groups()
			s.SyncOutstanding()
			pause(time.Millisecond)
		}
	})
	var writers sync.WaitGroup
	for k := range groups {
		g := s.Group(GroupID(k + 1))
		var top atomic.Uint64
		readers.Go(func() {
			var l raft.Log
			for i := uint64(1); !done.Load(); i = i%max(top.Load(), 1) + 1 {
				if err := g.GetLog(i, &l); err == nil && (l.Index != i || l.Data[0] != byte(i)) {
					t.Errorf("group %d: entry %d reads as %d", g.ID(), i, l.Index)
				} else if err != nil && err != raft.ErrLogNotFound && !errors.Is(err, ErrGroupDeleted) {
					t.Error(err)
				}
				if i%10 == 0 {
					drain(t, g)
					pause(5 * time.Millisecond)
				}
			}
		})
		writers.Go(func() {
			if err := workGroup(g, entries, &top); err != nil {
				t.Errorf("group %d: %v", g.ID(), err)
			}
			if k%4 == 3 {
				if err := s.DeleteGroup(g.ID()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	s = reopen(t, s)
	for k := range groups {
		g := s.Group(GroupID(k + 1))
		if k%4 == 3 {
			bounds(t, g, 0, 0)
			continue
		}
		bounds(t, g, entries-19, entries)
		for i := uint64(40); i <= entries; i += 40 {
			wantBig(t, g, i)
		}
		if v, err := g.GetUint64([]byte(keyVoteTerm)); v != entries || err != nil {
			t.Errorf("vote of group %d: %d, %v", g.ID(), v, err)
		}
	}
}

// drain reads the newest snapshot to its end, if there is one.
func drain(t *testing.T, g *Group) {
	m, err := g.Snapshots().List()
	if err != nil || len(m) == 0 {
		return
	}
	meta, r, err := g.Snapshots().Open(m[0].ID)
	if err != nil {
		return // replaced or deleted meanwhile
	}
	n, err := io.Copy(io.Discard, r)
	if err := errors.Join(err, r.Close()); err != nil && !errors.Is(err, ErrGroupDeleted) {
		t.Errorf("stream of group %d: %v", g.ID(), err)
	} else if err == nil && n != meta.Size {
		t.Errorf("stream of group %d has %d bytes, want %d", g.ID(), n, meta.Size)
	}
}

// workGroup writes n entries and keeps every 40th.
func workGroup(g *Group, n uint64, top *atomic.Uint64) error {
	var pins []Range
	for i := uint64(1); i <= n; i++ {
		if err := g.StoreLog(&raft.Log{Index: i, Term: 1, Data: big(i)}); err != nil {
			return err
		}
		top.Store(i)
		if i%40 == 0 {
			pins = append(pins, Range{i, i})
		}
		if i%20 != 0 {
			continue
		}
		err := errors.Join(
			g.SetUint64([]byte(keyVoteTerm), i), g.Set([]byte(keyVoteCand), []byte("c")),
			snapshot(g, i, 1, fmt.Sprint(i), pins...), g.DeleteRange(1, i-20))
		if err != nil {
			return err
		}
	}
	return nil
}
