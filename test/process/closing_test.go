package process

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// TestClosingQueuesAreListed: a deleted queue that has not ended is counted and listed with what keeps it: one whose dead letters find no room until there is some, and
// those of deleted delayed exchanges that lost the majority of their replicas until they end by force, over gRPC and by warren ctl.
func TestClosingQueuesAreListed(t *testing.T) {
	t.Parallel()
	needWarren(t)
	binary, err := shared.stoppable()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, 5, func(cfg *cluster.Config) { cfg.Binary = binary })
	startAll(t, c)
	asked := c.Node(0)
	closingForRoom(t, asked)

	conn, ch := mustDial(t, asked)
	var exchanges []string
	for i := range 4 {
		x := fmt.Sprintf("later%d", i)
		exchanges = append(exchanges, x)
		if err := ch.ExchangeDeclare(x, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"}); err != nil {
			t.Fatal(err)
		}
	}
	conn.Close()
	a, b, both := pairOfMost(t, c)
	if len(both) < 2 {
		t.Fatalf("%v have no two nodes together", exchanges)
	}
	for i := range 5 {
		if i != a && i != b {
			asked = c.Node(i)
		}
	}
	kill(t, c.Node(a))
	kill(t, c.Node(b))
	for _, x := range exchanges {
		deleteExchange(t, asked, x)
	}
	left := closingNames(t, asked, "minority")
	if len(left) < 2 || len(left) > len(exchanges) {
		t.Fatalf("listed are %v", left)
	}
	await(t, timeoutReply, "as many are counted", func() bool { return closingCounted(t, asked) == len(left) })
	first, second := strings.TrimPrefix(left[0], "exchange "), strings.TrimPrefix(left[1], "exchange ")

	mustCtl(t, asked, "add_user", "clerk", passwordFirst)
	mustCtl(t, asked, "set_permissions", "clerk", ".*", ".*", ".*")
	clerk, admin := rpcAt(t, asked, "clerk", passwordFirst), rpcAt(t, asked, "guest", "guest")
	req := warrenv1.DeleteQueueRequest{DelayedExchange: first, Force: true}
	_, err = clerk.topology.DeleteQueue(clerk.ctx, &req)
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	for _, bad := range []*warrenv1.DeleteQueueRequest{{DelayedExchange: first}, {DelayedExchange: first, Force: true, Queue: "q"}, {DelayedExchange: first, Force: true, IfUnused: true}} {
		_, err = admin.topology.DeleteQueue(admin.ctx, bad)
		wantCode(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	}
	// A leader that has lost its followers may take itself for one for half a minute, and is to end the queue until then.
	await(t, 3*timeoutReply, "the queues of an exchange end by force", func() bool {
		if _, err = admin.topology.DeleteQueue(admin.ctx, &req); err != nil {
			wantCode(t, err, codes.FailedPrecondition, "PRECONDITION_FAILED")
		}
		return err == nil
	})
	_, err = admin.topology.DeleteQueue(admin.ctx, &req)
	wantCode(t, err, codes.NotFound, "NOT_FOUND")
	mustCtl(t, asked, "delete_queue", second, "--force", "--delayed-exchange")
	if code, _, why := ctl(t, asked, "delete_queue", second, "--force", "--delayed-exchange"); code != 65 {
		t.Errorf("once more: exit code %d, %s", code, why)
	}
	if now := closingNames(t, asked, "minority"); !slices.Equal(now, left[2:]) {
		t.Errorf("left are %v of %v", now, left)
	}
}

// closingForRoom looks at a queue that is deleted while its dead letters find no room.
func closingForRoom(t *testing.T, n *cluster.Node) {
	s := at(t, n)
	dead := plainQueue(s, "dead", amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"})
	src := plainQueue(s, "src", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead, "x-dead-letter-on-removal": true})
	s.fill(dead, "there")
	s.fill(src, "late")
	_, err := s.ch.QueueDelete(src, false, false, false)
	s.noError("delete", err)
	await(t, timeoutReply, "the queue is listed with what it waits for", func() bool {
		out := mustCtl(t, n, "list_closing_queues", "--silent", "vhost", "name", "state", "messages_dlx", "why")
		return out == "/\tsrc\trunning\t1\ttarget dead is full\n"
	})
	if n := closingCounted(t, n); n != 1 {
		t.Errorf("%d are counted", n)
	}
	_, err = s.ch.QueuePurge(dead, false)
	s.noError("purge", err)
	await(t, timeoutReply, "the queue ends", func() bool { return closingCounted(t, n) == 0 })
	s.holds(dead, "late")
}

// pairOfMost finds two nodes on which most delayed exchanges keep messages.
func pairOfMost(t *testing.T, c *cluster.Cluster) (a, b int, both []uint64) {
	t.Helper()
	on := make([][]uint64, 5)
	await(t, timeoutReply, "the replicas are there", func() bool {
		all := 0
		for i := range on {
			on[i] = nil
			list, err := c.Node(i).ReplicaStates(t.Context())
			if err != nil {
				return false
			}
			for _, r := range list {
				if r.Queue != 0 && r.Name != "dead" { // 0 is the catalog
					on[i] = append(on[i], r.Queue)
				}
			}
			all += len(on[i])
		}
		return all == 3*4
	})
	for i := range on {
		for j := range i {
			common := slices.DeleteFunc(slices.Clone(on[i]), func(id uint64) bool { return !slices.Contains(on[j], id) })
			if len(common) > len(both) {
				a, b, both = j, i, common
			}
		}
	}
	return a, b, both
}

// deleteExchange deletes an exchange, of whose queue there may be no leader.
func deleteExchange(t *testing.T, n *cluster.Node, exchange string) {
	t.Helper()
	_, ch := mustDial(t, n)
	if err := ch.ExchangeDelete(exchange, false, false); err != nil {
		t.Fatal(err)
	}
}

// closingNames are those that are listed and in a state.
func closingNames(t *testing.T, n *cluster.Node, state string) (names []string) {
	t.Helper()
	for line := range strings.Lines(mustCtl(t, n, "list_closing_queues", "--silent", "state", "name")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), state+"\t"); ok {
			names = append(names, name)
		}
	}
	return names
}

// closingCounted is the metric.
func closingCounted(t *testing.T, n *cluster.Node) int {
	t.Helper()
	count, ok := scrape(t, "/metrics", n)["warren_queues_closing"]
	if !ok {
		t.Fatal("not counted")
	}
	return int(count)
}
