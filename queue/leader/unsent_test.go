package leader

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

func (r *rig) unsent(n Node, resync uint64, items ...wire.Item) {
	m := &wire.Unsent{Queue: 7, Origin: n.Origin, Resync: resync}
	for _, it := range items {
		m.Runs = appendRun(m.Runs, it.ID, it.Attempt)
	}
	r.l.Receive(n.ID, m)
}

// What no client has seen goes out again as it was, before what is behind it.
func TestUnsentIsAsItWas(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(b, 1, 3)
	r.publish(a, "1", "2", "3", "4", "5")
	items := r.items(b, 3)
	r.unsent(b, 9, items[0]) // behind another Resync than the newest: it says nothing
	r.unsent(a, 1, items[0]) // of a node that does not have it
	r.l.Receive(b.ID, &wire.Detach{Queue: 7, Origin: b.Origin, No: 1})
	r.unsent(b, 1, items[1:]...)
	r.unsent(b, 1, items[1:]...) // it has them no more
	for i, want := range []string{"2", "3", "4"} {
		g := r.get(a, uint64(1+i))
		if got := bodyOf(t, g.Item); got != want || g.Item.Attempt != 0 || g.Item.Failed != 0 || g.Item.Redelivered {
			t.Errorf("got %q, want %q: %+v", got, want, g.Item)
		}
	}
	if s := r.status(b, 5); s.Unacked != 4 || s.Ready != 1 {
		t.Errorf("%+v", s)
	}
	r.settle(b, fsm.Ack, items...) // it has the first one only
	if s := r.status(b, 6); s.Unacked != 3 || s.Ready != 1 {
		t.Errorf("after acks: %+v", s)
	}
}

// A message that goes back behind one that another consumer has comes out of order on the channel of that one: it is
// flagged.
func TestUnsentPassedOverIsFlagged(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(a, 1, 2)
	r.publish(a, "1", "2")
	mine := r.items(a, 2)
	r.attach(b, 1, 2)
	r.publish(a, "3", "4", "5")
	others := r.items(b, 2)
	r.l.Receive(a.ID, &wire.Detach{Queue: 7, Origin: a.Origin, No: 1})
	r.unsent(a, 1, mine...)
	r.countReady(b, 3)
	r.settle(b, fsm.Ack, others[0])
	r.settle(b, fsm.Ack, others[1])
	got := r.items(b, 2)
	if bodies := r.bodies(got); !slices.Equal(bodies, []string{"1", "2"}) {
		t.Fatalf("got %v", bodies)
	}
	for _, it := range got {
		if !it.Redelivered || it.Failed != 0 {
			t.Errorf("%+v", it)
		}
	}
	r.settle(b, fsm.Ack, got...)
	if got := r.items(b, 1); r.bodies(got)[0] != "5" || got[0].Redelivered {
		t.Errorf("%+v", got)
	}
}

// What goes back bit by bit, whatever the order, is as it was when all behind it is there again: no client has seen any of it.
func TestUnsentBitByBitIsAsItWas(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(a, 1, 6)
	r.publish(a, "1", "2", "3", "4", "5", "6")
	mine := r.items(a, 6)
	r.settle(a, fsm.Ack, mine[0])
	r.l.Receive(a.ID, &wire.Detach{Queue: 7, Origin: a.Origin, No: 1})
	for _, i := range []int{2, 5, 3, 1, 4} {
		r.unsent(a, 1, mine[i])
	}
	r.countReady(b, 5)
	r.attach(b, 1, 6)
	got := r.items(b, 5)
	if bodies := r.bodies(got); !slices.Equal(bodies, []string{"2", "3", "4", "5", "6"}) {
		t.Fatalf("got %v", bodies)
	}
	for _, it := range got {
		if it.Redelivered || it.Attempt != 0 {
			t.Errorf("%+v", it)
		}
	}
}

// A consumer that gives back gets the next ones in their place.
func TestUnsentGivesCreditBack(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.attach(a, 1, 2)
	r.publish(a, "1", "2", "3")
	items := r.items(a, 2)
	r.unsent(a, 1, items[1])
	if got := r.bodies(r.items(a, 1)); !slices.Equal(got, []string{"2"}) {
		t.Errorf("got %v", got)
	}
	r.unsent(a, 1, wire.Item{ID: 99})
	var left int
	r.replica.View(func(m *fsm.Machine) { left = m.Queue().Len() })
	if s := r.status(a, 1); s.Unacked != 2 || s.Ready != 1 || left != 3 {
		t.Errorf("%+v, %d in the queue", s, left)
	}
}

// unsent gives back what a model's node holds and its client has not seen.
func (w *world) unsent(n *modelNode) {
	ids := w.some(n, 3)
	m := &wire.Unsent{Queue: 7, Origin: n.Origin, Resync: n.resyncs, Runs: n.settlement(0, ids).Runs}
	for _, id := range ids {
		delete(n.had[n.held[id].no], id)
		delete(n.held, id)
	}
	w.receive(n, m)
}

// An Attach of a running consumer changes its prefetch and nothing else.
func TestAttachAgain(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.attach(a, 1, 1)
	r.publish(a, "1", "2", "3", "4", "5")
	items := r.items(a, 1)
	again := func(prefetch uint32) {
		r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 1, Prefetch: prefetch}})
		if m := await[*wire.Attached](r, a.ID, nil); m.Refusal != "" || m.No != 1 {
			t.Errorf("%+v", m)
		}
	}
	again(3)
	items = append(items, r.items(a, 2)...)
	again(1)
	r.settle(a, fsm.Ack, items[:2]...)
	if s := r.status(a, 1); s.Unacked != 1 || s.Ready != 2 || s.Consumers != 1 {
		t.Errorf("%+v", s)
	}
	again(0)
	if got := r.bodies(r.items(a, 2)); !slices.Equal(got, []string{"4", "5"}) {
		t.Errorf("got %v", got)
	}
}
