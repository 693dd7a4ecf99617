package leader

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// The node that has the messages is silent when the leader changes: whoever gets them next has
// them under a higher count, in order, before what follows them, and the former holder's
// settlements name holdings that are over.
func TestHoldsOfASilentNodeAreCounted(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(b, 1, 3)
	r.publish(a, "1", "2", "3")
	held := r.items(b, 3)
	r.lead()
	r.answerRoll(a) // b says nothing
	r.publish(a, "4")
	r.attach(a, 1, 10)
	got := r.items(a, 4)
	if list := r.bodies(got); !slices.Equal(list, []string{"1", "2", "3", "4"}) {
		t.Fatalf("got %v", list)
	}
	for i, it := range got {
		want := uint32(1)
		if i == 3 {
			want = 0
		}
		if it.Attempt != want || it.Failed != 0 || it.Redelivered != (want > 0) {
			t.Errorf("message %d: %+v", it.ID, it)
		}
	}
	// b is heard again and settles what it had.
	r.l.Receive(b.ID, &wire.Resync{Queue: 7, Session: r.session, No: 2, Origin: b.Origin, Held: []wire.Hold{{No: 1, ID: 1}, {No: 1, ID: 2}, {No: 1, ID: 3}}})
	r.settle(b, fsm.Ack, held...)
	if s := r.status(b, 1); s.Unacked != 4 || s.Ready != 0 {
		t.Errorf("after late acks: %+v", s)
	}
	r.settle(a, fsm.Ack, got...)
	if s := r.status(a, 2); s.Unacked != 0 || s.Ready != 0 {
		t.Errorf("after acks: %+v", s)
	}
}

// Gets count as consumers do; what came back in this session is not counted twice.
func TestRecountedOnce(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1")
	r.get(a, 1)
	r.lead()
	r.answerRoll(a)
	for i := uint64(1); i < 4; i++ {
		g := r.get(a, 1+i)
		if g.Item.Attempt != uint32(i) {
			t.Fatalf("delivery %d under %d", i, g.Item.Attempt)
		}
		r.settle(a, fsm.RequeueCounted, g.Item)
	}
	r.status(a, 8) // the last one is in the log: nobody would send it again to the next leader, as nodes do
	r.lead()
	r.answerRoll(a)
	if g := r.get(a, 9); g.Item.Attempt != 5 {
		t.Fatalf("behind the next leader under %d", g.Item.Attempt)
	}
}

// A node that is heard before anybody else could have its messages keeps them, uncounted.
func TestLateClaimIsNotCounted(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(b, 1, 1)
	r.publish(a, "1", "2")
	held := r.items(b, 1)
	r.lead()
	r.answerRoll(a)
	r.status(a, 1)
	r.l.Receive(b.ID, &wire.Resync{Queue: 7, Session: r.session, No: 2, Origin: b.Origin, Held: []wire.Hold{{No: 1, ID: 1}}})
	r.attach(a, 1, 10)
	if got := r.items(a, 1); bodyOf(t, got[0]) != "2" {
		t.Fatalf("got %+v", got)
	}
	r.settle(b, fsm.Ack, held...)
	if s := r.status(b, 2); s.Unacked != 1 {
		t.Errorf("%+v", s)
	}
}

// What consumers have room for is counted, in one entry, and no more.
func TestRecountIsAsLargeAsTheRoom(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "2", "3")
	r.attach(a, 1, 3)
	r.items(a, 3)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	r.attach(a, 2, 2)
	data := <-slow.held
	e, err := fsm.DecodeEntry(data)
	if err != nil {
		t.Fatal(err)
	}
	ret, ok := e.Commands[0].(fsm.Return)
	if !ok || ret.Kind != fsm.Recount || !slices.Equal(ret.Runs, []fsm.Run{{First: 1, Count: 2}}) {
		t.Fatalf("%+v", e.Commands)
	}
	slow.MemLog.Propose(data, nil)
	if got := r.items(a, 2); got[1].ID != 2 || got[1].Attempt != 1 {
		t.Fatalf("got %+v", got)
	}
	var third queue.Message
	r.replica.View(func(m *fsm.Machine) { third, _ = m.Queue().Get(3) })
	if third.Attempt != 0 {
		t.Errorf("%+v", third)
	}
}
