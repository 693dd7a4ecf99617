package grpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
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

// sentResults is a stream that keeps what is sent.
type sentResults struct {
	grpc.BidiStreamingServer[warrenv1.PublishStreamRequest, warrenv1.PublishStreamResponse]
	sent []*warrenv1.PublishStreamResponse
}

func (s *sentResults) Send(r *warrenv1.PublishStreamResponse) error {
	s.sent = append(s.sent, r)
	return nil
}

// TestRefusedSaysWhy: a message whose queue was deleted is told from one whose queue is full, also if their results go together.
func TestRefusedSaysWhy(t *testing.T) {
	t.Parallel()
	to := &sentResults{}
	x := &publishStream{session: &session{s: New(Config{}, nil), ctx: t.Context()}, stream: to, wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	x.Confirm([]broker.Confirm{{Tag: 1, Refused: true}, {Tag: 2, Refused: true, Deleted: true}, {Tag: 3, Refused: true}, {Tag: 4, Refused: true}, {Tag: 5}})
	if err := x.sendResults(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range to.sent[0].GetResults() {
		got = append(got, fmt.Sprintln(r.GetFirst(), r.GetLast(), int(r.GetOutcome()), r.GetError().GetReason()))
	}
	if want := []string{"1 1 3", "2 2 3 QUEUE_DELETED", "3 4 3", "5 5 1"}; !slices.EqualFunc(got, want, func(g, w string) bool { return strings.TrimSpace(g) == w }) {
		t.Errorf("got %q, want %q", got, want)
	}
	if x.failures != 0 {
		t.Errorf("%d results with an error wait to be sent", x.failures)
	}
}
