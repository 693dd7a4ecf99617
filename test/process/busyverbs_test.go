package process

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// comeAndGo has a queue with a binding come and go until ctx ends. Replicas may be changed under it: a declaration that fails is made again.
func comeAndGo(ctx context.Context, conn *amqp.Connection, name string) {
	for ctx.Err() == nil && !conn.IsClosed() {
		ch, err := conn.Channel()
		for err == nil && ctx.Err() == nil {
			if _, err = ch.QueueDeclare(name, true, false, false, false, nil); err == nil {
				err = ch.QueueBind(name, name, "amq.topic", false, nil)
			}
			time.Sleep(20 * time.Millisecond)
			if err == nil {
				_, err = ch.QueueDelete(name, false, false, false)
			}
		}
	}
}

// TestVerbsWhileQueuesComeAndGo: what operators do with all queues, and with definitions, succeeds over HTTP and gRPC while queues, bindings and users come and go on all nodes, and lists have what was
// there all the time once.
func TestVerbsWhileQueuesComeAndGo(t *testing.T) {
	t.Parallel()
	const stay = 4
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	for i := range stay {
		plainQueue(s, fmt.Sprint("stays", i), amqp.Table{"x-queue-type": "quorum"})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	for i, n := range c.Nodes() {
		conn := at(t, n).dial()
		for j := range 2 {
			work.Go(func() { comeAndGo(ctx, conn, fmt.Sprintf("goes%d.%d", i, j)) })
		}
	}
	mustCtl(t, c.Node(0), "add_user", "leased", "secret")
	work.Go(func() {
		for ctx.Err() == nil {
			_, _, _ = ctl(t, c.Node(2), "delete_user", "leased")
			_, _, _ = ctl(t, c.Node(2), "add_user", "leased", "secret")
		}
	})
	file, third := filepath.Join(t.TempDir(), "definitions.json"), c.Node(2).Name
	mustCtl(t, c.Node(0), "export_definitions", file)
	rpc := rpcAt(t, c.Node(1), "guest", "guest")
	for range 2 {
		for _, args := range [][]string{{"shrink", third}, {"grow", third, "all"}, {"rebalance", "all"}, {"import_definitions", file}} {
			mustCtl(t, c.Node(0), args...)
			rpc.administer(stay)
		}
		if list := mustCtl(t, c.Node(1), "list_queues", "-q", "name"); strings.Count(list, "stays") != stay {
			t.Error(list)
		}
	}
}

// administer makes a user, a policy and a queue over gRPC, looks at all queues and bindings page by page, and deletes what it has made.
func (c *rpcClient) administer(stay int) {
	c.Helper()
	ok := func(what string, err error) {
		c.Helper()
		if err != nil {
			c.Fatalf("%s: %v", what, err)
		}
	}
	admin, status, me := warrenv1.NewAdminServiceClient(c.conn), warrenv1.NewStatusServiceClient(c.conn), "over gRPC"
	_, err := admin.AddUser(c.ctx, &warrenv1.AddUserRequest{Name: me, Password: &warrenv1.Password{Kind: &warrenv1.Password_Plain{Plain: "secret"}}})
	ok("add a user", err)
	_, err = admin.SetPermission(c.ctx, &warrenv1.SetPermissionRequest{Permission: &warrenv1.Permission{User: me, Read: ".*"}})
	ok("set a permission", err)
	_, err = admin.SetPolicy(c.ctx, &warrenv1.SetPolicyRequest{Policy: &warrenv1.Policy{
		Name: me, Pattern: "^goes", Definition: &warrenv1.Table{Fields: map[string]*warrenv1.Value{"max-length": numberValue(7)}},
	}})
	ok("set a policy", err)
	q := c.queue(me, nil)
	b := &warrenv1.Binding{Source: "amq.topic", Destination: q, RoutingKey: "#"}
	_, err = c.topology.Bind(c.ctx, &warrenv1.BindRequest{Binding: b})
	ok("bind", err)
	c.fill(q, "one")

	seen := map[string]int{}
	for ask := (&warrenv1.ListQueuesRequest{PageSize: 2}); ; {
		page, err := status.ListQueues(c.ctx, ask)
		ok("list queues", err)
		for _, q := range page.GetQueues() {
			seen[q.GetQueue().GetName()]++
		}
		if ask.PageToken = page.GetNextPageToken(); ask.PageToken == "" {
			break
		}
	}
	bindings := 0
	for ask := (&warrenv1.ListBindingsRequest{PageSize: 2}); ; {
		page, err := c.topology.ListBindings(c.ctx, ask)
		ok("list bindings", err)
		for _, other := range page.GetBindings() {
			if other.GetSource() == b.GetSource() && other.GetDestination() == q {
				bindings++
			}
		}
		if ask.PageToken = page.GetNextPageToken(); ask.PageToken == "" {
			break
		}
	}
	for i := range stay {
		if name := fmt.Sprint("stays", i); seen[name] != 1 {
			c.Errorf("%s is listed %d times: %v", name, seen[name], seen)
		}
	}
	if seen[q] != 1 || bindings != 1 {
		c.Errorf("%s is listed %d times, with %d bindings", q, seen[q], bindings)
	}

	purged, err := c.topology.PurgeQueue(c.ctx, &warrenv1.PurgeQueueRequest{Queue: q})
	ok("purge", err)
	if purged.GetMessages() != 1 {
		c.Errorf("%d messages were purged", purged.GetMessages())
	}
	_, err = c.topology.Unbind(c.ctx, &warrenv1.UnbindRequest{Binding: b})
	ok("unbind", err)
	_, err = c.topology.DeleteQueue(c.ctx, &warrenv1.DeleteQueueRequest{Queue: q})
	ok("delete a queue", err)
	_, err = admin.DeletePolicy(c.ctx, &warrenv1.DeletePolicyRequest{Name: me})
	ok("delete a policy", err)
	_, err = admin.DeleteUser(c.ctx, &warrenv1.DeleteUserRequest{Name: me})
	ok("delete a user", err)
}
