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

	conn, err := connectWith(n.URL(), amqp.Config{FrameSize: 8192})
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
	}
	deliveries, err := ch.Consume(last, "c", false, false, false, false, nil)
	s.noError("consume", err)
	select {
	case d := <-deliveries:
		check("deliver", d)
		s.noError("cancel", ch.Cancel("c", false))
		s.noError("requeue", d.Nack(false, true))
	case why := <-closed:
		t.Fatal(why)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
	}
	s.ready(last, 1)
	d, ok, err := ch.Get(last, false)
	if err != nil || !ok {
		t.Fatal(ok, err, <-closed)
	}
	check("get", d)
	s.noError("requeue", d.Nack(false, true))
	s.ready(last, 1)
	d, ok, err = s.ch.Get(last, true)
	if list, _ := d.Headers["x-death"].([]any); err != nil || !ok || len(list) != queues-1 {
		t.Errorf("the whole history: %v, %v, %d deaths", ok, err, len(list))
	}
}

// TestDeathOfAMessageWithLargeHeaders: a message whose headers fill the largest frame that there is, so that no death has room in it, dies and
// is delivered.
func TestDeathOfAMessageWithLargeHeaders(t *testing.T) {
	t.Parallel()
	s := at(t, startCluster(t, 1).Node(0))
	for name, headers := range map[string]amqp.Table{
		"own":  {"h": strings.Repeat("h", 130_900)},
		"keys": {"CC": manyKeys(500)},
	} {
		dead := s.queue("dead "+name, nil)
		q := s.queue("q "+name, deadTo(dead, nil))
		m := message(name)
		m.Headers = headers
		s.publish("", q, m)
		s.ready(q, 1)
		d, ok, err := s.ch.Get(q, false)
		if err != nil || !ok {
			t.Fatal(name, ok, err)
		}
		s.noError("reject", d.Reject(false))
		s.ready(dead, 1)
		d, ok, err = s.ch.Get(dead, true)
		if err != nil || !ok || len(d.Headers) < len(headers) {
			t.Fatal(name, ok, err)
		}
		list, _ := d.Headers["x-death"].([]any)
		if len(list) != map[string]int{"own": 0, "keys": 1}[name] {
			t.Errorf("%s: %d deaths", name, len(list))
		}
	}
}

// TestCountsOfAMessageWithLargeHeaders: a message whose headers fill a frame comes again, without the counts of its attempts if they have no room.
func TestCountsOfAMessageWithLargeHeaders(t *testing.T) {
	t.Parallel()
	s := at(t, startCluster(t, 1).Node(0))
	q := s.queue("q", amqp.Table{"x-queue-type": "quorum"})
	s.publish("", q, amqp.Publishing{Headers: amqp.Table{"h": strings.Repeat("h", 131_030)}, Body: []byte("m")})
	for i := range 3 {
		s.ready(q, 1)
		d, ok, err := s.ch.Get(q, false)
		if err != nil || !ok || d.Redelivered != (i > 0) {
			t.Fatal(i, ok, err, d.Redelivered)
		}
		s.noError("reject", d.Reject(true))
	}
}

// manyKeys are routing keys of 200 bytes that lead nowhere.
func manyKeys(n int) (keys []any) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%0200d", i))
	}
	return keys
}
