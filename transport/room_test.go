package transport

import (
	"errors"
	"testing"
)

// TestRoom: while a lane has room it takes a quarter of its bound and a frame of any size.
func TestRoom(t *testing.T) {
	const bound = 1 << 20
	o := newOutbox(bound, new(bufferPool))
	fill := func(size int) error { return o.put(laneApp, frameApp, []byte{1}, make([]byte, size)) }
	for o.hasRoom(laneApp) {
		if err := fill(1000); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := o.take(); !ok || !o.hasRoom(laneApp) {
		t.Fatal("no room although it was taken")
	}
	for range 3 {
		if err := fill(bound / 4 / 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := fill(bound/4 - 1000); err != nil {
		t.Fatal(err)
	}
	if err := fill(4 * bound); err != nil {
		t.Errorf("a large one: %v", err)
	}
	if o.hasRoom(laneApp) || !o.hasRoom(laneRaft) {
		t.Error("the room is wrong")
	}
	if err := fill(bound); !errors.Is(err, ErrBacklog) {
		t.Errorf("one more: %v", err)
	}
}
