package broker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

// leaderDied makes a stream look for the new leader of its queue.
func (s *stream) leaderDied(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader == node {
		s.leader = ""
		s.freeLocked()
		s.hub.trouble(s)
	}
}

// describe tells what the stream waits for.
func (s *stream) describe() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "leader %q tried %d, next %d sent %d answered %d, requests %d, resyncs %d session %#x, watched %v, gone %v",
		s.leader, s.tried, s.next, s.sent, s.answered, len(s.requests), s.resyncs, s.session, s.watched, s.gone)
	for no, c := range s.consumers {
		fmt.Fprintf(&b, "; consumer %d attached %v cancelling %v room %d owed %d", no, c.attached, c.cancelling, c.roomMessages, c.owedMessages)
	}
	n := 0
	for id, h := range s.held {
		if n++; n > 8 {
			break
		}
		fmt.Fprintf(&b, "; holds %d attempt %d consumer %d settled %v tx %v", id, h.attempt, h.no, h.settled, h.tx)
		switch {
		case h.ch == nil:
			b.WriteString(" for nobody")
		case h.ch.closed.Load():
			b.WriteString(" for a closed channel")
		}
	}
	return b.String()
}

// Describe tells what this node's parts of a queue wait for, for people who look into
// one that does not move.
func (b *Broker) Describe(queue uint64) string {
	var parts []string
	if s := b.streamByID(queue); s != nil {
		parts = append(parts, "stream: "+s.describe())
	}
	if l := b.queues.leader(queue); l != nil {
		parts = append(parts, "leader: "+l.Describe())
	}
	return strings.Join(parts, "\n")
}

// deleted tells whether a queue has left the catalog or is about to.
func (b *Broker) deleted(id uint64) bool {
	v := b.cat.View()
	q := v.QueueByID(id)
	if q == nil {
		q, _ = v.Successor(id)
	}
	return q == nil || q.State == catalog.Closing
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
