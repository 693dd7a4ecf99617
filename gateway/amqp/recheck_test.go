package amqp

import (
	"testing"

	wire "github.com/warrenmq/warren/amqp"
)

// A channel whose close the client has not answered yet has consumers no more: an update of the secret looks at others only.
func TestUpdateSecretPassesOverClosedChannels(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "lost", NoWait: true}, &wire.BasicConsume{Queue: "lost", ConsumerTag: "t"})
	want[*wire.BasicConsumeOk](c, 1)
	c.send(1, &wire.QueueDeclare{Queue: "none", Passive: true})
	want[*wire.ChannelClose](c, 1)
	r.b.mu.Lock()
	r.b.unreadable = "lost"
	r.b.mu.Unlock()
	c.send(0, &wire.ConnectionUpdateSecret{NewSecret: "guest"})
	want[*wire.ConnectionUpdateSecretOk](c, 0)
	c.send(1, &wire.ChannelCloseOk{})
	c.alive(1)
}
