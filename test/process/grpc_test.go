package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// TestGRPC are the promises of the gRPC API on three nodes; clients of AMQP look on.
func TestGRPC(t *testing.T) {
	t.Parallel()
	c := ctlCluster(t)
	for _, sc := range []struct {
		name string
		run  func(*testing.T, *cluster.Cluster)
	}{
		{"messages are the same over both protocols", rpcSameMessages},
		{"publish", rpcPublish},
		{"publish stream", rpcPublishStream},
		{"credit, prefetch and settlements", rpcSettlements},
		{"death history", rpcDeaths},
		{"a client that dies", rpcDeadClient},
		{"ends of a consumer", rpcConsumerEnds},
		{"a queue of a stream's own", rpcOwnQueue},
		{"topology", rpcTopology},
		{"peek and redrive", rpcMessages},
		{"policies", rpcPolicies},
		{"users", rpcUsers},
		{"requests that were kept back", rpcKeptBack},
		{"status", rpcStatus},
		{"watch", rpcWatch},
		{"watch of a virtual host that is deleted", rpcWatchedVhost},
		{"logins and permissions", rpcLogins},
		{"bad requests", rpcBadRequests},
		{"a client that reads nothing", rpcSilentClient},
	} {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			sc.run(t, c)
		})
	}
}

// rpcSameMessages passes a message with every property and every type of header from AMQP by gRPC to AMQP again.
func rpcSameMessages(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(1), "guest", "guest")
	from, to := s.queue("from", nil), s.queue("to", nil)
	headers := amqp.Table{
		"bool": true, "byte": byte(200), "int8": int8(-7), "int16": int16(-300), "int32": int32(-70000), "int64": int64(math.MinInt64), "float": float32(1.25),
		"double": math.Pi, "text": "Grüße", "no utf-8": "\xff\xfe", "bytes": []byte{0, 255}, "void": nil, "decimal": amqp.Decimal{Scale: 2, Value: 12345},
		"time": time.Unix(1_700_000_000, 0), "table": amqp.Table{"inner": amqp.Table{"deep": int64(1)}}, "array": []any{"a", int32(1), nil, amqp.Table{"k": "v"}},
	}
	m := amqp.Publishing{
		Headers: headers, ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: amqp.Persistent, Priority: 3, CorrelationId: "c", ReplyTo: "r",
		Expiration: "600000", MessageId: "\xffid", Timestamp: time.Unix(1_600_000_000, 0), Type: "t", UserId: "guest", AppId: "a", Body: []byte{0, 1, 255},
	}
	s.publish("", from, m)
	x := rpc.consumer(&warrenv1.ConsumeOpen{Queue: from}, 1)
	d := x.next("")
	if v := d.GetMessage().GetProperties().GetBinary()["message_id"]; string(v) != "\xffid" {
		t.Errorf("message id %q", v)
	}
	again := d.GetMessage()
	again.RoutingKey = to
	if _, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: &warrenv1.Publication{Message: again}}); err != nil {
		t.Fatal(err)
	}
	x.settle(warrenv1.SettleKind_SETTLE_KIND_ACK, 1, 0)
	rpc.counts(from, 0, 0)
	got := s.get(to)
	if !reflect.DeepEqual(got.Headers, headers) {
		t.Errorf("headers\n%#v, want\n%#v", got.Headers, headers)
	}
	back := amqp.Publishing{
		Headers: headers, ContentType: got.ContentType, ContentEncoding: got.ContentEncoding, DeliveryMode: got.DeliveryMode, Priority: got.Priority,
		CorrelationId: got.CorrelationId, ReplyTo: got.ReplyTo, Expiration: got.Expiration, MessageId: got.MessageId, Timestamp: got.Timestamp,
		Type: got.Type, UserId: got.UserId, AppId: got.AppId, Body: got.Body,
	}
	if !reflect.DeepEqual(back, m) {
		t.Errorf("properties\n%#v, want\n%#v", back, m)
	}
}

func rpcPublish(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(2), "guest", "guest")
	q := s.queue("q", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish", "x-deduplication-window": 60_000})
	publish := func(p *warrenv1.Publication) (*warrenv1.PublishResponse, error) {
		return rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: p})
	}
	first := forQueue(q, "one")
	first.DeduplicationId = "d1"
	for range 2 { // the second one is not stored, or the queue would refuse it
		if resp, err := publish(first); err != nil || !resp.GetRouted() {
			t.Fatalf("%v, %v", resp, err)
		}
	}
	_, err := publish(forQueue(q, "two"))
	wantCode(t, err, codes.ResourceExhausted, "REFUSED")
	_, err = publish(forQueue(s.name("nowhere"), "three"))
	wantCode(t, err, codes.FailedPrecondition, "UNROUTABLE")
	lost := forQueue(s.name("nowhere"), "four")
	lost.Mandatory = false
	if resp, err := publish(lost); err != nil || resp.GetRouted() {
		t.Errorf("%v, %v", resp, err)
	}
	_, err = publish(&warrenv1.Publication{Message: &warrenv1.Message{Exchange: s.name("no exchange")}})
	wantCode(t, err, codes.NotFound, "NOT_FOUND")
	if got := s.get(q); string(got.Body) != "one" {
		t.Errorf("%q", got.Body)
	}
	_, err = rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Vhost: "none", Publication: first})
	wantCode(t, err, codes.PermissionDenied, "NOT_ALLOWED")
}

// rpcPublishStream: every message of a stream gets its own result, whatever becomes of the others.
func rpcPublishStream(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(1), "guest", "guest")
	const messages = 3000
	q, full := s.queue("q", nil), s.queue("full", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	stream := rpc.publisher()
	results := map[uint64]*warrenv1.PublishResult{}
	want := map[uint64]warrenv1.PublishOutcome{}
	sent := make(chan error, 1)
	var all []*warrenv1.Publication
	add := func(p *warrenv1.Publication, outcome warrenv1.PublishOutcome) {
		all = append(all, p)
		want[uint64(len(all))] = outcome
	}
	for i := range messages {
		add(forQueue(q, fmt.Sprint(i)), warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED)
		switch i {
		case 10, 20:
			add(forQueue(s.name("nowhere"), "x"), warrenv1.PublishOutcome_PUBLISH_OUTCOME_UNROUTABLE)
		case 30:
			add(&warrenv1.Publication{Message: &warrenv1.Message{Exchange: s.name("no exchange")}}, warrenv1.PublishOutcome_PUBLISH_OUTCOME_FAILED)
			add(&warrenv1.Publication{Message: &warrenv1.Message{RoutingKey: strings.Repeat("k", 256)}}, warrenv1.PublishOutcome_PUBLISH_OUTCOME_FAILED)
		case 40:
			add(forQueue(full, "one"), warrenv1.PublishOutcome_PUBLISH_OUTCOME_CONFIRMED)
		case 2000:
			add(forQueue(full, "two"), warrenv1.PublishOutcome_PUBLISH_OUTCOME_REFUSED)
			add(&warrenv1.Publication{Message: &warrenv1.Message{BinaryExchange: []byte("\xff")}}, warrenv1.PublishOutcome_PUBLISH_OUTCOME_FAILED)
		}
	}
	go func() { // ends with the messages, waited for below
		var err error
		for batch := range slices.Chunk(all, 100) {
			err = errors.Join(err, stream.Send(&warrenv1.PublishStreamRequest{Publications: batch}))
		}
		sent <- errors.Join(err, stream.CloseSend())
	}()
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.GetResults() {
			for n := r.GetFirst(); n <= r.GetLast(); n++ {
				if results[n] != nil {
					t.Fatalf("second result of %d", n)
				}
				results[n] = r
			}
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if len(results) != len(all) {
		t.Fatalf("%d results of %d messages", len(results), len(all))
	}
	for n, outcome := range want {
		if results[n].GetOutcome() != outcome {
			t.Errorf("message %d: %v, want %v", n, results[n], outcome)
		}
	}
	if e := results[34].GetError(); e.GetCode() != int32(codes.NotFound) || e.GetReason() != "NOT_FOUND" || !strings.Contains(e.GetMessage(), "no exchange") {
		t.Errorf("error of a message without an exchange: %v", e)
	}
	for i := range messages {
		if got := s.get(q); string(got.Body) != fmt.Sprint(i) {
			t.Fatalf("message %d: %q", i, got.Body)
		}
	}
}

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

func rpcTopology(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(2), "guest", "guest")
	x, y, ctx := s.name("x"), s.name("y"), rpc.ctx
	declare := func(name, kind string) error {
		_, err := rpc.topology.DeclareExchange(ctx, &warrenv1.DeclareExchangeRequest{Exchange: &warrenv1.Exchange{Name: name, Type: kind, Durable: true}})
		return err
	}
	if err := errors.Join(declare(x, "topic"), declare(x, "topic"), declare(y, "fanout")); err != nil {
		t.Fatal(err)
	}
	wantCode(t, declare(x, "direct"), codes.FailedPrecondition, "PRECONDITION_FAILED")
	wantCode(t, declare(s.name("z"), "no such type"), codes.FailedPrecondition, "PRECONDITION_FAILED")
	q := rpc.queue("", map[string]*warrenv1.Value{"x-message-ttl": numberValue(100_000), "x-dead-letter-exchange": textValue(y)})
	if !strings.HasPrefix(q, "amq.gen-") {
		t.Errorf("name of the server's making: %q", q)
	}
	toQ := &warrenv1.Binding{Source: y, Destination: q}
	toY := &warrenv1.Binding{Source: x, Destination: y, DestinationKind: warrenv1.DestinationKind_DESTINATION_KIND_EXCHANGE, RoutingKey: "a.*"}
	for _, b := range []*warrenv1.Binding{toQ, toY} {
		if _, err := rpc.topology.Bind(ctx, &warrenv1.BindRequest{Binding: b}); err != nil {
			t.Fatal(err)
		}
	}
	m := &warrenv1.Publication{Message: &warrenv1.Message{Exchange: x, RoutingKey: "a.b", Body: []byte("m")}, Mandatory: true}
	if _, err := rpc.publish.Publish(ctx, &warrenv1.PublishRequest{Publication: m}); err != nil {
		t.Fatal(err)
	}
	exchanges, err := rpc.topology.ListExchanges(ctx, &warrenv1.ListExchangesRequest{})
	if err != nil || !slices.ContainsFunc(exchanges.GetExchanges(), func(e *warrenv1.Exchange) bool { return e.GetName() == x && e.GetType() == "topic" && e.GetDurable() }) {
		t.Errorf("%v, %v", exchanges, err)
	}
	bindings, err := rpc.topology.ListBindings(ctx, &warrenv1.ListBindingsRequest{Source: &x})
	if list := bindings.GetBindings(); err != nil || len(list) != 1 || list[0].GetDestination() != y || list[0].GetRoutingKey() != "a.*" {
		t.Errorf("%v, %v", bindings, err)
	}
	bindings, err = rpc.topology.ListBindings(ctx, &warrenv1.ListBindingsRequest{Queue: &q})
	if list := bindings.GetBindings(); err != nil || len(list) != 2 { // the default exchange's, too
		t.Errorf("%v, %v", bindings, err)
	}
	paged, err := rpc.topology.ListBindings(ctx, &warrenv1.ListBindingsRequest{Queue: &q, PageSize: 1})
	rest, err2 := rpc.topology.ListBindings(ctx, &warrenv1.ListBindingsRequest{Queue: &q, PageToken: paged.GetNextPageToken()})
	if both := append(paged.GetBindings(), rest.GetBindings()...); errors.Join(err, err2) != nil || len(paged.GetBindings()) != 1 || rest.GetNextPageToken() != "" ||
		!slices.EqualFunc(both, bindings.GetBindings(), func(a, b *warrenv1.Binding) bool { return a.GetSource() == b.GetSource() }) {
		t.Errorf("%v and %v, %v, %v", paged, rest, err, err2)
	}
	info, err := rpc.topology.GetQueue(ctx, &warrenv1.GetQueueRequest{Queue: q})
	if i := info.GetQueue(); err != nil || i.GetReady() != 1 || len(i.GetMembers()) != 3 || i.GetLeader() == "" || i.GetState() != "running" ||
		i.GetArguments().GetFields()["x-message-ttl"].GetInt64Value() != 100_000 {
		t.Errorf("%v, %v", info, err)
	}
	if resp, err := rpc.topology.DeclareQueue(ctx, &warrenv1.DeclareQueueRequest{Queue: &warrenv1.QueueDeclaration{Name: q}, Passive: true}); err != nil || resp.GetMessages() != 1 {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := rpc.topology.Unbind(ctx, &warrenv1.UnbindRequest{Binding: toY}); err != nil {
		t.Error(err)
	}
	_, err = rpc.publish.Publish(ctx, &warrenv1.PublishRequest{Publication: m})
	wantCode(t, err, codes.FailedPrecondition, "UNROUTABLE")
	_, err = rpc.topology.DeleteQueue(ctx, &warrenv1.DeleteQueueRequest{Queue: q, IfEmpty: true})
	wantCode(t, err, codes.FailedPrecondition, "PRECONDITION_FAILED")
	if resp, err := rpc.topology.PurgeQueue(ctx, &warrenv1.PurgeQueueRequest{Queue: q}); err != nil || resp.GetMessages() != 1 {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := rpc.topology.DeleteQueue(ctx, &warrenv1.DeleteQueueRequest{Queue: q, IfEmpty: true}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{x, y} {
		if _, err := rpc.topology.DeleteExchange(ctx, &warrenv1.DeleteExchangeRequest{Exchange: name}); err != nil {
			t.Error(err)
		}
	}
	_, err = rpc.topology.DeclareExchange(ctx, &warrenv1.DeclareExchangeRequest{Exchange: &warrenv1.Exchange{Name: x}, Passive: true})
	wantCode(t, err, codes.NotFound, "NOT_FOUND")
	_, err = rpc.topology.DeclareQueue(ctx, &warrenv1.DeclareQueueRequest{Queue: &warrenv1.QueueDeclaration{Exclusive: true}})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
}

func rpcLogins(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	user := r.user("rpc", `\.q$`, "", "")
	q := plainQueue(r.session, r.name("q"), nil)
	rpc := rpcAt(t, c.Node(1), user, passwordFirst)
	_, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: forQueue(q, "m")})
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	_, err = rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Queue: q})
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	if err == nil || !strings.Contains(err.Error(), "read access to queue '"+q+"' in vhost '/' refused for user '"+user+"'") {
		t.Errorf("words of the refusal: %v", err)
	}
	_, err = rpc.topology.GetQueue(rpc.ctx, &warrenv1.GetQueueRequest{Queue: q})
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	x, err := rpc.consume.Consume(rpc.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Send(&warrenv1.ConsumeRequest{Open: &warrenv1.ConsumeOpen{Queue: q}}); err != nil {
		t.Fatal(err)
	}
	_, err = x.Recv()
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	stream := rpc.publisher()
	if err := stream.Send(&warrenv1.PublishStreamRequest{Publications: []*warrenv1.Publication{forQueue(q, "m")}}); err != nil {
		t.Fatal(err)
	}
	if resp, err := stream.Recv(); err != nil || resp.GetResults()[0].GetError().GetReason() != "ACCESS_REFUSED" {
		t.Errorf("%v, %v", resp, err)
	}

	get := func(c *rpcClient, ctx context.Context) error {
		_, err := c.consume.Get(ctx, &warrenv1.GetRequest{Queue: q})
		return err
	}
	wantCode(t, get(rpcAt(t, c.Node(0), user, "wrong"), rpc.ctx), codes.Unauthenticated, "LOGIN_REFUSED")
	wantCode(t, get(rpcAt(t, c.Node(0), "nobody", "wrong"), rpc.ctx), codes.Unauthenticated, "LOGIN_REFUSED")
	anonymous := rpcWith(t, c.Node(0))
	wantCode(t, get(anonymous, rpc.ctx), codes.Unauthenticated, "LOGIN_REFUSED")
	for _, bad := range []string{"", "Basic", "Basic !", "Basic bm8=", "Bearer token", "Basic " + strings.Repeat("A", 8000)} {
		wantCode(t, get(anonymous, metadata.AppendToOutgoingContext(rpc.ctx, "authorization", bad)), codes.Unauthenticated, "LOGIN_REFUSED")
	}
	// Health needs no login.
	h := grpc_health_v1.NewHealthClient(anonymous.conn)
	for _, service := range []string{"", "warren.v1.PublishService", "warren.v1.ConsumeService", "warren.v1.TopologyService", "warren.v1.MessageService", "warren.v1.AdminService", "warren.v1.StatusService"} {
		resp, err := h.Check(rpc.ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, resp, err)
		}
	}
}

func rpcBadRequests(t *testing.T, c *cluster.Cluster) {
	s, rpc := at(t, c.Node(0)), rpcAt(t, c.Node(1), "guest", "guest")
	q := s.queue("q", nil)
	long := strings.Repeat("n", 256)
	_, err := rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Vhost: long, Publication: forQueue(q, "m")})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Queue: q, Count: 1001})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Queue: q, Settle: 77})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = rpc.topology.DeclareQueue(rpc.ctx, &warrenv1.DeclareQueueRequest{Queue: &warrenv1.QueueDeclaration{Name: long}})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	_, err = rpc.topology.Bind(rpc.ctx, &warrenv1.BindRequest{Binding: &warrenv1.Binding{DestinationKind: 9}})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")

	_, err = rpc.publish.Publish(metadata.AppendToOutgoingContext(rpc.ctx, "large", strings.Repeat("m", 64<<10)), &warrenv1.PublishRequest{Publication: forQueue(q, "m")})
	if err == nil {
		t.Error("64 KiB of metadata were taken")
	}
	_, err = rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: forQueue(q, "m"), Cancellable: true})
	wantCode(t, err, codes.FailedPrecondition, "PRECONDITION_FAILED")
	_, err = rpc.publish.CancelDelayed(rpc.ctx, &warrenv1.CancelDelayedRequest{Handle: []byte("no handle")})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	big := forQueue(q, strings.Repeat("b", 16<<20+1))
	_, err = rpc.publish.Publish(rpc.ctx, &warrenv1.PublishRequest{Publication: big})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")

	consume := func(requests ...*warrenv1.ConsumeRequest) error {
		stream, err := rpc.consume.Consume(rpc.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			_ = stream.Send(r) // what is wrong comes with Recv
		}
		for {
			if _, err = stream.Recv(); err != nil {
				return err
			}
		}
	}
	open := &warrenv1.ConsumeOpen{Queue: q}
	for name, requests := range map[string][]*warrenv1.ConsumeRequest{
		"not opened":     {{Credit: 1}},
		"opened twice":   {{Open: open}, {Open: open}},
		"no queue":       {{Open: &warrenv1.ConsumeOpen{}}},
		"two queues":     {{Open: &warrenv1.ConsumeOpen{Queue: q, Declare: &warrenv1.QueueDeclaration{}}}},
		"large prefetch": {{Open: &warrenv1.ConsumeOpen{Queue: q, Prefetch: 65536}}},
		"large credit":   {{Open: open, Credit: 1<<20 + 1}},
		"not delivered":  {{Open: open, Settlements: []*warrenv1.Settlement{{First: 1, Kind: warrenv1.SettleKind_SETTLE_KIND_ACK}}}},
		"not there yet":  {{Open: open, Settlements: []*warrenv1.Settlement{{First: 1, Last: 2, Kind: warrenv1.SettleKind_SETTLE_KIND_EXTEND}}}},
		"long detail":    {{Open: open, Settlements: []*warrenv1.Settlement{{First: 1, Kind: warrenv1.SettleKind_SETTLE_KIND_REJECT, Detail: long}}}},
		"detail of ack":  {{Open: open, Settlements: []*warrenv1.Settlement{{First: 1, Kind: warrenv1.SettleKind_SETTLE_KIND_ACK, Detail: "why"}}}},
		"no kind":        {{Open: open, Settlements: []*warrenv1.Settlement{{First: 1}}}},
	} {
		t.Log(name)
		wantCode(t, consume(requests...), codes.InvalidArgument, "INVALID_REQUEST")
	}
	wantCode(t, consume(&warrenv1.ConsumeRequest{Open: &warrenv1.ConsumeOpen{Queue: "amq.rabbitmq.reply-to"}}), codes.Unimplemented, "NOT_IMPLEMENTED")
	// A deadline is kept, and the message that nobody waited for any more is not lost.
	ctx, cancel := context.WithTimeout(rpc.ctx, time.Nanosecond)
	defer cancel()
	_, err = rpc.consume.Get(ctx, &warrenv1.GetRequest{Queue: q}, grpc.WaitForReady(true))
	if err == nil {
		t.Error("an expired deadline was not kept")
	}
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
