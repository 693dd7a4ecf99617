package steward

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/repair"
)

// inMemory declares a queue in the memory of a node.
func (r *rig) inMemory(name, on string) uint64 {
	r.t.Helper()
	id := r.ids[on]
	return r.propose(&catalog.DeclareQueue{NodeIncarnation: r.node(on).Incarnation, Queue: catalog.Queue{
		Vhost: "/", Name: name, Kind: catalog.Transient, Members: []catalog.NodeID{id}, Preferred: id, Incarnation: r.node(on).Incarnation,
	}}).ID
}

// TestMemoryOfADeadNode: queues in the memory of a node that stays dead leave the catalog, those of others do not, nor those that
// the node declares once it is back, before it is found alive.
func TestMemoryOfADeadNode(t *testing.T) {
	r := newRig(t, "a", "b")
	r.inMemory("gone", "a")
	r.inMemory("stays", "b")
	durable := r.declare("durable", "a", "b")
	r.die("a")
	var ended atomic.Bool
	s := New(Config{
		Catalog: r.cat, Alive: r.alive, Clock: func() int64 { return time.Now().UnixMilli() }, Policy: repair.Policy{},
		Every: 10 * time.Millisecond, LostAfter: 50 * time.Millisecond, SilentAfter: time.Hour,
		Ended: func(catalog.NodeID) bool { return ended.Load() },
	})
	t.Cleanup(s.Close)
	time.Sleep(200 * time.Millisecond)
	if r.cat.View().Queue("/", "gone") == nil {
		t.Error("the queue of a node that is only silent is gone after the time of one that has ended")
	}
	ended.Store(true)
	r.until("the queue is forgotten", func() bool {
		for q := range r.cat.View().InMemoryOf(r.ids["a"]) {
			return q == nil
		}
		return true
	})
	later := r.inMemory("later", "a")
	time.Sleep(200 * time.Millisecond)
	view := r.cat.View()
	if view.Queue("/", "stays") == nil || view.QueueByID(durable) == nil {
		t.Error("queues that are not in the memory of the dead node are gone")
	}
	if q := view.QueueByID(later); q == nil || q.State != catalog.Running {
		t.Error("a queue that the node has declared since is gone")
	}
}
