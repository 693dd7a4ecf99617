package broker

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// While the leader asks for bursts, the publishes of one go out, the next ones wait until all of it is answered, and settlements do not
// wait; a leader that asks for nothing, or another one, sets them free.
func TestBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStreamRig(t)
		s := r.s
		sentUpTo := func(want uint64) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.sent != want || s.next-1 != want {
				t.Errorf("sent up to %d of %d, want %d", s.sent, s.next-1, want)
			}
		}
		answer := func(upTo, burst uint64) {
			s.mu.Lock()
			above := s.answered
			s.mu.Unlock()
			s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: upTo, Above: above, Next: upTo + 1, Burst: burst})
		}

		free := publishTo(t, s, 5)
		if !isOver(free) {
			t.Fatal("publishes wait although nobody asks for bursts")
		}
		answer(1, 3) // four are under way: more than one burst
		blocked := publishTo(t, s, 7)
		if isOver(blocked) {
			t.Fatal("publishes do not wait")
		}
		sentUpTo(5)
		s.mu.Lock()
		s.append(pendingOp{op: fsm.Purge{}, bytes: 1, result: make(chan fsm.Outcome, 1)})
		s.flushLocked()
		s.mu.Unlock()
		sentUpTo(6)
		answer(4, 3)
		synctest.Wait()
		sentUpTo(6) // the burst is not answered as a whole
		for _, up := range []struct{ to, sent uint64 }{{6, 9}, {8, 9}, {9, 12}, {12, 13}} {
			answer(up.to, 3)
			synctest.Wait()
			sentUpTo(up.sent)
		}
		if !isOver(blocked) {
			t.Fatal("publishes wait although all but the last burst is answered")
		}
		blocked = publishTo(t, s, 3)
		if isOver(blocked) {
			t.Fatal("more than a burst is under way")
		}
		answer(13, 0)
		if !isOver(blocked) {
			t.Fatal("publishes wait for a leader that asks for nothing")
		}
		answer(16, 1)
		if !isOver(publishTo(t, s, 1)) {
			t.Fatal("the first of a burst waits")
		}
		blocked = publishTo(t, s, 1)
		if isOver(blocked) {
			t.Fatal("the second of a burst of one does not wait")
		}
		s.rollCall("other", 1)
		answer(17, 1<<63) // nonsense is bounded
		if !isOver(blocked) {
			t.Fatal("publishes wait for a former leader's answers")
		}
	})
}

// A publish that waits for its burst ends with its context.
func TestBurstAndContext(t *testing.T) {
	r := newStreamRig(t)
	r.s.leader = "leader"
	r.s.burst.say(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := newPublishing(1)
	if err := r.s.publish(ctx, "", fsm.Publish{TTLMillis: -1}, p); err != nil {
		t.Error(err)
	}
	if err := r.s.publish(ctx, "", fsm.Publish{TTLMillis: -1}, p); err != context.Canceled {
		t.Errorf("%v", err)
	}
}

// publishTo publishes n messages into a stream, on a goroutine of its own.
func publishTo(t *testing.T, s *stream, n int) (done chan struct{}) {
	done = make(chan struct{})
	ch := &Channel{sink: &confirms{}, used: map[*stream]struct{}{}}
	go func() {
		defer close(done)
		for range n {
			p := newPublishing(10)
			p.ch, p.queues = ch, 1
			p.left.Store(1)
			if err := s.publish(t.Context(), "", fsm.Publish{Message: p.message[:10], TTLMillis: -1}, p); err != nil {
				t.Error(err)
			}
		}
		s.flush()
	}()
	synctest.Wait()
	return done
}

func isOver(done chan struct{}) bool {
	synctest.Wait()
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// What a queue's next life takes over counts in its bursts.
func TestBurstOfAnHeir(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStreamRig(t)
		publishTo(t, r.s, 5)
		heir := newStream(r.s.hub, 20, "q")
		heir.mu.Lock()
		heir.inheritLocked(r.s)
		heir.findLocked()
		heir.mu.Unlock()
		answer := func(upTo, above uint64) {
			heir.answer(&wire.Answer{Queue: 20, Origin: rigOrigin, UpTo: upTo, Above: above, Next: upTo + 1, Burst: 3})
		}
		answer(5, 0)
		if heir.burst.count != 0 {
			t.Errorf("nothing is under way and %d count", heir.burst.count)
		}
		done := publishTo(t, heir, 3)
		answer(8, 5)
		if !isOver(done) || !isOver(publishTo(t, heir, 1)) {
			t.Errorf("publishes wait for nothing: %+v", heir.burst)
		}
	})
}

// Whoever waits for a burst to be answered goes on when its leader is lost: nobody else asked for it.
func TestBurstOfALostLeader(t *testing.T) {
	for name, lose := range map[string]func(*streamRig){
		"another leader":  func(r *streamRig) { r.s.rollCall("other", 1) },
		"a dead node":     func(r *streamRig) { r.s.leaderDied(r.s.leader) },
		"no leader there": func(r *streamRig) { r.s.notLeader(r.s.leader, "") },
		"a broken link": func(r *streamRig) {
			r.s.mu.Lock()
			r.s.lostLocked()
			r.s.mu.Unlock()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newStreamRig(t)
			publishTo(t, r.s, 1)
			r.s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: 1, Next: 2, Burst: 3})
			waiting := publishTo(t, r.s, 4)
			if isOver(waiting) {
				t.Fatal("nobody waits")
			}
			lose(r)
			if !isOver(waiting) {
				t.Errorf("%s: publishes wait for a burst that nobody asked for: %+v", name, r.s.burst)
			}
		})
	}
}
