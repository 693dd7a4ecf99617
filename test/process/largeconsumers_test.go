package process

import (
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestManyConsumersOfABacklog has the consumers of one node get at once what is more than its link holds: it comes once, and is flagged nowhere.
func TestManyConsumersOfABacklog(t *testing.T) {
	t.Parallel()
	const messages, size, connections, each = 240, 256 << 10, 6, 10
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	q := plainQueue(s, "backlog", amqp.Table{"x-queue-type": "quorum"})
	leader, others := leaderOf(t, c, q)
	verb := func(name string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, leader.HTTP()+"/api/queues/%2F/"+url.PathEscape(q)+"/"+name, nil)
		s.noError(name, err)
		req.SetBasicAuth("guest", "guest")
		resp, err := http.DefaultClient.Do(req)
		s.noError(name, err)
		if _ = resp.Body.Close(); resp.StatusCode/100 != 2 {
			t.Fatalf("%s: %s", name, resp.Status)
		}
	}
	s.noError("confirms", s.ch.Confirm(false))
	for i := range messages {
		body := make([]byte, size)
		body[0] = byte(i)
		d, err := s.ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{Body: body})
		s.noError("publish", err)
		if !confirmed(t, d) {
			t.Fatal("a message was refused")
		}
	}
	verb("pause")
	got := make(chan amqp.Delivery)
	for range connections {
		consumer := at(t, others[0])
		for range each {
			ch, err := consumer.conn.Channel()
			s.noError("channel", err)
			deliveries, err := ch.Consume(q, "", false, false, false, false, nil)
			s.noError("consume", err)
			go func() { // ends with its connection
				for d := range deliveries {
					_ = d.Ack(false)
					got <- d
				}
			}()
		}
	}
	verb("resume")
	seen := map[byte]bool{}
	for range messages {
		d := s.next(got)
		if d.Redelivered || seen[d.Body[0]] {
			t.Errorf("message %d: redelivered %v, came before: %v", d.Body[0], d.Redelivered, seen[d.Body[0]])
		}
		seen[d.Body[0]] = true
	}
	s.ready(q, 0)
}

// TestConsumersBesideLargePublishes keeps the link from a node to a queue's leader full, so that it does not take what consumers are granted, either: those of large
// messages, who need it for each, go on all the same.
func TestConsumersBesideLargePublishes(t *testing.T) {
	t.Parallel()
	const messages, size, large, publishers = 60, 1100 << 10, 12 << 20, 4
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	args := amqp.Table{"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}
	q := plainQueue(s, "consumed", args)
	leader, others := leaderOf(t, c, q)
	s.noError("confirms", s.ch.Confirm(false))
	for range messages {
		d, err := s.ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{Body: make([]byte, size)})
		s.noError("publish", err)
		if !confirmed(t, d) {
			t.Fatal("a message was refused")
		}
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	declarer := at(t, leader)
	for i := range publishers {
		flooded := plainQueue(declarer, "flooded"+strconv.Itoa(i), amqp.Table{"x-queue-type": "quorum", "x-queue-leader-locator": "client-local", "x-max-length": 1})
		p := at(t, others[0])
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := p.ch.Publish("", flooded, false, false, amqp.Publishing{Body: make([]byte, large)}); err != nil {
					t.Errorf("publish: %v", err)
					return
				}
			}
		})
	}
	_, deliveries := at(t, others[0]).consume(q, 1)
	for range messages {
		s.noError("ack", s.next(deliveries).Ack(false))
	}
	close(stop)
	group.Wait()
}
