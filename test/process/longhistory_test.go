package process

import (
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestLongHistoryFitsSmallFrames: a message whose deaths do not fit a consumer's frames comes with the newest of them, and its history stays
// whole for others. RabbitMQ sends a header that is larger than what was agreed on, and many clients end.
func TestLongHistoryFitsSmallFrames(t *testing.T) {
	t.Parallel()
	n := startCluster(t, 1).Node(0)
	s := at(t, n)
	const queues = 30
	name := func(i int) string { return s.name(fmt.Sprintf("%s%02d", strings.Repeat("q", 150), i)) }
	for i := range queues {
		s.queue(fmt.Sprintf("%s%02d", strings.Repeat("q", 150), i), deadTo(name((i+1)%queues), nil))
	}
	s.publish("", name(0), message("m"))
	for i := range queues - 1 {
		s.ready(name(i), 1)
		d, ok, err := s.ch.Get(name(i), false)
		if err != nil || !ok {
			t.Fatal(i, ok, err)
		}
		s.noError("reject", d.Reject(false))
	}
	last := name(queues - 1)
	s.ready(last, 1)

	conn, err := amqp.DialConfig(n.URL(), amqp.Config{FrameSize: 8192})
	s.noError("dial", err)
	defer conn.Close()
	ch, err := conn.Channel()
	s.noError("channel", err)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	check := func(how string, d amqp.Delivery) {
		t.Helper()
		list, _ := d.Headers["x-death"].([]any)
		if len(list) < 2 || len(list) >= queues-1 {
			t.Fatalf("%s: %d deaths", how, len(list))
		}
		if newest, _ := list[0].(amqp.Table); newest["queue"] != name(queues-2) {
			t.Errorf("%s: the newest is of %v", how, newest["queue"])
		}
		if d.Headers["x-first-death-queue"] != name(0) {
			t.Errorf("%s: the first is of %v", how, d.Headers["x-first-death-queue"])
		}
		s.noError("requeue", d.Nack(false, true))
	}
	deliveries, err := ch.Consume(last, "c", false, false, false, false, nil)
	s.noError("consume", err)
	select {
	case d := <-deliveries:
		check("deliver", d)
	case why := <-closed:
		t.Fatal(why)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
	}
	s.noError("cancel", ch.Cancel("c", false))
	s.ready(last, 1)
	d, ok, err := ch.Get(last, false)
	if err != nil || !ok {
		t.Fatal(ok, err, <-closed)
	}
	check("get", d)
	s.ready(last, 1)
	d, ok, err = s.ch.Get(last, true)
	if list, _ := d.Headers["x-death"].([]any); err != nil || !ok || len(list) != queues-1 {
		t.Errorf("the whole history: %v, %v, %d deaths", ok, err, len(list))
	}
}
