package leader

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

func TestPublishConsumeAck(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.attach(a, 1, 2)
	r.publish(a, "1", "2", "3")
	got := r.items(a, 2)
	if b := r.bodies(got); !slices.Equal(b, []string{"1", "2"}) {
		t.Fatalf("got %v", b)
	}
	if got[0].Redelivered {
		t.Error("first delivery marked redelivered")
	}
	r.settle(a, fsm.Ack, got[0])
	if b := r.bodies(r.items(a, 1)); b[0] != "3" {
		t.Fatalf("got %v after ack", b)
	}
	if s := r.status(a, 1); s.Ready != 0 || s.Unacked != 2 || s.Consumers != 1 {
		t.Errorf("status %+v", s)
	}
}

func TestRequeueKeepsPlace(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "2", "3", "4")
	r.attach(a, 1, 3)
	got := r.items(a, 3)
	r.settle(a, fsm.RequeueFailed, got[2], got[0], got[1])
	again := r.items(a, 3)
	if b := r.bodies(again); !slices.Equal(b, []string{"1", "2", "3"}) {
		t.Fatalf("redelivered %v", b)
	}
	for _, it := range again {
		if !it.Redelivered || it.Attempt != 1 || it.Failed != 1 {
			t.Errorf("item %+v", it)
		}
	}
}

func TestGet(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	if g := r.get(a, 1); g.Found {
		t.Fatal("found something in an empty queue")
	}
	r.batch(a, pub("x"), pub("y")) // the get waits for what its node sent before
	g := r.get(a, 2)
	if !g.Found || bodyOf(t, g.Item) != "x" || g.Remaining != 1 {
		t.Fatalf("got %+v", g)
	}
	r.settle(a, fsm.RequeueCounted, g.Item)
	if g := r.get(a, 3); bodyOf(t, g.Item) != "x" || !g.Item.Redelivered || g.Item.Failed != 0 || g.Item.Attempt != 1 {
		t.Fatalf("got %+v", g)
	}
}

func TestDropHeadIsExactForObservers(t *testing.T) {
	set := plain()
	set.MaxLength = 2
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1", "2", "3", "4", "5")
	if s := r.status(a, 1); s.Ready != 2 {
		t.Errorf("ready %d", s.Ready)
	}
	r.attach(a, 1, 0)
	if b := r.bodies(r.items(a, 2)); !slices.Equal(b, []string{"4", "5"}) {
		t.Errorf("left %v", b)
	}
	// Held messages do not count.
	r.publish(a, "6", "7")
	r.items(a, 2)
	if s := r.status(a, 2); s.Unacked != 4 || s.Ready != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestRejectPublishIsExact(t *testing.T) {
	set := plain()
	set.MaxLength, set.Overflow = 2, queue.RejectPublish
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	out := r.publish(a, "1", "2", "3", "4")
	if len(out) != 2 || out[0].Kind != fsm.RefusedFull || out[0].Seq != 3 || out[1].Seq != 4 {
		t.Fatalf("outcomes %+v", out)
	}
}

// TestRejectPublishPassesToConsumers: what consumers take as it comes is no part of the length, however many come together;
// what they have no room for is.
func TestRejectPublishPassesToConsumers(t *testing.T) {
	for _, tc := range []struct {
		name        string
		prefetch    uint32 // 0: no consumer
		windowBytes int64
		length      int64
		want        int // how many of ten are taken
	}{
		{"no consumer", 0, 0, 2, 2},
		{"a consumer that takes all", 100, 1 << 20, 1, 10},
		{"one that takes three", 3, 1 << 20, 2, 5},
		{"one whose node has no room for certain", 100, 1, 2, 2},
		{"nothing may stay", 100, 1 << 20, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := plain()
			set.MaxLength, set.Overflow = tc.length, queue.RejectPublish
			a := node(1)
			r := newRig(t, set, a)
			r.answerRoll(a)
			if tc.prefetch > 0 {
				r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{
					No: 1, Prefetch: tc.prefetch, WindowMessages: 1000, WindowBytes: tc.windowBytes,
				}})
				await[*wire.Attached](r, a.ID, nil)
			}
			refused := 0
			for _, o := range r.publish(a, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9") {
				if o.Kind == fsm.RefusedFull {
					refused++
				}
			}
			if refused != 10-tc.want {
				t.Errorf("%d of 10 are refused, want %d", refused, 10-tc.want)
			}
			if s := r.status(a, 1); int64(s.Ready) > tc.length || int(s.Ready+s.Unacked) != tc.want {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestZeroLengthPassesToConsumer(t *testing.T) {
	set := plain()
	set.MaxLength = 0
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.attach(a, 1, 1)
	r.publish(a, "1")
	got := r.items(a, 1)
	r.publish(a, "2")
	if s := r.status(a, 1); s.Ready != 0 || s.Unacked != 1 {
		t.Errorf("status %+v", s)
	}
	r.settle(a, fsm.Ack, got[0])
	r.publish(a, "3")
	if b := r.bodies(r.items(a, 1)); b[0] != "3" {
		t.Errorf("got %v", b)
	}
}

func TestExpiryAnywhereAndNotWhileHeld(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	short := pub("short")
	short.TTLMillis = 1000
	held := pub("held")
	held.TTLMillis = 1000 // it is delivered before
	r.attach(a, 1, 1)
	r.batch(a, held)
	h := r.items(a, 1)[0]
	r.batch(a, pub("long"), short)
	deadline := time.Now().Add(30 * time.Second)
	for req := uint64(1); ; req++ {
		s := r.status(a, req)
		if s.Ready == 1 && s.Unacked == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status %+v", s)
		}
	}
	r.settle(a, fsm.RequeueCounted, h)
	if b := r.bodies(r.items(a, 1)); b[0] != "long" {
		t.Fatalf("delivered %v after its instant", b)
	}
}

func TestTTLZero(t *testing.T) {
	set := plain()
	set.MessageTTLMillis = 0
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "gone")
	if g := r.get(a, 1); g.Found {
		t.Fatal("delivered without a consumer waiting")
	}
	r.attach(a, 1, 1)
	r.publish(a, "taken")
	if b := r.bodies(r.items(a, 1)); b[0] != "taken" {
		t.Fatalf("got %v", b)
	}
}

func TestPurgeLeavesHeld(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "2", "3", "4")
	r.attach(a, 1, 1)
	got := r.items(a, 1)
	last := r.batch(a, fsm.Purge{})
	ans := await(r, a.ID, func(x *wire.Answer) bool { return x.UpTo >= last })
	if len(ans.Outcomes) != 1 || ans.Outcomes[0].Kind != fsm.Purged || ans.Outcomes[0].Count != 3 {
		t.Fatalf("answer %+v", ans)
	}
	r.settle(a, fsm.RequeueFailed, got[0])
	if b := r.bodies(r.items(a, 1)); b[0] != "1" {
		t.Fatalf("got %v", b)
	}
}

// A new leader asks what consumers hold and redelivers only the rest, marked.
func TestRollCallKeepsHolds(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(a, 1, 1)
	r.publish(a, "1", "2")
	held := r.items(a, 1)[0]
	r.attach(b, 1, 1)
	lostOne := r.items(b, 1)[0]
	r.lead()
	r.answerRoll(a, wire.Hold{No: 1, ID: held.ID, Attempt: held.Attempt})
	r.answerRoll(b) // holds nothing: its client went away
	r.attach(b, 2, 5)
	got := r.items(b, 1)
	if got[0].ID != lostOne.ID || !got[0].Redelivered {
		t.Fatalf("got %+v", got)
	}
	r.settle(b, fsm.Ack, held) // not its holder: ignored
	r.settle(a, fsm.Ack, held)
	deadline := time.Now().Add(30 * time.Second)
	for req := uint64(1); r.status(a, req).Unacked != 1; req++ {
		if time.Now().After(deadline) {
			t.Fatal("the holder's ack was not taken")
		}
	}
}

// What was sent again is answered from the record, never applied twice.
func TestRepeatedBatch(t *testing.T) {
	set := plain()
	set.MaxLength, set.Overflow = 1, queue.RejectPublish
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1", "2")
	r.lead()
	r.answerRoll(a)
	r.l.Receive(a.ID, &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: a.Origin, First: 1, Ops: []fsm.Op{pub("1"), pub("2")}}})
	ans := await(r, a.ID, func(x *wire.Answer) bool { return x.UpTo == 2 && len(x.Outcomes) > 0 })
	if ans.Outcomes[0].Seq != 2 || ans.Outcomes[0].Kind != fsm.RefusedFull {
		t.Fatalf("answer %+v", ans)
	}
	if s := r.status(a, 1); s.Ready != 1 {
		t.Errorf("ready %d", s.Ready)
	}
	// A gap is refused and rewound.
	r.l.Receive(a.ID, &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: a.Origin, First: 9, Ops: []fsm.Op{pub("9")}}})
	if ans := await(r, a.ID, func(x *wire.Answer) bool { return x.Rewind && x.Next == 3 }); ans.UpTo != 2 {
		t.Errorf("answer %+v", ans)
	}
}

func TestDeadNodeReturnsItsHolds(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.attach(b, 1, 10)
	r.publish(a, "1", "2", "3")
	r.items(b, 3)
	r.attach(a, 1, 10)
	r.l.NodeGone(2, 10)
	got := r.items(a, 3)
	if bodies := r.bodies(got); !slices.Equal(bodies, []string{"1", "2", "3"}) {
		t.Fatalf("got %v", bodies)
	}
	if got[0].Failed != 0 || !got[0].Redelivered {
		t.Errorf("item %+v", got[0])
	}
}

func TestConsumerPrioritiesAndTurns(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	for no := wire.ConsumerNo(1); no <= 3; no++ {
		prio := int32(0)
		if no == 3 {
			prio = 5
		}
		r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{
			No: no, Prefetch: 2, Priority: prio, WindowMessages: 100, WindowBytes: 1 << 20,
		}})
		await[*wire.Attached](r, a.ID, nil)
	}
	r.publish(a, "1", "2", "3", "4", "5", "6")
	var order []wire.ConsumerNo
	for _, it := range r.items(a, 6) {
		order = append(order, it.No)
	}
	if fmt.Sprint(order[:2]) != "[3 3]" || order[2] == order[3] {
		t.Errorf("order %v", order)
	}
}

func TestWindowHoldsDeliveriesBack(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.l.Receive(a.ID, &wire.Attach{Queue: 7, Origin: a.Origin, Consumer: wire.Consumer{No: 1, WindowMessages: 2, WindowBytes: 1 << 20}})
	await[*wire.Attached](r, a.ID, nil)
	r.publish(a, "1", "2", "3", "4")
	r.items(a, 2)
	if s := r.status(a, 1); s.Ready != 2 {
		t.Fatalf("status %+v", s)
	}
	r.l.Receive(a.ID, &wire.Window{Queue: 7, Origin: a.Origin, No: 1, Messages: 1})
	if b := r.bodies(r.items(a, 1)); b[0] != "3" {
		t.Errorf("got %v", b)
	}
}
