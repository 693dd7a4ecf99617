package broker

import (
	"sync"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// answer takes the leader's answer and returns what there is to confirm.
func (s *stream) answer(a *wire.Answer) {
	if a.Origin != s.hub.origin() {
		return
	}
	s.mu.Lock()
	if a.Above > s.answered && a.UpTo > s.answered && !s.gone && s.leader != "" && time.Since(s.rewindAt) > rewindQuiet {
		// An answer before this one is missing, and with it outcomes.
		s.rewindAt = time.Now()
		s.leadLocked(s.leader, 0)
	}
	done := s.take(a)
	if a.Rewind && a.Next > s.answered && a.Next-1 < s.sent &&
		(s.rewound != a.Next || time.Since(s.rewindAt) > rewindQuiet) {
		s.rewound, s.rewindAt = a.Next, time.Now()
		s.sent = a.Next - 1
		s.flushLocked()
	}
	s.mu.Unlock()
	s.finish(done)
	putEnded(done)
}

// ended is one operation with its outcome.
type ended struct {
	op      pendingOp
	outcome fsm.Outcome
}

// endedKept bounds the lists of ended operations that are used again.
const endedKept = 4096

var endeds sync.Pool // *[]ended

func takeEnded(n int) []ended {
	if l, ok := endeds.Get().(*[]ended); ok && cap(*l) >= n {
		return (*l)[:n]
	}
	return make([]ended, n)
}

func putEnded(l []ended) {
	if n := cap(l); n > 0 && n <= endedKept {
		clear(l)
		endeds.Put(&l)
	}
}

func (s *stream) take(a *wire.Answer) (done []ended) {
	if s.gone || a.Above > s.answered || a.UpTo <= s.answered || a.UpTo >= s.next {
		return nil // a closed stream has ended its operations itself
	}
	n := int(a.UpTo - s.answered)
	done = takeEnded(n)
	outcomes, published := a.Outcomes, 0
	for i := range done {
		seq := s.answered + 1 + uint64(i)
		for len(outcomes) > 0 && outcomes[0].Seq < seq {
			outcomes = outcomes[1:]
		}
		done[i].op = s.ops[i]
		done[i].outcome = fsm.Outcome{Seq: seq}
		if len(outcomes) > 0 && outcomes[0].Seq == seq {
			done[i].outcome = outcomes[0]
		}
		s.bytes -= s.ops[i].bytes
		if s.ops[i].publish != nil {
			published++
		}
		if st, ok := s.ops[i].op.(fsm.Settle); ok {
			s.unhold(st)
		}
		s.ops[i] = pendingOp{}
	}
	s.ops = s.ops[n:]
	if len(s.ops) == 0 {
		s.ops = nil
	}
	s.spareRoom()
	s.burst.answered(published, a.Pace, s.burstIsDue)
	s.answered = a.UpTo
	s.tried = 0
	s.sent = max(s.sent, s.answered)
	s.progress = time.Now()
	s.wakeLocked()
	return done
}

func (s *stream) unhold(st fsm.Settle) {
	for _, r := range st.Runs {
		for i := range r.Count {
			id := r.First + queue.MessageID(i)
			if h := s.held[id]; h != nil && h.attempt == r.Attempt && h.settled > 0 {
				h.span.ended("")
				s.letGoLocked(h)
			}
		}
	}
}
