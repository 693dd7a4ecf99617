package store

import (
	"testing"
	"time"
)

func TestReadCacheIsBounded(t *testing.T) {
	c := readCache{bytesMax: 1000}
	for i := range uint32(500) {
		l := loc{1, i, 0}
		c.add(l, make([]byte, 100))
		c.add(l, make([]byte, 100))
		if c.get(l) == nil {
			t.Fatalf("record %d is not kept", i)
		}
		if c.bytes > 1000 || len(c.records) > 10 || len(c.order) > 32 {
			t.Fatalf("%d bytes, %d records, %d places", c.bytes, len(c.records), len(c.order))
		}
	}
	if c.get(loc{1, 480, 0}) != nil {
		t.Error("an old record is still there")
	}
	c.add(loc{2, 0, 0}, make([]byte, 1001))
	if c.get(loc{2, 0, 0}) != nil {
		t.Error("a record above the bound is kept")
	}
}

// TestTailCacheServesTheNewest reads from memory what was appended last, across slabs and segments.
func TestTailCacheServesTheNewest(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 256 << 10, TailCacheBytes: 3 * slabBytes})
	g := s.Group(1)
	for i := uint64(1); i <= 300; i++ {
		fill(t, g, i, i, 1)
	}
	for i := uint64(1); i <= 300; i++ {
		l, ok := g.entries.get(i)
		if b := s.cache.get(l); !ok || string(b[headerBytes:]) != body(i) {
			t.Fatalf("entry %d at %v is %q in memory", i, l, b)
		}
	}
	if b := s.cache.get(loc{9, 4096, 1}); b != nil {
		t.Fatal("a place that does not exist is in memory")
	}
	s.Shed()
	for i := uint64(1); i <= 310; i++ {
		if i > 300 {
			fill(t, g, i, i, 1)
		}
		if b, err := g.Read(i); err != nil || string(b) != body(i) {
			t.Fatalf("entry %d after the cache was shed: %q, %v", i, b, err)
		}
	}
	churn(t, g, 311, 2500, 3000)
	if n := s.Stats().CacheBytes; n > 3*slabBytes {
		t.Fatalf("%d bytes in the tail cache", n)
	}
}

// TestShed gives the memory of the caches back.
func TestShed(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir(), SegmentBytes: 1 << 20})
	g := s.Group(1)
	churn(t, g, 1, 3000, 3000)
	before := s.Stats().CacheBytes
	s.reads.add(loc{9, 9, 9}, make([]byte, 100))
	after := before
	for range 30_000 { // what the keeper writes now and then has to be on disk
		if s.Shed(); s.Stats().CacheBytes < before {
			after = s.Stats().CacheBytes
			break
		}
		time.Sleep(time.Millisecond)
	}
	if before < 2<<20 || after > slabBytes+2*PageBytes || s.reads.bytes != 0 || s.reads.get(loc{9, 9, 9}) != nil {
		t.Fatalf("%d bytes in the tail cache, %d after Shed, %d of what was read", before, after, s.reads.bytes)
	}
}

// TestTailCacheGrowsWithWhatIsRead has a reader follow the writer at some distance: while that is a little more than the bound the cache grows to hold
// it, and gives the memory back when the reader is gone. One that is far behind, in a backlog, changes nothing.
func TestTailCacheGrowsWithWhatIsRead(t *testing.T) {
	const bytesMax, room = 4 * slabBytes, 2 * tailGrowth * 4 * slabBytes
	c := &tailCache{bytesMax: bytesMax}
	var end int64
	// step appends a slab and reads what was written behind bytes before the end; 0 reads nothing.
	step := func(behind int64) (hit bool) {
		b := newSlab(uint32(end/room)+1, segmentHeadBytes+end%room, slabBytes, nil)
		b.used = len(b.buf)
		c.add(b)
		end += int64(len(b.buf))
		if at := end - behind; behind > 0 && at >= 0 {
			hit = c.get(loc{segment: uint32(at/room) + 1, off: uint32(segmentHeadBytes + at%room), bodyBytes: 8}) != nil
		}
		if c.bytes > tailGrowth*bytesMax || len(c.left) > tailGrowth*bytesMax/slabBytes {
			t.Fatalf("%d bytes in the cache, %d places", c.bytes, len(c.left))
		}
		return hit
	}
	for _, test := range []struct {
		name   string
		behind int64
		hits   bool
		bytes  int64
	}{
		{"close", bytesMax / 2, true, bytesMax},
		{"just behind", bytesMax * 3 / 2, true, tailGrowth * bytesMax},
		{"gone", 0, false, bytesMax},
		{"in a backlog", 20 * bytesMax, false, bytesMax},
	} {
		hit := false
		for range 2*tailRest + room/slabBytes {
			hit = step(test.behind)
		}
		if hit != test.hits || c.bytes > test.bytes {
			t.Errorf("%s: %v, %d bytes, want %v and at most %d", test.name, hit, c.bytes, test.hits, test.bytes)
		}
	}
	for range 2 * tailRest {
		step(bytesMax * 3 / 2)
	}
	c.shed()
	if c.grown != 0 || len(c.slabs) != 1 {
		t.Errorf("%d bytes more than the bound, %d slabs after it was shed", c.grown, len(c.slabs))
	}
}
