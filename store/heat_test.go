package store_test

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// Groups that were written to lately are hot after a start, however much others wrote long before.
func TestHeat(t *testing.T) {
	fs := crashfs.New()
	open := func() *store.Store {
		s, err := store.Open(store.Options{Dir: "/s", FS: fs, SegmentBytes: 8 << 20, TailCacheBytes: 1 << 10, OnFatal: func(err error) { panic(err) }})
		must(t, err)
		return s
	}
	write := func(s *store.Store, id store.GroupID, from uint64, n int) {
		for i := range n {
			must(t, s.Group(id).StoreLog(&raft.Log{Index: from + uint64(i), Term: 1, Data: bytes.Repeat([]byte{1}, 1<<20)}))
		}
	}
	s := open()
	write(s, 1, 1, 40) // the past
	write(s, 2, 1, 1)
	write(s, 3, 1, 30)
	write(s, 2, 2, 50)
	write(s, 4, 1, 10)
	must(t, s.Close())

	s = open()
	defer func() { must(t, s.Close()) }()
	heat := map[store.GroupID]int64{}
	for id := range store.GroupID(6) {
		heat[id] = s.Group(id).Heat() >> 20
	}
	if heat[1] != 0 || heat[5] != 0 || heat[2] != 50 || heat[4] != 10 || heat[3] >= 10 {
		t.Fatalf("MiB: %v", heat)
	}
	write(s, 1, 41, 2)
	if got := s.Group(1).Heat() >> 20; got != 2 {
		t.Fatalf("%d MiB after two more", got)
	}
}
