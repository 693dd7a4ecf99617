package amqp_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	rabbit "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/amqp"
)

// The tests in this file let RabbitMQ's Go client talk to a peer built from this
// package, so that every byte of one codec is read by the other.

// rabbitTable and ourTable hold the same values in the types of either package.
func rabbitTable() rabbit.Table {
	return rabbit.Table{
		"t": true, "b": int8(-2), "B": uint8(254), "s": int16(-3), "u": uint16(65533), "I": int32(-4), "i": uint32(4294967292),
		"l": int64(math.MinInt64), "f": float32(1.5), "d": math.Pi, "D": rabbit.Decimal{Scale: 2, Value: 1234}, "S": "long",
		"A": []any{int32(1), "two", nil, rabbit.Table{"k": []any(nil)}}, "T": time.Unix(1700000000, 0), "F": rabbit.Table{"in": rabbit.Table{}},
		"V": nil, "x": []byte{0, 255},
	}
}

func ourTable() amqp.Table {
	return amqp.Table{
		{Name: "t", Value: true},
		{Name: "b", Value: int8(-2)},
		{Name: "B", Value: uint8(254)},
		{Name: "s", Value: int16(-3)},
		{Name: "u", Value: uint16(65533)},
		{Name: "I", Value: int32(-4)},
		{Name: "i", Value: uint32(4294967292)},
		{Name: "l", Value: int64(math.MinInt64)},
		{Name: "f", Value: float32(1.5)},
		{Name: "d", Value: math.Pi},
		{Name: "D", Value: amqp.Decimal{Scale: 2, Value: 1234}},
		{Name: "S", Value: "long"},
		{Name: "A", Value: amqp.Array{int32(1), "two", nil, amqp.Table{{Name: "k", Value: amqp.Array{}}}}},
		{Name: "T", Value: amqp.Timestamp(1700000000)},
		{Name: "F", Value: amqp.Table{{Name: "in", Value: amqp.Table(nil)}}},
		{Name: "V", Value: nil},
		{Name: "x", Value: []byte{0, 255}},
	}
}

func TestClientHandshake(t *testing.T) {
	var start amqp.ConnectionStartOk
	var open amqp.ConnectionOpen
	conn, finish := dial(t, rabbit.Config{
		SASL:       []rabbit.Authentication{&rabbit.PlainAuth{Username: "u", Password: "p"}},
		Vhost:      "v/1",
		Locale:     "en_US",
		Properties: rabbitTable(),
	}, func(p *peer) (err error) {
		if start, open, err = p.handshake(ourTable()); err != nil {
			return err
		}
		// The client calls update-secret after it has subscribed to the notices.
		var secret amqp.ConnectionUpdateSecret
		err = errors.Join(
			p.expect(&secret),
			p.send(0, &amqp.ConnectionBlocked{Reason: "low on disk"}, &amqp.ConnectionUnblocked{}, &amqp.ConnectionUpdateSecretOk{}),
		)
		if err != nil {
			return err
		}
		if secret.NewSecret != "new" || secret.Reason != "why" {
			return fmt.Errorf("update-secret: %+v", secret)
		}
		return p.closeGracefully()
	})
	blocked := conn.NotifyBlocked(make(chan rabbit.Blocking, 2))
	if err := conn.UpdateSecret("new", "why"); err != nil {
		t.Errorf("update-secret: %v", err)
	}
	finish()

	if start.Mechanism != "PLAIN" || start.Response != "\x00u\x00p" || start.Locale != "en_US" {
		t.Errorf("start-ok: got %+v", start)
	}
	if open.VirtualHost != "v/1" {
		t.Errorf("open: got vhost %q", open.VirtualHost)
	}
	for _, f := range ourTable() {
		if v, _ := start.ClientProperties.Get(f.Name); !amqp.EqualValues(v, f.Value) {
			t.Errorf("client property %s: got %T %v, want %T %v", f.Name, v, v, f.Value, f.Value)
		}
	}
	if got := conn.Properties; !reflect.DeepEqual(got, rabbitTable()) {
		t.Errorf("server properties as the client reads them:\n got %v\nwant %v", got, rabbitTable())
	}
	var seen []rabbit.Blocking
	for b := range blocked { // closed with the connection
		seen = append(seen, b)
	}
	if want := []rabbit.Blocking{{Active: true, Reason: "low on disk"}, {}}; !reflect.DeepEqual(seen, want) {
		t.Errorf("blocked notices: got %v, want %v", seen, want)
	}
}

func TestClientMethods(t *testing.T) {
	var seen []amqp.Method
	conn, finish := dial(t, clientConfig(), func(p *peer) error { return serve(p, &seen) })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	args := rabbit.Table{"x": int32(1)}
	queue, err := ch.QueueDeclare("q", true, false, true, false, args)
	if err != nil || queue.Messages != 7 || queue.Consumers != 8 {
		t.Errorf("queue.declare-ok: got %+v %v", queue, err)
	}
	purged, errPurge := ch.QueuePurge("q", false)
	deleted, errDelete := ch.QueueDelete("q", true, true, false)
	if purged != 9 || deleted != 10 {
		t.Errorf("counts: got %d and %d", purged, deleted)
	}
	_, gotten, errGet := ch.Get("q", true)
	if gotten {
		t.Error("get-empty read as a message")
	}
	_, errConsume := ch.Consume("q", "tag", true, true, false, false, args)
	err = errors.Join(errPurge, errDelete, errGet, errConsume,
		ch.ExchangeDeclare("e", "topic", true, false, true, false, args),
		ch.ExchangeBind("d", "k", "s", false, args),
		ch.ExchangeUnbind("d", "k", "s", false, args),
		ch.ExchangeDelete("e", true, false),
		ch.QueueBind("q", "k", "e", false, args),
		ch.QueueUnbind("q", "k", "e", args),
		ch.Qos(5, 6, true),
		ch.Ack(1, true), ch.Nack(2, false, true), ch.Reject(3, true),
		ch.Recover(true), //nolint:staticcheck // the method is deprecated, not gone
		ch.Cancel("tag", false),
		ch.Confirm(false), ch.Tx(), ch.TxCommit(), ch.TxRollback(),
		ch.Close(),
	)
	if err != nil {
		t.Errorf("client: %v", err)
	}
	finish()

	ours := amqp.Table{{Name: "x", Value: int32(1)}}
	want := []amqp.Method{
		&amqp.ChannelOpen{},
		&amqp.QueueDeclare{Queue: "q", Durable: true, Exclusive: true, Arguments: ours},
		&amqp.QueuePurge{Queue: "q"},
		&amqp.QueueDelete{Queue: "q", IfUnused: true, IfEmpty: true},
		&amqp.BasicGet{Queue: "q", NoAck: true},
		&amqp.BasicConsume{Queue: "q", ConsumerTag: "tag", NoAck: true, Exclusive: true, Arguments: ours},
		&amqp.ExchangeDeclare{Exchange: "e", Type: "topic", Durable: true, Internal: true, Arguments: ours},
		&amqp.ExchangeBind{Destination: "d", Source: "s", RoutingKey: "k", Arguments: ours},
		&amqp.ExchangeUnbind{Destination: "d", Source: "s", RoutingKey: "k", Arguments: ours},
		&amqp.ExchangeDelete{Exchange: "e", IfUnused: true},
		&amqp.QueueBind{Queue: "q", Exchange: "e", RoutingKey: "k", Arguments: ours},
		&amqp.QueueUnbind{Queue: "q", Exchange: "e", RoutingKey: "k", Arguments: ours},
		&amqp.BasicQos{PrefetchCount: 5, PrefetchSize: 6, Global: true},
		&amqp.BasicAck{DeliveryTag: 1, Multiple: true},
		&amqp.BasicNack{DeliveryTag: 2, Requeue: true},
		&amqp.BasicReject{DeliveryTag: 3, Requeue: true},
		&amqp.BasicRecover{Requeue: true},
		&amqp.BasicCancel{ConsumerTag: "tag"},
		&amqp.ConfirmSelect{},
		&amqp.TxSelect{}, &amqp.TxCommit{}, &amqp.TxRollback{},
		&amqp.ChannelClose{ReplyCode: 200},
		&amqp.ConnectionClose{ReplyCode: 200, ReplyText: "kthxbai"},
	}
	for i := range min(len(seen), len(want)) {
		if !reflect.DeepEqual(seen[i], want[i]) {
			t.Errorf("method %d: got %s %+v, want %s %+v", i, seen[i].Name(), seen[i], want[i].Name(), want[i])
		}
	}
	if len(seen) != len(want) {
		t.Errorf("got %d methods, want %d", len(seen), len(want))
	}
}

func TestClientMessages(t *testing.T) {
	full := rabbit.Publishing{
		Headers: rabbitTable(), ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 2, Priority: 9, CorrelationId: "c", ReplyTo: "r",
		Expiration: "60000", MessageId: "m", Timestamp: time.Unix(1700000000, 0), Type: "t", UserId: "u", AppId: "a",
	}
	cases := map[string]struct {
		message rabbit.Publishing
		bytes   int
	}{
		"all properties": {full, 10},
		"no properties":  {rabbit.Publishing{}, 10},
		"empty body":     {full, 0},
		"one full frame": {rabbit.Publishing{Priority: 1}, testFrameMax - amqp.FrameOverhead},
		"one byte more":  {rabbit.Publishing{Priority: 1}, testFrameMax - amqp.FrameOverhead + 1},
		"large":          {full, 1 << 20},
	}
	var seen []amqp.Method
	conn, finish := dial(t, clientConfig(), func(p *peer) error { return serve(p, &seen) })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume("q", "tag", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	returns := ch.NotifyReturn(make(chan rabbit.Return, 1))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := tc.message
			want.Body = bytes.Repeat([]byte("warren"), tc.bytes/6+1)[:tc.bytes]
			if err := ch.Publish("e", "tag", false, false, want); err != nil {
				t.Fatal(err)
			}
			d := receive(t, deliveries)
			got := rabbit.Publishing{
				Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
				CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId, Timestamp: d.Timestamp,
				Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
			}
			if !bytes.Equal(got.Body, want.Body) {
				t.Errorf("body: got %d bytes, want %d", len(got.Body), len(want.Body))
			}
			got.Body, want.Body = nil, nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("properties:\n got %+v\nwant %+v", got, want)
			}
			if d.Exchange != "e" || d.RoutingKey != "tag" || !d.Redelivered || d.ConsumerTag != "tag" {
				t.Errorf("delivery: got %+v", d)
			}
		})
	}
	if err := ch.Publish("e", "nowhere", true, false, rabbit.Publishing{Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if r := receive(t, returns); r.ReplyCode != 312 || r.ReplyText != "NO_ROUTE" || r.RoutingKey != "nowhere" || string(r.Body) != "x" {
		t.Errorf("return: got %+v", r)
	}
	finish()
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-ch:
		if !ok {
			t.Fatal("channel closed")
		}
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing received")
	}
	panic("unreachable")
}

// TestClientReadsErrors checks that the client understands our close methods.
func TestClientReadsErrors(t *testing.T) {
	fault := amqp.Errorf(amqp.NotFound, amqp.MethodQueueDeclare, "no queue '%s' in vhost '/'", "q")
	fatal := amqp.Errorf(amqp.ConnectionForced, 0, "broker forced connection closure")
	conn, finish := dial(t, clientConfig(), func(p *peer) error {
		if _, _, err := p.handshake(nil); err != nil {
			return err
		}
		return errors.Join(
			p.expect(new(amqp.ChannelOpen)), p.send(1, &amqp.ChannelOpenOk{}),
			p.expect(new(amqp.QueueDeclare)), p.send(1, fault.ChannelClose()), p.expect(new(amqp.ChannelCloseOk)),
			p.send(0, fatal.ConnectionClose()), p.expect(new(amqp.ConnectionCloseOk)),
		)
	})
	closed := conn.NotifyClose(make(chan *rabbit.Error, 1))
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	_, err = ch.QueueDeclarePassive("q", false, false, false, false, nil)
	if e, ok := errors.AsType[*rabbit.Error](err); !ok || e.Code != 404 || e.Reason != fault.ReplyText() {
		t.Errorf("channel error: got %v, want %v", err, fault)
	}
	if e := receive(t, closed); e.Code != 320 || e.Reason != fatal.ReplyText() {
		t.Errorf("connection error: got %v, want %v", e, fatal)
	}
	finish()
}
