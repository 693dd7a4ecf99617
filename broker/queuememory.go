package broker

import (
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
)

// QueueMemory is about how many bytes of memory queues take on this node. It looks at each of them.
type QueueMemory struct {
	Replicas int64 // what is known of messages, dead letters and publishers, of all queues that have a replica here
	Leaders  int64 // what leaders know of consumers and deliveries, and movers of what is on its way
	Messages int64 // those of queues that are in memory only, bodies and all
}

// QueueMemory counts what queues take here.
func (b *Broker) QueueMemory() (m QueueMemory) {
	for _, h := range b.queues.all() {
		h.mu.Lock()
		log := h.log
		h.mu.Unlock()
		h.replica.View(func(f *fsm.Machine) { m.Replicas += f.Memory() })
		if l := h.replica.Leader(); l != nil {
			m.Leaders += l.Memory()
		}
		if log, ok := log.(*leader.MemLog); ok {
			m.Messages += log.Bytes()
		}
	}
	return m
}
