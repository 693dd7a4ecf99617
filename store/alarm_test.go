package store_test

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// publish makes a snapshot that pins these entries.
func publish(t *testing.T, g *store.Group, index uint64, pins []store.Range) {
	t.Helper()
	k, err := g.Snapshots().Create(1, index, 1, config, 1, nil)
	must(t, err)
	must(t, k.(store.ManifestSink).WriteManifest([]byte("manifest"), pins))
	must(t, k.Close())
}

// sift writes n entries of about 4 KiB behind index and keeps every nth of them besides pins.
func sift(t *testing.T, g *store.Group, index uint64, n, nth int, pins []store.Range) (uint64, []store.Range) {
	t.Helper()
	for i := range n {
		index++
		must(t, g.StoreLog(&raft.Log{Index: index, Term: 1, Data: bytes.Repeat([]byte{byte(index)}, 4000)}))
		if i%nth == nth-1 {
			pins = append(pins, store.Range{First: index, Last: index})
		}
	}
	publish(t, g, index, pins)
	must(t, g.DeleteRange(1, index))
	return index, pins
}

// TestAlarmEnds: while space is short the keeper copies less than was written and then rests, so that what comes next is freed, too; and
// in the end, when nothing is alive any more, all of it.
func TestAlarmEnds(t *testing.T) {
	fs := crashfs.New()
	o := recycleOptions(fs)
	o.DiskReserveBytes = 1 << 50
	s, err := store.Open(o)
	must(t, err)
	g := s.Group(1)
	within := func(segments int) {
		t.Helper()
		mustWithin(t, "space does not follow what is alive", func() bool {
			st := s.Stats()
			if st.CopiedBytes > st.WrittenBytes {
				t.Fatalf("%d bytes copied of %d", st.CopiedBytes, st.WrittenBytes)
			}
			return st.Segments <= segments
		})
	}
	var index uint64
	var pins []store.Range
	for range 5 {
		index, pins = sift(t, g, index, 60, 30, pins)
	}
	within(10)
	for range 20 {
		index, _ = sift(t, g, index, 60, 100, pins)
	}
	within(10)
	for _, p := range pins {
		got, err := g.Read(p.First)
		if want := bytes.Repeat([]byte{byte(p.First)}, 4000); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("entry %d: %d bytes, %v", p.First, len(got), err)
		}
	}
	for len(pins) > 0 {
		pins = pins[1:]
		index, _ = sift(t, g, index, 20, 100, pins)
	}
	within(4)
	st := s.Stats()
	t.Logf("%d bytes written, %d copied, %d segments freed", st.WrittenBytes, st.CopiedBytes, st.FreedSegments)
	must(t, s.Close())
}
