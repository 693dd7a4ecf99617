package process

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// memoryQueues declares, through a node, queues that live in its memory: one by name, and an exclusive one. Both are bound to
// auto-delete exchanges, "named" and "mine", as oslo.messaging's and other frameworks' are.
func memoryQueues(t *testing.T, n *cluster.Node) {
	t.Helper()
	s := at(t, n)
	for _, x := range []string{"named", "mine"} {
		s.noError("exchange", s.ch.ExchangeDeclare(x, amqp.ExchangeFanout, false, true, false, false, nil))
		_, err := s.ch.QueueDeclare(x, false, false, x == "mine", false, amqp.Table{"x-expires": int32(600_000)})
		s.noError("declare", err)
		s.noError("bind", s.ch.QueueBind(x, "", x, false, nil))
	}
	s.noError("durable", s.ch.ExchangeDeclare("stays", amqp.ExchangeFanout, true, false, false, false, nil))
	s.noError("bind", s.ch.QueueBind("named", "", "stays", false, nil))
}

// memoryQueuesAreFree awaits that publishers get the confirms of what the queues were to get, and declares those named anew with
// their exchanges.
func memoryQueuesAreFree(t *testing.T, n *cluster.Node, names ...string) {
	t.Helper()
	s := at(t, n)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutReply)
	defer cancel()
	ch := s.channel(s.conn)
	s.noError("confirm", ch.Confirm(false))
	confirm, err := ch.PublishWithDeferredConfirm("stays", "", false, false, message("x"))
	s.noError("publish", err)
	if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
		t.Errorf("a message for a queue in the memory of a node that is gone is not confirmed after %v: %v, %v", time.Since(begun), ok, err)
	}
	// Clients that are sent away declare everything anew until that goes well.
	await(t, timeoutReply, "queues in the memory of a node that is gone can be declared", func() bool {
		other := at(t, n)
		for _, x := range names {
			if err := other.ch.ExchangeDeclare(x, amqp.ExchangeFanout, false, true, false, false, nil); err != nil {
				return false
			}
			if _, err := other.ch.QueueDeclare(x, false, false, x == "mine", false, amqp.Table{"x-expires": int32(600_000)}); err != nil {
				return false
			}
			if err := other.ch.QueueBind(x, "", x, false, nil); err != nil {
				return false
			}
			other.publish(x, "", message("y"))
			if other.get(x).Body == nil {
				return false
			}
		}
		return true
	})
}

// TestMemoryQueuesOfADeadNode: queues in the memory of a node that is killed are gone some seconds later, exclusive ones too, and not only when it is
// back: publishers do not wait for them, and their names are free.
func TestMemoryQueuesOfADeadNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	memoryQueues(t, c.Node(2))
	kill(t, c.Node(2))
	memoryQueuesAreFree(t, c.Node(0), "named", "mine")
}

// TestMemoryQueuesOfAStoppedNode: so they are when it is stopped, exclusive ones too.
func TestMemoryQueuesOfAStoppedNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	memoryQueues(t, c.Node(2))
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := c.Node(2).Stop(ctx); err != nil {
		t.Fatal(err)
	}
	s := at(t, c.Node(0))
	if _, err := s.ch.QueueDeclarePassive("named", false, false, false, false, nil); err == nil {
		t.Error("a queue in memory is there after its node was stopped")
	}
	memoryQueuesAreFree(t, c.Node(0), "named", "mine")
}
