package amqp

import (
	"testing"

	wire "github.com/warrenmq/warren/amqp"
)

// TestLateFrames: what a client sent on a channel before it knew that the channel was closed does not end its connection.
func TestLateFrames(t *testing.T) {
	r := startServer(t)
	late := func(c *rawClient, num uint16) {
		c.send(num, &wire.BasicAck{DeliveryTag: 1}, &wire.BasicNack{DeliveryTag: 2, Requeue: true}, &wire.BasicReject{DeliveryTag: 3})
		c.publish(num, wire.BasicPublish{RoutingKey: "q"}, "late")
	}
	refused := func(c *rawClient, id wire.MethodID) {
		if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 504 || wire.NewMethodID(m.ClassID, m.MethodID) != id {
			t.Errorf("closed with %d %q for %d.%d", m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
		}
	}
	t.Run("behind the client's close", func(t *testing.T) {
		c := r.open(t)
		c.channel(1)
		c.send(1, &wire.ChannelClose{ReplyCode: 200})
		late(c, 1)
		want[*wire.ChannelCloseOk](c, 1)
		late(c, 1)
		c.alive(2)
		c.alive(1) // the number is good for another channel
	})
	t.Run("behind the answer to the server's close", func(t *testing.T) {
		c := r.open(t)
		c.channel(1)
		c.send(1, &wire.QueueDeclare{Queue: "none", Passive: true})
		want[*wire.ChannelClose](c, 1)
		c.send(1, &wire.ChannelCloseOk{})
		late(c, 1)
		c.alive(2)
	})
	t.Run("other methods, and channels that never were", func(t *testing.T) {
		c := r.open(t)
		c.channel(1)
		c.send(1, &wire.ChannelClose{ReplyCode: 200}, &wire.BasicQos{PrefetchCount: 1})
		want[*wire.ChannelCloseOk](c, 1)
		refused(c, wire.MethodBasicQos)
		c = r.open(t)
		c.channel(1)
		c.send(2, &wire.BasicAck{DeliveryTag: 1})
		refused(c, wire.MethodBasicAck)
	})
	t.Run("many channels", func(t *testing.T) {
		c := r.open(t)
		for num := uint16(1); num <= 2*lateChannelsMax; num++ {
			c.channel(num)
			c.send(num, &wire.ChannelClose{ReplyCode: 200})
			want[*wire.ChannelCloseOk](c, num)
		}
		late(c, 2*lateChannelsMax)
		c.alive(1)
	})
}
