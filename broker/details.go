package broker

import (
	"net"
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/leader"
)

// QueueDetail has of a queue that this node leads what takes longer to tell than a row.
type QueueDetail struct {
	ID, Session uint64
	// Memory is about how many bytes this node holds for the queue: the replicated state, what the leader knows of consumers and of what
	// they hold, and the log if that is in memory. What a node keeps of logs on disk is not in it.
	Memory int64
	// HeadTimestamp is the timestamp property of the oldest message, in seconds since 1970, nil if there is none or it has none.
	HeadTimestamp *uint64
	// Since is when this node began to lead, in ms since 1970.
	Since int64
	// Owner and OwnerLocal are the ends of the connection that an exclusive queue belongs to, nil if it is none.
	Owner, OwnerLocal net.Addr
}

// QueueDetails describes those of the queues that this node leads. It wakes no leader.
func (b *Broker) QueueDetails(ids []uint64) []QueueDetail {
	list := make([]QueueDetail, 0, len(ids))
	for _, id := range ids {
		h := b.queues.get(id)
		if h == nil {
			continue
		}
		d, q, ok := h.detail()
		if !ok {
			continue
		}
		if q.Exclusive {
			if c := b.ownerOf(q); c != nil {
				d.Owner, d.OwnerLocal = c.info.Peer, c.info.Local
			}
		}
		list = append(list, d)
	}
	return list
}

func (h *hosted) detail() (d QueueDetail, q *catalog.Queue, ok bool) {
	l := h.replica.Leader()
	if l == nil {
		return d, nil, false
	}
	h.mu.Lock()
	q, d.Since = h.q, h.since
	log := h.log
	h.mu.Unlock()
	d.ID, d.Session, d.Memory = h.id, l.Session(), l.Memory()
	var head queue.Message
	h.replica.View(func(m *fsm.Machine) {
		head, ok = m.Queue().NextLive(0)
		d.Memory += m.Memory()
	})
	if m, inMemory := log.(*leader.MemLog); inMemory {
		d.Memory += m.Bytes()
	}
	if ok {
		d.HeadTimestamp = h.head.of(head, h.reader())
	}
	return d, q, true
}

// headStamp is the timestamp of the message that was the oldest when somebody asked last.
type headStamp struct {
	mu sync.Mutex
	id queue.MessageID // 0: nobody has asked
	at *uint64
}

// of returns a message's timestamp, nil if it has none or has left meanwhile.
func (s *headStamp) of(m queue.Message, r *entryReader) *uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id == m.ID {
		return s.at
	}
	msg, err := r.message(m.Ref)
	if err != nil {
		return nil
	}
	s.id, s.at = m.ID, nil
	if at, ok := amqp.RawProperties(msg.Properties).Timestamp(); ok {
		seconds := uint64(at)
		s.at = &seconds
	}
	return s.at
}
