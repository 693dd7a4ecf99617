package process

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// rpcSettlements: deliveries come for credit only, and each kind of settlement does what it says.
func rpcSettlements(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(2), "guest", "guest")
	dead := s.queue("dead", nil)
	q := s.queue("q", amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	rpc.fill(q, "a", "b", "c", "d", "e", "f")
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, 2)
	x.next("a")
	x.next("b")
	x.settle(warrenv1.SettleKind_SETTLE_KIND_EXTEND, 1, 2)
	rpc.counts(q, 4, 2) // no more than the credit, though nothing bounds what is unsettled
	x.send(&warrenv1.ConsumeRequest{Credit: 2, Settlements: []*warrenv1.Settlement{
		{First: 1, Kind: warrenv1.SettleKind_SETTLE_KIND_ACK}, {First: 2, Kind: warrenv1.SettleKind_SETTLE_KIND_REJECT},
	}})
	x.next("c")
	x.next("d")
	if got := s.get(dead); string(got.Body) != "b" {
		t.Errorf("dead letter %q", got.Body)
	}
	x.settle(warrenv1.SettleKind_SETTLE_KIND_REQUEUE, 3, 0)
	x.settle(warrenv1.SettleKind_SETTLE_KIND_RELEASE, 4, 0)
	rpc.counts(q, 4, 0)
	x.send(&warrenv1.ConsumeRequest{Credit: 4})
	failed, released := x.next("c"), x.next("d")
	if !failed.GetRedelivered() || failed.GetDeliveryCount() != 1 || failed.GetAcquiredCount() != 1 {
		t.Errorf("a failed one: %v", failed)
	}
	if !released.GetRedelivered() || released.GetDeliveryCount() != 0 || released.GetAcquiredCount() != 1 {
		t.Errorf("a released one: %v", released)
	}
	x.next("e")
	x.next("f")
	x.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, 8) // the settled ones among them are passed over
	rpc.counts(q, 0, 0)

	rpc.fill(q, "g", "h", "i")
	x.send(&warrenv1.ConsumeRequest{Cancel: true})
	bounded := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q, Prefetch: 1}, 100)
	for i, body := range []string{"g", "h", "i"} {
		bounded.next(body)
		rpc.counts(q, uint64(2-i), 1)
		bounded.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, uint64(i+1), 0)
	}
	rpc.counts(q, 0, 0)
	rpc.fill(q, "j")
	bounded.stop()
	auto := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q, AutoAck: true}, 10)
	for auto.next("").GetMessage().GetBody()[0] != 'j' {
	}
	rpc.counts(q, 0, 0)
	auto.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, 0)
	wantCode(t, auto.ends(), codes.FailedPrecondition, "PRECONDITION_FAILED")
}

func rpcDeaths(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(1), "guest", "guest")
	dead := s.queue("dead", nil)
	q := s.queue("q", amqp.Table{"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	rpc.fill(q, "late")
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: dead}, 10)
	d := x.next("late")
	if len(d.GetDeaths()) != 1 {
		t.Fatalf("%v", d)
	}
	death := d.GetDeaths()[0]
	if death.GetQueue() != q || death.GetReason() != "expired" || death.GetCount() != 1 || !slices.Equal(death.GetRoutingKeys(), []string{q}) ||
		time.Since(time.Unix(int64(death.GetTime()), 0)).Abs() > time.Minute {
		t.Errorf("%v", death)
	}
	x.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, 0)
}

// rpcDeadClient: what a client had not settled is there again when its stream breaks off.
func rpcDeadClient(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(1), "guest", "guest")
	q := s.queue("q", nil)
	rpc.fill(q, "a", "b", "c")
	dying := rpcAt(t, c.Node(2), "guest", "guest")
	x := dying.consumer(&warrenv1.ConsumeOpen{Queue: q}, 2)
	x.next("a")
	x.next("b")
	x.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, 0)
	rpc.counts(q, 1, 1)
	if err := dying.conn.Close(); err != nil {
		t.Fatal(err)
	}
	rpc.counts(q, 2, 0)
	y := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, 2)
	if !y.next("b").GetRedelivered() || y.next("c").GetRedelivered() {
		t.Error("marks of redelivery are wrong")
	}
	// The client's end of its side comes behind its settlements.
	y.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, 2)
	if err := y.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := y.ends(); !errors.Is(err, io.EOF) {
		t.Errorf("end of the stream: %v", err)
	}
	rpc.counts(q, 0, 0)
}

func rpcConsumerEnds(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(1), "guest", "guest")
	q := s.queue("q", nil)
	rpc.fill(q, "a", "b")
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, 1)
	x.next("a")
	x.send(&warrenv1.ConsumeRequest{Cancel: true})
	if resp, err := x.stream.Recv(); err != nil || !resp.GetCancelled() {
		t.Fatalf("%v, %v", resp, err)
	}
	x.send(&warrenv1.ConsumeRequest{Credit: 1}) // gives nothing any more
	x.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, 0)
	rpc.counts(q, 1, 0)

	y := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, 1)
	y.next("b")
	if _, err := rpc.topology.DeleteQueue(rpc.ctx, &warrenv1.DeleteQueueRequest{Queue: q}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, y.ends(), codes.NotFound, "QUEUE_DELETED")

	slow := s.queue("slow", nil)
	rpc.fill(slow, "a")
	z := rpc.consumer(&warrenv1.ConsumeOpen{
		Queue: slow, Arguments: &warrenv1.Table{Fields: map[string]*warrenv1.Value{"x-consumer-timeout": numberValue(1000)}},
	}, 1)
	z.next("a")
	wantCode(t, z.ends(), codes.Aborted, "CONSUMER_TIMEOUT")
	rpc.counts(slow, 1, 0)
}

// rpcOwnQueue: a stream may bring an exclusive queue along, which ends with it.
func rpcOwnQueue(t *testing.T, c *cluster.Cluster) {
	rpc := rpcAt(t, c.Node(1), "guest", "guest")
	x := rpc.consumer(&warrenv1.ConsumeOpen{
		Declare:  &warrenv1.QueueDeclaration{Exclusive: true},
		Bindings: []*warrenv1.Binding{{Source: "amq.topic", RoutingKey: "events.#"}},
	}, 10)
	if !strings.HasPrefix(x.queue, "amq.gen-") {
		t.Errorf("name of the server's making: %q", x.queue)
	}
	m := &warrenv1.Publication{Message: &warrenv1.Message{Exchange: "amq.topic", RoutingKey: "events.a", Body: []byte("a")}, Mandatory: true}
	if _, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: m}); err != nil {
		t.Fatal(err)
	}
	x.next("a")
	other, err := rpc.consume.Consume(rpc.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Send(&warrenv1.ConsumeRequest{Open: &warrenv1.ConsumeOpen{Queue: x.queue}}); err != nil {
		t.Fatal(err)
	}
	_, err = other.Recv()
	wantCode(t, err, codes.FailedPrecondition, "RESOURCE_LOCKED")
	x.stop()
	eventually(t, func() error {
		_, err := rpc.topology.GetQueue(rpc.ctx, &warrenv1.GetQueueRequest{Queue: x.queue})
		if err == nil {
			return errors.New("the queue is still there")
		}
		return nil
	})
}

// rpcSilentClient: clients that read nothing are held to what the node may keep for them, and neither a deleted user's stream nor
// the node's end waits for them.
func rpcSilentClient(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	user := r.user("silent", ".*", ".*", ".*")
	rpc := rpcAt(t, c.Node(1), user, passwordFirst)
	look := rpcAt(t, c.Node(1), "guest", "guest")
	q := r.queue("q", nil)
	const messages, size = 64, 128 << 10
	body := strings.Repeat("b", size)
	for range messages {
		rpc.fill(q, body)
	}
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: q}, messages)
	var resp *warrenv1.GetQueueResponse
	for sent := false; ; sent = true {
		eventually(t, func() (err error) {
			if resp, err = look.topology.GetQueue(look.ctx, &warrenv1.GetQueueRequest{Queue: q}); err == nil && resp.GetQueue().GetUnacked() == 0 {
				err = errors.New("nothing is sent")
			}
			return err
		})
		if sent {
			break
		}
		time.Sleep(500 * time.Millisecond) // whatever is going to be sent
	}
	// 1 MiB of room and a batch on its way; HTTP/2 keeps some more at the client.
	if n := resp.GetQueue().GetUnacked(); n > messages/2 {
		t.Errorf("%d of %d messages of %d bytes are with a client that reads nothing", n, messages, size)
	}
	if got := scrape(t, "/metrics", c.Node(1)); got["warren_grpc_connections"] < 1 || got["warren_grpc_streams"] < 1 {
		t.Errorf("%v connections, %v streams in the metrics", got["warren_grpc_connections"], got["warren_grpc_streams"])
	}
	// Operators see it, as a connection of one channel.
	untilSays(t, c.Node(0), user+"\tgRPC\t1", "list_connections", "user", "protocol", "channels", "--quiet")
	mustCtl(t, c.Node(0), "delete_user", user)
	look.counts(q, messages, 0)
	wantCode(t, x.ends(), codes.Unavailable, "CONNECTION_FORCED")
	// What waited at its node was never sent, and comes back as it was.
	flagged := uint64(0)
	for range messages {
		if d := r.get(q); d.Redelivered {
			flagged++
		}
	}
	if n := resp.GetQueue().GetUnacked(); flagged == 0 || flagged+2 > n {
		t.Errorf("%d messages are marked as delivered before, of %d that were on their way to a client that read nothing", flagged, n)
	}
}
