package leader

import (
	"testing"

	"github.com/warrenmq/warren/queue/wire"
)

// ask sends an Attach without waiting for the answer.
func (r *rig) ask(n Node, no wire.ConsumerNo, exclusive bool) {
	r.l.Receive(n.ID, &wire.Attach{Queue: 7, Origin: n.Origin, Consumer: wire.Consumer{
		No: no, Exclusive: exclusive, WindowMessages: 1000, WindowBytes: 1 << 20,
	}})
}

// names answers the roll call, or tells the leader anew, with consumers.
func (r *rig) names(n Node, no uint64, consumers ...wire.Consumer) {
	for i := range consumers {
		consumers[i].WindowMessages, consumers[i].WindowBytes = 1000, 1<<20
	}
	r.l.Receive(n.ID, &wire.Resync{Queue: 7, Session: r.session, No: no, Origin: n.Origin, Consumers: consumers})
}

// attached wants the answer for a consumer.
func (r *rig) attached(n Node, no wire.ConsumerNo, refused bool) *wire.Attached {
	r.t.Helper()
	a := await(r, n.ID, func(a *wire.Attached) bool { return a.No == no })
	if (a.Refusal != "") != refused {
		r.t.Errorf("consumer %d of %s: %+v, want refused %v", no, n.ID, a, refused)
	}
	return a
}

// Somebody who asks for a queue while its leader calls the roll waits for the answers: one of them may name a consumer that has the queue for itself.
func TestNobodyIsLetInBeforeTheRollCallIsOver(t *testing.T) {
	a, b := node(1), node(2)
	first := wire.Turn{Session: 1, No: 1}
	for name, tc := range map[string]struct {
		exclusive bool // b's
		answer    func(r *rig)
		refused   bool
	}{
		"a has it for itself":     {false, func(r *rig) { r.names(a, 1, wire.Consumer{No: 1, Exclusive: true, Turn: first}) }, true},
		"both want it":            {true, func(r *rig) { r.names(a, 1, wire.Consumer{No: 1, Exclusive: true, Turn: first}) }, true},
		"a has it with others":    {false, func(r *rig) { r.names(a, 1, wire.Consumer{No: 1, Turn: first}) }, false},
		"b wants it for itself":   {true, func(r *rig) { r.names(a, 1, wire.Consumer{No: 1, Turn: first}) }, true},
		"a has none":              {true, func(r *rig) { r.names(a, 1) }, false},
		"a dies":                  {true, func(r *rig) { r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation) }, false},
		"a answers out of time":   {true, func(r *rig) { r.late(b); r.names(a, 1, wire.Consumer{No: 1, Turn: first}) }, true},
		"a dies out of time":      {true, func(r *rig) { r.late(b); r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation) }, false},
		"a is out of time":        {false, func(r *rig) { r.late(b) }, false},
		"b gives up, and asks":    {true, func(r *rig) { r.detach(b, 5, false); r.ask(b, 5, true); r.names(a, 1) }, false},
		"b says it anew, and all": {true, func(r *rig) { r.names(b, 2); r.ask(b, 5, true); r.names(a, 1) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, plain(), a, b)
			r.answerRoll(b)
			r.ask(b, 5, tc.exclusive)
			tc.answer(r)
			r.attached(b, 5, tc.refused)
		})
	}
}

// late waits until the time for answers to the roll call is over: a question that must not be answered earlier is.
func (r *rig) late(n Node) {
	r.t.Helper()
	r.get(n, 99)
}

// A queue that ends tells those who wait to be let in.
func TestWaitingForAnEndedQueue(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(b)
	r.ask(b, 5, true)
	r.late(b)
	r.l.BeginClose()
	r.gone(b, 5)
}

// Consumers that cannot be there together come back with nodes that were not heard: the newest of them stays.
func TestContradictingConsumers(t *testing.T) {
	a, b := node(1), node(2)
	const shared, alone = false, true
	consumer := func(no wire.ConsumerNo, session uint64, exclusive bool) wire.Consumer {
		return wire.Consumer{No: no, Exclusive: exclusive, Turn: wire.Turn{Session: session, No: 1}}
	}
	for name, tc := range map[string]struct {
		old, recent bool
		ends        bool
	}{
		"both alone":            {alone, alone, true},
		"the old one alone":     {alone, shared, true},
		"the recent one alone":  {shared, alone, true},
		"no one needs to be so": {shared, shared, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, order := range [][]Node{{a, b}, {b, a}} {
				r := newRig(t, plain(), a, b)
				had := map[Node]wire.Consumer{a: consumer(1, 3, tc.old), b: consumer(5, 4, tc.recent)}
				for _, n := range order {
					await[*wire.RollCall](r, n.ID, nil)
					r.names(n, 1, had[n])
				}
				if tc.ends {
					r.attached(a, 1, true)
					r.gone(a, 1)
				}
				r.publish(b, "one", "two")
				if tc.ends {
					r.gets(b, 5, "one", "two")
					r.nothing(a)
				} else {
					r.items(a, 1)
					r.items(b, 1)
				}
			}
		})
	}
}

// A node that was taken for dead is back with a consumer that had the queue for itself. Meanwhile another one has it.
func TestExclusiveConsumerIsReplaced(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.answerRoll(b)
	r.ask(a, 1, true)
	old := wire.Consumer{No: 1, Exclusive: true, Turn: r.attached(a, 1, false).Turn}
	r.l.NodeGone(a.Origin.Node, a.Origin.Incarnation)
	r.ask(b, 5, true)
	r.attached(b, 5, false)
	r.names(a, 2, old)
	r.attached(a, 1, true)
	r.gone(a, 1)
	r.publish(b, "one")
	r.gets(b, 5, "one")
	r.nothing(a)
}
