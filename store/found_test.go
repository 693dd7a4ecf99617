package store_test

import (
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
)

// TestFoundingBeforeAVote crashes at every step of the founding of a replica, which is not waited for, and of a vote
// that follows: whoever finds the vote finds all of the founding, and a founding that was cut off can be repeated.
func TestFoundingBeforeAVote(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	o := store.Options{Dir: "/s", SegmentBytes: 64 << 10, OnFatal: func(err error) { t.Error(err) }}
	open := func(fs *crashfs.FS) *store.Store {
		o.FS = fs
		s, err := store.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	found := func(g *store.Group) error {
		return g.Found(1, &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: []byte("members")})
	}
	fs := crashfs.New()
	s := open(fs)
	before := fs.Len()
	g := s.Group(7)
	if err := found(g); err != nil {
		t.Fatal(err)
	}
	if term, err := g.GetUint64([]byte("CurrentTerm")); err != nil || term != 1 {
		t.Fatalf("term %d, %v", term, err)
	}
	if err := g.SetUint64([]byte("LastVoteTerm"), 2); err != nil {
		t.Fatal(err)
	}
	if err := g.Set([]byte("LastVoteCand"), []byte("n1")); err != nil {
		t.Fatal(err)
	}
	if err := found(g); err == nil {
		t.Fatal("a replica that has voted was founded again")
	}
	voted := fs.Len()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	forgotten := 0
	for n := before; n <= voted; n++ {
		for range 4 {
			s := open(fs.Image(n, r))
			g := s.Group(7)
			last, err := g.LastIndex()
			if err != nil {
				t.Fatal(err)
			}
			_, noVote := g.Get([]byte("LastVoteCand"))
			term, noTerm := g.GetUint64([]byte("CurrentTerm"))
			switch {
			case noVote == nil && (last != 1 || noTerm != nil || term != 1):
				t.Fatalf("crash at %d: a vote without the founding, log up to %d, term %d", n, last, term)
			case n == voted && noVote != nil:
				t.Fatalf("crash at %d: the vote is lost", n)
			case last == 0:
				forgotten++
				if err := found(g); err != nil {
					t.Fatalf("crash at %d: %v", n, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if forgotten == 0 {
		t.Error("no crash came before the founding was on disk")
	}
}
