package process

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// comeAndGo has a queue with a binding come and go until ctx ends. Replicas may be changed under it: a declaration that fails is made again.
func comeAndGo(ctx context.Context, conn *amqp.Connection, name string) {
	for ctx.Err() == nil && !conn.IsClosed() {
		ch, err := conn.Channel()
		for err == nil && ctx.Err() == nil {
			if _, err = ch.QueueDeclare(name, true, false, false, false, nil); err == nil {
				err = ch.QueueBind(name, name, "amq.topic", false, nil)
			}
			time.Sleep(20 * time.Millisecond)
			if err == nil {
				_, err = ch.QueueDelete(name, false, false, false)
			}
		}
	}
}

// TestVerbsWhileQueuesComeAndGo: what operators do with all queues, and with definitions, succeeds while queues, bindings and users come and go on all nodes, and lists have what was
// there all the time once.
func TestVerbsWhileQueuesComeAndGo(t *testing.T) {
	t.Parallel()
	const stay = 4
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	for i := range stay {
		plainQueue(s, fmt.Sprint("stays", i), amqp.Table{"x-queue-type": "quorum"})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	for i, n := range c.Nodes() {
		conn := at(t, n).dial()
		for j := range 2 {
			work.Go(func() { comeAndGo(ctx, conn, fmt.Sprintf("goes%d.%d", i, j)) })
		}
	}
	mustCtl(t, c.Node(0), "add_user", "leased", "secret")
	work.Go(func() {
		for ctx.Err() == nil {
			_, _, _ = ctl(t, c.Node(2), "delete_user", "leased")
			_, _, _ = ctl(t, c.Node(2), "add_user", "leased", "secret")
		}
	})
	file, third := filepath.Join(t.TempDir(), "definitions.json"), c.Node(2).Name
	mustCtl(t, c.Node(0), "export_definitions", file)
	for range 2 {
		for _, args := range [][]string{{"shrink", third}, {"grow", third, "all"}, {"rebalance", "all"}, {"import_definitions", file}} {
			mustCtl(t, c.Node(0), args...)
		}
		if list := mustCtl(t, c.Node(1), "list_queues", "-q", "name"); strings.Count(list, "stays") != stay {
			t.Error(list)
		}
	}
}
