package amqp

import (
	"strings"
	"testing"

	wire "github.com/warrenmq/warren/amqp"
)

// rule is something a client does on channel 1 of an open connection, and the
// close it gets for it.
type rule struct {
	name          string
	do            func(c *rawClient)
	code          uint16
	text          string
	class, method uint16
}

func methods(ms ...wire.Method) func(*rawClient) {
	return func(c *rawClient) { c.send(1, ms...) }
}

func rawFrame(typ uint8, channel uint16, payload string) func(*rawClient) {
	return func(c *rawClient) { c.bytes(wire.AppendFrame(nil, typ, channel, []byte(payload))) }
}

func header(class uint16, size uint64) []byte {
	f := wire.AppendContentHeader(nil, 1, class, nil, size)
	return f
}

// softRules close the channel only.
func softRules() []rule {
	args := wire.Table{}
	args.Set("x-priority", "high")
	return []rule{
		{
			"commit outside of a transaction", methods(&wire.TxCommit{}),
			406, "PRECONDITION_FAILED - channel is not transactional", 90, 20,
		},
		{
			"rollback outside of a transaction", methods(&wire.TxRollback{}),
			406, "PRECONDITION_FAILED - channel is not transactional", 90, 30,
		},
		{
			"transaction on a confirming channel", methods(&wire.ConfirmSelect{NoWait: true}, &wire.TxSelect{}),
			406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode", 90, 10,
		},
		{
			"passive declare of a missing queue", methods(&wire.QueueDeclare{Queue: "nope", Passive: true}),
			404, "NOT_FOUND - no queue 'nope' in vhost '/'", 50, 10,
		},
		{
			"passive declare without a name", methods(&wire.QueueDeclare{Passive: true}),
			404, "NOT_FOUND - no queue '' in vhost '/'", 50, 10,
		},
		{
			"passive declare of a missing exchange", methods(&wire.ExchangeDeclare{Exchange: "nope", Passive: true}),
			404, "NOT_FOUND - no exchange 'nope' in vhost '/'", 40, 10,
		},
		{
			"default exchange declared", methods(&wire.ExchangeDeclare{Type: "direct"}),
			403, "ACCESS_REFUSED - operation not permitted on the default exchange", 40, 10,
		},
		{
			"reserved exchange name", methods(&wire.ExchangeDeclare{Exchange: "amq.x", Type: "direct", NoWait: true}),
			403, "ACCESS_REFUSED - exchange name 'amq.x' contains reserved prefix 'amq.*'", 40, 10,
		},
		{
			"exchange of another type", methods(&wire.ExchangeDeclare{Exchange: "amq.direct", Type: "topic", Durable: true}),
			406, "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': received 'topic' but current is 'direct'", 40, 10,
		},
		{
			"queue declared again otherwise", methods(&wire.QueueDeclare{Queue: "q", NoWait: true}, &wire.QueueDeclare{Queue: "q", Durable: true}),
			406, "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'", 50, 10,
		},
		{
			"bind without a queue", methods(&wire.QueueBind{Exchange: "amq.direct"}),
			404, "NOT_FOUND - no previously declared queue", 50, 20,
		},
		{
			"unbind without a queue", methods(&wire.QueueUnbind{Exchange: "amq.direct"}),
			404, "NOT_FOUND - no previously declared queue", 50, 50,
		},
		{"purge without a queue", methods(&wire.QueuePurge{}), 404, "NOT_FOUND - no previously declared queue", 50, 30},
		{"delete without a queue", methods(&wire.QueueDelete{}), 404, "NOT_FOUND - no previously declared queue", 50, 40},
		{"get without a queue", methods(&wire.BasicGet{}), 404, "NOT_FOUND - no previously declared queue", 60, 70},
		{"consume without a queue", methods(&wire.BasicConsume{}), 404, "NOT_FOUND - no previously declared queue", 60, 20},
		{
			"bind to a missing exchange", methods(&wire.QueueDeclare{NoWait: true}, &wire.QueueBind{Exchange: "nope"}),
			404, "NOT_FOUND - no exchange 'nope' in vhost '/'", 50, 20,
		},
		{
			"exchange bind to a missing exchange", methods(&wire.ExchangeBind{Source: "amq.direct", Destination: "nope"}),
			404, "NOT_FOUND - no exchange 'nope' in vhost '/'", 40, 30,
		},
		{
			"consume from a missing queue", methods(&wire.BasicConsume{Queue: "nope"}),
			404, "NOT_FOUND - no queue 'nope' in vhost '/'", 60, 20,
		},
		{
			"second consumer beside an exclusive one", methods(&wire.QueueDeclare{Queue: "q", NoWait: true},
				&wire.BasicConsume{Queue: "q", Exclusive: true, NoWait: true}, &wire.BasicConsume{Queue: "q"}),
			403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use", 60, 20,
		},
		{"ack of an unknown tag", methods(&wire.BasicAck{DeliveryTag: 7}), 406, "PRECONDITION_FAILED - unknown delivery tag 7", 60, 80},
		{"ack of tag 0", methods(&wire.BasicAck{}), 406, "PRECONDITION_FAILED - unknown delivery tag 0", 60, 80},
		{
			"ack of many up to an unknown tag", methods(&wire.BasicAck{DeliveryTag: 7, Multiple: true}),
			406, "PRECONDITION_FAILED - unknown delivery tag 7", 60, 80,
		},
		{"nack of an unknown tag", methods(&wire.BasicNack{DeliveryTag: 7}), 406, "PRECONDITION_FAILED - unknown delivery tag 7", 60, 120},
		{"reject of an unknown tag", methods(&wire.BasicReject{DeliveryTag: 7}), 406, "PRECONDITION_FAILED - unknown delivery tag 7", 60, 90},
		{
			"publish to a missing exchange", func(c *rawClient) { c.publish(1, wire.BasicPublish{Exchange: "nope"}, "x") },
			404, "NOT_FOUND - no exchange 'nope' in vhost '/'", 60, 40,
		},
		{"too large", func(c *rawClient) {
			b := (&wire.BasicPublish{}).AppendFrame(nil, 1)
			c.bytes(append(b, header(60, 1001)...))
			c.bytes(wire.AppendBody(nil, 1, make([]byte, 1001), 131072)) // ignored
		}, 406, "PRECONDITION_FAILED - message size 1001 is larger than configured max size 1000", 60, 40},
		{"invalid expiration", func(c *rawClient) {
			var p wire.Properties
			p.SetExpiration("10000foobar")
			b := (&wire.BasicPublish{}).AppendFrame(nil, 1)
			c.bytes(wire.AppendContent(b, 1, 60, p.AppendTo(nil), []byte("x"), 131072))
		}, 406, "PRECONDITION_FAILED - invalid expiration '10000foobar'", 60, 40},
		{
			"queue in use", methods(&wire.QueueDeclare{Queue: "q", NoWait: true}, &wire.BasicConsume{Queue: "q", NoWait: true}, &wire.QueueDelete{Queue: "q", IfUnused: true}),
			406, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use", 50, 40,
		},
	}
}

// hardRules close the connection.
func hardRules() []rule {
	return []rule{
		{"second open", methods(&wire.ChannelOpen{}), 504, "CHANNEL_ERROR - second 'channel.open' seen", 20, 10},
		{
			"method on a channel that is not open", func(c *rawClient) { c.send(2, &wire.QueueDeclare{}) },
			504, "CHANNEL_ERROR - expected 'channel.open'", 50, 10,
		},
		{"connection method on a channel", methods(&wire.ConnectionOpen{VirtualHost: "/"}), 503, "COMMAND_INVALID - unexpected method connection.open", 10, 40},
		{
			"connection method on a closed channel", func(c *rawClient) { c.send(2, &wire.ConnectionClose{}) },
			503, "COMMAND_INVALID - unexpected method connection.close", 10, 50,
		},
		{
			"channel method on channel 0", func(c *rawClient) { c.send(0, &wire.QueueDeclare{}) },
			504, "CHANNEL_ERROR - unexpected method queue.declare on channel 0 of a running connection", 50, 10,
		},
		{"server's method", methods(&wire.QueueDeclareOk{}), 503, "COMMAND_INVALID - unexpected method queue.declare-ok", 50, 11},
		{"server's content", methods(&wire.BasicDeliver{}), 503, "COMMAND_INVALID - unexpected method basic.deliver", 60, 60},
		{"flow-ok unasked", methods(&wire.ChannelFlowOk{}), 503, "COMMAND_INVALID - unexpected method channel.flow-ok", 20, 21},
		{"unknown method", rawFrame(wire.FrameMethod, 1, "\x00\x32\x00\x63"), 503, "COMMAND_INVALID - unknown method 50.99", 50, 99},
		{"unknown class", rawFrame(wire.FrameMethod, 1, "\x01\x00\x00\x01"), 503, "COMMAND_INVALID - unknown method 256.1", 256, 1},
		{"method cut short", rawFrame(wire.FrameMethod, 1, "\x00\x32\x00\x0a"), 502, "SYNTAX_ERROR - malformed queue.declare: value runs past the end at byte 4", 50, 10},
		{"publish cut short", rawFrame(wire.FrameMethod, 1, "\x00\x3c\x00\x28"), 502, "SYNTAX_ERROR - malformed basic.publish: value runs past the end at byte 4", 60, 40},
		{"method without a number", rawFrame(wire.FrameMethod, 1, "\x00"), 502, "SYNTAX_ERROR - malformed content: value runs past the end at byte 0", 0, 0},
		{"flow off", methods(&wire.ChannelFlow{}), 540, "NOT_IMPLEMENTED - active=false", 20, 20},
		{"prefetch size", methods(&wire.BasicQos{PrefetchSize: 5}), 540, "NOT_IMPLEMENTED - prefetch_size!=0 (5)", 60, 10},
		{"recover without requeue", methods(&wire.BasicRecover{}), 540, "NOT_IMPLEMENTED - requeue=false", 60, 110},
		{"recover-async without requeue", methods(&wire.BasicRecoverAsync{}), 540, "NOT_IMPLEMENTED - requeue=false", 60, 100},
		{
			"consumer tag used twice", methods(&wire.QueueDeclare{Queue: "q", NoWait: true},
				&wire.BasicConsume{Queue: "q", ConsumerTag: "t", NoWait: true}, &wire.BasicConsume{Queue: "q", ConsumerTag: "t"}),
			530, "NOT_ALLOWED - attempt to reuse consumer tag 't'", 60, 20,
		},
		{"body without header", rawFrame(wire.FrameBody, 1, "x"), 505, "UNEXPECTED_FRAME - unexpected content body frame on channel 1", 0, 0},
		{"header without publish", rawFrame(wire.FrameHeader, 1, "x"), 505, "UNEXPECTED_FRAME - unexpected content header frame on channel 1", 0, 0},
		{"body instead of header", func(c *rawClient) {
			c.send(1, &wire.BasicPublish{})
			c.bytes(wire.AppendBody(nil, 1, []byte("x"), 131072))
		}, 505, "UNEXPECTED_FRAME - unexpected content body frame on channel 1", 60, 40},
		{
			"method instead of header", methods(&wire.BasicPublish{}, &wire.BasicPublish{}),
			505, "UNEXPECTED_FRAME - expected a content frame on channel 1, got method basic.publish", 60, 40,
		},
		{"method instead of body", func(c *rawClient) {
			b := (&wire.BasicPublish{}).AppendFrame(nil, 1)
			c.bytes(append(b, header(60, 5)...))
			c.send(1, &wire.ChannelClose{})
		}, 505, "UNEXPECTED_FRAME - expected a content frame on channel 1, got method channel.close", 60, 40},
		{"header of another class", func(c *rawClient) {
			b := (&wire.BasicPublish{}).AppendFrame(nil, 1)
			c.bytes(append(b, header(50, 5)...))
		}, 505, "UNEXPECTED_FRAME - content header of class 50 after a method of class 60", 60, 40},
		{"body longer than announced", func(c *rawClient) {
			b := (&wire.BasicPublish{}).AppendFrame(nil, 1)
			c.bytes(append(b, header(60, 5)...))
			c.bytes(wire.AppendBody(nil, 1, []byte("123456"), 131072))
		}, 505, "UNEXPECTED_FRAME - body of 6 bytes is longer than the 5 announced", 60, 40},
		{"unbelievable body size", func(c *rawClient) {
			b := (&wire.BasicPublish{}).AppendFrame(nil, 1)
			c.bytes(append(b, header(60, 512<<20+1)...))
		}, 501, "FRAME_ERROR - body size 536870913 exceeds 536870912", 60, 40},
		{"malformed properties", func(c *rawClient) {
			b := (&wire.BasicPublish{}).AppendFrame(nil, 1)
			c.bytes(wire.AppendContent(b, 1, 60, wire.RawProperties{0x80, 0, 9}, nil, 131072))
		}, 502, "SYNTAX_ERROR - malformed content: value runs past the end at byte 2", 60, 40},
		{"content on channel 0", rawFrame(wire.FrameBody, 0, "x"), 505, "UNEXPECTED_FRAME - content frame on channel 0", 0, 0},
		{"content on a closed channel", rawFrame(wire.FrameBody, 2, "x"), 505, "UNEXPECTED_FRAME - content frame on channel 2, which is not open", 0, 0},
		{"heartbeat on a channel", rawFrame(wire.FrameHeartbeat, 1, ""), 505, "UNEXPECTED_FRAME - heartbeat on channel 1", 0, 0},
		{"frame of unknown type", rawFrame(9, 1, "x"), 501, "FRAME_ERROR - frame of unknown type 9 on channel 1", 0, 0},
		{
			"frame with a bad end", func(c *rawClient) { c.bytes([]byte{1, 0, 1, 0, 0, 0, 1, 'x', 0}) },
			501, "FRAME_ERROR - frame of type 1 on channel 1 with 1 bytes ends with 0x00", 0, 0,
		},
		{
			"oversized frame", func(c *rawClient) { c.bytes(wire.AppendFrame(nil, 1, 1, make([]byte, 131073))) },
			501, "FRAME_ERROR - frame of type 1 on channel 1 with 131073 bytes exceeds the maximum of 131072", 0, 0,
		},
		{
			"new secret refused", func(c *rawClient) { c.send(0, &wire.ConnectionUpdateSecret{NewSecret: "wrong"}) },
			530, "NOT_ALLOWED - New secret was refused by one of the backends", 10, 70,
		},
	}
}

func checkClose(t *testing.T, r rule, code uint16, text string, class, method uint16) {
	t.Helper()
	if code != r.code || text != r.text || class != r.class || method != r.method {
		t.Errorf("got  %d %q %d.%d\nwant %d %q %d.%d", code, text, class, method, r.code, r.text, r.class, r.method)
	}
}

func smallMessages(cfg *Config) { cfg.MessageBytesMax = 1000 }

func TestSoftErrors(t *testing.T) {
	for _, rule := range softRules() {
		t.Run(rule.name, func(t *testing.T) {
			r := startServer(t, smallMessages)
			c := r.open(t)
			c.channel(1)
			c.channel(3)
			rule.do(c)
			m := want[*wire.ChannelClose](c, 1)
			checkClose(t, rule, m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
			// Ignored until close-ok, content included; a fresh channel after it.
			c.send(1, &wire.QueueDeclare{Queue: "ignored"}, &wire.ChannelOpen{})
			c.publish(1, wire.BasicPublish{RoutingKey: "ignored"}, "ignored")
			c.send(1, &wire.ChannelCloseOk{})
			c.alive(1)
			c.send(3, &wire.QueueDeclare{Queue: "ignored", Passive: true})
			if m := want[*wire.ChannelClose](c, 3); m.ReplyCode != 404 {
				t.Errorf("a closed channel declared a queue: %+v", m)
			}
		})
	}
}

func TestHardErrors(t *testing.T) {
	for _, rule := range hardRules() {
		t.Run(rule.name, func(t *testing.T) {
			r := startServer(t, smallMessages)
			other := r.open(t)
			c := r.open(t)
			c.channel(1)
			rule.do(c)
			m := want[*wire.ConnectionClose](c, 0)
			checkClose(t, rule, m.ReplyCode, m.ReplyText, m.ClassID, m.MethodID)
			c.send(0, &wire.ConnectionCloseOk{})
			if rule.code == 501 {
				_ = c.nc.Close() // the server cannot find the close-ok in the stream
			} else {
				c.closed()
			}
			other.alive(1)
		})
	}
}

func TestCrossedCloses(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	// The client's close is on its way when the server's arrives.
	c.send(1, &wire.BasicAck{DeliveryTag: 1}, &wire.ChannelClose{ReplyCode: 200})
	want[*wire.ChannelClose](c, 1)
	want[*wire.ChannelCloseOk](c, 1)
	c.send(1, &wire.ChannelCloseOk{})
	c.alive(1)
	// The same with connections.
	c.send(0, &wire.QueueDeclare{}, &wire.ConnectionClose{ReplyCode: 200})
	want[*wire.ConnectionClose](c, 0)
	want[*wire.ConnectionCloseOk](c, 0)
	c.send(0, &wire.ConnectionCloseOk{})
	c.closed()
}

func TestHeaders(t *testing.T) {
	ours := "AMQP\x00\x00\x09\x01"
	for _, tc := range []struct {
		name, header string
		accepted     bool
	}{
		{"0-9-1", ours, true},
		{"0-9", "AMQP\x01\x01\x00\x09", true},
		{"0-10", "AMQP\x00\x00\x0a\x00", false},
		{"0-9 by number", "AMQP\x00\x00\x09\x00", false},
		{"0-8", "AMQP\x01\x01\x08\x00", false},
		{"1.0", "AMQP\x00\x01\x00\x00", false},
		{"1.0 SASL", "AMQP\x03\x01\x00\x00", false},
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", false},
		{"garbage", strings.Repeat("\xff", 10000), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := startServer(t)
			c := r.connect(t)
			c.bytes([]byte(tc.header))
			if tc.accepted {
				want[*wire.ConnectionStart](c, 0)
				return
			}
			got := make([]byte, 8)
			if _, err := c.nc.Read(got); err != nil || string(got) != ours {
				t.Fatalf("answer %q, %v", got, err)
			}
			c.closed()
		})
	}
}
