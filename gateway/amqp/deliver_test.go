package amqp

import (
	"strings"
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
	p := r.open(t) // whose confirms have no place among the deliveries
	p.channel(1)
	fill(p, 1, "q", 1)
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
	p.publish(1, wire.BasicPublish{RoutingKey: "q"}, "new")
	if _, body := wantContent[*wire.BasicDeliver](c, 1); string(body) != "new" {
		t.Errorf("got %q", body)
	}
}

// What a client holds takes no room of its messages, once they are written to it.
func TestWrittenMessagesAreLetGo(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "q", 2)
	large := strings.Repeat("x", 4*refBytes)
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, large)
	want[*wire.BasicAck](c, 1)
	c.send(1, &wire.BasicGet{Queue: "q"})
	wantContent[*wire.BasicGetOk](c, 1)
	c.send(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "c"})
	want[*wire.BasicConsumeOk](c, 1)
	wantContent[*wire.BasicDeliver](c, 1)
	if _, body := wantContent[*wire.BasicDeliver](c, 1); string(body) != large {
		t.Errorf("got %d bytes, not those that were published", len(body))
	}
	c.send(1, &wire.QueueDeclare{Queue: "q", Passive: true}) // whose answer is written when nothing before it is any more
	want[*wire.QueueDeclareOk](c, 1)
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if n := len(r.b.held); n != 3 {
		t.Errorf("%d messages are held, want 3", n)
	}
	for d := range r.b.held {
		if len(d.Body)+len(d.Properties)+len(d.Exchange)+len(d.Key) > 0 {
			t.Errorf("held with %d bytes of %q", len(d.Body), d.Key)
		}
	}
}
