package process

import (
	"fmt"
	"math/rand"
	"net/http"
	"regexp"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestWaitingLettersAreNotKept has the messages of many queues expire in another order than they came, and wait for a target that has no room: they are in the
// log, and not in memory.
func TestWaitingLettersAreNotKept(t *testing.T) {
	t.Parallel()
	needWarren(t)
	const sources, each, size, growMax = 40, 480, 4 << 10, 20 << 20
	c := startCluster(t, 1)
	s := at(t, c.Node(0))
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
	full := plainQueue(s, "full", amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	s.fill(full, "first")
	for i := range sources {
		plainQueue(s, fmt.Sprint("source", i), deadTo(full, nil))
	}
	s.noError("confirms", s.ch.Confirm(false))
	publish := func(q string) *amqp.DeferredConfirmation {
		d, err := s.ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{
			Body: make([]byte, size), DeliveryMode: amqp.Persistent, Expiration: strconv.Itoa(4000 + rand.Intn(4000)),
		})
		s.noError("publish", err)
		return d
	}
	var last *amqp.DeferredConfirmation
	for range each {
		for i := range sources {
			last = publish(fmt.Sprint("source", i))
		}
	}
	if !confirmed(t, last) {
		t.Fatal("a message was refused")
	}
	before := heap()
	for i := range sources {
		s.ready(fmt.Sprint("source", i), 0)
	}
	refused := func() float64 { return scrape(t, "/metrics", c.Node(0))["warren_transfers_refused_total"] }
	first := refused()
	s.until("they are refused", func() bool { return refused() >= first+3*sources })
	grown := 0
	eventually(t, func() error {
		if grown = heap() - before; grown > growMax {
			return fmt.Errorf("the heap grew by %d MiB for the letters of %d queues", grown>>20, sources)
		}
		return nil
	})
	t.Logf("the heap grew by %d KiB", grown>>10)
}
