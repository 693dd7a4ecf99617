package leader

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// leaseLog is a log whose leader's lease can lapse.
type leaseLog struct {
	*MemLog
	lapsed atomic.Bool
}

func (l *leaseLog) HasLease() bool { return !l.lapsed.Load() }

func (r *rig) releadWithLease() *leaseLog {
	log := &leaseLog{MemLog: r.log}
	r.l.Stop()
	r.session++
	cfg := r.l.cfg
	cfg.Log, cfg.Session = log, r.session
	r.l = Lead(r.replica, cfg)
	return log
}

func living(body string, millis int64) fsm.Publish {
	p := pub(body)
	p.TTLMillis = millis
	return p
}

// countReady waits until so many messages are ready.
func (r *rig) countReady(n Node, want uint64) {
	r.t.Helper()
	var s *wire.Status
	for try := range uint64(15000) {
		if s = r.status(n, 100+try); s.Ready == want {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	r.t.Fatalf("status %+v, want %d ready", s, want)
}

// T08 with a leader that may not deliver for a moment: it does not know that nobody takes
// the message, and lets it go only when there really is nobody.
func TestZeroTTLWaitsForTheLease(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	log := r.releadWithLease()
	r.answerRoll(a)

	log.lapsed.Store(true)
	r.batch(a, living("nobody waits", 0))
	r.countReady(a, 0)

	r.attach(a, 1, 1)
	r.batch(a, living("first", 0), living("one too many", 0), living("short", 20))
	time.Sleep(3 * leaseRetry)
	r.countReady(a, 2)
	log.lapsed.Store(false)
	first := r.items(a, 1)[0]
	if b := bodyOf(t, first); b != "first" || first.Redelivered {
		t.Fatalf("got %q, redelivered %v", b, first.Redelivered)
	}
	r.countReady(a, 0)

	// Requeued it is due, whether or not the leader may deliver.
	log.lapsed.Store(true)
	r.settle(a, fsm.RequeueFailed, first)
	r.countReady(a, 0)
	log.lapsed.Store(false)
	r.batch(a, living("last", 0))
	if b := bodyOf(t, r.items(a, 1)[0]); b != "last" {
		t.Fatalf("got %q", b)
	}
}

// What expires as it comes is not counted as remaining behind what a get finds, wherever it is in the queue.
func TestZeroTTLIsNotCountedByGets(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	r.batch(a, living("due", 0), pub("1"), living("due, too", 0), pub("2"))
	r.l.Receive(a.ID, &wire.Get{Queue: 7, Origin: a.Origin, Req: 1, After: r.seq[a.Origin.Node]})
	r.l.Receive(a.ID, &wire.Get{Queue: 7, Origin: a.Origin, Req: 2, After: r.seq[a.Origin.Node]})
	eventually(t, "the entry", func() bool { return len(slow.held) == 1 })
	slow.let(1)
	slow.let(1) // the mark
	for req, want := range []string{"1", "2"} {
		g := await(r, a.ID, func(g *wire.Got) bool { return g.Req == uint64(req+1) })
		if body := bodyOf(t, g.Item); !g.Found || body != want || g.Remaining != uint32(1-req) {
			t.Errorf("got %q, %d remain", body, g.Remaining)
		}
	}
}

// Credit that comes while the message is on its way is found when it arrives, although the
// delivered mark has to follow first.
func TestZeroTTLWaitsForTheMark(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	r.batch(a, living("x", 0))
	eventually(t, "the entry", func() bool { return len(slow.held) == 1 })
	r.attach(a, 1, 1)
	slow.let(1)
	slow.let(1) // the mark
	if b := bodyOf(t, r.items(a, 1)[0]); b != "x" {
		t.Fatalf("got %q", b)
	}
}

// What comes in before a new leader has heard of all consumers waits for them.
func TestZeroTTLWaitsForTheRollCall(t *testing.T) {
	a, b := node(1), node(2)
	r := newRig(t, plain(), a, b)
	r.answerRoll(a)
	r.batch(a, living("early", 0), living("one too many", 0))
	await(r, a.ID, func(m *wire.Answer) bool { return m.UpTo == 2 })
	await[*wire.RollCall](r, b.ID, nil)
	r.l.Receive(b.ID, &wire.Resync{Queue: 7, Session: r.session, No: 1, Origin: b.Origin, Consumers: []wire.Consumer{
		{No: 1, Prefetch: 1, WindowMessages: 10, WindowBytes: 1 << 20},
	}})
	if body := bodyOf(t, r.items(b, 1)[0]); body != "early" {
		t.Fatalf("got %q", body)
	}
	r.countReady(a, 0)
}

// What a closed queue has left is dead-lettered; a consumer that is still there does not get
// it, too.
func TestClosedQueueDeliversNothing(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	log := r.releadWithLease()
	r.answerRoll(a)
	log.lapsed.Store(true)
	r.attach(a, 1, 1)
	r.batch(a, pub("left"))
	r.countReady(a, 1)
	r.l.Stop() // from here on the test runs it
	log.lapsed.Store(false)
	r.l.closing.closed = true
	r.l.deliver(true)
	if len(r.l.held) > 0 || r.l.heldBack {
		t.Fatalf("delivered %v", r.l.held)
	}
	r.l.closing.closed = false
	r.l.deliver(true)
	if len(r.l.held) != 1 {
		t.Fatal("an open queue delivers")
	}
}

// What consumers have settled does not die with the queue.
func TestBuryingWaitsForSettlements(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.attach(a, 1, 1)
	r.publish(a, "acked")
	it := r.items(a, 1)[0]
	r.l.Stop() // from here on the test runs it
	r.l.closing.closed = true
	buries := func() bool {
		r.l.bury()
		return r.l.closing.burying
	}
	r.l.phase = phaseRoll
	if buries() {
		t.Fatal("before all nodes have told what they have settled")
	}
	r.l.phase = phaseActive
	p := r.l.peers[a.Origin.Node]
	p.pending = []fsm.Op{fsm.Settle{Kind: fsm.Ack, Runs: []fsm.Run{{First: it.ID, Count: 1, Attempt: it.Attempt}}}}
	if buries() {
		t.Fatal("before a settlement that has come in")
	}
	p.pending = nil
	if !buries() {
		t.Fatal("never")
	}
}

// What the machine has and the leader has not met yet is no business of a look at what is
// due: a consumer with credit gets it when it is met.
func TestZeroTTLBeyondWhatTheLeaderHasSeen(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	log := r.releadWithLease()
	r.answerRoll(a)
	log.lapsed.Store(true)
	p := pub("due as it comes")
	p.TTLMillis = 0
	r.attach(a, 1, 1)
	r.batch(a, p)
	r.countReady(a, 1)
	r.l.Stop() // from here on the test runs it
	log.lapsed.Store(false)
	tail := r.l.seen.tail
	clear(r.l.limits.owed)
	r.l.heldBack, r.l.limits.expireAt = false, 0

	r.l.seen.tail = tail - 1
	r.l.expireDue()
	if len(r.l.limits.condemned) > 0 {
		t.Fatal("expired before anybody was offered it")
	}
	r.l.seen.tail, r.l.limits.freshIDs = tail, queue.IDRange{First: tail, Last: tail}
	r.l.deliver(true)
	if len(r.l.held) != 1 {
		t.Fatal("not delivered")
	}
}
