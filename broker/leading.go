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
	s.freeLocked() // it will say what it wants
	if !s.hub.send(node, s.resync(session)) {
		s.lostLocked()
		return
	}
	s.ungranted, s.undetached = false, false // it says so
	for _, r := range s.requests {
		if !s.hub.send(node, r.m) {
			s.lostLocked()
			return
		}
	}
	s.flushLocked()
}

func (s *stream) resync(session uint64) *wire.Resync {
	s.resyncs++
	r := &wire.Resync{Queue: s.id, Session: session, No: s.resyncs, Newest: s.session, Origin: s.hub.origin()}
	for _, c := range s.consumers {
		if c.attached {
			r.Consumers = append(r.Consumers, c.describe())
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
	switch {
	case s.gone || !s.waiting() && !s.undetached && len(s.consumers)+len(s.held) == 0:
		return false
	case s.leader == "":
		s.tried++
		return !s.findLocked() || s.leader == ""
	}
	s.flushLocked()
	if s.leader != "" {
		s.regrantLocked()
	}
	return s.leader == "" || s.ungranted
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
	if time.Since(s.progress) >= answerPatience {
		s.progress = time.Now()
		s.tried++
		s.findLocked()
	}
	return true
}

func (s *stream) waiting() bool { return len(s.ops) > 0 || len(s.requests) > 0 }
