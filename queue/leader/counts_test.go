package leader

import (
	"testing"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// A retry delay ends by time: no entry tells of it, and the figures do not wait for one.
func TestCountsOfDelayed(t *testing.T) {
	set := plain()
	set.Retry = queue.RetryDelay{On: queue.RetryAll, MinMillis: 200, MaxMillis: 200}
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "x")
	r.settle(a, fsm.RequeueCounted, r.get(a, 1).Item)
	eventually(t, "the delay", func() bool { return r.l.Counts().Delayed == 1 })
	eventually(t, "its end", func() bool { return r.l.Counts().Delayed == 0 })
	if s := r.status(a, 2); s.Ready != 1 || s.Delayed != 0 {
		t.Fatalf("status %+v", s)
	}

	// The next leader tells at once what the log says.
	r.settle(a, fsm.RequeueCounted, r.get(a, 3).Item)
	eventually(t, "the delay", func() bool { return r.l.Counts().Delayed == 1 })
	r.lead()
	if n := r.l.Counts().Delayed; n != 1 {
		t.Fatalf("%d delayed", n)
	}
	r.answerRoll(a)
	eventually(t, "its end", func() bool { return r.l.Counts().Delayed == 0 })
}

// What a redrive has under way is nobody's: neither ready nor unacknowledged, by number or by bytes.
func TestCountsOfWhatARedriveSends(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "22", "333", "4444")
	r.get(a, 1)
	r.propose(fsm.StartRedrive{Spec: dlx.RedriveSpec{Token: 1, To: dlx.ToNamedQueue, Queue: "t"}})
	r.propose(fsm.TakeRedrive{Number: 1, Through: 3, Items: []fsm.RedriveItem{{ID: 2, Targets: []uint64{9}}, {ID: 3, Targets: []uint64{9}}}})
	r.status(a, 2)
	want := Counts{Unacked: 1, UnackedBytes: 1, Away: 2, AwayBytes: 5}
	eventually(t, "the figures", func() bool { return r.l.Counts() == want })
	r.propose(fsm.TargetGone{Target: 9, Watermark: 1})
	want = Counts{Unacked: 1, UnackedBytes: 1}
	eventually(t, "the figures of what has come back", func() bool { return r.l.Counts() == want })
}
