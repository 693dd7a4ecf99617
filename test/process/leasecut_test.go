package process

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestLeaseOfAConsumerOutOfReach: the next leader of a queue with x-expires does not hear from the node of its consumer, because
// the link between the two is cut, and both hear from the third. The queue stays, and the consumer goes on when the link is back.
func TestLeaseOfAConsumerOutOfReach(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 3, func(cfg *cluster.Config) { cfg.Binary = binary })
	startAll(t, c)
	first, next, away := c.Node(0), c.Node(1), c.Node(2)
	s := at(t, first)
	q := plainQueue(s, "leased", amqp.Table{"x-expires": lease.Milliseconds()})
	leadBy(t, c, q, first)
	user := at(t, away)
	_, deliveries := user.consume(q, 1)
	s.publish("", q, message("one"))
	held := user.next(deliveries)
	s.publish("", q, message("two"))
	s.noError("cut", cluster.Cut(t.Context(), next, away))
	mustCtl(t, first, "transfer_leadership", "-q", q, next.Name)
	time.Sleep(2 * lease) // it would have ended
	s.noError("heal", cluster.Heal(t.Context(), next, away))
	s.noError("ack", held.Ack(false))
	for d := user.next(deliveries); string(d.Body) != "two"; d = user.next(deliveries) {
		if !d.Redelivered || string(d.Body) != "one" {
			t.Errorf("got %q", d.Body)
		}
		s.noError("ack", d.Ack(false))
	}
}
