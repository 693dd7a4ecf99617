package store

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// BenchmarkStoreLogs writes single entries, each caller waiting for its own to be durable.
func BenchmarkStoreLogs(b *testing.B) {
	for _, size := range []int{1 << 10, 32 << 10} {
		for _, groups := range []int{1, 50} {
			for _, linger := range []time.Duration{0, lingerMax} {
				if groups == 1 && linger > 0 {
					continue
				}
				b.Run(fmt.Sprintf("bytes=%d/groups=%d/linger=%v", size, groups, linger), func(b *testing.B) {
					benchStoreLogs(b, size, groups, linger)
				})
			}
		}
	}
}

func benchStoreLogs(b *testing.B, size, groups int, linger time.Duration) {
	s := openTest(b, Options{Dir: b.TempDir(), LingerMax: linger})
	data := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for k := range groups {
		g := s.Group(GroupID(k + 1))
		wg.Go(func() {
			n := b.N / groups
			if k < b.N%groups {
				n++
			}
			for i := range n {
				if err := g.StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1, Data: data}); err != nil {
					b.Error(err)
					return
				}
				if i%1000 == 999 { // as compaction would
					if err := g.DeleteRange(1, uint64(i)); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	st := s.Stats()
	b.ReportMetric(float64(st.Records)/float64(st.Syncs), "records/sync")
}

// BenchmarkStoreBatch writes 64 entries a call, as raft does under load.
func BenchmarkStoreBatch(b *testing.B) {
	s := openTest(b, Options{Dir: b.TempDir()})
	g := s.Group(1)
	const batch, size = 64, 1 << 10
	logs := make([]*raft.Log, batch)
	data := make([]byte, size)
	b.SetBytes(batch * size)
	b.ReportAllocs()
	next := uint64(1)
	for b.Loop() {
		for i := range logs {
			logs[i] = &raft.Log{Index: next, Term: 1, Data: data}
			next++
		}
		if err := g.StoreLogs(logs); err != nil {
			b.Fatal(err)
		}
		if next%6400 == 1 {
			if err := g.DeleteRange(1, next-100); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkGetLog reads from the tail cache and from disk.
func BenchmarkGetLog(b *testing.B) {
	for name, cache := range map[string]int64{"cache": 64 << 20, "disk": 1} {
		b.Run(name, func(b *testing.B) {
			s := openTest(b, Options{Dir: b.TempDir(), TailCacheBytes: cache})
			g := s.Group(1)
			const n = 10000
			logs := make([]*raft.Log, n)
			for i := range logs {
				logs[i] = &raft.Log{Index: uint64(i + 1), Term: 1, Data: make([]byte, 1<<10)}
			}
			if err := g.StoreLogs(logs); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var l raft.Log
			i := uint64(0)
			for b.Loop() {
				i = i%n + 1
				if err := g.GetLog(i, &l); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen recovers a store of 10,000 groups.
func BenchmarkOpen(b *testing.B) {
	const groups = 10000
	dir := b.TempDir()
	s, err := Open(Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() {
			for i := k; i < groups; i += 16 {
				g := s.Group(GroupID(i + 1))
				if err := g.StoreLogs([]*raft.Log{entry(1, 1, "configuration"), entry(2, 1, "no-op"), entry(3, 1, body(3))}); err != nil {
					b.Error(err)
				}
				if err := g.SetUint64([]byte("CurrentTerm"), 1); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s, err := Open(Options{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpenEmpty makes a new store.
func BenchmarkOpenEmpty(b *testing.B) {
	for b.Loop() {
		s, err := Open(Options{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBacklog grows a log that nothing is removed from, so that every segment is new.
func BenchmarkBacklog(b *testing.B) {
	const groups, size = 50, 32 << 10
	s := openTest(b, Options{Dir: b.TempDir()})
	data := make([]byte, size)
	b.SetBytes(size)
	b.ResetTimer()
	var wg sync.WaitGroup
	for k := range groups {
		g := s.Group(GroupID(k + 1))
		wg.Go(func() {
			for i := range b.N / groups {
				if err := g.StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1, Data: data}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
