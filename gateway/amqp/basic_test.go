package amqp

import (
	"fmt"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	wire "github.com/warrenmq/warren/amqp"
)

// fill declares q and publishes n messages "1".."n" to it on a confirm channel.
func fill(c *rawClient, channel uint16, q string, n int) {
	c.tb.Helper()
	c.send(channel, &wire.QueueDeclare{Queue: q, NoWait: true}, &wire.ConfirmSelect{})
	want[*wire.ConfirmSelectOk](c, channel)
	for i := range n {
		c.publish(channel, wire.BasicPublish{RoutingKey: q}, fmt.Sprint(i+1))
	}
	for acked := uint64(0); acked < uint64(n); {
		m := want[*wire.BasicAck](c, channel)
		if m.DeliveryTag != acked+1 && !m.Multiple {
			c.tb.Fatalf("ack of %d after %d", m.DeliveryTag, acked)
		}
		acked = m.DeliveryTag
	}
}

func deliveries(c *rawClient, channel uint16, n int) (tags []uint64, bodies []string, redelivered []bool) {
	c.tb.Helper()
	for range n {
		m, body := wantContent[*wire.BasicDeliver](c, channel)
		tags, bodies, redelivered = append(tags, m.DeliveryTag), append(bodies, string(body)), append(redelivered, m.Redelivered)
	}
	return tags, bodies, redelivered
}

func equal[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestRequeueKeepsOrder(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "q", 4)
	c.send(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "t"})
	want[*wire.BasicConsumeOk](c, 1)
	tags, bodies, again := deliveries(c, 1, 4)
	equal(t, "tags", tags, 1, 2, 3, 4)
	equal(t, "bodies", bodies, "1", "2", "3", "4")
	equal(t, "redelivered", again, false, false, false, false)
	c.send(1, &wire.BasicNack{DeliveryTag: 3, Multiple: true, Requeue: true})
	tags, bodies, again = deliveries(c, 1, 3)
	equal(t, "tags", tags, 5, 6, 7)
	equal(t, "bodies", bodies, "1", "2", "3")
	equal(t, "redelivered", again, true, true, true)
	c.send(1, &wire.BasicRecover{Requeue: true})
	// recover-ok may be before or after the first of them.
	got := map[string]int{}
	for range 5 {
		_, m, body := c.method()
		got[m.Name()+string(body)]++
	}
	for _, key := range []string{"basic.recover-ok", "basic.deliver1", "basic.deliver2", "basic.deliver3", "basic.deliver4"} {
		if got[key] != 1 {
			t.Errorf("%s: %d times in %v", key, got[key], got)
		}
	}
	c.send(1, &wire.BasicAck{Multiple: true}, &wire.QueueDeclare{Queue: "q", Passive: true})
	if m := want[*wire.QueueDeclareOk](c, 1); m.MessageCount != 0 || m.ConsumerCount != 1 {
		t.Errorf("%+v", m)
	}
	if ready, unacked := r.b.counts("q"); ready+unacked != 0 {
		t.Errorf("left: %d ready, %d unacked", ready, unacked)
	}
	// Everything outstanding, of which there is nothing: fine. The same tag twice: not.
	c.send(1, &wire.BasicAck{Multiple: true}, &wire.BasicAck{DeliveryTag: 8})
	if m := want[*wire.ChannelClose](c, 1); m.ReplyText != "PRECONDITION_FAILED - unknown delivery tag 8" {
		t.Errorf("%+v", m)
	}
}

func TestAckInNoAckMode(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "q", 1)
	c.send(1, &wire.BasicConsume{Queue: "q", NoAck: true, NoWait: true})
	deliveries(c, 1, 1)
	c.send(1, &wire.BasicAck{DeliveryTag: 1})
	if m := want[*wire.ChannelClose](c, 1); m.ReplyText != "PRECONDITION_FAILED - unknown delivery tag 1" {
		t.Errorf("%+v", m)
	}
}

func TestGet(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "q", 3)
	c.send(1, &wire.BasicGet{Queue: "q"}, &wire.BasicGet{NoAck: true}, &wire.BasicGet{}, &wire.BasicGet{})
	for i, left := range []uint32{2, 1, 0} {
		m, body := wantContent[*wire.BasicGetOk](c, 1)
		if string(body) != fmt.Sprint(i+1) || m.MessageCount != left || m.DeliveryTag != uint64(i+1) || m.Redelivered {
			t.Errorf("get %d: %+v %q", i, m, body)
		}
	}
	want[*wire.BasicGetEmpty](c, 1)
	c.send(1, &wire.BasicReject{DeliveryTag: 1, Requeue: true}, &wire.BasicReject{DeliveryTag: 3}, &wire.BasicGet{})
	if m, body := wantContent[*wire.BasicGetOk](c, 1); string(body) != "1" || !m.Redelivered || m.DeliveryTag != 4 {
		t.Errorf("%+v %q", m, body)
	}
	if ready, unacked := r.b.counts("q"); ready != 0 || unacked != 1 {
		t.Errorf("%d ready, %d unacked", ready, unacked)
	}
	c.send(1, &wire.ChannelClose{ReplyCode: 200})
	want[*wire.ChannelCloseOk](c, 1)
	if ready, unacked := r.b.counts("q"); ready != 1 || unacked != 0 {
		t.Errorf("after close: %d ready, %d unacked", ready, unacked)
	}
}

func TestDeliveryCounts(t *testing.T) {
	r := startServer(t)
	ch := r.channel(t)
	if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.Publish("", "q", false, false, amqp091.Publishing{Headers: amqp091.Table{"own": "x"}, Body: []byte("m")}); err != nil {
		t.Fatal(err)
	}
	ds, err := ch.Consume("q", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, counts := range [][2]any{{nil, nil}, {int64(1), int64(1)}, {int64(1), int64(2)}} {
		d := receive(t, ds, "delivery")
		if d.Headers["x-delivery-count"] != counts[0] || d.Headers["x-acquired-count"] != counts[1] || d.Headers["own"] != "x" || d.Redelivered != (i > 0) {
			t.Errorf("delivery %d: %v", i, d.Headers)
		}
		if i == 0 {
			err = d.Reject(true)
		} else {
			err = d.Nack(false, true)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestPrefetch(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "q", 6)
	c.send(1, &wire.BasicQos{PrefetchCount: 2})
	want[*wire.BasicQosOk](c, 1)
	c.send(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "two"})
	want[*wire.BasicConsumeOk](c, 1)
	deliveries(c, 1, 2)
	c.send(1, &wire.BasicQos{}) // for later consumers only
	want[*wire.BasicQosOk](c, 1)
	c.send(1, &wire.BasicAck{DeliveryTag: 1})
	_, bodies, _ := deliveries(c, 1, 1)
	equal(t, "bodies", bodies, "3")
	c.send(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "all"})
	want[*wire.BasicConsumeOk](c, 1)
	_, bodies, _ = deliveries(c, 1, 3)
	equal(t, "bodies", bodies, "4", "5", "6")
	c.send(1, &wire.BasicAck{Multiple: true}, &wire.BasicCancel{ConsumerTag: "unknown"})
	want[*wire.BasicCancelOk](c, 1)
}

func TestChannelPrefetch(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "a", 5)
	c.channel(2)
	fill(c, 2, "b", 5)
	c.send(1, &wire.BasicQos{PrefetchCount: 3, Global: true})
	want[*wire.BasicQosOk](c, 1)
	c.send(1, &wire.BasicConsume{Queue: "a"}, &wire.BasicConsume{Queue: "b"}, &wire.BasicQos{PrefetchCount: 3, Global: true})
	seen, outstanding := 0, 0
	count := func(expected int) {
		t.Helper()
		for outstanding < expected {
			_, m, _ := c.method()
			if _, ok := m.(*wire.BasicDeliver); ok {
				seen, outstanding = seen+1, outstanding+1
			}
		}
		// Nothing more comes before the answer to a request.
		c.send(1, &wire.BasicCancel{ConsumerTag: "sync"})
		for {
			_, m, _ := c.method()
			if _, ok := m.(*wire.BasicDeliver); ok {
				t.Fatalf("delivery beyond the limit: %+v", m)
			}
			if ok, is := m.(*wire.BasicCancelOk); is && ok.ConsumerTag == "sync" {
				return
			}
		}
	}
	count(3)
	c.send(1, &wire.BasicAck{DeliveryTag: 2})
	outstanding--
	count(3)
	c.send(1, &wire.BasicAck{Multiple: true})
	outstanding = 0
	count(3)
	c.send(1, &wire.BasicQos{Global: true}) // no limit any more, also for the running consumers
	for seen < 10 {
		_, m, _ := c.method()
		if _, ok := m.(*wire.BasicDeliver); ok {
			seen++
		}
	}
}

// What the channel-wide limit holds back is not delivered after cancel-ok.
func TestCancelUnderChannelPrefetch(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "a", 2)
	c.channel(2)
	fill(c, 2, "b", 2)
	c.send(1, &wire.BasicQos{PrefetchCount: 2, Global: true}, &wire.BasicConsume{Queue: "a", ConsumerTag: "a", NoWait: true},
		&wire.BasicConsume{Queue: "b", ConsumerTag: "b", NoWait: true}, &wire.BasicCancel{ConsumerTag: "b"})
	want[*wire.BasicQosOk](c, 1)
	deliveries(c, 1, 2)
	want[*wire.BasicCancelOk](c, 1)
	c.send(1, &wire.BasicAck{Multiple: true}, &wire.BasicGet{Queue: "b"})
	if m, body := wantContent[*wire.BasicGetOk](c, 1); string(body) != "1" || m.MessageCount != 1 || m.Redelivered {
		t.Errorf("%+v %q", m, body)
	}
}

// Properties travel as bytes: all of them, and none that were not there.
func TestPropertiesTravelUnchanged(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	var all wire.Properties
	all.SetContentType("text/plain")
	all.SetContentEncoding("gzip")
	all.SetHeaders(wire.Table{
		{Name: "t", Value: true},
		{Name: "b", Value: int8(-1)},
		{Name: "B", Value: uint8(255)},
		{Name: "s", Value: int16(-2)},
		{Name: "u", Value: uint16(65535)},
		{Name: "I", Value: int32(-3)},
		{Name: "i", Value: uint32(1 << 31)},
		{Name: "l", Value: int64(-4)},
		{Name: "f", Value: float32(1.5)},
		{Name: "d", Value: 2.5},
		{Name: "D", Value: wire.Decimal{Scale: 2, Value: 314}},
		{Name: "S", Value: "text"},
		{Name: "A", Value: wire.Array{"x", wire.Array{int32(1)}, nil}},
		{Name: "T", Value: wire.Timestamp(1)},
		{Name: "F", Value: wire.Table{{Name: "in", Value: "side"}}},
		{Name: "V", Value: nil},
		{Name: "x", Value: []byte{0, 1}},
	})
	all.SetDeliveryMode(2)
	all.SetPriority(9)
	all.SetCorrelationID("correlation")
	all.SetReplyTo("reply")
	all.SetExpiration("60000")
	all.SetMessageID("message")
	all.SetTimestamp(1234567890)
	all.SetType("type")
	all.SetUserID("guest")
	all.SetAppID("app")
	all.SetClusterID("cluster")
	c.send(1, &wire.QueueDeclare{Queue: "q"}, &wire.BasicConsume{Queue: "q", NoAck: true, NoWait: true})
	want[*wire.QueueDeclareOk](c, 1)
	for _, props := range []wire.RawProperties{all.AppendTo(nil), {0, 0}} {
		b := (&wire.BasicPublish{RoutingKey: "q"}).AppendFrame(nil, 1)
		c.bytes(wire.AppendContent(b, 1, wire.ClassBasic, props, []byte("body"), 131072))
		if f, err := c.next(); err != nil || f.Type != wire.FrameMethod {
			t.Fatalf("%+v, %v", f, err)
		}
		f, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		h, err := wire.ParseContentHeader(f.Payload)
		if err != nil || string(h.Properties) != string(props) {
			t.Errorf("got %x, %v, want %x", h.Properties, err, props)
		}
		if _, err := c.next(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCancel(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	fill(c, 1, "q", 5)
	c.send(1, &wire.BasicQos{PrefetchCount: 3}, &wire.BasicConsume{Queue: "q", ConsumerTag: "t", NoWait: true}, &wire.BasicCancel{ConsumerTag: "t"})
	want[*wire.BasicQosOk](c, 1)
	deliveries(c, 1, 3) // what was under way comes before the answer
	want[*wire.BasicCancelOk](c, 1)
	if ready, unacked := r.b.counts("q"); ready != 2 || unacked != 3 {
		t.Errorf("%d ready, %d unacked", ready, unacked)
	}
	c.send(1, &wire.BasicAck{DeliveryTag: 2, Multiple: true}, &wire.BasicConsume{Queue: "q", ConsumerTag: "t"})
	want[*wire.BasicConsumeOk](c, 1)
	tags, bodies, _ := deliveries(c, 1, 2)
	equal(t, "tags", tags, 4, 5)
	equal(t, "bodies", bodies, "4", "5")
}

func TestCancelledByBroker(t *testing.T) {
	r := startServer(t)
	plain := r.connect(t)
	plain.handshake(nil, wire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 8192})
	plain.channel(1)
	c := r.open(t)
	c.channel(1)
	c.channel(2)
	c.send(1, &wire.QueueDeclare{Queue: "q", NoWait: true}, &wire.BasicConsume{ConsumerTag: "t"})
	want[*wire.BasicConsumeOk](c, 1)
	plain.send(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "p"})
	want[*wire.BasicConsumeOk](plain, 1)
	c.send(2, &wire.QueueDelete{Queue: "q"})
	got := map[string]bool{}
	for range 2 {
		channel, m, _ := c.method()
		got[m.Name()] = true
		if x, ok := m.(*wire.BasicCancel); ok && (x.ConsumerTag != "t" || !x.NoWait || channel != 1) {
			t.Errorf("channel %d: %+v", channel, x)
		}
	}
	if !got["basic.cancel"] || !got["queue.delete-ok"] {
		t.Errorf("got %v", got)
	}
	c.send(1, &wire.BasicCancelOk{ConsumerTag: "t"}) // some clients answer
	plain.alive(2)                                   // no basic.cancel for it
	c.alive(3)
}

func TestServerMadeNames(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{})
	name := want[*wire.QueueDeclareOk](c, 1).Queue
	c.send(1, &wire.QueueBind{Exchange: "amq.direct"}) // queue and key are the name
	want[*wire.QueueBindOk](c, 1)
	c.publish(1, wire.BasicPublish{Exchange: "amq.direct", RoutingKey: name}, "hello")
	c.send(1, &wire.BasicConsume{})
	tag := want[*wire.BasicConsumeOk](c, 1).ConsumerTag
	if len(tag) < 20 || tag[:9] != "amq.ctag-" {
		t.Errorf("consumer tag %q", tag)
	}
	if m, body := wantContent[*wire.BasicDeliver](c, 1); m.ConsumerTag != tag || string(body) != "hello" || m.Exchange != "amq.direct" || m.RoutingKey != name {
		t.Errorf("%+v", m)
	}
	c.send(1, &wire.QueueDeclare{Queue: "na\r\nme"}, &wire.QueuePurge{}, &wire.QueueUnbind{Exchange: "amq.direct"}, &wire.QueueDelete{})
	if m := want[*wire.QueueDeclareOk](c, 1); m.Queue != "name" {
		t.Errorf("%+v", m)
	}
	want[*wire.QueuePurgeOk](c, 1)
	want[*wire.QueueUnbindOk](c, 1)
	want[*wire.QueueDeleteOk](c, 1)
}

func TestNoWaitHasNoAnswer(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1,
		&wire.ExchangeDeclare{Exchange: "e", Type: "direct", NoWait: true},
		&wire.ExchangeBind{Source: "e", Destination: "amq.direct", NoWait: true},
		&wire.ExchangeUnbind{Source: "e", Destination: "amq.direct", NoWait: true},
		&wire.QueueDeclare{Queue: "q", NoWait: true},
		&wire.QueueBind{Queue: "q", Exchange: "e", RoutingKey: "k", NoWait: true},
		&wire.QueuePurge{Queue: "q", NoWait: true},
		&wire.BasicConsume{Queue: "q", ConsumerTag: "t", NoWait: true},
		&wire.BasicCancel{ConsumerTag: "t", NoWait: true},
		&wire.ConfirmSelect{NoWait: true},
		&wire.QueueDelete{Queue: "q", NoWait: true},
		&wire.ExchangeDelete{Exchange: "e", NoWait: true},
		&wire.BasicRecoverAsync{Requeue: true},
		&wire.AccessRequest{Realm: "/data"},
		&wire.ChannelFlow{Active: true},
	)
	if m := want[*wire.AccessRequestOk](c, 1); m.Ticket != 1 {
		t.Errorf("%+v", m)
	}
	if m := want[*wire.ChannelFlowOk](c, 1); !m.Active {
		t.Errorf("%+v", m)
	}
	c.send(0, &wire.ConnectionUpdateSecret{NewSecret: "guest"})
	want[*wire.ConnectionUpdateSecretOk](c, 0)
}

func TestReturns(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.ConfirmSelect{})
	want[*wire.ConfirmSelectOk](c, 1)
	var p wire.Properties
	p.SetMessageID("id")
	big := make([]byte, 200000)
	for i, body := range [][]byte{nil, []byte("x"), big} {
		b := (&wire.BasicPublish{RoutingKey: "nowhere", Mandatory: true}).AppendFrame(nil, 1)
		c.bytes(wire.AppendContent(b, 1, 60, p.AppendTo(nil), body, 131072))
		m, back := wantContent[*wire.BasicReturn](c, 1)
		if m.ReplyCode != 312 || m.ReplyText != "NO_ROUTE" || m.RoutingKey != "nowhere" || len(back) != len(body) {
			t.Errorf("%+v, %d bytes", m, len(back))
		}
		if m := want[*wire.BasicAck](c, 1); m.DeliveryTag != uint64(i+1) || m.Multiple {
			t.Errorf("%+v", m)
		}
	}
	// Not mandatory: an ack only. Immediate: a return with another code.
	c.publish(1, wire.BasicPublish{RoutingKey: "nowhere"}, "x")
	want[*wire.BasicAck](c, 1)
	c.send(1, &wire.QueueDeclare{Queue: "q", NoWait: true})
	for _, key := range []string{"nowhere", "q"} {
		c.publish(1, wire.BasicPublish{RoutingKey: key, Immediate: true}, "now")
		if m, back := wantContent[*wire.BasicReturn](c, 1); m.ReplyCode != 313 || m.ReplyText != "NO_CONSUMERS" || m.RoutingKey != key || string(back) != "now" {
			t.Errorf("%+v %q", m, back)
		}
		want[*wire.BasicAck](c, 1)
	}
	// Outside confirm mode, and then with a consumer.
	c.channel(2)
	c.publish(2, wire.BasicPublish{RoutingKey: "q", Immediate: true}, "now")
	if m := want[*wire.BasicReturn](c, 2); m.ReplyCode != 313 {
		t.Errorf("%+v", m)
	}
	c.send(2, &wire.BasicConsume{Queue: "q", NoAck: true})
	want[*wire.BasicConsumeOk](c, 2)
	c.publish(2, wire.BasicPublish{RoutingKey: "q", Immediate: true, Mandatory: true}, "taken")
	if _, body := wantContent[*wire.BasicDeliver](c, 2); string(body) != "taken" {
		t.Errorf("%q", body)
	}
}

func TestRefusedPublish(t *testing.T) {
	r := startServer(t)
	ch := r.channel(t)
	if _, err := ch.QueueDeclare("q", false, false, false, false, amqp091.Table{"x-max-length": int32(3)}); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirms := ch.NotifyPublish(make(chan amqp091.Confirmation, 10))
	for range 5 {
		if err := ch.Publish("", "q", false, false, amqp091.Publishing{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		if c := receive(t, confirms, "confirm"); c.Ack != (i < 3) || c.DeliveryTag != uint64(i+1) {
			t.Errorf("confirm %d: %+v", i, c)
		}
	}
}

func TestClosingReturnsMessages(t *testing.T) {
	r := startServer(t)
	for _, end := range []struct {
		name string
		do   func(c *rawClient)
	}{
		{"channel", func(c *rawClient) { c.send(1, &wire.ChannelClose{}) }},
		{"channel error", func(c *rawClient) { c.send(1, &wire.BasicGet{Queue: "nope"}) }},
		{"connection", func(c *rawClient) { c.send(0, &wire.ConnectionClose{}) }},
		{"connection error", func(c *rawClient) { c.send(1, &wire.ChannelOpen{}) }},
		{"socket", func(c *rawClient) { _ = c.nc.Close() }},
	} {
		t.Run(end.name, func(t *testing.T) {
			c := r.open(t)
			c.channel(1)
			q := "q " + end.name
			fill(c, 1, q, 3)
			c.send(1, &wire.BasicConsume{Queue: q, NoWait: true})
			deliveries(c, 1, 3)
			c.send(1, &wire.BasicAck{DeliveryTag: 2})
			end.do(c)
			eventually(t, "return", func() bool { ready, unacked := r.b.counts(q); return ready == 2 && unacked == 0 })
		})
	}
}

func TestExclusiveQueueEndsWithConnection(t *testing.T) {
	r := startServer(t)
	c := r.open(t)
	c.channel(1)
	c.send(1, &wire.QueueDeclare{Queue: "mine", Exclusive: true})
	want[*wire.QueueDeclareOk](c, 1)
	other := r.open(t)
	other.channel(1)
	other.send(1, &wire.BasicGet{Queue: "mine"})
	if m := want[*wire.ChannelClose](other, 1); m.ReplyCode != 405 {
		t.Errorf("%+v", m)
	}
	c.send(0, &wire.ConnectionClose{ReplyCode: 200})
	want[*wire.ConnectionCloseOk](c, 0)
	other.channel(2)
	other.send(2, &wire.QueueDeclare{Queue: "mine"}) // free before close-ok was read
	want[*wire.QueueDeclareOk](other, 2)
}

// A hundred clients at once, some of which vanish.
func TestManyConnections(t *testing.T) {
	r := startServer(t)
	done := make(chan error, 100)
	for i := range 100 {
		go func() {
			done <- func() error {
				// Client and server each take a silence of two or three heartbeats for an end: not on a starved machine.
				c, err := amqp091.DialConfig(r.url(), amqp091.Config{Heartbeat: patience, Locale: "en_US"})
				if err != nil {
					return err
				}
				defer c.Close()
				ch, err := c.Channel()
				if err != nil {
					return err
				}
				q, err := ch.QueueDeclare("", false, true, true, false, nil)
				if err != nil {
					return err
				}
				ds, err := ch.Consume(q.Name, "", i%2 == 0, true, false, false, nil)
				if err != nil {
					return err
				}
				for range 10 {
					if err := ch.Publish("", q.Name, false, false, amqp091.Publishing{Body: make([]byte, 100)}); err != nil {
						return err
					}
				}
				for range 10 {
					select {
					case <-ds:
					case <-time.After(patience):
						return fmt.Errorf("no delivery on %s", q.Name)
					}
				}
				return nil
			}()
		}()
	}
	for range 100 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "end of connections", func() bool { return r.s.Stats().Connections == 0 })
}
