package broker

import (
	"sync/atomic"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
	"github.com/warrenmq/warren/queue/wire"
)

// A queue that has lost most of its replicas for good goes on under another id (docs/adr/0029-lost-majority.md). To leaders and movers that is
// another queue. Clients notice as little as possible: what they have published and nobody has answered is sent to the new life, and
// consumers go on there.

// Lives counts what became of clients' operations when queues went on in another life.
type Lives struct {
	Recovered uint64 // queues taken over by a replica of this node
	// Resent publishes of this node's clients had been sent to the former life: it may have taken them, too.
	Resent uint64
	// Again are the dead letters that were on their way out of queues taken over here: their targets may have taken them already.
	Again uint64
	// Lost are dead letters of queues led here that a target had taken and lost with its replicas.
	Lost uint64
}

// lives is Lives in the making.
type lives struct{ recovered, resent, again atomic.Uint64 }

// Lives reads the counters.
func (b *Broker) Lives() Lives {
	return Lives{b.lives.recovered.Load(), b.lives.resent.Load(), b.lives.again.Load(), b.moves.Lost.Load()}
}

// successor returns the id under which a queue goes on, and the number of the life that ended; ok is false if it is none.
func (b *Broker) successor(id uint64) (to uint64, life uint32, ok bool) {
	q, life := b.cat.View().Successor(id)
	if q == nil {
		return 0, 0, false
	}
	return q.ID, life, true
}

// leaderNow is the leader here of the queue that a message is for, also if it is for a former life that is still asked.
func (b *Broker) leaderNow(m wire.Message) *leader.Leader {
	if l := b.queues.leader(m.QueueID()); l != nil {
		return l
	}
	if _, ok := m.(*wire.TargetForgotten); ok {
		if to, _, ok := b.successor(m.QueueID()); ok {
			return b.queues.leader(to)
		}
	}
	return nil
}

// formerOf returns the former life of a queue that has a stream yet, and takes it out; b.mu is held.
func (b *Broker) formerOf(q *catalog.Queue) *stream {
	var found *stream
	for _, id := range q.Former {
		if s := b.streams[id]; s != nil {
			delete(b.streams, id)
			found = s
		}
		delete(b.leaders, id)
	}
	return found
}

// succeed carries this node's stream of a queue's former life on.
func (b *Broker) succeed(q *catalog.Queue) {
	b.mu.Lock()
	found := false
	for _, id := range q.Former {
		found = found || b.streams[id] != nil
		delete(b.leaders, id)
	}
	b.mu.Unlock()
	if found {
		b.stream(q)
	}
}

// inheritLocked takes over what the stream of the former life has not been answered, and its consumers. Its settlements are for deliveries of
// the former leader: these come again, and what clients say of them has no effect. A transaction may have been done or not, and
// the same is told of one that was not sent, which is rare. s is locked, and nobody has used it yet.
func (s *stream) inheritLocked(from *stream) (resent uint64) {
	from.mu.Lock()
	defer from.mu.Unlock()
	s.used = from.used
	for i, p := range from.ops {
		switch p.op.(type) {
		case fsm.Publish:
			if p.result != nil {
				close(p.result) // it may be there, under whatever number
				continue
			}
			if from.answered+1+uint64(i) <= from.ever {
				resent++
				if p.publish != nil {
					p.publish.again.Store(true) // a leader here may still have it
				}
			}
			s.append(p)
		case fsm.Purge:
			s.append(p)
		case fsm.Tx, fsm.Cancel:
			close(p.result)
		}
	}
	for no, c := range from.consumers {
		if c.attached && !c.cancelling {
			if c.aging != nil {
				c.aging = newAging(c.aging.timeout, c)
			}
			s.consumers[no] = c
			c.stream.Store(s)
		}
	}
	from.gone, from.heir, from.ops, from.bytes = true, s, nil, 0
	clear(from.consumers)
	from.endSpansLocked("queue recovered")
	clear(from.held)
	clear(from.heldBy)
	clear(from.agings)
	for no, r := range from.requests {
		delete(from.requests, no)
		close(r.reply)
	}
	from.wakeLocked()
	if s.waiting() || len(s.consumers) > 0 {
		s.hub.trouble(s) // the retry loop looks for the leader
	}
	return resent
}

// why tells how a stream that is gone has ended.
func (s *stream) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heir != nil {
		return errQueueMoved
	}
	return errQueueGone
}

// went tells that the stream has ended because the queue goes on in another life.
func (s *stream) went() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heir != nil
}

// formerIDs tells the id of a queue in an earlier life, from 1. The list of a queue never changes.
func formerIDs(ids []uint64) func(life uint32) uint64 {
	return func(life uint32) uint64 {
		if life == 0 || int(life) > len(ids) {
			return 0
		}
		return ids[life-1]
	}
}

// recovered tells the catalog that the queue's new life has its first leader; h.mu is held.
func (h *hosted) recovered() {
	b := h.qs.b
	var k catalog.Kept
	k.Index, k.Term = h.group.Beginning()
	h.replica.View(func(m *fsm.Machine) {
		k.Messages = uint64(m.Queue().Len() + m.Outbox().Len() - m.LeavingLen() - m.UndecidedLen())
		for _, t := range m.Outbox().Targets() {
			k.Again += uint64(t.Pending)
		}
	})
	b.lives.recovered.Add(1)
	b.lives.again.Add(k.Again)
	b.cfg.Logger.Warn("a queue goes on from one replica; what only its lost replicas had is gone", "queue", h.q.Name, "vhost", h.q.Vhost, "id", h.id,
		"former", h.q.Former[len(h.q.Former)-1], "index", k.Index, "term", k.Term, "messages", k.Messages, "sent_again", k.Again)
	h.propose(&catalog.QueueRecovered{ID: h.id, IfSettings: h.q.Settings, Kept: k}, "queue recovered")
}
