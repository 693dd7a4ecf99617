package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
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
	until(t, "the attach", func() bool { return len(sent[*wire.Attach](r)) > 0 })
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

// A consumer whose end, or whose coming, the link to the leader has no room for, and whose client does not wait any longer, does not stay at the leader.
func TestConsumerGivenUpLeaves(t *testing.T) {
	for name, giveUp := range map[string]func(c *Consumer, ctx context.Context) error{
		"cancelled": func(c *Consumer, ctx context.Context) error { return c.askDetach(ctx, false) },
		"attached": func(c *Consumer, ctx context.Context) error {
			s := c.stream.Load()
			_, err := s.ask(ctx, 1, func(uint64) wire.Message { return &wire.Attach{Queue: 7, Origin: rigOrigin, Consumer: c.describe()} })
			s.leave(c.no, false, err)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newStreamRig(t)
			s := r.s
			s.leader = "leader"
			c := &Consumer{no: 1, attached: name == "cancelled"}
			c.stream.Store(s)
			s.consumers[1] = c
			r.down, r.full = true, true
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := giveUp(c, ctx); !isTimeout(err) {
				t.Fatal(err)
			}
			r.down, r.full = false, false
			for s.retry() {
			}
			if told := sent[*wire.Resync](r); len(told) != 1 || len(told[0].Consumers)+len(told[0].Attaching) != 0 {
				t.Errorf("the leader is told %+v", told)
			}
		})
	}
}

// What a consumer that is turned away has at its gateway, for a limit of its channel, is nobody's: it goes back, also where leaders do not know yet how. What
// its client has seen stays with that.
func TestTurnedAwayKeepsNothingUnseen(t *testing.T) {
	for _, level := range []int{levelUnsent - 1, levelUnsent} {
		r := newStreamRig(t)
		r.level = level
		s := r.s
		s.leader = "leader"
		mine := &client{t: t}
		ch := &Channel{sink: mine}
		c := &Consumer{no: 1, ch: ch, attached: true, spec: Consume{Tag: "mine", Exclusive: true}}
		c.stream.Store(s)
		s.consumers[1] = c
		for id, unsent := range map[queue.MessageID]bool{5: false, 6: true} {
			h := &holding{no: 1, unsent: unsent}
			s.holdLocked(id, h)
			s.ownLocked(h, ch)
		}
		s.attachedMsg(&wire.Attached{Queue: 7, No: 1, Refusal: "exclusive"})
		if !slices.Equal(mine.cancelled, []string{"mine"}) {
			t.Errorf("cancelled: %q", mine.cancelled)
		}
		if h := s.held[5]; h == nil || h.settled > 0 {
			t.Errorf("what the client has: %+v", h)
		}
		back := sent[*wire.Unsent](r)
		h := s.held[6]
		if level < levelUnsent && (len(back) != 0 || h == nil || h.settled == 0) || level == levelUnsent && (len(back) != 1 || back[0].Runs[0].First != 6 || h != nil) {
			t.Errorf("level %d: went back %+v, held is %+v", level, back, h)
		}
	}
}
