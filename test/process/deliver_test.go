package process

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestDeliver(t *testing.T) {
	t.Parallel()
	runScenarios(t, []scenario{
		{name: "confirmed messages come in order", run: deliverInOrder},
		{name: "prefetch bounds what is unacked", run: prefetchBounds},
		{name: "prefetch counts each consumer", run: prefetchPerConsumer},
		{name: "ack multiple", run: ackMultiple},
		{name: "nack multiple with requeue keeps the order", run: nackMultipleRequeue},
		{name: "requeue goes to the original place", run: requeueOriginalPlace},
		{name: "a closed channel returns in order", run: closedChannelReturns},
		{name: "get", run: getMessages},
		{name: "automatic acks", run: automaticAcks},
		{name: "cancel leaves unacked messages with the channel", run: cancelKeepsUnacked},
		{name: "a deleted queue cancels its consumers", run: deletedQueueCancels},
		{name: "recover", run: recoverRequeues},
		{name: "consumers share", run: consumersShare},
		{name: "bodies of any size", run: bodySizes},
		{name: "properties come back unchanged", run: propertiesRoundTrip},
		{name: "purge and delete count ready messages", run: purgeAndDelete},
		{name: "exclusive queue ends with its connection", run: exclusiveQueue},
		{name: "priorities", run: priorities},
		{name: "server-named queue", run: serverNamedQueue},
	})
}

func deliverInOrder(s *session) {
	q := s.queue("q", nil)
	bodies := numbered("m", 300)
	_, deliveries := s.consume(q, 10)
	s.fill(q, bodies...)
	for i, want := range bodies {
		d := s.next(deliveries)
		if string(d.Body) != want || d.DeliveryTag != uint64(i+1) || d.Redelivered {
			s.Fatalf("delivery %d: got %q tag %d redelivered %v", i+1, d.Body, d.DeliveryTag, d.Redelivered)
		}
		if d.Exchange != "" || d.RoutingKey != q {
			s.Fatalf("came through %q with key %q", d.Exchange, d.RoutingKey)
		}
		s.noError("ack", d.Ack(false))
	}
	s.ready(q, 0)
}

func prefetchBounds(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 10)...)
	_, deliveries := s.consume(q, 3)
	held := s.take(deliveries, false, "m1", "m2", "m3")
	s.ready(q, 7)
	s.noError("ack", held[1].Ack(false))
	s.take(deliveries, false, "m4")
	s.ready(q, 6)
	select {
	case d := <-deliveries:
		s.Fatalf("%q came beyond the prefetch", d.Body)
	default:
	}
}

func prefetchPerConsumer(s *session) {
	q := s.queue("q", nil)
	ch := s.channel(s.conn)
	var all []<-chan amqp.Delivery
	for _, prefetch := range []int{1, 2} {
		s.noError("qos", ch.Qos(prefetch, 0, false))
		deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
		s.noError("consume", err)
		all = append(all, deliveries)
	}
	s.fill(q, numbered("m", 10)...)
	s.next(all[0])
	s.next(all[1])
	s.next(all[1])
	s.ready(q, 7)
}

func ackMultiple(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 5)...)
	ch, deliveries := s.consume(q, 0)
	held := s.take(deliveries, false, "m1", "m2", "m3", "m4", "m5")
	s.noError("ack", held[2].Ack(true))
	s.noError("close", ch.Close())
	s.holds(q, "m4", "m5")
}

func nackMultipleRequeue(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 4)...)
	_, deliveries := s.consume(q, 0)
	held := s.take(deliveries, false, "m1", "m2", "m3", "m4")
	s.noError("nack", held[2].Nack(true, true))
	s.take(deliveries, true, "m1", "m2", "m3")
}

func requeueOriginalPlace(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 5)...)
	first, second := s.get(q), s.get(q)
	s.noError("reject", first.Reject(true))
	s.ready(q, 4)
	again := s.get(q)
	if string(again.Body) != "m1" || !again.Redelivered {
		s.Fatalf("got %q redelivered %v, want m1 again", again.Body, again.Redelivered)
	}
	s.noError("nack", again.Nack(false, true))
	s.noError("nack", second.Nack(false, true))
	s.holds(q, numbered("m", 5)...)
}

func closedChannelReturns(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 6)...)
	ch, deliveries := s.consume(q, 4)
	held := s.take(deliveries, false, "m1", "m2", "m3", "m4")
	s.noError("ack", held[1].Ack(false))
	s.next(deliveries) // m5 takes its place
	s.noError("close", ch.Close())
	s.ready(q, 5)
	_, deliveries = s.consume(q, 0)
	s.take(deliveries, true, "m1", "m3", "m4", "m5")
	s.take(deliveries, false, "m6")
}

func getMessages(s *session) {
	q := s.queue("q", nil)
	if _, ok, err := s.ch.Get(q, false); ok || err != nil {
		s.Fatalf("get from an empty queue: %v, %v", ok, err)
	}
	s.fill(q, "a", "b", "c")
	d, ok, err := s.ch.Get(q, false)
	if err != nil || !ok || string(d.Body) != "a" || d.MessageCount != 2 || d.Redelivered {
		s.Fatalf("got %q, %d more, %v, %v", d.Body, d.MessageCount, ok, err)
	}
	s.noError("ack", d.Ack(false))
	d, ok, err = s.ch.Get(q, true)
	if err != nil || !ok || string(d.Body) != "b" || d.MessageCount != 1 {
		s.Fatalf("got %q, %d more, %v, %v", d.Body, d.MessageCount, ok, err)
	}
	s.holds(q, "c")
}

func automaticAcks(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 50)...)
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(1, 0, false)) // does not limit a consumer without acks
	deliveries, err := ch.Consume(q, "", true, false, false, false, nil)
	s.noError("consume", err)
	s.take(deliveries, false, numbered("m", 50)...)
	s.noError("close", ch.Close())
	s.ready(q, 0)
}

func cancelKeepsUnacked(s *session) {
	q := s.queue("q", nil)
	s.fill(q, "a", "b", "c")
	ch := s.channel(s.conn)
	s.noError("qos", ch.Qos(2, 0, false))
	deliveries, err := ch.Consume(q, "mine", false, false, false, false, nil)
	s.noError("consume", err)
	held := s.take(deliveries, false, "a", "b")
	s.noError("cancel", ch.Cancel("mine", false))
	s.noError("cancel of an unknown tag", ch.Cancel("nobody", false))
	s.ready(q, 1)
	s.noError("ack after cancel", held[0].Ack(false))
	s.noError("requeue after cancel", held[1].Reject(true))
	s.holds(q, "b", "c")
}

func deletedQueueCancels(s *session) {
	q := s.queue("q", nil)
	ch := s.channel(s.conn)
	cancelled := ch.NotifyCancel(make(chan string, 1))
	deliveries, err := ch.Consume(q, "mine", false, false, false, false, nil)
	s.noError("consume", err)
	_, err = s.ch.QueueDelete(q, false, false, false)
	s.noError("delete", err)
	select {
	case tag := <-cancelled:
		if tag != "mine" {
			s.Errorf("cancelled %q", tag)
		}
	case <-time.After(timeoutReply):
		s.Fatal("the consumer was not cancelled")
	}
	if d, ok := <-deliveries; ok {
		s.Errorf("delivery %q from a deleted queue", d.Body)
	}
	if _, err := ch.QueueDeclare(q, true, false, false, false, nil); err != nil {
		s.Errorf("the channel is not usable any more: %v", err)
	}
}

func recoverRequeues(s *session) {
	q := s.queue("q", nil)
	s.fill(q, "a", "b", "c")
	ch, deliveries := s.consume(q, 0)
	held := s.take(deliveries, false, "a", "b", "c")
	s.noError("ack", held[1].Ack(false))
	//nolint:staticcheck // deprecated by the client, still a method of the protocol
	s.noError("recover", ch.Recover(true))
	s.take(deliveries, true, "a", "c")
}

func consumersShare(s *session) {
	q := s.queue("q", nil)
	_, one := s.consume(q, 1)
	_, two := s.consume(q, 1)
	s.fill(q, "a", "b", "c")
	got := []string{string(s.next(one).Body), string(s.next(two).Body)}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b"}) {
		s.Errorf("the consumers hold %q", got)
	}
	s.ready(q, 1)
}

func bodySizes(s *session) {
	q := s.queue("q", nil)
	_, deliveries := s.consume(q, 1)
	frame := s.conn.Config.FrameSize
	for _, size := range []int{0, 1, frame - 9, frame - 8, frame - 7, 2 * (frame - 8), 1 << 20, 5 << 20} {
		body := bytes.Repeat([]byte{byte(size)}, size)
		s.publish("", q, amqp.Publishing{Body: body})
		d := s.next(deliveries)
		if !bytes.Equal(d.Body, body) {
			s.Errorf("a body of %d bytes came back with %d or with other content", size, len(d.Body))
		}
		s.noError("ack", d.Ack(false))
	}
}

func propertiesRoundTrip(s *session) {
	q := s.queue("q", nil)
	stamp := time.Unix(1_700_000_000, 0)
	sent := amqp.Publishing{
		ContentType: "application/json", ContentEncoding: "identity", DeliveryMode: 2, Priority: 7,
		CorrelationId: "c-1", ReplyTo: "answers", Expiration: "600000", MessageId: "m-1",
		Timestamp: stamp, Type: "order", UserId: "guest", AppId: "shop",
		Body: []byte("{}"),
		Headers: amqp.Table{
			"bool": true, "int8": int8(-8), "uint8": uint8(200), "int16": int16(-16), "int32": int32(-32), "int64": int64(-64),
			"float": float32(1.5), "double": 2.25, "decimal": amqp.Decimal{Scale: 2, Value: 314},
			"text": "żółw", "empty": "", "bytes": []byte{0, 255}, "time": stamp, "void": nil,
			"list":  []any{int32(1), "two", amqp.Table{"three": int64(3)}, []any{"four"}},
			"table": amqp.Table{"inner": amqp.Table{"deep": "yes"}},
		},
	}
	s.publish("", q, sent)
	d := s.get(q)
	got := amqp.Publishing{
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body, Headers: d.Headers,
	}
	for name := range sent.Headers {
		if !reflect.DeepEqual(got.Headers[name], sent.Headers[name]) {
			s.Errorf("header %s: got %#v, want %#v", name, got.Headers[name], sent.Headers[name])
		}
	}
	got.Headers, sent.Headers = nil, nil
	if !reflect.DeepEqual(got, sent) {
		s.Errorf("got %+v, want %+v", got, sent)
	}
	s.publish("", q, amqp.Publishing{Body: []byte("bare")})
	if d := s.get(q); d.Headers != nil || d.ContentType != "" || d.DeliveryMode != 0 || d.Expiration != "" || !d.Timestamp.IsZero() {
		s.Errorf("properties appeared: %+v", d)
	}
}

func purgeAndDelete(s *session) {
	q := s.queue("q", nil)
	s.fill(q, numbered("m", 5)...)
	held := s.get(q)
	n, err := s.ch.QueuePurge(q, false)
	if err != nil || n != 4 {
		s.Fatalf("purged %d, %v", n, err)
	}
	s.noError("requeue", held.Reject(true))
	s.ready(q, 1)
	n, err = s.ch.QueueDelete(q, false, false, false)
	if err != nil || n != 1 {
		s.Fatalf("deleted with %d messages, %v", n, err)
	}
	n, err = s.ch.QueueDelete(q, false, false, false)
	if err != nil || n != 0 {
		s.Fatalf("deleted again: %d, %v", n, err)
	}
}

func exclusiveQueue(s *session) {
	owner := s.dial()
	ch := s.channel(owner)
	name := s.name("mine")
	_, err := ch.QueueDeclare(name, false, false, true, false, nil)
	s.noError("declare", err)
	s.noError("publish", ch.PublishWithContext(s.Context(), "", name, false, false, message("a")))
	wantClosed(s, s.ch, 405, "cannot obtain exclusive access to locked queue '"+name+"' in vhost '/'", func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclarePassive(name, false, false, true, false, nil)
		return err
	})
	s.noError("close", owner.Close())
	if s.to.warren { // RabbitMQ 4.3 may answer before the queue has ended
		_, err = s.channel(s.conn).QueueDeclare(name, false, false, true, false, nil)
		s.noError("declare on another connection, after close-ok", err)
	}
}

func serverNamedQueue(s *session) {
	q, err := s.ch.QueueDeclare("", false, true, true, false, nil)
	s.noError("declare", err)
	if len(q.Name) <= len("amq.gen-") || q.Name[:8] != "amq.gen-" {
		s.Errorf("name %q", q.Name)
	}
	s.publish("", q.Name, message("a"))
	d, ok, err := s.ch.Get("", true) // the last declared queue of the channel
	if err != nil || !ok || string(d.Body) != "a" {
		s.Errorf("got %q, %v, %v", d.Body, ok, err)
	}
}

func priorities(s *session) {
	q := s.queue("q", amqp.Table{"x-max-priority": 10})
	for i, priority := range []uint8{1, 2, 3, 1, 20, 0} {
		m := message(numbered("m", 6)[i])
		m.Priority = priority
		s.publish("", q, m)
	}
	held := s.get(q)
	s.noError("requeue", held.Reject(true))
	s.holds(q, "m5", "m3", "m2", "m1", "m4", "m6")
}
