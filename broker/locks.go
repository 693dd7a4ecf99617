package broker

import (
	"maps"
	"slices"

	"github.com/warrenmq/warren/contain"
)

// Locks are the locks of this package that the work for one client takes and that others need.
func (b *Broker) Locks() contain.Locks {
	return func(yield func(string, contain.Lock) bool) {
		_ = yield("broker.Broker.mu", &b.mu) && yield("broker.queues.mu", &b.queues.mu) && yield("broker.queues.movingMu", &b.queues.movingMu) &&
			yield("broker.orphans.mu", &b.orphans.mu) && yield("broker.census.mu", &b.census.mu) && yield("broker.replies.mu", &b.replies.mu) &&
			yield("broker.traffics.mu", &b.traffics.mu) && yield("broker.exchanges.mu", &b.exchanges.mu) &&
			yield("broker.strays.mu", &b.strays.mu) && yield("broker.tasks.mu", &b.tasks.mu) &&
			b.locksOfQueues(yield) && b.locksOfConns(yield)
	}
}

func (b *Broker) locksOfQueues(yield func(string, contain.Lock) bool) bool {
	b.mu.Lock()
	streams := slices.Collect(maps.Values(b.streams))
	b.mu.Unlock()
	for _, s := range streams {
		if !yield("broker.stream.order", &s.order) || !yield("broker.stream.mu", &s.mu) {
			return false
		}
	}
	for _, h := range b.queues.all() {
		if !yield("broker.hosted.mu", &h.mu) {
			return false
		}
	}
	return true
}

func (b *Broker) locksOfConns(yield func(string, contain.Lock) bool) bool {
	b.mu.Lock()
	conns := slices.Collect(maps.Values(b.conns))
	b.mu.Unlock()
	b.replies.mu.Lock()
	boxes := slices.Collect(maps.Values(b.replies.boxes))
	b.replies.mu.Unlock()
	for _, c := range conns {
		if !yield("broker.Conn.mu", &c.mu) {
			return false
		}
	}
	for _, box := range boxes {
		if !yield("broker.replyBox.mu", &box.mu) {
			return false
		}
	}
	return true
}
