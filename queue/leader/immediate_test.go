package leader

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

func now(body string) fsm.Publish {
	p := pub(body)
	p.Immediate = true
	return p
}

// refusals sends operations of a node and returns the sequences, counted from the first
// of them, that found no consumer.
func (r *rig) refusals(n Node, ops ...fsm.Op) (list []uint64) {
	r.t.Helper()
	first := r.seq[n.Origin.Node] + 1
	last := r.batch(n, ops...)
	for {
		a := await(r, n.ID, func(a *wire.Answer) bool { return a.UpTo >= first })
		for _, o := range a.Outcomes {
			if o.Kind != fsm.RefusedConsumers {
				r.t.Fatalf("outcome %+v", o)
			}
			list = append(list, o.Seq-first+1)
		}
		if a.UpTo >= last {
			return list
		}
	}
}

func TestImmediate(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	if got := r.refusals(a, now("nobody")); !slices.Equal(got, []uint64{1}) {
		t.Fatalf("refused %v without a consumer", got)
	}
	r.attach(a, 1, 2)
	// What is on its way in the same entry takes credit, too, and so does an ordinary one.
	if got := r.refusals(a, now("1"), pub("2"), now("3"), now("4")); !slices.Equal(got, []uint64{3, 4}) {
		t.Fatalf("refused %v with room for two", got)
	}
	held := r.gets(a, 1, "1", "2")
	// An ack before it in the stream makes room.
	ack := fsm.Settle{Kind: fsm.Ack, Runs: []fsm.Run{{First: held[0].ID, Count: 1}}}
	if got := r.refusals(a, ack, now("5"), now("6")); !slices.Equal(got, []uint64{3}) {
		t.Fatalf("refused %v behind an ack", got)
	}
	r.gets(a, 1, "5")
	if s := r.status(a, 1); s.Ready != 0 {
		t.Errorf("ready %d", s.Ready)
	}
}

// A new leader decides when it knows the consumers, not before.
func TestImmediateWaitsForTheRollCall(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.publish(a, "1")
	r.lead()
	r.answerRoll(a)
	r.batch(a, pub("2"), now("3"))
	await(r, a.ID, func(a *wire.Answer) bool { return a.UpTo == 2 })
	rc := await(r, b.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
	r.l.Receive(b.ID, &wire.Resync{Queue: 7, Session: rc.Session, No: 1, Origin: b.Origin, Consumers: []wire.Consumer{
		{No: 1, WindowMessages: 10, WindowBytes: 1 << 20, Turn: wire.Turn{Session: 1, No: 1}},
	}})
	if a := await(r, a.ID, func(a *wire.Answer) bool { return a.UpTo == 3 }); len(a.Outcomes) > 0 {
		t.Errorf("outcomes %v", a.Outcomes)
	}
	r.gets(b, 1, "1", "2", "3")
}

// Of a single active consumer only its own credit counts, from the moment it is named.
func TestImmediateSingle(t *testing.T) {
	a := node(1)
	r := singleRig(t, time.Hour, a)
	r.join(a, 1, 1, 0)
	r.join(a, 2, 1, 0)
	if got := r.refusals(a, now("1"), now("2")); !slices.Equal(got, []uint64{2}) {
		t.Fatalf("refused %v", got)
	}
	r.gets(a, 1, "1")
	r.detach(a, 1, false)
	if got := r.refusals(a, now("3")); got != nil {
		t.Fatalf("refused %v by the next one", got)
	}
	r.gets(a, 2, "3")
}
