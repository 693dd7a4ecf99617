package broker

import (
	"context"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
)

// leaderless are groups in which the queues of a name never have a leader.
type leaderless struct {
	*memGroups
	name string
}

func (g leaderless) Start(q *catalog.Queue, r *leader.Replica, lead func(uint64, string, bool)) (Group, error) {
	if q.Name == g.name {
		return g.memGroups.Start(q, r, func(uint64, string, bool) {})
	}
	return g.memGroups.Start(q, r, lead)
}

// A publisher that is held because a queue has no leader has the confirms, and the settlements, of what it sent to others before.
func TestPublishThatWaitsHoldsNothingElseUp(t *testing.T) {
	b := newBrokerOver(t, leaderless{&memGroups{logs: map[uint64]*leader.MemLog{}}, "stuck"})
	c := dial(t, b)
	c.declare("q", nil)
	propose(t, b, &catalog.DeclareQueue{Queue: b.entryOf(b.cat.View(), "/", QueueDeclare{Name: "stuck", Durable: true}), NodeIncarnation: b.origin().Incarnation})
	c.put("q", "first", nil)
	first := c.get("q")
	if _, _, err := c.publish("", "stuck", strings.Repeat("b", streamBytesMax), nil); err != nil {
		t.Fatal(err)
	}
	// What follows comes in one burst: it is flushed at the end only.
	tag := c.tag + 1
	c.ch.Settle(fsm.Ack, []*Delivery{first})
	if _, err := c.ch.Publish(t.Context(), &Publish{Key: "q", Properties: amqp.RawProperties{0, 0}, Body: []byte("second"), Tag: tag}); err != nil {
		t.Fatal(err)
	}
	s := b.stream(b.cat.View().Queue("/", "q"))
	s.mu.Lock()
	resyncs := s.resyncs
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan error)
	go func() {
		_, err := c.ch.Publish(ctx, &Publish{Key: "stuck", Properties: amqp.RawProperties{0, 0}, Tag: tag + 1})
		blocked <- err
	}()
	defer func() {
		cancel()
		if err := <-blocked; err == nil {
			t.Error("the publish was not held")
		}
	}()
	c.await("confirm", func() bool { _, ok := c.confirmed[tag]; return ok })
	c.await("settlement", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.held) == 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resyncs != resyncs {
		t.Error("it was sent when its answer was missed")
	}
}
