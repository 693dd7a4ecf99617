package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// rpcMessages has an operator look at dead letters page by page and send them back where they came from.
func rpcMessages(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	dead := r.queue("dead", nil)
	q := r.queue("q", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
	rpc := rpcAt(t, c.Node(1), "guest", "guest")
	messages := warrenv1.NewMessageServiceClient(rpc.conn)
	rpc.fill(q, "a", "b", "c", "d", "e")
	if _, err := rpc.consume.Get(rpc.ctx, &warrenv1.GetRequest{Queue: q, Count: 5, Settle: warrenv1.SettleKind_SETTLE_KIND_REJECT}); err != nil {
		t.Fatal(err)
	}
	rpc.counts(dead, 5, 0)
	rpc.fill(dead, "not dead")

	var bodies []string
	ask := &warrenv1.PeekRequest{Queue: dead, PageSize: 2, Filter: &warrenv1.MessageFilter{Reasons: []string{"rejected"}, FromQueue: q}, BodyBytesMax: new(uint32)}
	for {
		page, err := messages.Peek(rpc.ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.GetMessages() {
			bodies = append(bodies, fmt.Sprint(len(m.GetMessage().GetBody()), " of ", m.GetBodyBytes()))
			d := m.GetDeaths()[0]
			if len(m.GetDeaths()) != 1 || d.GetQueue() != q || d.GetReason() != "rejected" || d.GetCount() != 1 || !slices.Equal(m.GetRoutingKeys(), []string{dead}) ||
				time.Since(time.UnixMilli(int64(d.GetLastTimeMillis()))).Abs() > time.Minute {
				t.Errorf("%v", m)
			}
		}
		if ask.PageToken = page.GetNextPageToken(); ask.PageToken == "" {
			break
		}
	}
	if want := slices.Repeat([]string{"0 of 1"}, 5); !slices.Equal(bodies, want) {
		t.Errorf("%q, want %q", bodies, want)
	}
	rpc.counts(dead, 6, 0) // nothing was taken

	redrive := &warrenv1.Redrive{Filter: &warrenv1.MessageFilter{Reasons: []string{"rejected"}}}
	plan, err := messages.PlanRedrive(rpc.ctx, &warrenv1.PlanRedriveRequest{Queue: dead, Redrive: redrive})
	if to := plan.GetDestinations(); err != nil || !plan.GetComplete() || plan.GetMessages() != 5 || plan.GetLooked() != 6 || len(to) != 1 ||
		to[0].GetName() != q || to[0].GetMessages() != 5 {
		t.Errorf("%v, %v", plan, err)
	}
	if none, err := messages.GetRedrive(rpc.ctx, &warrenv1.GetRedriveRequest{Queue: dead}); err != nil || none.GetStatus().GetNumber() != 0 || none.GetStatus().GetState() != 0 {
		t.Errorf("%v, %v", none, err)
	}
	if _, err := messages.StartRedrive(rpc.ctx, &warrenv1.StartRedriveRequest{Queue: dead, Redrive: redrive}); err != nil {
		t.Fatal(err)
	}
	var st *warrenv1.RedriveStatus
	eventually(t, func() error {
		resp, err := messages.GetRedrive(rpc.ctx, &warrenv1.GetRedriveRequest{Queue: dead})
		if st = resp.GetStatus(); err == nil && st.GetState() != warrenv1.RedriveState_REDRIVE_STATE_DONE {
			err = errors.New(st.String())
		}
		return err
	})
	if st.GetMoved() != 5 || st.GetTo() != warrenv1.RedriveTo_REDRIVE_TO_LAST_QUEUE || st.GetEndedAtMillis() < st.GetStartedAtMillis() {
		t.Errorf("%v", st)
	}
	rpc.counts(q, 5, 0)
	rpc.counts(dead, 1, 0)
	if resp, err := messages.StopRedrive(rpc.ctx, &warrenv1.StopRedriveRequest{Queue: dead}); err != nil || resp.GetStatus().GetState() != warrenv1.RedriveState_REDRIVE_STATE_DONE {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := messages.ReleaseParked(rpc.ctx, &warrenv1.ReleaseParkedRequest{Queue: dead}); err != nil {
		t.Error(err)
	}
	rpcMessagesRefused(r, c, dead)
}

// rpcMessagesRefused: what takes a tag, a permission or sense.
func rpcMessagesRefused(r *usersRig, c *cluster.Cluster, queue string) {
	user := r.user("looker", "", "", `\.dead$`)
	rpc := rpcAt(r.T, c.Node(1), user, passwordFirst)
	messages := warrenv1.NewMessageServiceClient(rpc.conn)
	peek := func(vhost, queue string) error {
		_, err := messages.Peek(rpc.ctx, &warrenv1.PeekRequest{Vhost: vhost, Queue: queue})
		return err
	}
	redrive := func(to *warrenv1.Redrive) error {
		_, err := messages.StartRedrive(rpc.ctx, &warrenv1.StartRedriveRequest{Queue: queue, Redrive: to})
		return err
	}
	wantCode(r.T, peek("", queue), codes.PermissionDenied, "ACCESS_REFUSED")
	mustCtl(r.T, r.nodes[1], "set_user_tags", user, "management")
	if err := peek("", queue); err != nil {
		r.Error(err)
	}
	wantCode(r.T, peek("", r.name("other")), codes.PermissionDenied, "ACCESS_REFUSED")
	wantCode(r.T, peek("", r.name("no.dead")), codes.NotFound, "NOT_FOUND")
	wantCode(r.T, peek("none", queue), codes.PermissionDenied, "NOT_ALLOWED")
	wantCode(r.T, redrive(&warrenv1.Redrive{Discard: true}), codes.PermissionDenied, "ACCESS_REFUSED")
	mustCtl(r.T, r.nodes[1], "set_user_tags", user, "policymaker")
	err := redrive(&warrenv1.Redrive{})
	wantCode(r.T, err, codes.PermissionDenied, "ACCESS_REFUSED")
	if err == nil || !strings.Contains(err.Error(), "write access to exchange 'amq.default'") {
		r.Errorf("words of the refusal: %v", err)
	}
	wantCode(r.T, redrive(&warrenv1.Redrive{TargetQueue: "q"}), codes.InvalidArgument, "INVALID_REQUEST")
	if err := redrive(&warrenv1.Redrive{Discard: true}); err != nil {
		r.Error(err)
	}
	rpc.counts(queue, 0, 0)
	wantAudited(r.T, r.nodes[1], user, "/warren.v1.MessageService/StartRedrive", "result=done vhost=/ queue="+queue)
	wantAudited(r.T, r.nodes[1], user, "/warren.v1.MessageService/StartRedrive", "result=refused vhost=/ queue="+queue)
}

// wantAudited looks for what a user did over gRPC in a node's log.
func wantAudited(t *testing.T, n *cluster.Node, user, method, how string) {
	t.Helper()
	log, err := os.ReadFile(n.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	begin, end := " user="+user+" from=127.0.0.1:", " method=gRPC path="+method+" "+how
	for line := range strings.Lines(string(log)) {
		if _, after, ok := strings.Cut(line, begin); ok && strings.Contains(line, "msg=administration ") && strings.Contains(after, end) {
			return
		}
	}
	t.Errorf("the log has no line with %q and %q", begin, end)
}
