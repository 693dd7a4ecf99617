package leader

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// singleRig is a rig of a queue with a single active consumer; wait is how long a new one
// waits for a former one of which nothing is known.
func singleRig(t *testing.T, wait time.Duration, nodes ...Node) *rig {
	r := newRigWith(t, plain(), func(c *Config) { c.Single, c.Lease = true, wait }, nodes...)
	for _, n := range nodes {
		r.answerRoll(n)
	}
	return r
}

// join attaches a consumer and returns what its node has to remember of it.
func (r *rig) join(n Node, no wire.ConsumerNo, prefetch uint32, priority int32) wire.Consumer {
	r.t.Helper()
	c := wire.Consumer{No: no, Prefetch: prefetch, Priority: priority, WindowMessages: 1000, WindowBytes: 1 << 20}
	r.l.Receive(n.ID, &wire.Attach{Queue: 7, Origin: n.Origin, Consumer: c})
	c.Turn = await(r, n.ID, func(a *wire.Attached) bool { return a.No == no }).Turn
	return c
}

func (r *rig) detach(n Node, no wire.ConsumerNo, returns bool) {
	r.t.Helper()
	r.l.Receive(n.ID, &wire.Detach{Queue: 7, Origin: n.Origin, No: no, Returns: returns})
	await(r, n.ID, func(d *wire.Detached) bool { return d.No == no })
}

// gets waits for deliveries to a node and checks their consumer and bodies.
func (r *rig) gets(n Node, no wire.ConsumerNo, bodies ...string) []wire.Item {
	r.t.Helper()
	items := r.items(n, len(bodies))
	if got := r.bodies(items); !slices.Equal(got, bodies) {
		r.t.Fatalf("consumer %d got %v, want %v", no, got, bodies)
	}
	for _, it := range items {
		if it.No != no {
			r.t.Fatalf("consumer %d got %q, want consumer %d", it.No, bodyOf(r.t, it), no)
		}
	}
	return items
}

// nothing checks that no delivery waits for a node, after everything sent to the leader
// was handled.
func (r *rig) nothing(n Node) {
	r.t.Helper()
	r.status(n, 1<<32+uint64(time.Now().UnixNano()))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.out {
		if d, ok := s.m.(*wire.Deliver); ok && s.to == n.ID {
			r.t.Fatalf("%d deliveries to %s", len(d.Items), n.ID)
		}
	}
}

func numbers(from, to int) (list []string) {
	for i := from; i <= to; i++ {
		list = append(list, strconv.Itoa(i))
	}
	return list
}

// C01: one gets the messages, the others follow in the order in which they came; what a
// cancelled one holds stays with it.
func TestSingleFollowsInTurn(t *testing.T) {
	a, b := node(1), node(2)
	r := singleRig(t, time.Hour, a, b)
	r.join(a, 1, 1, 0)
	r.join(b, 1, 1, 0)
	r.join(a, 2, 1, 0)
	r.publish(a, numbers(1, 4)...)
	one := r.gets(a, 1, "1")
	r.nothing(b)
	r.detach(a, 1, false)
	two := r.gets(b, 1, "2")
	r.settle(a, fsm.Ack, one...) // the cancelled one may
	r.detach(b, 1, false)
	r.gets(a, 2, "3")
	r.settle(b, fsm.RequeueFailed, two...)
	if s := r.status(b, 1); s.Ready != 2 || s.Unacked != 1 || s.Consumers != 1 {
		t.Errorf("status %+v", s)
	}
}

// C02: what the channel that ended held comes first, in order, before anything else.
func TestSingleTakesOverInOrder(t *testing.T) {
	a, b := node(1), node(2)
	r := singleRig(t, time.Hour, a, b)
	r.join(a, 1, 3, 0)
	r.join(b, 1, 10, 0)
	r.publish(a, numbers(1, 6)...)
	held := r.gets(a, 1, "1", "2", "3")
	r.detach(a, 1, true)
	r.nothing(b) // before they are back
	r.settle(a, fsm.RequeueFailed, held...)
	r.gets(b, 1, numbers(1, 6)...)
}

// C02: a higher priority takes over, but not before the other has settled what it has.
func TestSinglePriority(t *testing.T) {
	a, b := node(1), node(2)
	r := singleRig(t, time.Hour, a, b)
	r.join(a, 1, 2, 0)
	r.join(a, 2, 2, 0)
	r.publish(a, numbers(1, 6)...)
	held := r.gets(a, 1, "1", "2")
	r.join(b, 1, 2, 7)
	r.settle(a, fsm.Ack, held[0])
	r.nothing(a)
	r.nothing(b)
	r.settle(a, fsm.Ack, held[1])
	r.gets(b, 1, "3", "4")
	r.detach(b, 1, false)
	r.gets(a, 1, "5", "6") // it waits in its old place
}

// The holder stays the holder over a change of leader, whoever speaks first, and the
// others keep their order.
func TestSingleSurvivesLeaders(t *testing.T) {
	a, b, c := node(1), node(2), node(3)
	r := singleRig(t, time.Hour, a, b, c)
	first := r.join(c, 1, 1, 0)
	second := r.join(b, 1, 1, 0)
	third := r.join(a, 1, 1, 0)
	r.publish(a, numbers(1, 5)...)
	held := r.gets(c, 1, "1")
	r.lead()
	resync := func(n Node, held []wire.Hold, consumers ...wire.Consumer) {
		rc := await(r, n.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
		r.l.Receive(n.ID, &wire.Resync{Queue: 7, Session: rc.Session, No: 1, Origin: n.Origin, Consumers: consumers, Held: held})
	}
	resync(a, nil, third)
	resync(b, nil, second)
	resync(c, []wire.Hold{{No: 1, ID: held[0].ID, Attempt: held[0].Attempt}}, first)
	r.nothing(a)
	r.nothing(b)
	r.settle(c, fsm.Ack, held...)
	r.gets(c, 1, "2")
	late := r.join(c, 9, 1, 0)
	if late.Turn.Compare(third.Turn) <= 0 {
		t.Errorf("turn %v of a later one is before %v", late.Turn, third.Turn)
	}
	r.detach(c, 1, false)
	r.gets(b, 1, "3")
	r.detach(b, 1, false)
	r.gets(a, 1, "4")
	r.detach(a, 1, false)
	r.gets(c, 9, "5")
}

// A new leader that hears the holder's channel has ended waits for what comes back.
func TestSingleWaitsForReturnsOverLeaders(t *testing.T) {
	a, b := node(1), node(2)
	r := singleRig(t, time.Hour, a, b)
	r.join(a, 1, 2, 0)
	next := r.join(b, 1, 10, 0)
	r.publish(b, numbers(1, 4)...)
	held := r.gets(a, 1, "1", "2")
	r.lead()
	r.answerRoll(a, wire.Hold{No: 1, ID: held[0].ID, Attempt: held[0].Attempt, Settled: 1}, wire.Hold{No: 1, ID: held[1].ID, Attempt: held[1].Attempt, Settled: 1})
	rc := await(r, b.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
	r.l.Receive(b.ID, &wire.Resync{Queue: 7, Session: rc.Session, No: 1, Origin: b.Origin, Consumers: []wire.Consumer{next}})
	r.nothing(b)
	r.settle(a, fsm.RequeueFailed, held...)
	r.gets(b, 1, numbers(1, 4)...)
}

// A process that has certainly ended is not waited for; a node that is merely not heard is,
// by the leader that lost it and by the next one.
func TestSingleWaitsTheLeaseOut(t *testing.T) {
	for _, ended := range []bool{true, false} {
		for _, elected := range []bool{true, false} {
			t.Run(fmt.Sprintf("ended=%v elected=%v", ended, elected), func(t *testing.T) {
				lease := 300 * time.Millisecond
				if ended {
					lease = time.Hour
				}
				a, b := node(1), node(2)
				r := newRigWith(t, plain(), func(c *Config) {
					c.Single, c.Lease = true, lease
					c.ProcessGone = func(fsm.Origin) bool { return ended }
				}, a, b)
				r.answerRoll(a)
				r.answerRoll(b)
				r.join(b, 1, 2, 0)
				next := r.join(a, 1, 10, 0)
				r.publish(a, numbers(1, 3)...)
				r.gets(b, 1, "1", "2")
				began := time.Now()
				if elected {
					r.nodes = []Node{a}
					r.lead()
					rc := await(r, a.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
					r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: rc.Session, No: 1, Origin: a.Origin, Consumers: []wire.Consumer{next}})
				} else {
					r.l.NodeGone(2, 10)
				}
				r.gets(a, 1, "1", "2", "3")
				if took := time.Since(began); !ended && took < lease {
					t.Errorf("took over after %v", took)
				}
			})
		}
	}
}

// A consumer that is attached again after its node was out of reach is one of the line.
func TestSingleHolderComesBack(t *testing.T) {
	a, b := node(1), node(2)
	r := singleRig(t, 20*time.Millisecond, a, b)
	first := r.join(b, 1, 1, 0)
	r.join(a, 1, 1, 0)
	r.publish(a, numbers(1, 3)...)
	r.gets(b, 1, "1")
	r.l.NodeGone(2, 10)
	held := r.gets(a, 1, "1")
	rc := await(r, b.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
	r.l.Receive(b.ID, &wire.Resync{
		Queue: 7, Session: rc.Session, No: 2, Origin: b.Origin, Consumers: []wire.Consumer{first},
		Held: []wire.Hold{{No: 1, ID: 1, Attempt: 0}},
	})
	r.settle(a, fsm.Ack, held...)
	r.gets(a, 1, "2")
	r.nothing(b)
	r.detach(a, 1, false)
	r.gets(b, 1, "3")
}
