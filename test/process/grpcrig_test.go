package process

import (
	"context"
	"encoding/base64"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// basicLogin are credentials of a call.
type basicLogin struct{ user, password string }

func (b basicLogin) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(b.user+":"+b.password))}, nil
}

func (basicLogin) RequireTransportSecurity() bool { return false }

// rpcClient is a client of the gRPC API of one node, for one test.
type rpcClient struct {
	*testing.T
	ctx      context.Context //nolint:containedctx // bounds everything that the test does
	conn     *grpc.ClientConn
	publish  warrenv1.PublishServiceClient
	consume  warrenv1.ConsumeServiceClient
	topology warrenv1.TopologyServiceClient
}

func rpcAt(t *testing.T, n *cluster.Node, user, password string) *rpcClient {
	t.Helper()
	return rpcWith(t, n, grpc.WithPerRPCCredentials(basicLogin{user, password}))
}

func rpcWith(t *testing.T, n *cluster.Node, options ...grpc.DialOption) *rpcClient {
	t.Helper()
	conn, err := grpc.NewClient(n.GRPCAddr(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	t.Cleanup(cancel)
	return &rpcClient{t, ctx, conn, warrenv1.NewPublishServiceClient(conn), warrenv1.NewConsumeServiceClient(conn), warrenv1.NewTopologyServiceClient(conn)}
}

// wantCode checks what a call failed with: its code and, if it is not empty, its reason.
func wantCode(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	s, _ := status.FromError(err)
	if err == nil || s.Code() != code {
		t.Errorf("got %v, want %v", err, code)
		return
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && (reason == "" || info.GetReason() == reason) {
			return
		}
	}
	if reason != "" {
		t.Errorf("%v has the details %v, want the reason %s", err, s.Details(), reason)
	}
}

// queue declares a durable queue.
func (c *rpcClient) queue(name string, args map[string]*warrenv1.Value) string {
	c.Helper()
	resp, err := c.topology.DeclareQueue(c.ctx, &warrenv1.DeclareQueueRequest{
		Queue: &warrenv1.QueueDeclaration{Name: name, Durable: true, Arguments: &warrenv1.Table{Fields: args}},
	})
	if err != nil {
		c.Fatal(err)
	}
	return resp.GetQueue()
}

func textValue(s string) *warrenv1.Value {
	return &warrenv1.Value{Kind: &warrenv1.Value_StringValue{StringValue: s}}
}

func numberValue(n int64) *warrenv1.Value {
	return &warrenv1.Value{Kind: &warrenv1.Value_Int64Value{Int64Value: n}}
}

// forQueue is a message for a queue.
func forQueue(queue, body string) *warrenv1.Publication {
	return &warrenv1.Publication{Message: &warrenv1.Message{RoutingKey: queue, Body: []byte(body)}, Mandatory: true}
}

// fill publishes messages one by one.
func (c *rpcClient) fill(queue string, bodies ...string) {
	c.Helper()
	for _, body := range bodies {
		if _, err := c.publish.Publish(c.ctx, &warrenv1.PublishRequest{Publication: forQueue(queue, body)}); err != nil {
			c.Fatal(err)
		}
	}
}

// publisher opens a stream of messages.
func (c *rpcClient) publisher() grpc.BidiStreamingClient[warrenv1.PublishStreamRequest, warrenv1.PublishStreamResponse] {
	c.Helper()
	stream, err := c.publish.PublishStream(c.ctx)
	if err != nil {
		c.Fatal(err)
	}
	if err := stream.Send(&warrenv1.PublishStreamRequest{Open: &warrenv1.PublishOpen{}}); err != nil {
		c.Fatal(err)
	}
	return stream
}

// rpcConsumer is a stream of deliveries.
type rpcConsumer struct {
	*rpcClient
	stream grpc.BidiStreamingClient[warrenv1.ConsumeRequest, warrenv1.ConsumeResponse]
	queue  string
	got    []*warrenv1.Delivery // and not taken yet
	stop   context.CancelFunc
}

// consumer opens a stream of deliveries.
func (c *rpcClient) consumer(open *warrenv1.ConsumeOpen, credit uint32) *rpcConsumer {
	c.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	c.Cleanup(cancel)
	stream, err := c.consume.Consume(ctx)
	if err != nil {
		c.Fatal(err)
	}
	x := &rpcConsumer{rpcClient: c, stream: stream, stop: cancel}
	x.send(&warrenv1.ConsumeRequest{Open: open, Credit: credit})
	resp, err := stream.Recv()
	if err != nil {
		c.Fatal(err)
	}
	if x.queue = resp.GetOpened().GetQueue(); x.queue == "" || resp.GetOpened().GetConsumerTag() == "" {
		c.Fatalf("not opened: %v", resp)
	}
	return x
}

func (x *rpcConsumer) send(req *warrenv1.ConsumeRequest) {
	x.Helper()
	if err := x.stream.Send(req); err != nil {
		_, err = x.stream.Recv()
		x.Fatal(err)
	}
}

// next waits for a delivery and checks its body, unless that is "".
func (x *rpcConsumer) next(body string) *warrenv1.Delivery {
	x.Helper()
	for len(x.got) == 0 {
		resp, err := x.stream.Recv()
		if err != nil {
			x.Fatalf("waiting for %q: %v", body, err)
		}
		x.got = append(x.got, resp.GetDeliveries()...)
	}
	d := x.got[0]
	x.got = x.got[1:]
	if got := string(d.GetMessage().GetBody()); body != "" && got != body {
		x.Fatalf("got %q, want %q", got, body)
	}
	return d
}

func (x *rpcConsumer) settle(kind warrenv1.SettleKind, first, last uint64) {
	x.Helper()
	x.send(&warrenv1.ConsumeRequest{Settlements: []*warrenv1.Settlement{{First: first, Last: last, Kind: kind}}})
}

// ends waits for the end of the stream.
func (x *rpcConsumer) ends() error {
	x.Helper()
	for {
		if _, err := x.stream.Recv(); err != nil {
			return err
		}
	}
}

// counts waits until a queue has so many ready and unsettled messages.
func (c *rpcClient) counts(queue string, ready, unacked uint64) {
	c.Helper()
	eventually(c.T, func() error {
		resp, err := c.topology.GetQueue(c.ctx, &warrenv1.GetQueueRequest{Queue: queue})
		if err != nil {
			return err
		}
		if q := resp.GetQueue(); q.GetReady() != ready || q.GetUnacked() != unacked {
			return status.Errorf(codes.Unknown, "%d ready and %d unsettled, want %d and %d", q.GetReady(), q.GetUnacked(), ready, unacked)
		}
		return nil
	})
}
