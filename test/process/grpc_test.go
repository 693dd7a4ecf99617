package process

import (
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
	"google.golang.org/grpc/codes"

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
