package leader

import (
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// gateLog is a log that takes entries and, while it is shut, does not apply them.
type gateLog struct {
	*MemLog
	mu   sync.Mutex
	shut bool
	kept [][]byte
}

func (g *gateLog) Propose(data []byte, done func(error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		g.kept = append(g.kept, data)
		return
	}
	g.MemLog.Propose(data, done)
}

func (g *gateLog) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
}

func (g *gateLog) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
	for _, data := range g.kept {
		g.MemLog.Propose(data, nil)
	}
	g.kept = nil
}

// newGatedRig makes a rig of one node whose log can be shut.
func newGatedRig(t *testing.T, set queue.Settings) (*rig, *gateLog) {
	t.Helper()
	g := &gateLog{}
	n := node(1)
	r := newRigWith(t, set, func(c *Config) {
		g.MemLog = c.Log.(*MemLog)
		c.Log = g
	}, n)
	r.answerRoll(n)
	return r, g
}

// gated adds messages, of which consumer 1 has as many as it may.
func gated(t *testing.T, set queue.Settings, prefetch uint32, bodies ...string) (*rig, *gateLog, []wire.Item) {
	t.Helper()
	n := node(1)
	r, g := newGatedRig(t, set)
	r.publish(n, bodies...)
	r.attach(n, 1, prefetch)
	return r, g, r.items(n, int(prefetch))
}

// handed returns what was delivered to a node, after everything sent to the leader was handled.
func (r *rig) handed(n Node) (bodies []string) {
	r.t.Helper()
	for range 2 { // what a step sends goes out at its end
		if r.l.Describe() == "" {
			r.t.Fatal("the leader has ended")
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.out {
		if d, ok := s.m.(*wire.Deliver); ok && s.to == n.ID {
			bodies = append(bodies, r.bodies(d.Items)...)
		}
	}
	return bodies
}

// What ends a message makes room for the next one as it arrives, whatever the log does, and once.
func TestCreditIsBackWhenTheAckArrives(t *testing.T) {
	for name, kind := range map[string]fsm.SettleKind{"ack": fsm.Ack, "reject": fsm.Discard} {
		t.Run(name, func(t *testing.T) {
			r, g, got := gated(t, plain(), 1, "1", "2", "3", "4")
			n := node(1)
			g.close()
			r.settle(n, kind, got...)
			next := r.gets(n, 1, "2")
			r.settle(n, kind, got...) // nothing more
			if more := r.handed(n); more != nil {
				t.Fatalf("%v for a message that was settled before", more)
			}
			r.settle(n, kind, next...)
			r.gets(n, 1, "3")
			g.open()
			if s := r.status(n, 1); s.Ready != 1 || s.Unacked != 1 {
				t.Errorf("in the end %d ready, %d unacked", s.Ready, s.Unacked)
			}
			if more := r.handed(n); more != nil {
				t.Errorf("%v when the entries were applied", more)
			}
		})
	}
}

// With room for one message a consumer gets what it returns before what is behind it.
func TestReturnedComesBeforeTheNext(t *testing.T) {
	for name, kind := range map[string]fsm.SettleKind{"reject": fsm.RequeueFailed, "nack": fsm.RequeueCounted} {
		t.Run(name, func(t *testing.T) {
			r, g, got := gated(t, plain(), 1, "1", "2")
			n := node(1)
			g.close()
			r.settle(n, kind, got...)
			if early := r.handed(n); early != nil {
				t.Fatalf("%v before 1 is back", early)
			}
			g.open()
			r.settle(n, fsm.Ack, r.gets(n, 1, "1")...)
			r.gets(n, 1, "2")
		})
	}
}

// What is returned and does not come at once makes room when that is sure.
func TestReturnThatDoesNotComeBack(t *testing.T) {
	limited, delayed := plain(), plain()
	limited.DeliveryLimit = 0
	delayed.Retry = queue.RetryDelay{On: queue.RetryAll, MinMillis: time.Hour.Milliseconds(), MaxMillis: time.Hour.Milliseconds()}
	for name, set := range map[string]queue.Settings{"delivery limit": limited, "retry delay": delayed} {
		t.Run(name, func(t *testing.T) {
			r, g, got := gated(t, set, 1, "1", "2")
			n := node(1)
			g.close()
			r.settle(n, fsm.RequeueFailed, got...)
			if early := r.handed(n); early != nil {
				t.Fatalf("%v before the log says what comes of 1", early)
			}
			g.open()
			r.gets(n, 1, "2")
		})
	}
}

// A node that was thought dead and lives gets what was taken back from it, before what is behind it.
func TestTakenBackComesBeforeTheNext(t *testing.T) {
	r, g, got := gated(t, plain(), 1, "1", "2", "3")
	n := node(1)
	g.close()
	r.l.NodeGone(n.Origin.Node, n.Origin.Incarnation)
	await[*wire.RollCall](r, n.ID, nil)
	r.l.Receive(n.ID, &wire.Resync{
		Queue: 7, Session: r.session, No: 2, Origin: n.Origin,
		Consumers: []wire.Consumer{{No: 1, Prefetch: 1, WindowMessages: 10, WindowBytes: 1 << 20}},
		Held:      []wire.Hold{{No: 1, ID: got[0].ID, Attempt: got[0].Attempt}},
	})
	if early := r.handed(n); early != nil {
		t.Fatalf("%v before 1 is back", early)
	}
	g.open()
	r.settle(n, fsm.Ack, r.gets(n, 1, "1")...)
	r.gets(n, 1, "2")
}

// The next process on a node counts its consumers anew: what the former one's had is not theirs.
func TestNewProcessOwesNothing(t *testing.T) {
	r, g, _ := gated(t, plain(), 1, "1", "2")
	n := node(1)
	g.close()
	r.settle(n, fsm.RequeueFailed, wire.Item{ID: 1})
	n.Origin.Incarnation++
	r.seq[n.Origin.Node] = 0
	r.l.Receive(n.ID, &wire.Resync{Queue: 7, Session: r.session, No: 1, Origin: n.Origin})
	r.attach(n, 1, 1)
	r.gets(n, 1, "2")
	g.open()
	if early := r.handed(n); early != nil {
		t.Fatalf("%v beyond its prefetch", early)
	}
	r.settle(n, fsm.Ack, wire.Item{ID: 2})
	r.gets(n, 1, "1")
}

// Of a transaction nothing counts before it is decided on: it may be refused.
func TestTxGivesBackWhenItIsDecided(t *testing.T) {
	set := plain()
	set.MaxLength, set.Overflow = 1, queue.RejectPublish
	n := node(1)
	r, g := newGatedRig(t, set)
	r.attach(n, 1, 1)
	r.publish(n, "1")
	got := r.gets(n, 1, "1")
	r.publish(n, "2")
	g.close()
	r.batch(n, fsm.Tx{Ops: []fsm.Op{acks(got...), pub("3")}})
	if early := r.handed(n); early != nil {
		t.Fatalf("%v behind a transaction that is refused", early)
	}
	r.batch(n, fsm.Tx{Ops: []fsm.Op{acks(got...)}})
	g.open()
	r.gets(n, 1, "2")
	if s := r.status(n, 1); s.Ready != 0 || s.Unacked != 1 {
		t.Errorf("in the end %d ready, %d unacked", s.Ready, s.Unacked)
	}
}

// A consumer of higher priority takes over when the holder has acked what it has, and what it returns
// is back.
func TestSingleFollowsSettlements(t *testing.T) {
	a, b := node(1), node(2)
	r := singleRig(t, time.Hour, a, b)
	r.join(a, 1, 2, 0)
	r.publish(a, numbers(1, 3)...)
	held := r.gets(a, 1, "1", "2")
	r.join(b, 1, 2, 7)
	r.batch(a, fsm.Settle{Kind: fsm.Ack, Runs: []fsm.Run{{First: held[0].ID, Count: 1}}},
		fsm.Settle{Kind: fsm.RequeueFailed, Runs: []fsm.Run{{First: held[1].ID, Count: 1}}})
	r.gets(b, 1, "2", "3")
	r.nothing(a)
}

// A new leader hears of an ack and a return that are on their way: what follows waits for the one, not for
// the other.
func TestSingleWaitsForReturnsOnly(t *testing.T) {
	for name, kind := range map[string]fsm.SettleKind{"ack": fsm.Ack, "return": fsm.RequeueFailed} {
		t.Run(name, func(t *testing.T) {
			n := node(1)
			r := singleRig(t, time.Hour, n)
			consumer := r.join(n, 1, 1, 0)
			r.publish(n, "1")
			held := r.gets(n, 1, "1")
			r.lead()
			rc := await(r, n.ID, func(c *wire.RollCall) bool { return c.Session == r.session })
			r.l.Receive(n.ID, &wire.Resync{
				Queue: 7, Session: rc.Session, No: 1, Origin: n.Origin, Consumers: []wire.Consumer{consumer},
				Held: []wire.Hold{{No: 1, ID: held[0].ID, Settled: r.seq[1] + 2}},
			})
			r.publish(n, "2")
			if early := r.handed(n); early != nil {
				t.Fatalf("%v before it is known what comes of 1", early)
			}
			r.settle(n, kind, held...)
			if kind == fsm.Ack {
				r.gets(n, 1, "2")
				return
			}
			r.settle(n, fsm.Ack, r.gets(n, 1, "1")...)
			r.gets(n, 1, "2")
		})
	}
}

// A hold whose settlement does not end it counts again, if it did not all the time.
func TestRevivedHoldCounts(t *testing.T) {
	for kind, want := range map[fsm.SettleKind][2]uint32{fsm.Ack: {1, 2}, fsm.RequeueFailed: {1, 1}} {
		w := newWorld(t, plain(), func(*Config) {})
		n := w.nodes[0]
		both := func() {
			for range 10 {
				w.hear(w.nodes[0])
				w.hear(w.nodes[1])
				w.work()
			}
		}
		both()
		w.attach(n, 1, 0)
		w.send(n, pub("1"), pub("2"))
		w.work()
		for len(w.kept) > 0 {
			w.apply()
			both()
		}
		w.l.cfg.acksLinger = 1
		w.send(n, n.settlement(kind, unsettled(n)))
		w.work()
		if got := w.l.consumers.find(1, 1).unacked; got != want[0] {
			t.Errorf("kind %d: %d count when it is settled, want %d", kind, got, want[0])
		}
		w.applyInVain()
		if got := w.l.consumers.find(1, 1).unacked; got != want[1] {
			t.Errorf("kind %d: %d count when that was in vain, want %d", kind, got, want[1])
		}
	}
}
