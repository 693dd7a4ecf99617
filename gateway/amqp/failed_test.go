package amqp

import (
	"context"
	"testing"
	"time"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// A channel that the broker ends gives back what it holds at once, whatever its reader waits for: not only when the
// client answers. The other channels go on.
func TestFailedChannelEndsAtOnce(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(r *rig, c *rawClient) (goOn func()){
		"the client": func(*rig, *rawClient) func() { return func() {} },
		"an alarm": func(r *rig, c *rawClient) func() {
			r.s.SetBlocked("low on memory")
			want[*wire.ConnectionBlocked](c, 0)
			return func() {
				r.s.SetBlocked("")
				want[*wire.ConnectionUnblocked](c, 0)
			}
		},
		"a quiet server": func(r *rig, _ *rawClient) func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if n := r.s.Quiesce(ctx, ShutdownOptions{}); n != 0 {
				t.Errorf("%d connections have no answers", n)
			}
			return r.s.Resume
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startServer(t)
			c := r.open(t)
			c.channel(1)
			c.channel(2)
			fill(c, 1, "q", 2)
			c.send(2, &wire.BasicConsume{Queue: "q", NoWait: true})
			deliveries(c, 2, 2)
			goOn := wait(r, c)
			sink := r.holder()
			sink.Failed(broker.Errorf(broker.PreconditionFailed, "too late"))
			want[*wire.ChannelClose](c, 2)
			eventually(t, "return", func() bool { ready, unacked := r.b.counts("q"); return ready == 2 && unacked == 0 })
			goOn()
			c.send(2, &wire.ChannelCloseOk{})
			c.alive(2)
		})
	}
}

// The end of a channel does not end its connection as a missed heartbeat would.
func TestFailedChannelKeepsHeartbeats(t *testing.T) {
	t.Parallel()
	r := startServer(t)
	c := r.connect(t)
	c.handshake(nil, wire.ConnectionTuneOk{ChannelMax: 2000, FrameMax: 8192, Heartbeat: 60})
	for num := range uint16(200) {
		c.channel(num + 1)
		c.send(num+1, &wire.QueueDeclare{Queue: "q"}, &wire.BasicConsume{Queue: "q", ConsumerTag: "c"})
		want[*wire.QueueDeclareOk](c, num+1)
		want[*wire.BasicConsumeOk](c, num+1)
	}
	r.b.mu.Lock()
	sinks := make([]Sink, 0, 200)
	for _, cons := range r.b.queues["q"].consumers {
		sinks = append(sinks, cons.ch.sink)
	}
	r.b.mu.Unlock()
	for i, s := range sinks {
		s.Failed(broker.Errorf(broker.PreconditionFailed, "too late"))
		if i%20 == 0 {
			time.Sleep(time.Millisecond) // some meet a reader at rest, others a busy one
		}
	}
	for range sinks {
		if _, m, _ := c.method(); m.ID() != wire.MethodChannelClose {
			t.Fatalf("got %s", m.Name())
		}
	}
	c.alive(2000)
}

// holder is the channel of a delivery that is not settled.
func (r *rig) holder() Sink {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	for _, h := range r.b.held {
		return h.ch.sink
	}
	return nil
}
