package leader

import (
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// TestTooLargeForASnapshot: a queue whose next snapshot would be too large, as its last one was large for what it had, takes nothing until there is room.
func TestTooLargeForASnapshot(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	publish := func(want fsm.OutcomeKind) {
		t.Helper()
		kind := fsm.Done
		for _, o := range r.publish(a, "m") {
			kind = o.Kind
		}
		if kind != want {
			t.Fatalf("a publish is %v, want %v", kind, want)
		}
	}
	publish(fsm.Done)
	publish(fsm.Done)
	encode := r.replica.Snapshot()
	publish(fsm.Done)
	manifest, _ := encode()
	if m := r.replica.made.Load(); m == nil || m.bytes != int64(len(manifest)) || m.messages != 2 {
		t.Fatalf("noted of %d bytes: %+v", len(manifest), m)
	}
	r.replica.made.Store(&made{manifestMost - 2*messageMost, 3}) // two more are too many
	publish(fsm.Done)
	publish(fsm.Done)
	publish(fsm.RefusedFull)
	r.l.Receive(a.ID, transfer(9, 1, "letter"))
	if got := await[*wire.TransferAnswer](r, a.ID, nil); !got.Full || got.UpTo > 0 {
		t.Errorf("the letter of another queue: %+v", got)
	}
	r.attach(a, 1, 2)
	r.settle(a, fsm.Ack, r.items(a, 2)...)
	r.countReady(a, 1) // beside two that are delivered in their place
	publish(fsm.Done)
	if err := r.replica.Restore(manifest); err != nil {
		t.Fatal(err)
	}
	if m := r.replica.made.Load(); m.messages != 2 || m.bytes != int64(len(manifest)) || r.replica.tooLarge(1000) {
		t.Errorf("noted of what was restored: %+v", m)
	}
}
