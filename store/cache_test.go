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
	for range 1000 { // what the keeper writes now and then has to be on disk
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
