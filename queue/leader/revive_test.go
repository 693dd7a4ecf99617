package leader

import (
	"testing"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// A node says that it lost a delivery, settles it, is taken for dead, and lives: the same
// operation goes into two entries, and only the second names the hold, which the machine
// steps over. The message must not stay with nobody.
func TestHoldNamedInVainIsRevived(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1")
	r.attach(a, 1, 1)
	r.items(a, 1)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	consumer := wire.Consumer{No: 1, Prefetch: 1, WindowMessages: 10, WindowBytes: 1 << 20}
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 2, Origin: a.Origin, Consumers: []wire.Consumer{consumer}})
	eventually(t, "the count of what the leader before delivered", func() bool { return len(slow.held) == 1 })
	slow.let(1)
	r.items(a, 1) // from now on it goes out at once
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 3, Origin: a.Origin})
	settle := &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: a.Origin, First: 2, Ops: []fsm.Op{
		fsm.Settle{Kind: fsm.Ack, Runs: []fsm.Run{{First: 1, Count: 1, Attempt: 1}}},
	}}}
	r.l.Receive(a.ID, settle)
	eventually(t, "the settlement that names nothing", func() bool { return len(slow.held) == 1 })
	r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation)
	await[*wire.RollCall](r, a.ID, nil)
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 4, Origin: a.Origin, Consumers: []wire.Consumer{consumer}})
	r.items(a, 1)
	r.l.Receive(a.ID, settle)
	eventually(t, "the settlement that names it", func() bool { return len(slow.held) >= 2 })
	slow.let(len(slow.held))
	await[*wire.RollCall](r, a.ID, nil)
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 5, Origin: a.Origin, Consumers: []wire.Consumer{consumer}})
	r.items(a, 1)
}

// A settlement that waits for an entry keeps its hold over a Resync: it would find
// nothing to settle, and the message would go to somebody else.
func TestPendingSettlementKeepsItsHold(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.publish(a, "1")
	r.attach(a, 1, 1)
	r.items(a, 1)
	held := wire.Hold{No: 1, ID: 1, Settled: 2}
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(b)
	consumer := wire.Consumer{No: 1, Prefetch: 1, WindowMessages: 10, WindowBytes: 1 << 20}
	resync := &wire.Resync{Queue: 7, Session: r.session, No: 1, Origin: a.Origin, Consumers: []wire.Consumer{consumer}, Held: []wire.Hold{held}}
	r.l.Receive(a.ID, resync)
	for range eagerEntries {
		n := len(slow.held)
		r.l.Propose(fsm.Release{Kind: fsm.ParkUnrouted}, false, nil)
		eventually(t, "an entry", func() bool { return len(slow.held) == n+1 })
	}
	r.l.Receive(a.ID, &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: a.Origin, First: 2, Ops: []fsm.Op{
		fsm.Settle{Kind: fsm.Ack, Runs: []fsm.Run{{First: 1, Count: 1}}},
	}}})
	again := *resync
	again.No = 2
	r.l.Receive(a.ID, &again)
	eventually(t, "the events handled", func() bool { return r.l.Describe() != "" })
	slow.let(eagerEntries)
	slow.let(1)
	eventually(t, "the ack", func() (gone bool) {
		r.replica.View(func(m *fsm.Machine) { gone = m.Queue().Len() == 0 })
		return gone
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.out {
		if d, ok := s.m.(*wire.Deliver); ok {
			t.Errorf("delivered again to %s: %+v", s.to, d.Items)
		}
	}
}

// A node is taken for dead while an entry with its operations is on its way, and lives. Its
// stream begins anew behind what was applied at that moment; what it sends again is lost
// with the link, the answer to the entry is not. It goes on behind that.
func TestStreamGoesOnBehindEntriesOfItsFormerPeer(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1")
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	r.batch(a, pub("2"), pub("3"))
	eventually(t, "the entry", func() bool { return len(slow.held) == 1 })
	r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation)
	await[*wire.RollCall](r, a.ID, nil)
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 2, Origin: a.Origin})
	eventually(t, "the events handled", func() bool { return r.l.Describe() != "" })
	slow.let(1)
	await(r, a.ID, func(m *wire.Answer) bool { return m.UpTo == 3 })
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: r.session, No: 3, Origin: a.Origin})
	r.batch(a, pub("4"))
	eventually(t, "an entry with what follows", func() bool { return len(slow.held) == 1 })
	slow.let(1)
	await(r, a.ID, func(m *wire.Answer) bool { return m.UpTo == 4 })
}
