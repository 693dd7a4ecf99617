package amqp

import (
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// A channel that had a consumer without acks ends at the broker when the write under way is told of, also if that
// consumer was cancelled before: else what the client has read would come back.
func TestEndAwaitsCancelledConsumersWrites(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *rig, c *rawClient){
		"the client": func(_ *rig, c *rawClient) { c.send(1, &wire.ChannelClose{}) },
		"the broker": func(r *rig, _ *rawClient) {
			r.holder().Failed(broker.Errorf(broker.PreconditionFailed, "too late"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startServer(t)
			c := r.open(t)
			c.channel(1)
			fill(c, 1, "q", 1)
			c.send(1, &wire.BasicGet{Queue: "q"})
			want[*wire.BasicGetOk](c, 1)
			c.send(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: true, NoWait: true}, &wire.BasicCancel{ConsumerTag: "c"})
			want[*wire.BasicCancelOk](c, 1)
			sending := &r.s.connections()[0].sending
			sending.Lock() // as the writer does
			end(r, c)
			time.Sleep(50 * time.Millisecond)
			_, unacked := r.b.counts("q")
			sending.Unlock()
			if unacked != 1 {
				t.Error("the channel ended during a write")
			}
			eventually(t, "return", func() bool { ready, _ := r.b.counts("q"); return ready == 1 })
		})
	}
}
