package process

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/test/cluster"
)

// rpcStatus: the cluster with its nodes, and queues page by page with their counts; who sees which.
func rpcStatus(t *testing.T, c *cluster.Cluster) {
	r := &usersRig{at(t, c.Node(0)), c.Nodes()}
	rpc := rpcAt(t, c.Node(2), "guest", "guest")
	status := warrenv1.NewStatusServiceClient(rpc.conn)
	a, b := r.queue("a", nil), r.queue("b", nil)
	rpc.fill(b, "1", "2")
	prefix := r.name("")
	eventually(t, func() error { // figures may be two seconds old
		ask := &warrenv1.ListQueuesRequest{Vhost: new(""), Prefix: prefix, PageSize: 1}
		var list []*warrenv1.QueueStatus
		for {
			resp, err := status.ListQueues(rpc.ctx, ask)
			if err != nil {
				return err
			}
			list = append(list, resp.GetQueues()...)
			if ask.PageToken = resp.GetNextPageToken(); ask.PageToken == "" {
				break
			}
		}
		if len(list) != 2 {
			return fmt.Errorf("queues: %v", list)
		}
		first, second := list[0].GetQueue(), list[1].GetQueue()
		if first.GetName() != a || second.GetName() != b || first.GetState() != "running" || len(first.GetMembers()) != 3 || second.GetLeader() == "" ||
			first.GetReady() != 0 || second.GetReady() != 2 || list[1].GetMessageBytes() != 2 || list[1].GetVhost() != "/" {
			return fmt.Errorf("queues: %v", list)
		}
		return nil
	})
	eventually(t, func() error {
		resp, err := status.GetCluster(rpc.ctx, &warrenv1.GetClusterRequest{})
		if err != nil {
			return err
		}
		if resp.GetNode() != "node3" || resp.GetClusterId() == "" || resp.GetLevel() == 0 || resp.GetCatalogLeader() == "" || len(resp.GetNodes()) != 3 {
			return fmt.Errorf("cluster: %v", resp)
		}
		for i, n := range resp.GetNodes() {
			if n.GetName() != fmt.Sprint("node", i+1) || !n.GetRunning() || n.GetState() != "regular" || n.GetUse().GetMemoryLimitBytes() == 0 {
				return fmt.Errorf("node: %v", n)
			}
		}
		return nil
	})

	user := r.user("looker", "", "", "")
	looker := warrenv1.NewStatusServiceClient(rpcAt(t, c.Node(2), user, passwordFirst).conn)
	sees := func(vhost *string) (bool, error) {
		resp, err := looker.ListQueues(rpc.ctx, &warrenv1.ListQueuesRequest{Vhost: vhost, Prefix: prefix})
		return slices.ContainsFunc(resp.GetQueues(), func(q *warrenv1.QueueStatus) bool { return q.GetQueue().GetName() == a }), err
	}
	_, err := sees(nil)
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	mustCtl(t, r.nodes[2], "set_user_tags", user, "management")
	if ok, err := sees(nil); !ok || err != nil {
		t.Error(ok, err)
	}
	_, err = looker.GetCluster(rpc.ctx, &warrenv1.GetClusterRequest{})
	wantCode(t, err, codes.PermissionDenied, "ACCESS_REFUSED")
	mustCtl(t, r.nodes[2], "clear_permissions", user)
	if ok, err := sees(nil); ok || err != nil {
		t.Error(ok, err)
	}
	_, err = sees(new("/"))
	wantCode(t, err, codes.PermissionDenied, "NOT_ALLOWED")
	mustCtl(t, r.nodes[2], "set_user_tags", user, "monitoring")
	if ok, err := sees(new("/")); !ok || err != nil {
		t.Error(ok, err)
	}
}
