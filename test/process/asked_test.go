package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// moves are what the nodes of a cluster have sent to targets, and how often they were told that one is full.
func moves(t *testing.T, c *cluster.Cluster) (sent, refused float64) {
	t.Helper()
	for _, n := range c.Nodes() {
		body, err := n.Fetch(t.Context(), "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			var x float64
			if _, err := fmt.Sscanf(line, "warren_transfers_sent_total %g", &x); err == nil {
				sent += x
			}
			if _, err := fmt.Sscanf(line, "warren_transfers_refused_total %g", &x); err == nil {
				refused += x
			}
		}
	}
	return sent, refused
}

// TestFullTargetIsAsked has large letters of several queues wait for one that is full. They are not sent there again and again, but all come when there
// is room.
func TestFullTargetIsAsked(t *testing.T) {
	t.Parallel()
	needWarren(t)
	const sources, size = 12, 1 << 20
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	full := plainQueue(s, "full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	s.fill(full, "in the way")
	for i := range sources {
		q := plainQueue(s, fmt.Sprint("source", i), kept(deadTo(full, nil)))
		s.publish("", q, amqp.Publishing{Body: make([]byte, size), Expiration: "1", DeliveryMode: amqp.Persistent})
	}
	eventually(t, func() error { // all wait, and it was found out that the target stays full
		sent, refused := moves(t, c)
		time.Sleep(3 * time.Second) // a source that knows this tries once at least
		again, more := moves(t, c)
		switch {
		case again != sent:
			return fmt.Errorf("%g letters were sent again", again-sent)
		case more < refused+sources:
			return fmt.Errorf("%g sources have asked", more-refused)
		}
		return nil
	})
	_, deliveries := s.consume(full, 1)
	for i := range 1 + sources {
		d := s.next(deliveries)
		if i > 0 && len(d.Body) != size {
			t.Errorf("%d bytes come", len(d.Body))
		}
		s.noError("ack", d.Ack(false))
	}
}
