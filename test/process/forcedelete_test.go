package process

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/client"
	"github.com/warrenmq/warren/test/cluster"
)

// TestDeletedByForce: a queue on a node that is away for good, whose messages are to be dead-lettered before it goes and have no way, is deleted by force and
// by nothing else; its name begins anew at once, and the node that is back after all has nothing of it. It takes half a minute wherever it runs: a queue without a
// leader is waited for, 10 s until it is deleted and 10 s until it ends. The binary that can be stopped is built before that.
func TestDeletedByForce(t *testing.T) {
	t.Parallel()
	c := stoppableCluster(t)
	gone, asked := c.Node(0), c.Node(1)
	s := at(t, gone)
	args := amqp.Table{
		"x-dead-letter-exchange": "nowhere", "x-dead-letter-on-removal": true, "x-dead-letter-strategy": "at-least-once",
		"x-quorum-initial-group-size": 1, "x-queue-leader-locator": "client-local",
	}
	for _, name := range []string{"kept", "rpc", "client"} {
		s.fill(plainQueue(s, name, args), "old")
	}
	refused := func(want string, flags ...string) {
		t.Helper()
		code, _, why := ctl(t, asked, append([]string{"delete_queue", "kept"}, flags...)...)
		if code != 70 || !strings.Contains(why, want) {
			t.Errorf("%q: exit code %d, %s", flags, code, why)
		}
	}
	refused("purge this one first")
	refused("purge this one first", "--force")
	mustCtl(t, gone, "add_vhost", "left")
	mustCtl(t, gone, "set_permissions", "-p", "left", "guest", ".*", ".*", ".*")
	l := newSession(t, target{name: gone.Name, url: gone.URL() + "left", warren: true})
	l.fill(plainQueue(l, "lost", args), "old")
	kill(t, gone)
	mustCtl(t, asked, "delete_vhost", "left")
	refused("delete it by force")
	mustCtl(t, asked, "add_user", "clerk", passwordFirst)
	mustCtl(t, asked, "set_permissions", "clerk", ".*", ".*", ".*")
	mustCtl(t, asked, "set_user_tags", "clerk", "policymaker", "monitoring")
	var wg sync.WaitGroup // each takes its time
	wg.Go(func() { forcedOverGRPC(t, asked) })
	wg.Go(func() { forcedByClient(t, asked) })
	wg.Go(func() { // what is left of the vhost
		for i, want := range []int{0, 65} {
			if code, _, why := ctl(t, asked, "delete_queue", "-p", "left", "lost", "--force"); code != want {
				t.Errorf("of a deleted vhost, time %d: exit code %d, %s", i+1, code, why)
			}
		}
	})
	mustCtl(t, asked, "delete_queue", "kept", "--force")
	wg.Wait()
	other := at(t, asked)
	other.fill(plainQueue(other, "kept", nil), "new")
	start(t, gone)
	await(t, timeoutReply, "the replica goes", func() bool {
		list, err := gone.ReplicaStates(t.Context())
		replicas := 0
		for _, r := range list {
			if r.Name == "kept" {
				replicas++
			}
		}
		return err == nil && replicas == 1 // of the new queue
	})
	at(t, gone).holds("kept", "new")
}

// forcedOverGRPC deletes the queue rpc, whose node is away.
func forcedOverGRPC(t *testing.T, n *cluster.Node) {
	clerk, admin := rpcAt(t, n, "clerk", passwordFirst), rpcAt(t, n, "guest", "guest")
	req := warrenv1.DeleteQueueRequest{Queue: "rpc", Force: true}
	_, err := clerk.topology.DeleteQueue(clerk.ctx, &req)
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	_, err = admin.topology.DeleteQueue(admin.ctx, &warrenv1.DeleteQueueRequest{Queue: "rpc", Force: true, IfEmpty: true})
	wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	if _, err := admin.topology.DeleteQueue(admin.ctx, &req); err != nil {
		t.Error(err)
	}
	_, err = admin.topology.DeleteQueue(admin.ctx, &req)
	wantCode(t, err, codes.NotFound, "NOT_FOUND")
	if log, err := os.ReadFile(n.LogFile()); err != nil || !strings.Contains(string(log), "path=/warren.v1.TopologyService/DeleteQueue result=done vhost=/ queue=rpc force=true") {
		t.Errorf("the log does not have it, %v", err)
	}
}

// forcedByClient does the same with the queue client.
func forcedByClient(t *testing.T, n *cluster.Node) {
	c, err := client.Dial(t.Context(), client.Config{Addrs: []string{n.GRPCAddr()}, User: "guest", Password: "guest"})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = c.Close(t.Context()) }()
	if _, err := c.ForceDeleteQueue(t.Context(), "client"); err != nil {
		t.Error(err)
	}
	if _, err := c.ForceDeleteQueue(t.Context(), "client"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("a second time: %v", err)
	}
}
