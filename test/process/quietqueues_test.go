package process

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestQuietQueuesKeepNoLog has a small message go through each of many queues now and then, beside a busy one: what lies between these messages in the
// log, which all queues share, does not stay in memory, also while clients hold messages.
func TestQuietQueuesKeepNoLog(t *testing.T) {
	t.Parallel()
	needWarren(t)
	const queues, size, each, growMax = 120, 256 << 10, 5, 40 << 20
	c := startCluster(t, 1)
	heap := func() (n int) {
		t.Helper()
		status, body := api(t, "GET", c.Node(0).HTTP()+"/debug/pprof/heap?gc=1&debug=1")
		found := regexp.MustCompile(`# HeapAlloc = (\d+)`).FindSubmatch(body)
		if status != http.StatusOK || found == nil {
			t.Fatalf("heap: %d", status)
		}
		n, _ = strconv.Atoi(string(found[1]))
		return n
	}
	s := at(t, c.Node(0))
	s.noError("confirms", s.ch.Confirm(false))
	publish := func(q string, size int) {
		t.Helper()
		d, err := s.ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{Body: make([]byte, size), DeliveryMode: amqp.Persistent})
		s.noError("publish", err)
		if !confirmed(t, d) {
			t.Fatal("a message was refused")
		}
	}
	busy := plainQueue(s, "busy", amqp.Table{"x-max-length": int32(4)})
	publish(busy, size)
	before := heap()
	for i := range queues {
		q := plainQueue(s, fmt.Sprint("quiet", i), nil)
		got, err := s.ch.Consume(q, "", false, false, false, false, nil)
		s.noError("consume", err)
		publish(q, 10)
		if d := s.next(got); i%2 == 0 {
			s.noError("ack", d.Ack(false))
		}
		for range each {
			publish(busy, size)
		}
	}
	if after := heap(); after-before > growMax {
		t.Errorf("the heap grew by %d MiB for %d queues", (after-before)>>20, queues)
	}
}
