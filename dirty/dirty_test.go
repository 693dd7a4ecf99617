package dirty_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/warrenmq/warren/dirty"
)

func TestLend(t *testing.T) {
	for _, n := range []int{0, 1, 16 << 10, 64 << 10, 69 << 10, 256<<10 + 700, 1 << 20, 4 << 20, 5 << 20} {
		b := dirty.Lend(n)
		if len(b) != n {
			t.Fatalf("%d bytes: length %d", n, len(b))
		}
		clear(b)
		dirty.Return(b[:n/2]) // of any length
		if again := dirty.Lend(n); len(again) != n {
			t.Fatalf("%d bytes again: length %d", n, len(again))
		}
	}
	for _, b := range [][]byte{nil, {}, make([]byte, 10), make([]byte, 100<<10), dirty.Lend(256 << 10)[1:]} {
		dirty.Return(b) // which it did not lend
	}
	if b := dirty.Lend(300 << 10); len(b) != 300<<10 {
		t.Fatalf("length %d", len(b))
	}
}

// Two never have the same memory.
func TestLendApart(t *testing.T) {
	var group sync.WaitGroup
	for i := range byte(8) {
		group.Go(func() {
			for range 200 {
				b := dirty.Lend(100 << 10)
				for j := 0; j < len(b); j += 512 {
					b[j] = i
				}
				runtime.Gosched()
				for j := 0; j < len(b); j += 512 {
					if b[j] != i {
						t.Errorf("another wrote into what was lent")
						return
					}
				}
				dirty.Return(b)
			}
		})
	}
	group.Wait()
}

// Whoever goes on reading what was returned reads a pattern, and who goes on writing is found out.
func TestPoison(t *testing.T) {
	dirty.Poison()
	b := dirty.Lend(100 << 10)
	copy(b, "still read by somebody")
	dirty.Return(b[:10])
	if got := string(b[:5]); got != "\xdb\xdb\xdb\xdb\xdb" {
		t.Errorf("returned memory reads %q", got)
	}
	kept := []byte("kept by somebody else")
	if dirty.Spoil(kept); string(kept[:5]) != "\xdb\xdb\xdb\xdb\xdb" {
		t.Errorf("spoilt memory reads %q", kept)
	}
	// A pool may forget what it is given, so it is tried until one comes back.
	for range 100 {
		b := dirty.Lend(200 << 10)
		dirty.Return(b)
		b[150<<10] = 1
		if lendPanics(200 << 10) {
			return
		}
	}
	t.Error("nobody noticed that returned memory was written to")
}

func lendPanics(n int) (yes bool) {
	defer func() { yes = recover() != nil }()
	dirty.Lend(n)
	return false
}
