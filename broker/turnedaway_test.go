package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue/wire"
)

// A consumer whose attach is answered while its node answers a roll call is not named there, and attaches again. If another client has the queue
// exclusively by then, it is refused: its client hears that it has ended, and does not wait for messages that never come.
func TestConsumerTurnedAwayEnds(t *testing.T) {
	r := newStreamRig(t)
	s := r.s
	mine := &client{t: t}
	c := &Consumer{no: 1, ch: &Channel{sink: mine}, spec: Consume{Tag: "mine", Exclusive: true}}
	c.stream.Store(s)
	s.consumers[1] = c
	attached := make(chan error, 1)
	go func() {
		_, err := s.ask(t.Context(), 1, func(uint64) wire.Message { return &wire.Attach{Queue: 7, Origin: rigOrigin, Consumer: c.describe()} })
		attached <- err
	}()
	for len(sent[*wire.Attach](r)) == 0 {
		time.Sleep(time.Millisecond)
	}
	s.rollCall("leader", 5)
	if told := sent[*wire.Resync](r); len(told) == 0 || len(told[len(told)-1].Consumers) != 0 {
		t.Fatalf("the roll call is answered with %+v", told)
	}
	if again := sent[*wire.Attach](r); len(again) != 1 {
		t.Fatalf("it attaches again %d times", len(again))
	}
	s.attachedMsg(&wire.Attached{Queue: 7, No: 1}) // the answer to the first one
	if err := <-attached; err != nil || !c.attached {
		t.Fatalf("attached %v: %v", c.attached, err)
	}
	s.attachedMsg(&wire.Attached{Queue: 7, No: 1, Refusal: "exclusive"})
	if !slices.Equal(mine.cancelled, []string{"mine"}) {
		t.Errorf("cancelled: %q", mine.cancelled)
	}
	if left := sent[*wire.Detach](r); len(s.consumers) != 0 || len(left) != 1 || left[0].No != 1 {
		t.Errorf("there are %d consumers, and the leader is told %+v", len(s.consumers), left)
	}
	s.attachedMsg(&wire.Attached{Queue: 7, No: 1, Refusal: "exclusive"}) // says the same once more
	if len(mine.cancelled) != 1 {
		t.Errorf("cancelled again: %q", mine.cancelled)
	}
}
