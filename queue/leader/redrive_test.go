package leader

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

func (r *rig) propose(c fsm.Command) {
	r.t.Helper()
	done := make(chan struct{})
	r.l.Propose(c, false, func() { close(done) })
	<-done
}

// What a redrive has sent is kept from consumers, by this leader and the next, until its
// target has it or has gone; what a consumer holds is not sent.
func TestRedriveKeepsMessagesFromConsumers(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "2", "3", "4")
	held := r.get(a, 1)
	if bodyOf(t, held.Item) != "1" {
		t.Fatalf("got %+v", held)
	}
	r.propose(fsm.StartRedrive{Spec: dlx.RedriveSpec{Token: 1, To: dlx.ToNamedQueue, Queue: "t"}})
	r.propose(fsm.TakeRedrive{Number: 1, Through: 3, Items: []fsm.RedriveItem{{ID: 1, Targets: []uint64{9}}, {ID: 2, Targets: []uint64{9}}, {ID: 3, Targets: []uint64{9}}}})
	if s := r.status(a, 2); s.Ready != 1 || s.Unacked != 1 || s.Outbox != 2 {
		t.Fatalf("status %+v", s)
	}
	r.attach(a, 1, 10)
	if b := r.bodies(r.items(a, 1)); b[0] != "4" {
		t.Fatalf("got %v", b)
	}
	r.propose(fsm.TransferDone{Target: 9, UpTo: 1})
	r.lead()
	r.answerRoll(a)
	if s := r.status(a, 3); s.Ready != 2 || s.Outbox != 1 {
		t.Fatalf("status %+v", s)
	}
	r.attach(a, 2, 10)
	if b := r.bodies(r.items(a, 2)); !slices.Equal(b, []string{"1", "4"}) {
		t.Fatalf("got %v", b)
	}
	r.propose(fsm.TargetGone{Target: 9, Watermark: 1})
	if got := r.items(a, 1); bodyOf(t, got[0]) != "3" || got[0].Attempt != 1 { // counted by the second leader
		t.Fatalf("got %+v", got)
	}
	var job dlx.Redriving
	r.replica.View(func(m *fsm.Machine) { job = m.Redriving() })
	if job.Moved != 1 || job.Returned != 1 || job.Busy != 1 || job.Cursor != 3 {
		t.Fatalf("%+v", job)
	}
}

// A redrive that is stopped has no message out of reach that it did not send: who stops it and looks finds all of them.
func TestStoppedRedriveLeavesMessagesInReach(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "2")
	r.propose(fsm.StartRedrive{Spec: dlx.RedriveSpec{Token: 1, To: dlx.ToNamedQueue, Queue: "t"}})
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	r.l.Propose(fsm.StopRedrive{Number: 1}, false, nil)
	eventually(t, "the stop in the log", func() bool { return len(slow.held) == 1 })
	take := make(chan struct{})
	r.l.Propose(fsm.TakeRedrive{Number: 1, Through: 2, Items: []fsm.RedriveItem{{ID: 1, Targets: []uint64{9}}, {ID: 2, Targets: []uint64{9}}}}, false,
		func() { close(take) })
	slow.let(1)
	eventually(t, "the end", func() (ended bool) {
		r.replica.View(func(m *fsm.Machine) { ended = m.Redriving().EndedMillis > 0 })
		return ended
	})
	if got, err := r.l.List(t.Context(), Ready, Place{}, 10); err != nil || len(got.Messages) != 2 {
		t.Errorf("ready are %d of 2, %v", len(got.Messages), err)
	}
	slow.let(1)
	<-take // the redriver learns that its decision is applied
}

type idleRedriver struct{}

func (idleRedriver) Wake() {}
func (idleRedriver) Stop() {}

// A queue rests when its redrive is over, as it did before that began.
func TestQueueRestsBehindRedrive(t *testing.T) {
	a := node(1)
	r := newRigWith(t, plain(), func(c *Config) { c.StartRedriver = func(*Leader) Redriver { return idleRedriver{} } }, a)
	r.answerRoll(a)
	r.publish(a, "1", "2")
	r.rests(true)
	r.propose(fsm.StartRedrive{Spec: dlx.RedriveSpec{Token: 1, Discard: true}})
	r.propose(fsm.TakeRedrive{Number: 1, Through: 1, Items: []fsm.RedriveItem{{ID: 1}}})
	r.rests(false)
	r.propose(fsm.TakeRedrive{Number: 1, After: 1, Through: 2, Items: []fsm.RedriveItem{{ID: 2}}})
	r.rests(true)
}

// rests waits until the queue may rest, or has done all without coming to rest.
func (r *rig) rests(want bool) {
	r.t.Helper()
	for end := time.Now().Add(5 * time.Second); r.l.MayRest() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("the queue may rest: %t", !want)
		}
	}
}
