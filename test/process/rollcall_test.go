package process

import (
	"slices"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestFailoverWithoutTheConsumersNode kills a queue's leader while the node of a consumer, which has no replica, is frozen: the new leader goes on without its
// answer, and what the consumer holds goes to another one, flagged. The former one's late acks settle nothing and spoil nothing.
func TestFailoverWithoutTheConsumersNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 4)
	queue := plainQueue(at(t, c.Node(0)), "held", amqp.Table{"x-queue-type": "quorum"})
	on := members(t, c.Node(0), queue)
	leader, others := leaderOf(t, c, queue)
	at4 := slices.IndexFunc(others, func(n *cluster.Node) bool { return !slices.Contains(on, n.Name) })
	frozen := others[at4]
	others = slices.Delete(others, at4, at4+1)
	slow, quick := at(t, frozen), at(t, others[0])
	quick.fill(queue, numbered("m", 5)...)
	_, slowDeliveries := slow.consume(queue, 5)
	first := slow.take(slowDeliveries, false, numbered("m", 5)...)
	if err := frozen.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kill(t, leader)
	_, deliveries := quick.consume(queue, 10)
	quick.take(deliveries, true, numbered("m", 5)...)
	if err := frozen.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for _, d := range first {
		slow.noError("ack", d.Ack(false))
	}
	slow.noError("close", quick.conn.Close()) // without an ack
	for _, d := range slow.take(slowDeliveries, true, numbered("m", 5)...) {
		slow.noError("ack", d.Ack(false))
	}
	slow.ready(queue, 0)
	slow.noError("close", slow.conn.Close())
}
