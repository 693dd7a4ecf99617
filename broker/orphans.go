package broker

import (
	"context"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// orphans are exclusive queues of this node that have outlived their connections, because the catalog did not take their
// deletion in time. There are at most as many as queues here. The zero orphans is ready.
type orphans struct {
	mu      sync.Mutex
	ids     []uint64 // some may be there twice, or gone
	deletes bool     // a task is at work
}

// The wait after a change that the catalog did not take. A proposal has waited for a majority before it fails.
const (
	insistMin = 100 * time.Millisecond
	insistMax = 5 * time.Second
)

// orphaned has queues deleted whose connection has ended, however long that takes. The task ends with the last of them.
func (b *Broker) orphaned(ids ...uint64) {
	o := &b.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ids = append(o.ids, ids...)
	if len(o.ids) > 0 && !o.deletes {
		o.deletes = b.tasks.start(b.deleteOrphans)
	}
}

func (b *Broker) deleteOrphans() {
	for ids := b.orphans.take(); len(ids) > 0; ids = b.orphans.take() {
		for _, id := range ids {
			if q := b.cat.View().QueueByID(id); q != nil && q.State == catalog.Running {
				b.insist(&catalog.DeleteQueue{Vhost: q.Vhost, Name: q.Name, ID: id}, id, "exclusive")
			}
		}
	}
}

// take returns all there are. After none the task ends.
func (o *orphans) take() []uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	ids := o.ids
	o.ids, o.deletes = nil, len(ids) > 0
	return ids
}

// insist proposes a change until the catalog has taken or refused it, or the broker ends.
func (b *Broker) insist(c catalog.Command, queue uint64, what string) {
	for wait := insistMin; b.ctx.Err() == nil; wait = min(2*wait, insistMax) {
		ctx, cancel := context.WithTimeout(b.ctx, b.cfg.QueueTimeout)
		_, err := b.cat.Propose(ctx, c)
		cancel()
		if err == nil || isRefusal(err) {
			return
		}
		b.cfg.Logger.Warn("catalog change will be tried again", "queue", queue, "change", what, "err", err)
		select {
		case <-b.ctx.Done():
		case <-time.After(wait):
		}
	}
}

// adopt gives an exclusive queue that begins here to its connection, which may not have heard of it: it may have asked for the
// queue, waited in vain, and ended since.
func (b *Broker) adopt(q *catalog.Queue) {
	if c := b.ownerOf(q); c == nil || !c.owns(q.ID, q.Name) {
		b.orphaned(q.ID)
	}
}

// ownerOf is the connection of this node that an exclusive queue belongs to, nil if that is not open.
func (b *Broker) ownerOf(q *catalog.Queue) *Conn {
	b.mu.Lock()
	c := b.conns[q.Owner.Connection]
	b.mu.Unlock()
	if c == nil || c.owner != q.Owner {
		return nil
	}
	return c
}

// ownerless tells whether the connection of an exclusive queue has ended, as far as this node can tell.
func (b *Broker) ownerless(q *catalog.Queue) bool {
	if q.Owner.Node == catalog.NodeID(b.cfg.Node) {
		return b.ownerOf(q) == nil
	}
	n := b.cat.View().Node(q.Owner.Node)
	return n == nil || n.Superseded || n.Incarnation > q.Owner.Incarnation || !b.cfg.Alive(string(q.Owner.Node))
}

// lostMemory tells whether a queue was in the memory of a node that is known to be dead: nobody would answer for it.
func (b *Broker) lostMemory(q *catalog.Queue) bool {
	return q.Kind == catalog.Transient && !b.cfg.Alive(string(q.Members[0]))
}
