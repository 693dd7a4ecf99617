package store

import (
	"errors"
	"hash/crc32"
	"testing"

	"github.com/hashicorp/raft"
)

// TestChecksumTravels has one log store what another has, with its checksums, and finds damage in between.
func TestChecksumTravels(t *testing.T) {
	from := openTest(t, Options{Dir: t.TempDir()}).Group(1)
	s := openTest(t, Options{Dir: t.TempDir()})
	to := s.Group(1)
	const n = 20
	for i := uint64(1); i <= n; i++ {
		l := entry(i, 1+i/10, body(i))
		if i == n {
			l.Extensions = []byte("extended")
		}
		if err := from.StoreLog(l); err != nil {
			t.Fatal(err)
		}
		sum, ok := from.Checksum(i, l.Term)
		if ok != (i < n) || ok && sum != crc32.Checksum(l.Data, crcTable) {
			t.Fatalf("entry %d: checksum %x, %v", i, sum, ok)
		}
		if _, ok := from.Checksum(i, l.Term+1); ok {
			t.Fatalf("entry %d has the checksum of another term", i)
		}
		// The last one comes with the checksum of its data although the sender would not know it.
		b := Body{Pieces: [][]byte{[]byte(body(i))[:3], []byte(body(i))[3:]}, Sum: crc32.Checksum(l.Data, crcTable), Summed: true}
		b.Pieces[1][2] ^= 1
		for _, store := range []func([]*raft.Log, []Body) error{to.StoreBodies, to.StageBodies} {
			if err := store([]*raft.Log{l}, []Body{b}); !errors.Is(err, ErrDamagedBody) {
				t.Fatalf("entry %d, damaged: %v", i, err)
			}
		}
		bounds(t, to, min(1, i-1), i-1)
		b.Pieces[1][2] ^= 1
		if err := to.StoreBodies([]*raft.Log{l}, []Body{b}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := from.Checksum(n+1, 3); ok {
		t.Error("an entry that does not exist has a checksum")
	}
	to = reopen(t, s).Group(1)
	for i := uint64(1); i <= n; i++ {
		var l raft.Log
		if err := to.GetLog(i, &l); err != nil || string(l.Data) != body(i) || (i == n) != (string(l.Extensions) == "extended") {
			t.Fatalf("entry %d is %q, %q: %v", i, l.Data, l.Extensions, err)
		}
	}
}
