package leader

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

func transfer(source, first uint64, bodies ...string) *wire.Transfer {
	in := fsm.TransferIn{Source: fsm.Source{Queue: source}, First: first}
	for _, b := range bodies {
		in.Items = append(in.Items, fsm.Transfer{Message: pub(b).Message, BodyBytes: uint32(len(b))})
	}
	return &wire.Transfer{Target: 7, In: in}
}

// slowLog is a log whose entries wait until they are let go.
type slowLog struct {
	*MemLog
	held chan []byte
}

func (s *slowLog) Propose(data []byte, _ func(error)) { s.held <- data }

func (s *slowLog) let(n int) {
	for range n {
		s.MemLog.Propose(<-s.held, nil)
	}
}

// A source forgets what an answer covers: it must cover only what is committed.
func TestGapAnswerNamesWhatIsCommitted(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.l.Receive(a.ID, transfer(9, 1, "1"))
	if ans := await[*wire.TransferAnswer](r, a.ID, nil); ans.UpTo != 1 || ans.Gap {
		t.Fatalf("answer %+v", ans)
	}
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	r.l.Receive(a.ID, transfer(9, 2, "2"))
	r.l.Receive(a.ID, transfer(9, 4, "4"))
	if ans := await[*wire.TransferAnswer](r, a.ID, nil); ans.UpTo != 1 || !ans.Gap {
		t.Fatalf("answer %+v while 2 is not committed", ans)
	}
	slow.let(1)
	if ans := await[*wire.TransferAnswer](r, a.ID, nil); ans.UpTo != 2 {
		t.Fatalf("answer %+v", ans)
	}
}

// A queue that refuses publishes takes as many letters as there is room for, from all sources together, and says of what comes
// behind these that it waits for room. So it says to a source that asks.
func TestLettersFillOnlyTheRoom(t *testing.T) {
	a := node(1)
	set := plain()
	set.Overflow, set.MaxLength = queue.RejectPublish, 3
	r := newRig(t, set, a)
	r.answerRoll(a)
	slow := r.relead(func(uint64) bool { return true })
	r.answerRoll(a)
	answers := func(want ...wire.TransferAnswer) {
		t.Helper()
		for _, w := range want {
			if got := await[*wire.TransferAnswer](r, a.ID, nil); got.Source != w.Source || got.UpTo != w.UpTo || got.Full != w.Full || got.Gap != w.Gap {
				t.Fatalf("answer %+v, want %+v", got, w)
			}
		}
	}
	r.l.Receive(a.ID, transfer(9, 1)) // only asks
	answers(wire.TransferAnswer{Source: 9})
	r.l.Receive(a.ID, transfer(9, 1, "1", "2"))
	r.l.Receive(a.ID, transfer(8, 1, "1", "2", "3"))
	r.l.Receive(a.ID, transfer(8, 4, "4"))
	answers(wire.TransferAnswer{Source: 8, Full: true}, wire.TransferAnswer{Source: 8, Full: true, Gap: true})
	eventually(t, "all are taken", func() (all bool) {
		slow.let(len(slow.held))
		r.replica.View(func(m *fsm.Machine) { all = m.Queue().Len() == 3 })
		return all
	})
	answers(wire.TransferAnswer{Source: 9, UpTo: 2}, wire.TransferAnswer{Source: 8, UpTo: 1})
	r.l.Receive(a.ID, transfer(8, 2, "2", "3", "4"))
	answers(wire.TransferAnswer{Source: 8, UpTo: 1, Full: true})
	r.l.Receive(a.ID, transfer(8, 2))
	answers(wire.TransferAnswer{Source: 8, UpTo: 1, Full: true})
}

func TestClosedTargetAnswersAtOnce(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.l.Propose(fsm.Close{}, false, nil)
	deadline := time.Now().Add(30 * time.Second)
	for closed := false; !closed && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		r.replica.View(func(m *fsm.Machine) { closed = m.Closed() })
	}
	r.l.Receive(a.ID, transfer(9, 1, "1"))
	if ans := await[*wire.TransferAnswer](r, a.ID, nil); !ans.Gone || ans.UpTo != 0 {
		t.Fatalf("answer %+v", ans)
	}
}

// A target that is closing asks until the source has recorded it; then the source
// says so.
func TestSourceForgetsClosedTarget(t *testing.T) {
	a := node(1)
	set := plain()
	set.DeadLetter = true
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1")
	r.attach(a, 1, 1)
	r.settle(a, fsm.Discard, r.items(a, 1)...)
	r.l.Propose(fsm.Route{Items: []fsm.Routed{{Item: 1, Targets: []uint64{5}}}}, false, nil)
	deadline := time.Now().Add(30 * time.Second)
	for known := false; !known; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not routed")
		}
		r.replica.View(func(m *fsm.Machine) { known, _ = m.Outbox().Known(5) })
		if !known {
			r.l.Propose(fsm.Route{Items: []fsm.Routed{{Item: 1, Targets: []uint64{5}}}}, false, nil)
		}
	}
	for forgotten := false; !forgotten; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the source never answers")
		}
		r.l.Receive(a.ID, &wire.TargetClosed{Source: 7, Target: 5, Watermark: 0})
		r.mu.Lock()
		forgotten = slices.ContainsFunc(r.out, func(s sent) bool { _, ok := s.m.(*wire.TargetForgotten); return ok })
		r.mu.Unlock()
	}
}

// A purge removes what its own node published before it, confirmed or not.
func TestPurgeFollowsPublishes(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	last := r.batch(a, pub("1"), pub("2"), fsm.Purge{}, pub("3"))
	var outcome fsm.Outcome
	for {
		ans := await[*wire.Answer](r, a.ID, nil)
		for _, o := range ans.Outcomes {
			if o.Kind == fsm.Purged {
				outcome = o
			}
		}
		if ans.UpTo >= last {
			break
		}
	}
	if outcome.Count != 2 {
		t.Errorf("purged %d messages, want 2", outcome.Count)
	}
	if s := r.status(a, 1); s.Ready != 1 {
		t.Errorf("ready %d, want 1", s.Ready)
	}
}

// What a leader did not tell a node is in the next answer.
func TestAnswersLeaveNoOutcomeOut(t *testing.T) {
	set := plain()
	set.MaxLength, set.Overflow = 1, queue.RejectPublish
	a := node(1)
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1")
	r.l.NodeGone(1, 10) // wrongly
	rc := await[*wire.RollCall](r, a.ID, nil)
	r.batch(a, pub("2")) // refused; nobody to tell
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, Session: rc.Session, No: 2, Origin: a.Origin})
	r.l.Receive(a.ID, &wire.Batch{Queue: 7, Stream: fsm.Stream{Origin: a.Origin, First: 2, AnsweredUpTo: 1, Ops: []fsm.Op{pub("2")}}})
	ans := await(r, a.ID, func(x *wire.Answer) bool { return x.UpTo == 2 })
	if ans.Above > 1 || len(ans.Outcomes) != 1 || ans.Outcomes[0].Kind != fsm.RefusedFull {
		t.Errorf("answer %+v", ans)
	}
}

// A leader that sees a newer session's entry in the log is deposed.
func TestNewerSessionEndsLeader(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1")
	old := r.l
	r.log.Propose(fsm.EncodeEntry(nil, &fsm.Entry{Session: r.session + 1, Ordinal: 1, Mark: 100}), nil)
	select {
	case <-old.Done():
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
	await[*wire.NotLeader](r, a.ID, nil)
}

// A node that knows a newer leader is sent on.
func TestDeposedLeaderRefusesNode(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, No: 2, Newest: r.session + 1, Origin: a.Origin})
	await[*wire.NotLeader](r, a.ID, nil)
}

// A requeued message goes to its place also if it was never passed here.
func TestRequeueAheadOfCursor(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1", "2", "3")
	r.attach(a, 1, 3)
	items := r.items(a, 3)
	r.lead()
	r.answerRoll(a, wire.Hold{ID: items[1].ID}) // holds the second only
	r.settle(a, fsm.RequeueCounted, items[1])
	r.status(a, 1)
	r.attach(a, 2, 3)
	if got := r.bodies(r.items(a, 3)); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("got %v", got)
	}
}

// A settlement that was taken before its hold was known leaves no hold behind.
func TestSettledHoldIsNotClaimed(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	r.publish(a, "1")
	r.attach(a, 1, 1)
	it := r.items(a, 1)[0]
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, No: 2, Origin: a.Origin}) // lost on its way
	r.settle(a, fsm.RequeueCounted, it)                                // and yet settled, in vain
	r.l.Receive(a.ID, &wire.Resync{Queue: 7, No: 3, Origin: a.Origin, Held: []wire.Hold{
		{No: 1, ID: it.ID, Attempt: it.Attempt, Settled: r.seq[1]},
	}})
	if s := r.status(a, 1); s.Unacked != 0 || s.Ready != 1 {
		t.Errorf("%d unacked, %d ready", s.Unacked, s.Ready)
	}
}

func TestClockWearsLeadOffSlowly(t *testing.T) {
	var c clock
	c.start(1000, 0)
	for node := int64(1); node <= 2000; node++ {
		c.now(node)
	}
	if got := c.now(2000); got < 2850 || got > 2950 {
		t.Errorf("time %d after 2000 ms from 1000, want 2900", got)
	}
}

// A leader whose clock is far ahead of the others' expires nothing early by that.
func TestClockErrorIsTakenOff(t *testing.T) {
	a := node(1)
	set := plain()
	set.MessageTTLMillis = 60_000
	r := newRig(t, set, a)
	r.answerRoll(a)
	r.publish(a, "1")
	r.l.Stop()
	r.session++
	cfg := r.l.cfg
	cfg.Session = r.session
	const ahead = 3600_000
	cfg.Now = func() int64 { return time.Now().UnixMilli() + ahead }
	cfg.ClockError = func() int64 { return ahead }
	r.l = Lead(r.replica, cfg)
	r.answerRoll(a)
	if g := r.get(a, 1); !g.Found {
		t.Error("the message has expired")
	}
}

func BenchmarkManyConsumers(b *testing.B) {
	var cs consumers
	cs.init()
	for i := range 1000 {
		c := &consumer{no: wire.ConsumerNo(i), Consumer: wire.Consumer{Prefetch: 1}}
		c.window = window{1 << 40, 1 << 50}
		cs.add(c)
	}
	b.ReportAllocs()
	for b.Loop() {
		c := cs.next(func(string) bool { return true })
		c.unacked++
		cs.changed(c)
		c.unacked--
		cs.changed(c)
	}
}

// Watermarks of deleted sources and records of deleted targets go; those of queues that
// the catalog has, or that may be newer than this copy of it, stay.
func TestDeletedQueuesAreForgotten(t *testing.T) {
	a := node(1)
	r := newRig(t, plain(), a)
	r.answerRoll(a)
	for _, source := range []uint64{9, 10, 30} {
		r.l.Receive(a.ID, transfer(source, 1, "1"))
		await[*wire.TransferAnswer](r, a.ID, nil)
	}
	r.l.Stop()
	r.session++
	cfg := r.l.cfg
	cfg.Session = r.session
	cfg.CatalogRevision = func() uint64 { return 20 }
	cfg.SourceExists = func(id uint64) bool { return id == 10 }
	r.l = Lead(r.replica, cfg)
	r.answerRoll(a)
	sources := func() (ids []uint64) {
		r.replica.View(func(m *fsm.Machine) {
			for s := range m.Sources() {
				ids = append(ids, s.Queue)
			}
		})
		return ids
	}
	deadline := time.Now().Add(30 * time.Second)
	for !slices.Equal(sources(), []uint64{10, 30}) {
		if time.Now().After(deadline) {
			t.Fatalf("sources %v", sources())
		}
		time.Sleep(time.Millisecond)
	}
	// A deposed leader of the deleted source sends again: nothing is taken twice.
	r.l.Receive(a.ID, transfer(9, 1, "1"))
	r.l.Receive(a.ID, transfer(10, 2, "2"))
	if ans := await[*wire.TransferAnswer](r, a.ID, nil); ans.Source != 10 || ans.UpTo != 2 {
		t.Fatalf("answer %+v", ans)
	}
	if got := sources(); !slices.Equal(got, []uint64{10, 30}) {
		t.Fatalf("sources %v", got)
	}
}
