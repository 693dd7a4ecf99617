package store

import "testing"

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
	churn(t, g, 301, 2500, 3000)
	if n := s.Stats().CacheBytes; n > 3*slabBytes {
		t.Fatalf("%d bytes in the tail cache", n)
	}
}
