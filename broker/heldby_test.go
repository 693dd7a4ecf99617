package broker

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// A channel that ends returns what it holds and looks at nothing else: thousands may end at once, with hundreds of messages each.
func TestChannelReturnsWhatItHolds(t *testing.T) {
	r := newStreamRig(t)
	r.level = levelUnsent
	s := r.s
	s.leader = "leader"
	one, two, three := &Channel{}, &Channel{}, &Channel{}
	for id := queue.MessageID(1); id <= 9; id++ {
		h := &holding{no: 1, unsent: id == 7}
		s.holdLocked(id, h)
		s.ownLocked(h, []*Channel{one, two, three}[id%3])
	}
	s.settle(fsm.Ack, 4, 0)
	s.flush()
	s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: 1, Next: 2})
	s.holdLocked(5, &holding{no: 2}) // it has come again, for somebody else
	s.ownLocked(s.held[5], one)
	s.held[99] = nil // who looks at it panics
	sent[*wire.Batch](r)
	s.returnAll(two) // 1, 7, which was not sent, and not 4 any more
	s.returnAll(three)
	s.returnAll(one)
	var runs []fsm.Run
	for _, b := range sent[*wire.Batch](r) {
		for _, op := range b.Stream.Ops {
			runs = append(runs, op.(fsm.Settle).Runs...)
		}
	}
	var back []queue.MessageID
	for _, run := range runs {
		for i := range run.Count {
			back = append(back, run.First+queue.MessageID(i))
		}
	}
	if want := []queue.MessageID{1, 2, 8, 3, 5, 6, 9}; !slices.Equal(back, want) {
		t.Fatalf("returned %v, want %v", back, want)
	}
	if u := sent[*wire.Unsent](r); len(u) != 1 || u[0].Runs[0].First != 7 {
		t.Fatalf("given back: %+v", u)
	}
	delete(s.held, 99)
	s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: s.next - 1, Above: 1, Next: s.next})
	if len(s.held)+len(s.heldBy) > 0 {
		t.Fatalf("%d are held, of %d channels", len(s.held), len(s.heldBy))
	}
}
