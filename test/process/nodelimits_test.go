package process

import (
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/client"
	"github.com/warrenmq/warren/test/cluster"
)

// TestNodeLimits: what rabbitmq.conf bounds by connection_max, channel_max, heartbeat, max_message_size and disk_free_limit.
func TestNodeLimits(t *testing.T) {
	t.Parallel()
	needWarren(t)
	c := newCluster(t, 1, func(cfg *cluster.Config) {
		cfg.Args = append(cfg.Args, "--connection-max", "2", "--channel-max", "300", "--heartbeat", "7s", "--max-message-size", "64KiB", "--disk-free-limit", "200MiB")
	})
	startAll(t, c)
	n := c.Node(0)

	// No word of the client's own about them.
	conn, err := amqp.DialConfig(n.URL(), amqp.Config{Heartbeat: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if conn.Config.ChannelMax != 300 || conn.Config.Heartbeat != 7*time.Second {
		t.Errorf("%d channels, a heartbeat every %v", conn.Config.ChannelMax, conn.Config.Heartbeat)
	}
	s := at(t, n) // the second connection
	q := s.queue("q", nil)
	const reached = "connection refused: node connection limit (2) is reached"
	refusedOpen(t, n, reached)
	refusedOpen(t, n, reached)

	s.publish("", q, message(strings.Repeat("x", 64<<10)))
	ch := s.channel(s.conn)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	s.noError("publish", ch.PublishWithContext(t.Context(), "", q, false, false, message(strings.Repeat("x", 64<<10+1))))
	if e := <-closed; e == nil || e.Code != 406 || !strings.Contains(e.Reason, "message size 65537 is larger than configured max size 65536") {
		t.Errorf("one byte more: %v", e)
	}
	large, err := client.Dial(t.Context(), client.Config{Addrs: []string{n.GRPCAddr()}, User: "guest", Password: "guest"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = large.Close(t.Context()) }()
	if err := publishOne(t, large, q, make([]byte, 64<<10+1)); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("one byte more over gRPC: %v", err)
	}

	nodes, _ := look(t, n, "/api/nodes").([]any)
	if len(nodes) != 1 {
		t.Fatalf("the management API has %v", nodes)
	}
	if node := nodes[0].(map[string]any); node["sockets_total"] != 2.0 || node["disk_free_limit"] != float64(200<<20) {
		t.Errorf("the management API says %v sockets, %v bytes", node["sockets_total"], node["disk_free_limit"])
	}

	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	again, _ := mustDial(t, n) // one has gone, one may come
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func publishOne(t *testing.T, c *client.Client, queue string, body []byte) error {
	t.Helper()
	p, err := c.Publisher(client.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close(t.Context()) }()
	return p.Publish(t.Context(), &client.Message{RoutingKey: queue, Body: body})
}

// TestLargeMessages: messages that are larger than the default allows, by AMQP and gRPC: published, dead-lettered, kept when the leader's node is killed, brought
// to a replica that is made anew, and delivered through another node.
func TestLargeMessages(t *testing.T) {
	t.Parallel()
	needWarren(t)
	const size = 40 << 20
	c := newCluster(t, 3, func(cfg *cluster.Config) {
		cfg.Args = append(cfg.Args, "--max-message-size", "128MiB", "--repair-rate", "0")
	})
	startAll(t, c)
	s := at(t, c.Node(0))
	letters := plainQueue(s, "letters", amqp.Table{"x-queue-type": "quorum"})
	source := plainQueue(s, "source", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": letters})
	body := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(body)
	want := sha256.Sum256(body)
	same := func(how string, b []byte) {
		t.Helper()
		if len(b) != size || sha256.Sum256(b) != want {
			t.Errorf("%s: %d bytes, not the ones that were sent", how, len(b))
		}
	}

	s.publish("", source, amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent})
	rpc, err := client.Dial(t.Context(), client.Config{Addrs: []string{c.Node(1).GRPCAddr()}, User: "guest", Password: "guest", MessageBytesMax: size})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rpc.Close(t.Context()) }()
	if err := publishOne(t, rpc, source, body); err != nil {
		t.Fatalf("over gRPC: %v", err)
	}
	for range 2 {
		d := s.get(source)
		same("from the source", d.Body)
		s.noError("reject", d.Reject(false))
	}
	s.ready(letters, 2)

	leader, others := leaderOf(t, c, letters)
	mustCtl(t, leader, "delete_member", letters, others[1].Name)
	mustCtl(t, leader, "add_member", letters, others[1].Name)
	kill(t, others[0]) // so that the new one is needed
	s = at(t, others[1])
	s.publish("", letters, message("a vote"))
	d := s.get(letters)
	same("through another node", d.Body)
	if deaths, ok := d.Headers["x-death"].([]any); !ok || len(deaths) != 1 {
		t.Errorf("it died %v", d.Headers["x-death"])
	}
	s.noError("ack", d.Ack(false))
	if err := others[0].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	kill(t, leader)
	d = s.get(letters)
	same("from the next leader", d.Body)
}
