package client

import (
	"errors"
	"testing"
	"time"
)

// TestAges: an age that is none is refused, and a short one is one: without the filter all dead letters of a queue would be sent back.
func TestAges(t *testing.T) {
	c := dialFake(t, startFake(t))
	for _, f := range []Filter{{OlderThan: -time.Second}, {NewerThan: -1}} {
		if _, err := c.Redrive(t.Context(), "q", RedriveConfig{Filter: f}); !errors.Is(err, ErrInvalid) {
			t.Errorf("redrive of %+v: %v", f, err)
		}
		for _, err := range c.Peek(t.Context(), "q", PeekConfig{Filter: f}) {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("peek at %+v: %v", f, err)
			}
		}
	}
	f := Filter{NewerThan: time.Microsecond, OlderThan: time.Millisecond + 1}
	if p, err := f.proto(); err != nil || p.GetNewerThanMillis() != 1 || p.GetOlderThanMillis() != 2 {
		t.Errorf("%v, %v", p, err)
	}
}
