package store

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/hashicorp/raft"
)

// TestOpenState reads a state although a newer snapshot has let go of its entries, and installs it in another store.
func TestOpenState(t *testing.T) {
	s := openTest(t, Options{Dir: t.TempDir()})
	g := s.Group(1)
	if err := g.StoreLogs([]*raft.Log{entry(1, 1, "one"), entry(2, 1, "two"), entry(3, 2, "three"), entry(4, 2, "four")}); err != nil {
		t.Fatal(err)
	}
	r, size, err := g.OpenState(3, []byte("manifest"), []Range{{1, 1}, {3, 3}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := snapshot(g, 4, 2, "newer", Range{4, 4}); err != nil {
		t.Fatal(err)
	}
	if err := g.DeleteRange(1, 4); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Read(1); !errors.Is(err, raft.ErrLogNotFound) {
		t.Fatalf("entry 1: %v", err)
	}
	if _, _, err := g.OpenState(3, nil, []Range{{1, 1}}); err == nil {
		t.Fatal("opened a state whose entries are gone")
	} else if missing := new(MissingPinError); !errors.As(err, &missing) || missing.Index != 1 {
		t.Fatal(err)
	}
	if _, _, err := g.OpenState(3, nil, []Range{{4, 4}}); !errors.Is(err, ErrLogRange) {
		t.Fatalf("a pin above the state: %v", err)
	}
	stream, err := io.ReadAll(r)
	if err != nil || int64(len(stream)) != size {
		t.Fatalf("%d bytes of %d: %v", len(stream), size, err)
	}
	other := openTest(t, Options{Dir: t.TempDir()}).Group(7)
	k := create(t, other, 3, 2)
	if _, err := k.Write(stream); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if got := streamOf(t, other); !bytes.Equal(got, stream) {
		t.Error("what was installed is something else")
	}
	if b, err := other.Read(3); err != nil || string(b) != "three" {
		t.Errorf("entry 3 is %q (%v)", b, err)
	}
}
