package process

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// replicaLine is a line of quorum_status.
type replicaLine struct {
	Node       string `json:"Node Name"`
	State      string `json:"Raft State"`
	Membership string `json:"Membership"`
	Lag        any    `json:"Lag"`
	Planned    string `json:"Planned"`
}

// quorumStatus is what quorum_status says through a node, by the names of nodes.
func quorumStatus(t *testing.T, n *cluster.Node, queue string) map[string]replicaLine {
	t.Helper()
	var lines []replicaLine
	if err := json.Unmarshal([]byte(mustCtl(t, n, "quorum_status", queue, "--formatter", "json")), &lines); err != nil {
		t.Fatal(err)
	}
	all := map[string]replicaLine{}
	for _, l := range lines {
		all[l.Node] = l
	}
	return all
}

// leaderIn is who leads, "" if nobody or more than one says so.
func leaderIn(all map[string]replicaLine) (leader string) {
	for name, l := range all {
		if l.State == "leader" {
			if leader != "" {
				return ""
			}
			leader = name
		}
	}
	return leader
}

// TestReplicaVerbs has an operator move replicas of a cluster of four with ctl, lose a node, and take it out.
func TestReplicaVerbs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 4)
	startAll(t, c)
	untilFlags(t, c, "enabled enabled")
	asked := c.Node(0)
	s := at(t, asked)
	quorum := amqp.Table{"x-queue-type": "quorum"}
	q := plainQueue(s, "moved", quorum)
	s.fill(q, "one", "two", "three")
	for i := range 5 {
		plainQueue(s, fmt.Sprintf("other%d", i), quorum)
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(timeoutStart); !ok(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not in time: %s; %v", what, quorumStatus(t, asked, q))
			}
		}
	}
	fails := func(code int, text string, args ...string) {
		t.Helper()
		if got, out, failure := ctl(t, asked, args...); got != code || !strings.Contains(failure, text) {
			t.Errorf("%q: exit code %d, want %d: %s %s", args, got, code, out, failure)
		}
	}

	// A fourth replica, on the node that has none.
	before, added := quorumStatus(t, asked, q), ""
	for _, n := range c.Nodes() {
		if _, ok := before[n.Name]; !ok {
			added = n.Name
		}
	}
	if len(before) != 3 || added == "" {
		t.Fatalf("the queue is on %v", before)
	}
	for range 2 { // twice is as once
		mustCtl(t, asked, "add_member", q, added)
	}
	after := quorumStatus(t, asked, q)
	if len(after) != 4 || after[added].Membership != "voter" || after[added].Planned != "stays" {
		t.Errorf("after add_member: %v", after)
	}
	until("the new replica has everything", func() bool { return fmt.Sprint(quorumStatus(t, asked, q)[added].Lag) == "0" })

	// It leads from now on, also when leaders go home.
	if out := mustCtl(t, asked, "transfer_leadership", "-q", q, added); out != added+"\n" {
		t.Errorf("transfer_leadership says %q", out)
	}
	fails(70, "already the leader", "transfer_leadership", q, added)
	time.Sleep(2 * time.Second)
	until("it leads still, or again", func() bool { return leaderIn(quorumStatus(t, asked, q)) == added })

	// One of the first three goes; it has no replica any more.
	var members []string
	for name := range before {
		if name != asked.Name {
			members = append(members, name)
		}
	}
	slices.Sort(members)
	gone, down := members[0], members[1]
	mustCtl(t, asked, "delete_member", q, gone)
	mustCtl(t, asked, "delete_member", q, gone)
	if now := quorumStatus(t, asked, q); len(now) != 3 || now[gone].Node != "" {
		t.Errorf("after delete_member: %v", now)
	}
	fails(65, "no queue 'none' in vhost '/'", "add_member", "none", added)
	fails(65, "node 'nobody' is not a member of the cluster", "add_member", q, "nobody")
	fails(70, "has no replica of queue", "transfer_leadership", q, gone)
	fails(70, "is running", "forget_cluster_node", down)

	// A node is lost.
	if err := c.ByName(down).Kill(); err != nil {
		t.Fatal(err)
	}
	until("the dead node is seen", func() bool { return quorumStatus(t, asked, q)[down].State == "nodedown" })
	until("the queue has one member less online", func() bool {
		return strings.Contains(mustCtl(t, asked, "list_queues", "-q", "name", "state", "online"), q+"\trunning\t[") &&
			!strings.Contains(mustCtl(t, asked, "list_queues", "-q", "name", "online"), down)
	})
	fails(70, "node '"+down+"' is not running", "grow", down, "all")
	fails(70, "still has replicas of", "forget_cluster_node", down)
	out := mustCtl(t, asked, "shrink", down, "-q")
	for _, line := range strings.Split(strings.TrimSpace(out), "\n")[1:] {
		if !strings.HasPrefix(line, "/\t") || !strings.HasSuffix(line, "\tok") {
			t.Errorf("shrink says %q", line)
		}
	}
	if !strings.Contains(out, "/\t"+q+"\t2\tok\n") {
		t.Errorf("shrink says\n%s", out)
	}
	mustCtl(t, asked, "forget_cluster_node", down)
	until("the cluster has three nodes and voters", func() bool {
		st := statusOf(t, asked)
		return len(st.DiskNodes) == 3 && !slices.Contains(st.DiskNodes, down) && len(st.Warren.Voters) == 3 && !slices.Contains(st.Warren.Voters, down)
	})

	// Every queue has three replicas again, on the nodes that are there.
	mustCtl(t, asked, "grow_to_count", "3", "all", "--queue-pattern", "^(moved|other)")
	for i := range 5 {
		if now := quorumStatus(t, asked, fmt.Sprintf("other%d", i)); len(now) != 3 || leaderIn(now) == "" {
			t.Errorf("other%d is on %v", i, now)
		}
	}
	var bodies []string
	for range 3 {
		bodies = append(bodies, string(s.get(q).Body))
	}
	if slices.Sort(bodies); !slices.Equal(bodies, []string{"one", "three", "two"}) {
		t.Errorf("the queue had %q", bodies)
	}

	// Two of three are lost: the queue says so, and nobody waits for it.
	for _, n := range []string{added, gone} {
		if err := c.ByName(n).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	until("the queue is a minority", func() bool {
		return strings.Contains(mustCtl(t, asked, "list_queues", "-q", "name", "state", "online"), q+"\tminority\t[\""+asked.Name+"\"]\n")
	})
}
