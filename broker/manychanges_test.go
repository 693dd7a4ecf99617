package broker

import (
	"sync"
	"testing"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/queue/leader"
)

// slowStart are groups in which one queue takes until it is let go to be started.
type slowStart struct {
	*memGroups
	name         string
	started, let chan struct{}
}

func (g slowStart) Start(q *catalog.Queue, r *leader.Replica, lead func(uint64, string, bool)) (Group, error) {
	if q.Name == g.name {
		close(g.started)
		<-g.let
	}
	return g.memGroups.Start(q, r, lead)
}

// A queue that is declared, published to and deleted while a node is busy with others, and while more changes than the catalog remembers, is gone as any other
// is: its publishers have their answers, and its stream ends.
func TestQueueThatCameAndWentUnseen(t *testing.T) {
	g := slowStart{&memGroups{logs: map[uint64]*leader.MemLog{}}, "slow", make(chan struct{}), make(chan struct{})}
	b := newBrokerOver(t, g)
	c := dial(t, b)
	c.declare("other", nil)
	declare := func(name string) uint64 {
		res, err := b.cat.Propose(t.Context(), &catalog.DeclareQueue{
			Queue: b.entryOf(b.cat.View(), "/", QueueDeclare{Name: name, Durable: true}), NodeIncarnation: b.origin().Incarnation,
		})
		if err != nil {
			t.Fatal(err)
		}
		return res.ID
	}
	declare("slow")
	<-g.started // from here on the catalog is not followed
	id := declare("short")
	tag, routed, err := c.publish("", "short", "m", nil)
	if err != nil || !routed {
		t.Fatal(routed, err)
	}
	propose(t, b, &catalog.DeleteQueue{Vhost: "/", Name: "short", ID: id})
	propose(t, b, &catalog.QueueGone{ID: id})
	other := b.cat.View().Queue("/", "other")
	var changing sync.WaitGroup
	for range 64 {
		changing.Go(func() {
			for i := range 200 {
				if _, err := b.cat.Propose(t.Context(), &catalog.PauseQueue{ID: other.ID, Paused: i%2 == 0}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	changing.Wait()
	close(g.let)
	c.await("confirm", func() bool { _, ok := c.confirmed[tag]; return ok })
	if s := b.streamByID(id); s != nil {
		t.Error("its stream is there")
	}
}
