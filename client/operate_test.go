package client

import (
	"errors"
	"testing"
	"time"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
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

// TestRedriveEnds: a redrive whose queue is declared anew ends with an error, and does not take another one for its own; a leader that does not have it yet is
// asked again.
func TestRedriveEnds(t *testing.T) {
	status := func(number, started uint64, state warrenv1.RedriveState) *warrenv1.RedriveStatus {
		return &warrenv1.RedriveStatus{Number: number, StartedAtMillis: started, State: state, Moved: started}
	}
	const running, done = warrenv1.RedriveState_REDRIVE_STATE_RUNNING, warrenv1.RedriveState_REDRIVE_STATE_DONE
	begun, none := status(1, 7, running), status(0, 0, warrenv1.RedriveState_REDRIVE_STATE_UNSPECIFIED)
	for name, c := range map[string]struct {
		told []*warrenv1.RedriveStatus
		want error
	}{
		"done":                       {[]*warrenv1.RedriveStatus{begun, begun, status(1, 7, done)}, nil},
		"a leader has it later":      {[]*warrenv1.RedriveStatus{begun, none, none, status(1, 7, done)}, nil},
		"declared anew":              {[]*warrenv1.RedriveStatus{begun, begun, none}, ErrNotFound},
		"another one of a new queue": {[]*warrenv1.RedriveStatus{begun, status(1, 9, done)}, ErrNotFound},
		"another one":                {[]*warrenv1.RedriveStatus{begun, status(2, 9, done)}, ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t)
			f.redrive = c.told
			got, err := dialFake(t, f).Redrive(t.Context(), "q", RedriveConfig{})
			if !errors.Is(err, c.want) || got.Moved != 7 {
				t.Errorf("%+v, %v, want %v", got, err, c.want)
			}
		})
	}
}
