package process

import (
	"io"
	"net/http"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// httpPublish publishes through a node's management API and returns the answer.
func httpPublish(t *testing.T, api, exchange, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/api/exchanges/%2F/"+exchange+"/publish", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("guest", "guest")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// TestHTTPPublish shows E03: messages published with priority and delivery mode through the
// management API into queues that are exclusive, auto-delete, transient or lazy, consumed
// with a channel-wide prefetch.
func TestHTTPPublish(t *testing.T) {
	t.Parallel()
	c := sharedCluster(t, 3)
	s := at(t, c.Node(0))
	for name, q := range map[string]struct {
		durable, autoDelete, exclusive bool
		args                           amqp.Table
	}{
		"exclusive": {exclusive: true, args: amqp.Table{"x-max-priority": 10}},
		"auto":      {durable: true, autoDelete: true, args: amqp.Table{"x-max-priority": 10}},
		"transient": {autoDelete: true, args: amqp.Table{"x-max-priority": 10}},
		"lazy":      {durable: true, autoDelete: true, args: amqp.Table{"x-max-priority": 10, "x-queue-mode": "lazy"}},
	} {
		t.Run(name, func(t *testing.T) {
			queue := s.name(name)
			if _, err := s.ch.QueueDeclare(queue, q.durable, q.autoDelete, q.exclusive, false, q.args); err != nil {
				t.Fatal(err)
			}
			for _, priority := range []string{"1", "9", "5"} {
				body := `{"properties":{"delivery_mode":2,"priority":` + priority + `,"headers":{"n":1}},"routing_key":"` + queue + `","payload":"p` + priority + `","payload_encoding":"string"}`
				if status, answer := httpPublish(t, c.Node(1).HTTP(), "amq.default", body); status != 200 || answer != `{"routed":true}` {
					t.Fatalf("publish: %d %s", status, answer)
				}
			}
			ch := s.channel(s.conn)
			if err := ch.Qos(2, 0, true); err != nil {
				t.Fatal(err)
			}
			deliveries, err := ch.Consume(queue, "", false, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"p9", "p5", "p1"} {
				d := s.next(deliveries)
				if string(d.Body) != want || d.DeliveryMode != 2 || d.Headers["n"] != int64(1) {
					t.Errorf("got %q with %+v, want %q", d.Body, d.Headers, want)
				}
				if err := d.Ack(false); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	full := s.queue("full", amqp.Table{"x-max-length": 0, "x-overflow": "reject-publish"})
	for _, tc := range []struct {
		exchange, key string
		status        int
		answer        string
	}{
		{"amq.default", "nowhere", 200, `{"routed":false}`},
		{"amq.default", full, 400, "Unable to publish message. Check queue limits."},
		{"missing", "k", 404, `{"error":"not_found","reason":"exchange_not_found"}`},
	} {
		body := `{"properties":{},"routing_key":"` + tc.key + `","payload":"bQ==","payload_encoding":"base64"}`
		if status, answer := httpPublish(t, c.Node(2).HTTP(), tc.exchange, body); status != tc.status || !strings.Contains(answer, tc.answer) {
			t.Errorf("%s %s: %d %s, want %d %s", tc.exchange, tc.key, status, answer, tc.status, tc.answer)
		}
	}
}
