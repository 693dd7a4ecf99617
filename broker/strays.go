package broker

import (
	"sync"

	"github.com/warrenmq/warren/fsm"
)

// A node that is cut off routes by its old copy of the catalog: it may be given messages for a queue that the other side has deleted,
// and declared anew, before they were published. They are stored nowhere. Whoever published them is not told that they are safe while a
// queue of that name is there: RabbitMQ confirms what it loses with a queue, but there the queue is lost after the publish. A message
// that really was published before the deletion is refused as well if it has no answer by then: nobody can tell the two apart.

// stray is a publish whose queue has ended before its answer.
type stray struct {
	queue string
	id    uint64
	p     *publishing
}

// strays are those whose publisher has no answer yet. Their number is bounded by what the ended queues' streams had under way:
// nothing is routed to a queue that the catalog has no more.
type strays struct {
	mu   sync.Mutex
	list []stray
	busy bool // a goroutine looks after them
}

// strayed has publishes answered when it is known whether another queue has their queue's name.
func (b *Broker) strayed(list []stray) {
	b.strays.mu.Lock()
	defer b.strays.mu.Unlock()
	b.strays.list = append(b.strays.list, list...)
	if !b.strays.busy {
		// At the broker's end nobody waits any more.
		b.strays.busy = b.tasks.start(b.answerStrays)
	}
}

func (b *Broker) answerStrays() {
	for {
		b.strays.mu.Lock()
		list := b.strays.list
		b.strays.list, b.strays.busy = nil, len(list) > 0
		b.strays.mu.Unlock()
		if len(list) == 0 {
			return
		}
		view, err := b.fresh(b.ctx)
		var c confirming
		for _, s := range list {
			if err != nil {
				s.p.refused.Store(true)
			} else if q := view.Queue(s.p.ch.conn.vhost, s.queue); q != nil && q.ID != s.id {
				s.p.refused.Store(true)
			}
			c.answered(s.p, fsm.Gone)
		}
		c.flush()
	}
}
