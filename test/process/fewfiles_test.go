package process

import (
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// TestFewFiles has more connections of strangers than the node may have files: they leave the log what it needs, the node lives, and clients are let in once they are gone.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	fewFiles(t, (*cluster.Node).AMQPAddr, "AMQP\x00\x00\x09\x01")
}

// TestFewFilesClusterAddress is TestFewFiles for strangers that greet the cluster address as any client of HTTP/2 does, and say nothing more.
func TestFewFilesClusterAddress(t *testing.T) {
	t.Parallel()
	fewFiles(t, (*cluster.Node).ClusterAddr, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
}

func fewFiles(t *testing.T, addr func(*cluster.Node) string, greeting string) {
	t.Helper()
	const strangers, messages = 400, 200
	c := newCluster(t, 1, func(cfg *cluster.Config) { cfg.Wrap = []string{"sh", "-c", `ulimit -n 256 && exec "$@"`, "sh"} })
	startAll(t, c)
	n := c.Node(0)
	s := at(t, n)
	q := plainQueue(s, "q", nil)
	s.noError("confirms", s.ch.Confirm(false))
	var held []net.Conn
	for range strangers {
		nc, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", addr(n))
		if err != nil {
			break // nobody accepts any more
		}
		_, _ = nc.Write([]byte(greeting)) // it may be closed already
		held = append(held, nc)
	}
	for range messages {
		d, err := s.ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{Body: make([]byte, 1<<20)})
		s.noError("publish", err)
		if !confirmed(t, d) {
			t.Fatalf("a message was not confirmed\n%s", n.LogTail())
		}
	}
	for _, nc := range held {
		_ = nc.Close()
	}
	s.until("clients are let in", func() bool {
		conn, err := connect(n.URL())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	s.ready(q, messages)
}
