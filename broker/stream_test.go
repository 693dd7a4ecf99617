package broker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// streamRig is a stream whose leader is played by the test.
type streamRig struct {
	t *testing.T
	s *stream

	mu      sync.Mutex
	out     []wire.Message
	down    bool
	full    bool // it is down because the link has no room
	trouble int
	narrow  bool
	level   int
	strays  []stray
}

var rigOrigin = fsm.Origin{Node: 1, Incarnation: 5}

func newStreamRig(t *testing.T) *streamRig {
	r := &streamRig{t: t}
	r.s = newStream(&hub{
		origin: func() fsm.Origin { return rigOrigin },
		send: func(_ string, m wire.Message) bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.down {
				r.out = append(r.out, m)
			}
			return !r.down
		},
		crowded: func(string) bool { return r.down && r.full },
		locate:  func(uint64, int) string { return "leader" },
		deleted: func(uint64) bool { return false },
		strayed: func(list []stray) { r.strays = append(r.strays, list...) },
		trouble: func(*stream) { r.trouble++ },
		watch:   func(*stream) {},
		narrow:  func() bool { return r.narrow },
		level:   func() int { return r.level },
	}, 7, "q")
	return r
}

// sent takes the messages of a type that were sent.
func sent[M wire.Message](r *streamRig) (list []M) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := r.out[:0]
	for _, m := range r.out {
		if x, ok := m.(M); ok {
			list = append(list, x)
		} else {
			rest = append(rest, m)
		}
	}
	r.out = rest
	return list
}

// confirms counts what a sink hears.
type confirms struct{ list []Confirm }

func (c *confirms) Confirm(list []Confirm)            { c.list = append(c.list, list...) }
func (c *confirms) Deliver(*Delivery)                 {}
func (c *confirms) Cancelled(*Consumer)               {}
func (c *confirms) TimedOut(*Consumer, time.Duration) {}
func (c *confirms) Failed(*Error)                     {}

func (r *streamRig) publish(sink Sink, tag uint64) {
	r.t.Helper()
	p := &publishing{ch: &Channel{sink: sink}, tag: tag, queues: 1}
	p.left.Store(1)
	if err := r.s.publish(r.t.Context(), "", fsm.Publish{TTLMillis: -1}, p, nil); err != nil {
		r.t.Fatal(err)
	}
	r.s.flush()
}

// The leader may have applied what was sent: nothing joins it any more.
func TestSentOperationNeverChanges(t *testing.T) {
	r := newStreamRig(t)
	r.s.holdLocked(1, &holding{})
	r.s.holdLocked(2, &holding{})
	r.s.settle(fsm.Ack, 1, 0)
	r.s.flush()
	r.down = true
	r.s.leaderDied("leader")
	r.s.settle(fsm.Ack, 2, 0)
	r.s.flush()
	r.down = false
	sent[*wire.Batch](r)
	r.s.retry()
	for _, b := range sent[*wire.Batch](r) {
		for i, op := range b.Stream.Ops {
			if runs := op.(fsm.Settle).Runs; len(runs) != 1 || runs[0].Count != 1 {
				t.Errorf("operation %d has runs %v", b.Stream.First+uint64(i), runs)
			}
		}
	}
	if r.s.next != 3 {
		t.Errorf("next sequence %d, want 3", r.s.next)
	}
}

// A leader on this node reads a message where its publisher wrote it: the memory is used again only when the leader
// that had it has answered.
func TestMessageOfAFormerLeaderIsNotUsedAgain(t *testing.T) {
	published := func(r *streamRig) *publishing {
		p := newPublishing(1000)
		p.ch, p.tag, p.queues = &Channel{sink: &confirms{}}, 0, 1
		p.left.Store(1)
		if err := r.s.publish(t.Context(), "", fsm.Publish{Message: p.message[:1000], TTLMillis: -1}, p, nil); err != nil {
			t.Fatal(err)
		}
		r.s.flush()
		return p
	}
	answered := func(r *streamRig) {
		r.s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: 1})
	}
	t.Run("answered by the leader that has it", func(t *testing.T) {
		r := newStreamRig(t)
		p := published(r)
		answered(r)
		if p.message == nil {
			t.Error("the memory is given up")
		}
	})
	t.Run("answered by its successor", func(t *testing.T) {
		r := newStreamRig(t)
		p := published(r)
		r.s.leaderDied("leader")
		r.s.retry()
		answered(r)
		if p.message != nil {
			t.Error("the memory is used again")
		}
	})
	t.Run("of a queue that is gone", func(t *testing.T) {
		r := newStreamRig(t)
		p := published(r)
		r.s.close()
		if p.message != nil {
			t.Error("the memory is used again")
		}
	})
}

func TestPublishIntoClosedStreamStrays(t *testing.T) {
	r := newStreamRig(t)
	r.publish(&confirms{}, 8)
	r.s.close()
	sent[*wire.Batch](r)
	sent[*wire.Resync](r)
	r.publish(&confirms{}, 9)
	if len(r.strays) != 2 || r.strays[0].p.tag != 8 || r.strays[1].p.tag != 9 || r.strays[1].queue != "q" || r.strays[1].id != 7 {
		t.Errorf("strays %v", r.strays)
	}
	r.s.peerUp("leader")
	if len(r.out) > 0 {
		t.Errorf("a closed stream sends %T", r.out[0])
	}
}

// An answer that follows a missing one confirms nothing.
func TestMissingAnswerIsAskedFor(t *testing.T) {
	r := newStreamRig(t)
	var c confirms
	r.publish(&c, 1)
	r.publish(&c, 2)
	sent[*wire.Resync](r)
	r.s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: 2, Above: 1, Next: 3})
	if len(c.list) != 0 {
		t.Fatalf("confirms %v", c.list)
	}
	if n := len(sent[*wire.Resync](r)); n != 1 {
		t.Fatalf("%d resyncs", n)
	}
	r.s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: 2, Next: 3, Outcomes: []fsm.Outcome{{Seq: 1, Kind: fsm.RefusedFull}}})
	if len(c.list) != 2 || !c.list[0].Refused || c.list[0].Deleted || c.list[1].Refused {
		t.Errorf("confirms %v", c.list)
	}
}

// What answers an older Resync, or comes from an older session, is not this node's.
func TestStaleDeliveriesAreDropped(t *testing.T) {
	r := newStreamRig(t)
	r.s.rollCall("leader", 20)
	m := fsm.EncodeMessage(nil, &fsm.Message{RoutingKeys: []string{"q"}})
	for _, tc := range []struct {
		name            string
		session, resync uint64
		held            bool
	}{{"older resync", 20, 0, false}, {"older session", 19, 1, false}, {"valid", 20, 1, true}} {
		r.s.deliver("leader", &wire.Deliver{Queue: 7, Session: tc.session, Resync: tc.resync, Items: []wire.Item{{No: 3, ID: 1, Message: m}}})
		if _, held := r.s.held[1]; held != tc.held {
			t.Errorf("%s: held %v, want %v", tc.name, held, tc.held)
		}
	}
	// Nobody here knows consumer 3: its leader is told, and gets the message back.
	if d := sent[*wire.Detach](r); len(d) != 1 || d[0].No != 3 {
		t.Errorf("detaches %v", d)
	}
}

// A leader that hands something out behind a Resync that went elsewhere is told: it would
// count it as held here for ever.
func TestLeaderLearnsWhatWasDropped(t *testing.T) {
	r := newStreamRig(t)
	r.s.rollCall("leader", 20)
	sent[*wire.Resync](r)
	got := &wire.Got{Queue: 7, Req: 5, Session: 20, Resync: 1, Found: true, Item: wire.Item{ID: 1}}
	r.s.mu.Lock()
	r.s.leadLocked("other", 0) // looked for in vain, as by a request that waited for long
	r.s.mu.Unlock()
	r.s.notLeader("other", "")
	r.s.retry() // nothing waits any more
	sent[*wire.Resync](r)
	r.s.got("leader", got)
	if list := sent[*wire.Resync](r); len(list) != 1 || len(list[0].Held) != 0 {
		t.Fatalf("resyncs %v", list)
	}
	r.s.got("leader", got) // what was on its way: told already
	old := *got
	old.Session = 19
	r.s.got("deposed", &old)
	if list := sent[*wire.Resync](r); len(list) != 0 {
		t.Fatalf("resyncs %v", list)
	}
}

// A request is sent once, however long nothing was asked before; its answer is
// looked for again only after a while.
func TestRequestIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStreamRig(t)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := r.s.ask(ctx, 5, func(after uint64) wire.Message {
				return &wire.Get{Queue: 7, Origin: rigOrigin, Req: 5, After: after}
			})
			done <- err
		}()
		synctest.Wait()
		r.s.overdue()
		if n := len(sent[*wire.Get](r)); n != 1 {
			t.Errorf("sent %d times", n)
		}
		time.Sleep(answerPatience)
		if !r.s.overdue() || len(sent[*wire.Get](r)) != 1 {
			t.Error("an overdue request is not sent again")
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("no error")
		}
		if r.s.overdue() {
			t.Error("still watched")
		}
	})
}

// An answer that meets the deadline brings its message to the client, not nowhere.
func TestAnswerAtTheDeadline(t *testing.T) {
	for range 200 {
		r := newStreamRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			cancel()
			r.s.got("leader", &wire.Got{Queue: 7, Req: 5, Resync: r.resyncs(), Found: true, Item: wire.Item{ID: 1}})
		})
		m, err := r.s.ask(ctx, 5, func(uint64) wire.Message { return &wire.Get{Queue: 7, Req: 5} })
		wg.Wait()
		if err == nil {
			if g, ok := m.(*wire.Got); !ok || !g.Found {
				t.Fatalf("answer %+v", m)
			}
			continue
		}
		// It was not answered in time: the message goes back, or never came.
		r.s.got("leader", &wire.Got{Queue: 7, Req: 5, Resync: r.resyncs(), Found: true, Item: wire.Item{ID: 1}})
		if h := r.s.held[1]; h == nil || h.settled == 0 {
			t.Fatalf("hold %+v", h)
		}
	}
}

func (r *streamRig) resyncs() uint64 {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.s.resyncs
}
