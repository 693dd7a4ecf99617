package catalog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/warrenmq/warren/cluster/level"
)

// TestActivateLevel is the level in the machine, in a snapshot, and at the gate.
func TestActivateLevel(t *testing.T) {
	s := newScript(t)
	if s.view().Level() != level.First {
		t.Fatalf("a new cluster is at level %d", s.view().Level())
	}
	for _, n := range []int{-1, 0, 1, level.Now + 1} {
		if err := (&ActivateLevel{n}).validate(); err == nil {
			t.Errorf("level %d can be proposed", n)
		}
	}
	if r := s.ok(&ActivateLevel{2}); !r.Changed || s.view().Level() != 2 {
		t.Errorf("%+v, level %d", r, s.view().Level())
	}
	if r := s.ok(&ActivateLevel{2}); r.Changed {
		t.Error("taken twice")
	}
	v, _, err := readSnapshot(bytes.NewReader(snapshotBytes(t, s.m)))
	if err != nil || v.Level() != 2 {
		t.Errorf("restored: %v", err)
	}
	newer := *s.view()
	newer.level = level.Now + 1
	s.m.view.Store(&newer)
	if _, _, err := readSnapshot(bytes.NewReader(snapshotBytes(t, s.m))); !errors.Is(err, ErrMalformed) {
		t.Errorf("a snapshot of a later level: %v", err)
	}
	if _, _, err := decodeEntry(encodeEntry(requestID{}, &ActivateLevel{level.Now + 1})); err == nil {
		t.Error("a later level is understood")
	}
	if err := gate(&ActivateLevel{2}, 2); err == nil {
		t.Error("anybody can take a level")
	}
	if err := gate(declare("q"), level.First); err != nil {
		t.Errorf("at the first level: %v", err)
	}
}
