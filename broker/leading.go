package broker

import (
	"time"

	"github.com/warrenmq/warren/queue/wire"
)

// lostLocked gives up on a leader that does not take messages.
func (s *stream) lostLocked() {
	s.leader = ""
	s.freeLocked()
	s.hub.trouble(s)
}

// failedLocked is called when operations or requests were not sent. What the link has no room for is sent when it has: a leader that is told
// everything anew instead would be told more each time, and what it hands out meanwhile would not count.
func (s *stream) failedLocked() {
	if !s.hub.crowded(s.leader) {
		s.lostLocked()
		return
	}
	s.stalled, s.stalledAt = true, time.Now()
	s.hub.trouble(s)
}

// sendLocked sends what must not overtake operations that wait for room.
func (s *stream) sendLocked(m wire.Message) bool { return !s.stalled && s.hub.send(s.leader, m) }

// findLocked looks for the leader and tells it everything.
func (s *stream) findLocked() bool {
	if s.gone {
		return false
	}
	node := s.hub.locate(s.id, s.tried)
	if node == "" {
		s.hub.trouble(s)
		return false
	}
	s.leadLocked(node, 0)
	return true
}

// leadLocked takes node for the leader: consumers and holds are told, then
// everything unanswered.
func (s *stream) leadLocked(node string, session uint64) {
	if s.gone {
		return
	}
	s.leader = node
	s.sent = s.answered
	s.stalled = false
	s.freeLocked() // it will say what it wants
	if !s.hub.send(node, s.resync(session)) {
		s.resyncs-- // nobody has it: what answers the one before counts
		s.lostLocked()
		return
	}
	s.ungranted, s.undetached = false, false // it says so
	for _, r := range s.requests {
		r.sent = false
	}
	if s.requestLocked() {
		s.flushLocked()
	}
}

// requestLocked sends the requests that the leader does not have.
func (s *stream) requestLocked() bool {
	for _, r := range s.requests {
		if r.sent {
			continue
		}
		if !s.hub.send(s.leader, r.m) {
			s.failedLocked()
			return false
		}
		r.sent = true
	}
	return true
}

// levelAttaching is the level of the cluster from which on leaders know wire.Resync.Attaching.
const levelAttaching = 2

func (s *stream) resync(session uint64) *wire.Resync {
	s.resyncs++
	r := &wire.Resync{Queue: s.id, Session: session, No: s.resyncs, Newest: s.session, Origin: s.hub.origin()}
	for _, c := range s.consumers {
		if c.attached {
			r.Consumers = append(r.Consumers, c.describe())
		}
	}
	if s.hub.level() >= levelAttaching {
		for _, q := range s.requests {
			if a, ok := q.m.(*wire.Attach); ok {
				r.Attaching = append(r.Attaching, a.Consumer.No)
			}
		}
	}
	for id, h := range s.held {
		r.Held = append(r.Held, wire.Hold{No: h.no, ID: id, Attempt: h.attempt, Settled: h.settled})
	}
	return r
}

// validLocked tells whether what a leader hands out is meant for this node as it is now:
// an older Resync than the newest did not name it, so that it is ready again, and an
// older session is deposed. The newest Resync may have gone to another node, or have been
// lost with the link: then the one who hands out gets another, or it would count what it
// handed out as held here, and nobody would ever settle it.
func (s *stream) validLocked(from string, session, resync uint64) bool {
	if s.gone || session < s.session {
		return false
	}
	if resync != s.resyncs {
		if from != s.leader {
			s.leadLocked(from, 0)
		}
		return false
	}
	s.session = session
	return true
}

// rollCall answers a leader that has just begun.
func (s *stream) rollCall(from string, session uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if session < s.session {
		return // a deposed leader, which will learn of it
	}
	s.tried, s.session = 0, session
	s.leadLocked(from, session)
}

// notLeader is the answer of a node that does not lead the queue.
func (s *stream) notLeader(from, hint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from != s.leader {
		return
	}
	s.leader = ""
	s.freeLocked()
	if hint != "" && hint != from && s.tried < 8 {
		s.tried++
		s.leadLocked(hint, 0)
		return
	}
	s.tried++
	s.hub.trouble(s)
}

// peerUp is called when the link to node was made anew: messages may have been
// lost.
func (s *stream) peerUp(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader == node {
		s.leadLocked(node, 0)
	}
}

// retry is called for a stream in trouble until it reports false.
func (s *stream) retry() (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stalled := s.stalled
	if stalled && s.leader != "" && time.Since(s.stalledAt) < stallPatience && s.hub.crowded(s.leader) {
		return true // what would not be taken is not encoded
	}
	s.stalled = false
	switch {
	case s.gone || !s.waiting() && !s.undetached && len(s.consumers)+len(s.held) == 0:
		return false
	case s.leader == "":
		s.tried++
		return !s.findLocked() || s.leader == ""
	}
	s.flushLocked()
	if stalled && s.leader != "" && !s.stalled {
		s.requestLocked()
	}
	if s.leader != "" {
		s.regrantLocked()
	}
	return s.leader == "" || s.ungranted || s.stalled
}

// overdue looks for the leader anew if an answer is missing for too long. It reports
// false when the stream waits for nothing.
func (s *stream) overdue() (again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || !s.waiting() {
		s.watched = false
		return false
	}
	if time.Since(s.progress) >= s.patienceLocked() && !s.stalled {
		s.progress = time.Now()
		s.tried++
		s.findLocked()
	}
	return true
}

// patienceLocked is how long an answer may be missing: longer the more a Resync says, and the more often one had none.
func (s *stream) patienceLocked() time.Duration {
	return answerPatience + time.Duration(len(s.held))*holdPatience<<min(s.tried, 4)
}

func (s *stream) waiting() bool { return len(s.ops) > 0 || len(s.requests) > 0 }
