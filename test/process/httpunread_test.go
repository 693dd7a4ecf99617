package process

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestUnreadHTTPGets: what many requests have got from a queue over HTTP, and not read, does not fill the memory of a node.
func TestUnreadHTTPGets(t *testing.T) {
	t.Parallel()
	const messages, requests, each, size = 64, 120, 8, 1 << 20
	n := startCluster(t, 1).Node(0)
	s := at(t, n)
	q := plainQueue(s, "q", nil)
	for range messages {
		s.noError("publish", s.ch.Publish("", q, false, false, amqp.Publishing{Body: []byte(strings.Repeat("x", size)), DeliveryMode: 2}))
	}
	s.ready(q, messages)
	before := residentBytes(t, n.PID(), "RssAnon:")
	body := fmt.Sprintf(`{"count": %d, "ackmode": "ack_requeue_true", "encoding": "auto"}`, each)
	most := 0
	for range requests {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.HTTP(), "http://"))
		s.noError("connect", err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /api/queues/%%2F/%s/get HTTP/1.1\r\nHost: node\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: %d\r\n\r\n%s", url.PathEscape(q), len(body), body)
		s.noError("ask", err)
		time.Sleep(50 * time.Millisecond)
		most = max(most, residentBytes(t, n.PID(), "RssAnon:")-before)
	}
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		most = max(most, residentBytes(t, n.PID(), "RssAnon:")-before)
	}
	if most > 600<<20 {
		t.Errorf("the node has grown by %d MiB", most>>20)
	}
}
