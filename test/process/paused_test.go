package process

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// pausedQueue: a queue that an operator pauses gives nothing, to no protocol, whatever leader it has, and everything once when it is resumed.
func pausedQueue(t *testing.T, c *cluster.Cluster) {
	queue := plainQueue(at(t, c.Node(0)), "held", amqp.Table{"x-queue-type": "quorum"})
	leader, others := leaderOf(t, c, queue)
	s, rpc := at(t, others[0]), rpcAt(t, others[1], "guest", "guest")
	verb := func(name string) {
		t.Helper()
		var code int
		var stderr string
		s.until(name, func() bool {
			code, _, stderr = ctl(t, others[1], name, queue)
			return code == 0
		}, &code, &stderr)
	}
	_, deliveries := s.consume(queue, 10)
	s.fill(queue, "1")
	working := s.take(deliveries, false, "1")[0]
	verb("pause_queue")
	nothing := func() {
		t.Helper()
		if d, ok, err := s.ch.Get(queue, false); ok || err != nil {
			t.Errorf("basic.get: %q, %v", d.Body, err)
		}
		if resp, err := rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Queue: queue}); err != nil || len(resp.GetDeliveries()) > 0 {
			t.Errorf("gRPC's Get: %v, %v", resp, err)
		}
		s.idle(worker{s.ch, deliveries})
	}
	s.fill(queue, "2", "3")
	s.noError("ack of what a consumer had", working.Ack(false))
	nothing()
	kill(t, leader)
	s.fill(queue, "4")
	s.ready(queue, 3)
	nothing()
	if code, out, stderr := ctl(t, others[0], "list_queues", "-q", "name", "state"); code != 0 || !strings.Contains(out, "held\tpaused") {
		t.Errorf("%d %s%s", code, out, stderr)
	}
	start(t, leader)
	nothing()
	verb("resume_queue")
	for _, want := range []string{"2", "3", "4"} { // a new leader may say of them that they were delivered before
		d := s.next(deliveries)
		if string(d.Body) != want {
			t.Errorf("%q came, want %q", d.Body, want)
		}
		s.noError("ack", d.Ack(false))
	}
	s.ready(queue, 0)
	s.idle(worker{s.ch, deliveries})
}
