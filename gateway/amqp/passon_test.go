package amqp

import (
	"context"
	"testing"

	wire "github.com/warrenmq/warren/amqp"
)

// A publish, or another method, that waits for a queue holds nothing up that came before it on another channel: what was acknowledged and
// published there is passed on.
func TestWhatWaitsHoldsNoOtherChannelUp(t *testing.T) {
	for _, tc := range []struct {
		name  string
		waits func(b []byte) []byte
	}{
		{"publish", func(b []byte) []byte {
			b = (&wire.BasicPublish{RoutingKey: "stuck"}).AppendFrame(b, 2)
			return wire.AppendContent(b, 2, wire.ClassBasic, nil, []byte("held"), 131072)
		}},
		{"declare", func(b []byte) []byte { return (&wire.QueueDeclare{Queue: "stuck"}).AppendFrame(b, 2) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := startServer(t)
			c := r.open(t)
			c.channel(1)
			c.channel(2)
			c.send(1, &wire.ConfirmSelect{}, &wire.QueueDeclare{Queue: "q"})
			want[*wire.ConfirmSelectOk](c, 1)
			want[*wire.QueueDeclareOk](c, 1)
			c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "first")
			want[*wire.BasicAck](c, 1)
			c.send(1, &wire.BasicGet{Queue: "q"})
			got := want[*wire.BasicGetOk](c, 1)
			free := r.b.holdUp("stuck")
			defer free()
			b := (&wire.BasicAck{DeliveryTag: got.DeliveryTag}).AppendFrame(nil, 1)
			b = (&wire.BasicPublish{RoutingKey: "q"}).AppendFrame(b, 1)
			b = wire.AppendContent(b, 1, wire.ClassBasic, nil, []byte("second"), 131072)
			c.bytes(tc.waits(b)) // one burst
			want[*wire.BasicAck](c, 1)
			if n := r.b.unsettled(); n != 0 {
				t.Errorf("%d messages are not settled", n)
			}
		})
	}
}

// holdUp lets publishes to a queue, and its declarations, wait until free is called.
func (b *memBroker) holdUp(queue string) (free func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heldUp, b.free = queue, make(chan struct{})
	return func() { close(b.free) }
}

// await waits if queue is held up.
func (b *memBroker) await(ctx context.Context, queue string, waits func()) {
	b.mu.Lock()
	held, free := queue != "" && b.heldUp == queue, b.free
	b.mu.Unlock()
	if !held {
		return
	}
	if waits != nil {
		waits()
	}
	select {
	case <-free:
	case <-ctx.Done():
	}
}

func (b *memBroker) unsettled() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}
