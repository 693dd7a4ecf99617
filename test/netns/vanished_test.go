package netns

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestVanishedWhileBusy takes a node off the network while much is on its way to it, and brings it back at another address: the others, whose connections to
// the former one take nothing more, link it at once.
func TestVanishedWhileBusy(t *testing.T) {
	t.Parallel()
	r := founded(t, options{nodes: 3})
	lost := r.Node(2)
	var work sync.WaitGroup
	t.Cleanup(work.Wait) // when the connections are closed
	ch := r.dial(r.Node(0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	at, busy := r.dial(lost), r.dial(r.Node(0))
	queues := numbered("busy-", 16)
	for _, q := range queues {
		r.declare(ch, q, amqp.Table{"x-queue-type": "quorum", "x-max-length": int32(20)})
		in, err := at.Consume(q, "", true, false, false, false, nil) // its consumer is at the node that is lost
		r.must("consume", err)
		work.Go(func() {
			for range in { // ends with the connection
			}
		})
	}
	body := []byte(strings.Repeat("much ", 100_000))
	work.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if busy.PublishWithContext(ctx, "", queues[i%len(queues)], false, false, amqp.Publishing{Body: body}) != nil {
				return
			}
		}
	})
	time.Sleep(3 * time.Second)
	r.part([]string{"node1", "node2"}, []string{"node3"})
	time.Sleep(5 * time.Second)
	cancel() // or it has much to catch up with
	r.must("kill", lost.Kill())
	r.move(lost)
	r.lan.Heal()
	r.publishAll()
	r.must("launch", lost.Launch())
	d := r.until("the node is ready and all see it", time.Minute, func() bool {
		return ready(lost) && len(r.status(r.Node(0)).RunningNodes) == 3 && len(r.status(r.Node(1)).RunningNodes) == 3
	})
	t.Logf("all is well %v after the start", d.Round(time.Millisecond))
}
