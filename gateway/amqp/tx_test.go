package amqp

import (
	"testing"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

func (c *rawClient) txSelect(channel uint16) {
	c.tb.Helper()
	c.send(channel, &wire.TxSelect{})
	want[*wire.TxSelectOk](c, channel)
}

func (c *rawClient) txCommit(channel uint16) {
	c.tb.Helper()
	c.send(channel, &wire.TxCommit{})
	want[*wire.TxCommitOk](c, channel)
}

func (c *rawClient) txRollback(channel uint16) {
	c.tb.Helper()
	c.send(channel, &wire.TxRollback{})
	want[*wire.TxRollbackOk](c, channel)
}

func (r *rig) wantCounts(t *testing.T, q string, ready, unacked int) {
	t.Helper()
	if n, u := r.b.counts(q); n != ready || u != unacked {
		t.Fatalf("queue %s: %d ready and %d unacked, want %d and %d", q, n, u, ready, unacked)
	}
}

// U10: publishes show at the commit and not before, and never after a rollback.
func TestTxPublishes(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "q", NoWait: true})
	c.txSelect(1)
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "a")
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "b")
	c.alive(9)
	r.wantCounts(t, "q", 0, 0)
	c.txCommit(1)
	r.wantCounts(t, "q", 2, 0)
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "c")
	c.txRollback(1)
	c.txSelect(1) // again is harmless
	c.txCommit(1)
	r.wantCounts(t, "q", 2, 0)
	// The end of the channel is a rollback.
	c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "d")
	c.send(1, &wire.ChannelClose{})
	want[*wire.ChannelCloseOk](c, 1)
	r.wantCounts(t, "q", 2, 0)
}

// U10: what a transaction has settled is unacked again after a rollback, not requeued.
func TestTxSettlements(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.channel(2)
	fill(c, 2, "q", 6)
	c.send(1, &wire.BasicConsume{Queue: "q", NoWait: true})
	deliveries(c, 1, 6)
	c.txSelect(1)
	c.send(1, &wire.BasicAck{DeliveryTag: 2}, &wire.BasicNack{DeliveryTag: 4, Multiple: true}, &wire.BasicReject{DeliveryTag: 6, Requeue: true})
	c.alive(9)
	r.wantCounts(t, "q", 0, 6)
	c.txRollback(1)
	r.wantCounts(t, "q", 0, 6)
	// Every tag is there again, in order: all up to 3, then one, then all.
	c.send(1, &wire.BasicAck{DeliveryTag: 3, Multiple: true}, &wire.BasicAck{DeliveryTag: 5})
	c.txCommit(1)
	r.wantCounts(t, "q", 0, 2)
	c.send(1, &wire.BasicAck{Multiple: true})
	c.txCommit(1)
	r.wantCounts(t, "q", 0, 0)
	c.send(1, &wire.BasicAck{DeliveryTag: 6})
	if m := want[*wire.ChannelClose](c, 1); m.ReplyCode != 406 || m.ReplyText != "PRECONDITION_FAILED - unknown delivery tag 6" {
		t.Errorf("%+v", m)
	}
}

// A tag that the transaction has settled is not known any more, and basic.recover does
// not touch it.
func TestTxSettledOnce(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.channel(2)
	fill(c, 2, "q", 2)
	c.send(1, &wire.BasicQos{PrefetchCount: 2})
	want[*wire.BasicQosOk](c, 1)
	c.send(1, &wire.BasicConsume{Queue: "q", NoWait: true})
	deliveries(c, 1, 2)
	c.txSelect(1)
	c.send(1, &wire.BasicAck{DeliveryTag: 1}, &wire.BasicRecover{Requeue: true})
	want[*wire.BasicRecoverOk](c, 1)
	if tags, bodies, _ := deliveries(c, 1, 1); tags[0] != 3 || bodies[0] != "2" {
		t.Errorf("recovered %v %v", tags, bodies)
	}
	c.send(1, &wire.BasicAck{DeliveryTag: 1})
	if m := want[*wire.ChannelClose](c, 1); m.ReplyText != "PRECONDITION_FAILED - unknown delivery tag 1" {
		t.Errorf("%+v", m)
	}
	c.send(1, &wire.ChannelCloseOk{})
	eventually(t, "return", func() bool { ready, unacked := r.b.counts("q"); return ready == 2 && unacked == 0 })
}

// Under a channel-wide limit the room that a settlement makes is there at its commit.
func TestTxUnderChannelPrefetch(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.channel(2)
	fill(c, 2, "q", 4)
	c.send(1, &wire.BasicQos{PrefetchCount: 2, Global: true})
	want[*wire.BasicQosOk](c, 1)
	c.txSelect(1)
	c.send(1, &wire.BasicConsume{Queue: "q", NoWait: true})
	deliveries(c, 1, 2)
	c.send(1, &wire.BasicAck{DeliveryTag: 1}, &wire.BasicAck{DeliveryTag: 2})
	c.alive(9) // and nothing before
	c.txCommit(1)
	if tags, _, _ := deliveries(c, 1, 2); tags[1] != 4 {
		t.Errorf("tags %v", tags)
	}
}

// Returns come with the commit, before its answer; a rollback forgets them.
func TestTxReturns(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.txSelect(1)
	c.publish(1, wire.BasicPublish{RoutingKey: "nowhere", Mandatory: true}, "forgotten")
	c.txRollback(1)
	c.publish(1, wire.BasicPublish{RoutingKey: "nowhere"}, "dropped")
	for _, body := range []string{"a", "b"} {
		c.publish(1, wire.BasicPublish{RoutingKey: "nowhere", Mandatory: true}, body)
	}
	c.send(1, &wire.TxCommit{})
	for _, body := range []string{"a", "b"} {
		if m, back := wantContent[*wire.BasicReturn](c, 1); m.ReplyCode != 312 || m.RoutingKey != "nowhere" || string(back) != body {
			t.Errorf("%+v %q", m, back)
		}
	}
	want[*wire.TxCommitOk](c, 1)
	c.txCommit(1)
	c.alive(9)

	// The broker returns what lost its queues on the way.
	r.b.mu.Lock()
	r.b.lost = []broker.TxReturn{{Exchange: "amq.direct", Key: "k", Properties: wire.RawProperties{0, 0}, Body: []byte("lost")}}
	r.b.mu.Unlock()
	c.send(1, &wire.TxCommit{})
	if m, back := wantContent[*wire.BasicReturn](c, 1); m.ReplyCode != 312 || m.Exchange != "amq.direct" || m.RoutingKey != "k" || string(back) != "lost" {
		t.Errorf("%+v %q", m, back)
	}
	want[*wire.TxCommitOk](c, 1)
}

func TestTxErrors(t *testing.T) {
	for _, x := range []struct {
		name string
		do   func(c *rawClient)
		code uint16
		text string
	}{
		{"confirm mode", func(c *rawClient) { c.send(1, &wire.ConfirmSelect{}) }, 406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode"},
		{
			"missing exchange",
			func(c *rawClient) {
				c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "a")
				c.publish(1, wire.BasicPublish{Exchange: "nope", RoutingKey: "q"}, "b")
			},
			404, "NOT_FOUND - no exchange 'nope' in vhost '/'",
		},
		{"refused", func(c *rawClient) {
			c.publish(1, wire.BasicPublish{RoutingKey: "q"}, "a")
			c.publish(1, wire.BasicPublish{RoutingKey: "none"}, "a")
			c.send(1, &wire.TxCommit{})
		}, 406, "PRECONDITION_FAILED - transaction refused"},
		{"too much to return", func(c *rawClient) {
			for range txReturnsMax + 1 {
				c.publish(1, wire.BasicPublish{RoutingKey: "nowhere", Mandatory: true}, "")
			}
		}, 406, "PRECONDITION_FAILED - unroutable messages of the transaction exceed 4096 or 4194304 bytes"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := startServer(t)
			c := r.open(t)
			c.channel(1)
			var none wire.Table
			none.Set("x-max-length", int32(0))
			c.send(1, &wire.QueueDeclare{Queue: "q", NoWait: true}, &wire.QueueDeclare{Queue: "none", NoWait: true, Arguments: none})
			c.txSelect(1)
			x.do(c)
			if m := want[*wire.ChannelClose](c, 1); m.ReplyCode != x.code || m.ReplyText != x.text {
				t.Errorf("%+v", m)
			}
			c.send(1, &wire.ChannelCloseOk{})
			c.alive(1)
			r.wantCounts(t, "q", 0, 0)
		})
	}
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.txSelect(1)
	c.publish(1, wire.BasicPublish{RoutingKey: "q", Immediate: true}, "a")
	if m := want[*wire.ConnectionClose](c, 0); m.ReplyCode != 540 || m.ReplyText != "NOT_IMPLEMENTED - immediate=true in a transaction" {
		t.Errorf("%+v", m)
	}
}
