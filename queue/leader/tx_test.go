package leader

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// outcome waits until the node's stream is answered up to a sequence and returns what
// was recorded of it.
func (r *rig) outcome(n Node, seq uint64) fsm.OutcomeKind {
	r.t.Helper()
	a := await(r, n.ID, func(a *wire.Answer) bool { return a.UpTo >= seq })
	for _, o := range a.Outcomes {
		if o.Seq == seq {
			return o.Kind
		}
	}
	return fsm.Done
}

func (r *rig) commit(n Node, t fsm.Tx) fsm.OutcomeKind {
	r.t.Helper()
	return r.outcome(n, r.batch(n, t))
}

func acks(items ...wire.Item) (s fsm.Settle) {
	for _, it := range items {
		s.Runs = append(s.Runs, fsm.Run{First: it.ID, Count: 1, Attempt: it.Attempt})
	}
	return s
}

func far(target uint64, op fsm.Op) fsm.TxPart {
	return fsm.TxPart{Targets: []uint64{target}, Part: fsm.EncodePart(nil, op)}
}

// TestHugeRuns shows that a run costs what is held of it, whatever a peer says that it has.
func TestHugeRuns(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "2", "3")
	r.attach(a, 1, 2)
	held := r.items(a, 2)
	began := time.Now()
	for range 20 {
		r.batch(a, fsm.Settle{Runs: []fsm.Run{{Count: math.MaxUint32, Attempt: 77}, {First: math.MaxUint64, Count: math.MaxUint32}}})
		r.commit(a, fsm.Tx{Ops: []fsm.Op{fsm.Settle{Runs: []fsm.Run{{First: 1 << 40, Count: math.MaxUint32}}}}})
	}
	if s := r.status(a, 1); s.Ready != 1 || s.Unacked != 2 {
		t.Fatalf("%d ready, %d unacked", s.Ready, s.Unacked)
	}
	r.commit(a, fsm.Tx{Ops: []fsm.Op{fsm.Settle{Runs: []fsm.Run{{First: held[0].ID, Count: math.MaxUint32, Attempt: held[0].Attempt}}}}})
	if s := r.status(a, 1); s.Unacked != 0 {
		t.Fatalf("%d unacked", s.Unacked)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A queue that has room for one message refuses two, and takes none of them; the ack of
// the same transaction is not lost.
func TestTxIsRefusedWhole(t *testing.T) {
	set := plain()
	set.MaxLength, set.Overflow = 2, queue.RejectPublish
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1", "2")
	r.attach(a, 1, 1)
	held := r.items(a, 1)
	if k := r.commit(a, fsm.Tx{Ops: []fsm.Op{pub("3"), pub("4"), acks(held...)}}); k != fsm.RefusedFull {
		t.Fatalf("outcome %v", k)
	}
	if s := r.status(a, 1); s.Ready != 1 || s.Unacked != 1 {
		t.Fatalf("after the refusal %d ready, %d unacked", s.Ready, s.Unacked)
	}
	if k := r.commit(a, fsm.Tx{Ops: []fsm.Op{pub("3"), acks(held...)}}); k != fsm.Done {
		t.Fatalf("outcome %v", k)
	}
	if got := r.bodies(r.items(a, 1)); !slices.Equal(got, []string{"2"}) {
		t.Fatalf("then delivered %v", got)
	}
	if s := r.status(a, 2); s.Ready != 1 || s.Unacked != 1 {
		t.Fatalf("in the end %d ready, %d unacked", s.Ready, s.Unacked)
	}
}

func TestTxNeedsRoomInTheOutbox(t *testing.T) {
	set := plain()
	set.OutboxMax = 1
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	two := fsm.Tx{Ops: []fsm.Op{pub("here")}, Parts: []fsm.TxPart{far(9, pub("far")), far(9, pub("farther"))}}
	if k := r.commit(a, two); k != fsm.Relayed {
		t.Fatalf("outcome %v", k)
	}
	if k := r.commit(a, two); k != fsm.RefusedOutbox {
		t.Fatalf("outcome with a full outbox %v", k)
	}
	if s := r.status(a, 1); s.Ready != 1 || s.Outbox != 2 {
		t.Fatalf("%d ready, %d in the outbox", s.Ready, s.Outbox)
	}
}

// One that no follower could be sent is refused, whatever the client's node makes of it.
func TestTxTooLargeForAnEntry(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	big := far(9, pub("far"))
	big.Part = append(big.Part, make([]byte, EntryBytesMax)...)
	if k := r.commit(a, fsm.Tx{Ops: []fsm.Op{pub("here")}, Parts: []fsm.TxPart{big}}); k != fsm.RefusedOutbox {
		t.Fatalf("outcome %v", k)
	}
	if k := r.commit(a, fsm.Tx{Ops: []fsm.Op{pub("here")}}); k != fsm.Done {
		t.Fatalf("the next one: %v", k)
	}
	if s := r.status(a, 1); s.Ready != 1 {
		t.Fatalf("%d ready", s.Ready)
	}
}

// The node is told when every target has committed its parts.
func TestTxPartsAreAwaited(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.commit(a, fsm.Tx{Parts: []fsm.TxPart{{Targets: []uint64{8, 9}, Part: fsm.EncodePart(nil, pub("far"))}, far(9, pub("farther"))}})
	r.l.Receive(a.ID, &wire.TxAsk{Queue: 7, Origin: a.Origin, Req: 5, First: 1, Last: 2})
	r.l.Propose(fsm.TransferDone{Target: 8, UpTo: 1}, true, nil)
	r.l.Propose(fsm.TransferDone{Target: 9, UpTo: 1}, true, nil)
	r.status(a, 1)
	time.Sleep(2 * transferDoneLinger)
	r.mu.Lock()
	for _, s := range r.out {
		if m, ok := s.m.(*wire.TxTold); ok {
			t.Errorf("told too early: %+v", m)
		}
	}
	r.mu.Unlock()
	r.l.Propose(fsm.TransferDone{Target: 9, UpTo: 2}, true, nil)
	if m := await[*wire.TxTold](r, a.ID, nil); m.Req != 5 || m.Refusal != fsm.Done {
		t.Fatalf("told %+v", m)
	}
}

func TestTxAsksForRoom(t *testing.T) {
	set := plain()
	set.MaxLength, set.MaxLengthBytes, set.Overflow = 3, 100, queue.RejectPublish
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1")
	for i, c := range []struct {
		n, bytes uint64
		want     fsm.OutcomeKind
	}{{2, 50, fsm.Done}, {3, 50, fsm.RefusedFull}, {1, 100, fsm.RefusedFull}, {0, 0, fsm.Done}} {
		r.l.Receive(a.ID, &wire.TxAsk{Queue: 7, Origin: a.Origin, Req: uint64(i), Publishes: c.n, Bytes: c.bytes})
		if m := await[*wire.TxTold](r, a.ID, nil); m.Req != uint64(i) || m.Refusal != c.want {
			t.Errorf("%d publishes of %d bytes: %+v", c.n, c.bytes, m)
		}
	}
}

// Parts are taken by a queue that answers "full" to dead letters, with those that
// come before them, and end the deliveries they name.
func TestPartsIntoAFullQueue(t *testing.T) {
	set := plain()
	set.MaxLength, set.Overflow = 1, queue.RejectPublish
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1")
	r.attach(a, 1, 1)
	held := r.items(a, 1)
	r.publish(a, "2")
	r.l.Receive("b", transfer(5, 1, "dead"))
	if m := await[*wire.TransferAnswer](r, "b", nil); !m.Full {
		t.Fatalf("a dead letter is answered %+v", m)
	}
	in := transfer(5, 1, "dead")
	in.Urgent = true
	in.In.Items = append(in.In.Items,
		fsm.Transfer{Part: fsm.EncodePart(nil, pub("3"))}, fsm.Transfer{Part: fsm.EncodePart(nil, acks(held...))})
	r.l.Receive("b", in)
	if m := await[*wire.TransferAnswer](r, "b", nil); m.Full || m.UpTo != 3 {
		t.Fatalf("parts are answered %+v", m)
	}
	if got := r.bodies(r.items(a, 1)); !slices.Equal(got, []string{"2"}) {
		t.Fatalf("delivered in the place of the acked one %v", got)
	}
	if s := r.status(a, 1); s.Ready != 2 || s.Unacked != 1 {
		t.Fatalf("%d ready, %d unacked", s.Ready, s.Unacked)
	}
}

// An ack in a transaction counts although the message went back when its node was
// thought dead, and has another holder now.
func TestTxAcksWhatCameBack(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.publish(a, "1")
	r.attach(a, 1, 1)
	held := r.items(a, 1)
	r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation)
	r.attach(b, 2, 1)
	if again := r.items(b, 1); again[0].Attempt != 1 || !again[0].Redelivered {
		t.Fatalf("delivered again as %+v", again)
	}
	r.answerRoll(a)
	if k := r.commit(a, fsm.Tx{Ops: []fsm.Op{acks(held...), pub("2")}}); k != fsm.Done {
		t.Fatalf("outcome %v", k)
	}
	if got := r.bodies(r.items(b, 1)); !slices.Equal(got, []string{"2"}) {
		t.Fatalf("the next is %v", got)
	}
	if s := r.status(b, 1); s.Ready != 0 || s.Unacked != 1 {
		t.Fatalf("%d ready, %d unacked", s.Ready, s.Unacked)
	}
}
