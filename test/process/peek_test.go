package process

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// seenMessage is what the tests read of a message that a look shows.
type seenMessage struct {
	ID         uint64         `json:"id"`
	Exchange   string         `json:"exchange"`
	RoutingKey string         `json:"routing_key"`
	Payload    string         `json:"payload"`
	Properties map[string]any `json:"properties"`
	Redeliver  bool           `json:"redelivered"`
	Reason     string         `json:"reason"`
	Stage      string         `json:"stage"`
	Node       string         `json:"node"`
	Deaths     []struct {
		Queue  string `json:"queue"`
		Reason string `json:"reason"`
		Count  int    `json:"count"`
	} `json:"deaths"`
}

// peekAll reads a queue through a node's HTTP API.
func peekAll(t *testing.T, n *cluster.Node, queue, parameters string) (list []seenMessage) {
	t.Helper()
	after := ""
	for {
		address := n.HTTP() + "/api/warren/queues/%2F/" + url.PathEscape(queue) + "/messages?" + parameters
		if after != "" {
			address += "&after=" + after
		}
		status, body := api(t, "GET", address)
		var page struct {
			Messages []seenMessage `json:"messages"`
			Next     string        `json:"next"`
		}
		if err := json.Unmarshal(body, &page); status != http.StatusOK || err != nil {
			t.Fatalf("%s: %d %s: %v", address, status, body, err)
		}
		list = append(list, page.Messages...)
		if after = page.Next; after == "" {
			return list
		}
	}
}

func payloads(list []seenMessage) (p []string) {
	for _, m := range list {
		p = append(p, m.Payload)
	}
	return p
}

// TestPeek looks into a queue through every node, in every state of a message, and shows
// that no client can tell.
func TestPeek(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	s := at(t, c.Node(0))
	dlq := s.queue("dead", amqp.Table{"x-queue-type": "quorum"})
	q := s.queue("work", amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq, "x-delivery-limit": 3,
	})
	bodies := numbered("m", 25)
	for i, b := range bodies {
		s.publish("", q, amqp.Publishing{MessageId: fmt.Sprint("id-", i), Body: []byte(b), DeliveryMode: 2})
	}
	t.Run("ready, by pages", func(t *testing.T) {
		for i := range 3 {
			if got := payloads(peekAll(t, c.Node(i), q, "count=4")); !slices.Equal(got, bodies) {
				t.Errorf("node %d: %v", i, got)
			}
		}
	})
	ch, deliveries := s.consume(q, 10)
	held := s.take(deliveries, false, bodies[:10]...)
	t.Run("unacked and ready", func(t *testing.T) {
		got := peekAll(t, c.Node(1), q, "state=unacked")
		if !slices.Equal(payloads(got), bodies[:10]) || got[0].Node == "" {
			t.Errorf("unacked: %+v", got)
		}
		if got := payloads(peekAll(t, c.Node(2), q, "")); !slices.Equal(got, bodies[10:]) {
			t.Errorf("ready: %v", got)
		}
	})
	// It must not be given the next ones in the place of those that it rejects.
	s.noError("cancel", ch.Cancel(held[0].ConsumerTag, false))
	for _, d := range held[:5] {
		s.noError("reject", d.Reject(false))
	}
	s.noError("close", ch.Close())
	s.ready(dlq, 5)
	t.Run("filters", func(t *testing.T) {
		for want, parameters := range map[string]string{
			"m1 m2 m3 m4 m5": "reason=rejected&reason=expired&from=" + url.QueryEscape(q) + "&newer_than=1h",
			"":               "older_than=1h",
			"m3":             "message_id=id-2",
			"m5":             "offset=4&reason=rejected&header=x-first-death-reason=rejected",
		} {
			got := peekAll(t, c.Node(1), dlq, parameters)
			if strings.Join(payloads(got), " ") != want {
				t.Errorf("%s: %v, want %q", parameters, payloads(got), want)
			}
			if len(got) > 0 && (len(got[0].Deaths) != 1 || got[0].Deaths[0].Reason != "rejected" || got[0].Deaths[0].Queue != q || got[0].Exchange != "" || got[0].RoutingKey != dlq) {
				t.Errorf("%+v", got[0])
			}
		}
	})
	t.Run("with the real tool", func(t *testing.T) {
		out := mustCtl(t, c.Node(2), "peek", "-q", dlq, "--count", "2", "--reason", "rejected")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "id\tmessage_id\t") || !strings.Contains(lines[1], "\tid-0\t") || !strings.HasSuffix(lines[2], "\t2\tm2") {
			t.Errorf("%q", out)
		}
		if code, _, failure := ctl(t, c.Node(0), "peek", "nothing"); code != 65 || !strings.Contains(failure, "no queue 'nothing'") {
			t.Errorf("no queue: %d %s", code, failure)
		}
		if code, _, failure := ctl(t, c.Node(0), "peek", dlq, "--reason", "boredom"); code != 70 || !strings.Contains(failure, "boredom") {
			t.Errorf("no reason: %d %s", code, failure)
		}
	})
	// The requeued messages are at their place with one more attempt, the others were never
	// delivered.
	_, deliveries = s.consume(q, 0)
	for i, b := range bodies[5:] {
		d := s.next(deliveries)
		if string(d.Body) != b || d.Redelivered != (i < 5) {
			t.Fatalf("delivery %d: %s, redelivered %v", i, d.Body, d.Redelivered)
		}
		if n, _ := d.Headers["x-delivery-count"].(int64); (n == 1) != (i < 5) {
			t.Errorf("delivery %d: x-delivery-count %v", i, d.Headers["x-delivery-count"])
		}
	}
}

// TestPeekParked looks at dead letters that have no route.
func TestPeekParked(t *testing.T) { // alone: what is parked tries again whenever others change exchanges or queues
	c := ctlCluster(t)
	s := at(t, c.Node(0))
	q := s.queue("stuck", amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "nowhere-" + s.id, "x-dead-letter-strategy": "at-least-once",
		"x-overflow": "reject-publish", "x-message-ttl": 20,
	})
	s.fill(q, "a", "b")
	var got []seenMessage
	s.until("the dead letters are parked", func() bool {
		got = peekAll(t, c.Node(2), q, "state=parked")
		return len(got) == 2
	}, &got)
	if !slices.Equal(payloads(got), []string{"a", "b"}) || got[0].Reason != "expired" || got[0].Stage != "parked-unrouted" {
		t.Errorf("%+v", got)
	}
	var out string // the queue's own declaration may have them looked at again a moment after it
	s.until("ctl shows both", func() bool {
		out = mustCtl(t, c.Node(1), "peek", "-s", q, "--state", "parked")
		return strings.Contains(out, "parked-unrouted") && strings.Count(out, "\n") == 2
	}, &out)
}
