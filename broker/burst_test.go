package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// While the leader holds publishers, the publishes of one burst go out, the next ones wait until all of it is answered and its time is over, and settlements do not
// wait; a leader that holds nobody, or another one, sets them free.
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
		answer := func(upTo, pace uint64) {
			s.mu.Lock()
			above := s.answered
			s.mu.Unlock()
			s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: upTo, Above: above, Next: upTo + 1, Pace: pace})
		}

		// 100 are under way, so that 87 make a burst, and at 1,000 a second it takes 87 ms.
		if !isOver(publishTo(t, s, 100)) {
			t.Fatal("publishes wait although nobody is held")
		}
		answer(1, 1000)
		blocked := publishTo(t, s, 200)
		if isOver(blocked) {
			t.Fatal("publishes do not wait")
		}
		sentUpTo(100)
		s.mu.Lock()
		s.append(pendingOp{op: fsm.Purge{}, bytes: 1, result: make(chan fsm.Outcome, 1)})
		s.flushLocked()
		s.mu.Unlock()
		sentUpTo(101)
		time.Sleep(time.Second)
		answer(99, 1000)
		synctest.Wait()
		sentUpTo(101) // the burst is not answered as a whole
		answer(101, 1000)
		synctest.Wait()
		sentUpTo(188)
		answer(188, 1000)
		time.Sleep(86 * time.Millisecond)
		synctest.Wait()
		sentUpTo(188) // its time is not over
		time.Sleep(time.Millisecond)
		synctest.Wait()
		sentUpTo(275)
		time.Sleep(time.Second)
		answer(275, 1000)
		if !isOver(blocked) {
			t.Fatal("publishes wait although all but the last burst is answered")
		}
		sentUpTo(301)
		answer(301, 1000)
		time.Sleep(time.Second)
		if !isOver(publishTo(t, s, 61)) { // a burst that took longer than it may has ended
			t.Fatal("less than a burst waits")
		}
		blocked = publishTo(t, s, 100)
		if isOver(blocked) {
			t.Fatal("more than a burst is under way")
		}
		answer(302, 0)
		if !isOver(blocked) {
			t.Fatal("publishes wait for a leader that holds nobody")
		}
		s.mu.Lock()
		last := s.next - 1
		s.mu.Unlock()
		answer(last, 10) // a burst takes 100 ms at most
		if !isOver(publishTo(t, s, 1)) {
			t.Fatal("the first of a burst waits")
		}
		blocked = publishTo(t, s, 1)
		if isOver(blocked) {
			t.Fatal("the second of a burst of one does not wait")
		}
		s.rollCall("other", 1)
		answer(last+1, 1<<63) // nonsense holds nobody for long
		if !isOver(blocked) {
			t.Fatal("publishes wait for a former leader's answers")
		}
		answer(last+2, 1)
		blocked = publishTo(t, s, 5)
		answer(last+3, 1) // the next one waits for its time
		if isOver(blocked) {
			t.Fatal("five publishes do not wait at one a second")
		}
		s.close()
		if !isOver(blocked) {
			t.Fatal("publishes wait for a stream that has ended")
		}
		if s.burst.next.Stop() {
			t.Error("a timer of a stream that has ended")
		}
	})
}

// A publish that waits for its burst ends with its context.
func TestBurstAndContext(t *testing.T) {
	r := newStreamRig(t)
	r.s.leader = "leader"
	r.s.burst.say(1) // one at a time
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := newPublishing(1)
	if err := r.s.publish(ctx, "", fsm.Publish{TTLMillis: -1}, p, nil); err != nil {
		t.Error(err)
	}
	if err := r.s.publish(ctx, "", fsm.Publish{TTLMillis: -1}, p, nil); err != context.Canceled {
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
			if err := s.publish(t.Context(), "", fsm.Publish{Message: p.message[:10], TTLMillis: -1}, p, nil); err != nil && t.Context().Err() == nil {
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
			heir.answer(&wire.Answer{Queue: 20, Origin: rigOrigin, UpTo: upTo, Above: above, Next: upTo + 1, Pace: 40})
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
			r.s.answer(&wire.Answer{Queue: 7, Origin: rigOrigin, UpTo: 1, Next: 2, Pace: 30})
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
