package process

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

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
