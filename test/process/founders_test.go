package process

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestFirstQueueIsOnAllFounders founds a cluster of which one node has a slow disk. Clients that come as soon as another node takes them have their first queue
// on all nodes.
func TestFirstQueueIsOnAllFounders(t *testing.T) {
	t.Parallel()
	needWarren(t)
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Binary = binary })
	c.Node(2).SetEnv(cluster.SyncDelayEnv + "=300ms")
	for _, n := range c.Nodes() {
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	var conn *amqp.Connection
	if err := cluster.Poll(ctx, func() (bool, error) {
		conn, err = amqp.Dial(c.Node(0).URL())
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("first", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	q, err := c.Queue(ctx, "first")
	if err != nil {
		t.Fatal(err)
	}
	if len(q.Members) != 3 {
		t.Errorf("%v after its first client came, the queue is on %v", time.Since(began), q.Members)
	}
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}
