package broker

import (
	"errors"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

// leaderDied makes a stream look for the new leader of its queue.
func (s *stream) leaderDied(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader == node {
		s.leader = ""
		s.hub.trouble(s)
	}
}

// closeStreamOf ends the stream of a queue that is being deleted: its
// consumers are cancelled, and what waits is answered.
func (b *Broker) closeStreamOf(q *catalog.Queue) {
	b.mu.Lock()
	s := b.streams[q.ID]
	b.mu.Unlock()
	if s != nil {
		s.close()
	}
}

// isRefusal tells an answer from a failure to get one.
func isRefusal(err error) bool {
	var a *amqp.Error
	return errors.As(err, &a)
}
