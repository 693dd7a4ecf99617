package process

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// rpcWatcher is a stream of events.
type rpcWatcher struct {
	*rpcClient
	stream grpc.ServerStreamingClient[warrenv1.WatchResponse]
	got    []*warrenv1.Event // and not looked at yet
}

// watcher opens a stream of events, which has begun.
func (c *rpcClient) watcher(req *warrenv1.WatchRequest) *rpcWatcher {
	c.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	c.Cleanup(cancel)
	stream, err := warrenv1.NewStatusServiceClient(c.conn).Watch(ctx, req)
	if err != nil {
		c.Fatal(err)
	}
	if resp, err := stream.Recv(); err != nil || resp.GetOpened().GetNode() == "" {
		c.Fatalf("not opened: %v, %v", resp, err)
	}
	return &rpcWatcher{rpcClient: c, stream: stream}
}

// until waits for an event, past others.
func (w *rpcWatcher) until(what string, wanted func(e *warrenv1.Event) bool) {
	w.Helper()
	var passed []*warrenv1.Event
	for {
		for len(w.got) == 0 {
			resp, err := w.stream.Recv()
			if err != nil {
				w.Fatalf("waiting for %s: %v; there were %v", what, err, passed)
			}
			w.got = resp.GetEvents()
		}
		e := w.got[0]
		passed, w.got = append(passed, e), w.got[1:]
		if wanted(e) {
			return
		}
	}
}

// change waits for a change of something.
func (w *rpcWatcher) change(kind warrenv1.EventKind, action warrenv1.EventAction, name string) {
	w.Helper()
	w.until(fmt.Sprint(kind, action, name), func(e *warrenv1.Event) bool {
		return e.GetKind() == kind && e.GetAction() == action && e.GetName() == name && e.GetVhost() == "/" && e.GetTimeMillis() > 0
	})
}

// rpcWatch: who looks is told of queues and policies, of what it asks for and may know only.
func rpcWatch(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	rpc := rpcAt(t, c.Node(1), "guest", "guest")
	user := r.user("looker", "", "", "")
	looker := rpcAt(t, c.Node(1), user, passwordFirst)
	refused := func(req *warrenv1.WatchRequest, code codes.Code, reason string) {
		t.Helper()
		stream, err := warrenv1.NewStatusServiceClient(looker.conn).Watch(rpc.ctx, req)
		if err == nil {
			_, err = stream.Recv()
		}
		wantCode(t, err, code, reason)
	}
	refused(&warrenv1.WatchRequest{}, codes.PermissionDenied, "ACCESS_REFUSED")
	mustCtl(t, r.nodes[1], "set_user_tags", user, "management")
	node := []warrenv1.EventKind{warrenv1.EventKind_EVENT_KIND_NODE}
	refused(&warrenv1.WatchRequest{Kinds: node}, codes.PermissionDenied, "ACCESS_REFUSED")
	refused(&warrenv1.WatchRequest{Vhost: new("none")}, codes.PermissionDenied, "NOT_ALLOWED")
	refused(&warrenv1.WatchRequest{Kinds: []warrenv1.EventKind{11}}, codes.InvalidArgument, "INVALID_REQUEST")

	all, queues := rpc.watcher(&warrenv1.WatchRequest{}), looker.watcher(&warrenv1.WatchRequest{Kinds: []warrenv1.EventKind{warrenv1.EventKind_EVENT_KIND_QUEUE}, Vhost: new("")})
	q := r.queue("q", nil)
	created, deleted := warrenv1.EventAction_EVENT_ACTION_CREATED, warrenv1.EventAction_EVENT_ACTION_DELETED
	all.change(warrenv1.EventKind_EVENT_KIND_QUEUE, created, q)
	queues.change(warrenv1.EventKind_EVENT_KIND_QUEUE, created, q)
	admin := warrenv1.NewAdminServiceClient(rpc.conn)
	p := &warrenv1.Policy{Name: r.name("p"), Pattern: "^none", Definition: &warrenv1.Table{Fields: map[string]*warrenv1.Value{"max-length": numberValue(1)}}}
	if _, err := admin.SetPolicy(rpc.ctx, &warrenv1.SetPolicyRequest{Policy: p}); err != nil {
		t.Fatal(err)
	}
	all.change(warrenv1.EventKind_EVENT_KIND_POLICY, created, p.GetName())
	if _, err := admin.DeletePolicy(rpc.ctx, &warrenv1.DeletePolicyRequest{Name: p.GetName()}); err != nil {
		t.Fatal(err)
	}
	all.change(warrenv1.EventKind_EVENT_KIND_POLICY, deleted, p.GetName())
	if _, err := rpc.topology.DeleteQueue(rpc.ctx, &warrenv1.DeleteQueueRequest{Queue: q}); err != nil {
		t.Fatal(err)
	}
	queues.until("the queue's end", func(e *warrenv1.Event) bool {
		if e.GetKind() != warrenv1.EventKind_EVENT_KIND_QUEUE && e.GetKind() != warrenv1.EventKind_EVENT_KIND_MISSED {
			t.Errorf("nobody asked for %v", e)
		}
		return e.GetName() == q && e.GetAction() == deleted
	})
	// A user who is deleted is told nothing any more, whoever has the name then.
	mustCtl(t, r.nodes[1], "delete_user", user)
	mustCtl(t, r.nodes[1], "add_user", user, passwordFirst)
	mustCtl(t, r.nodes[1], "set_user_tags", user, "administrator")
	for {
		if _, err := queues.stream.Recv(); err != nil {
			wantCode(t, err, codes.Unauthenticated, "LOGIN_REFUSED")
			break
		}
	}
}

// rpcWatchedVhost: who could see a virtual host is told that it is deleted with its queues, although nobody may see it then.
func rpcWatchedVhost(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	user, vhost := r.user("looker", "", "", ""), r.name("v")
	mustCtl(t, r.nodes[1], "set_user_tags", user, "management")
	mustCtl(t, r.nodes[1], "add_vhost", vhost)
	mustCtl(t, r.nodes[1], "set_permissions", "-p", vhost, user, ".*", ".*", ".*")
	looker := rpcAt(t, c.Node(1), user, passwordFirst)
	q := &warrenv1.QueueDeclaration{Name: "q", Durable: true}
	if _, err := looker.topology.DeclareQueue(looker.ctx, &warrenv1.DeclareQueueRequest{Vhost: vhost, Queue: q}); err != nil {
		t.Fatal(err)
	}
	w := looker.watcher(&warrenv1.WatchRequest{
		Kinds: []warrenv1.EventKind{warrenv1.EventKind_EVENT_KIND_QUEUE, warrenv1.EventKind_EVENT_KIND_VHOST}, Vhost: &vhost,
	})
	mustCtl(t, r.nodes[0], "delete_vhost", vhost)
	gone := map[warrenv1.EventKind]bool{}
	w.until("the deletion of the queue and the virtual host", func(e *warrenv1.Event) bool {
		if e.GetVhost() == vhost && e.GetAction() == warrenv1.EventAction_EVENT_ACTION_DELETED {
			gone[e.GetKind()] = true
		}
		return len(gone) == 2
	})
}
