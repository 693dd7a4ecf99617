package grpc

import (
	"testing"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// TestUnreadFailuresAreBounded: whoever publishes what fails, and reads no results, is not read after some of them.
func TestUnreadFailuresAreBounded(t *testing.T) {
	t.Parallel()
	s := New(Config{MessageBytesMax: 1 << 20}, nil)
	// Its channel is closed: what would wait for room fails.
	x := &publishStream{session: &session{s: s, ctx: t.Context(), closed: true}, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	if err := x.publish(&warrenv1.PublishStreamRequest{Publications: make([]*warrenv1.Publication, 10*failuresMax)}); err == nil {
		t.Error("everything was published")
	}
	if len(x.results) != failuresMax {
		t.Errorf("%d results wait to be sent, want %d", len(x.results), failuresMax)
	}
}
