package amqp

import (
	"testing"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// Late events of an ended consumer do not reach another one that has its tag.
func TestLateEventsOfAnEarlierConsumer(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "q", 1)
	consumer := func() *memConsumer {
		c.send(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "c"})
		want[*wire.BasicConsumeOk](c, 1)
		r.b.mu.Lock()
		defer r.b.mu.Unlock()
		return r.b.queues["q"].consumers[0]
	}
	earlier := consumer()
	want[*wire.BasicDeliver](c, 1)
	c.send(1, &wire.BasicAck{DeliveryTag: 1}, &wire.BasicCancel{ConsumerTag: "c"})
	want[*wire.BasicCancelOk](c, 1)
	consumer()
	earlier.ch.sink.Deliver(earlier, &broker.Delivery{Body: []byte("late")})
	earlier.ch.sink.Cancelled(earlier)
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "new")
	if _, body := wantContent[*wire.BasicDeliver](c, 1); string(body) != "new" {
		t.Errorf("got %q", body)
	}
}
