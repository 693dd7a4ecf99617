package broker

import (
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// A gateway may keep a delivery back before it sends it: a limit that consumers of several queues share is
// known at the client's node only. What the client has not seen is no attempt of its, and it does not hold it.

// levelUnsent is the level of the cluster from which on leaders know wire.Unsent.
const levelUnsent = 2

// Withhold tells that the delivery waits at the gateway: it does not age until it is Sent, and is no attempt if
// it goes back before. It may be called where the Sink gets the delivery.
func (d *Delivery) Withhold() {
	if d.queue == nil {
		return
	}
	s := d.queue
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.heldLocked(d); h != nil {
		h.unsent = true
		s.unageLocked(h)
	}
}

// Sent tells that a delivery that was withheld is about to be sent. It is not to be sent if ok is false: it has
// gone back.
func (d *Delivery) Sent() (ok bool) {
	if d.queue == nil {
		return true
	}
	s := d.queue
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.heldLocked(d)
	if h == nil || !h.unsent {
		return false
	}
	h.unsent = false
	s.ageLocked(h, d.Consumer.aging)
	return true
}

// heldLocked is the holding of a consumer's delivery that is not settled, nil if there is none.
func (s *stream) heldLocked(d *Delivery) *holding {
	h := s.held[d.id]
	if h == nil || h.attempt != d.attempt || h.settled > 0 || h.tx || h.no != d.Consumer.no {
		return nil
	}
	return h
}

// GiveBack returns deliveries that were not sent. Those of one queue are best neighbours. It may be called on any
// goroutine, and where the Sink gets a delivery.
func GiveBack(ds ...*Delivery) {
	for len(ds) > 0 {
		s, n := ds[0].queue, 1
		for n < len(ds) && ds[n].queue == s {
			n++
		}
		if s != nil {
			s.giveBack(ds[:n])
		}
		ds = ds[n:]
	}
}

func (s *stream) giveBack(ds []*Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]queue.MessageID, 0, len(ds))
	for _, d := range ds {
		if s.heldLocked(d) != nil {
			ids = append(ids, d.id)
		}
	}
	s.giveBackLocked(ids)
	for _, d := range ds {
		if c := d.Consumer; s.consumers[c.no] == c { // it goes on, and has room for others
			c.owedMessages++
			c.owedBytes += int64(d.WindowBytes)
			s.grantLocked(c)
		}
	}
}

// GiveBack returns deliveries of this channel that were not sent.
func (ch *Channel) GiveBack(ds []*Delivery) { GiveBack(ds...) }

// giveBackLocked returns what is held and no client has seen. A leader that knows how makes it ready again as it
// was. If it does not hear of it, it finds that the next Resync does not name it. For another leader, and if
// there is none, it is a return that counts as an attempt.
func (s *stream) giveBackLocked(ids []queue.MessageID) {
	if len(ids) == 0 {
		return
	}
	sortIDs(ids)
	if s.tellUnsentLocked(ids) {
		for _, id := range ids {
			h := s.held[id]
			s.unageLocked(h)
			h.span.ended("unsent")
			s.letGoLocked(h)
		}
		return
	}
	for _, id := range ids {
		s.settleLocked(fsm.RequeueCounted, id, s.held[id].attempt)
	}
	s.flushLocked()
}

// unsentLocked is what the gateway keeps back of a consumer.
func (s *stream) unsentLocked(c *Consumer) (ids []queue.MessageID) {
	for h := s.heldBy[c.ch]; h != nil; h = h.behind {
		if h.no == c.no && h.unsent && h.settled == 0 && !h.tx {
			ids = append(ids, h.id)
		}
	}
	return ids
}

// tellUnsentLocked reports whether the leader was told.
func (s *stream) tellUnsentLocked(ids []queue.MessageID) bool {
	if s.leader == "" || s.hub.level() < levelUnsent {
		return false
	}
	m := &wire.Unsent{Queue: s.id, Origin: s.hub.origin(), Resync: s.resyncs}
	for _, id := range ids {
		m.Runs = appendRun(m.Runs, id, s.held[id].attempt)
	}
	if !s.sendLocked(m) {
		if !s.stalled {
			s.lostLocked()
		}
		return false
	}
	return true
}
