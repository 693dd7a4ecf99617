package ctl

import (
	"net/http"
	"strings"
	"testing"
)

func TestQuorumVerbs(t *testing.T) {
	const results = `[{"vhost":"/","name":"a","size":3,"result":"ok"},{"vhost":"v","name":"b","size":"?","result":"error: too late"}]`
	const stranger = `{"error":"not_cluster_member","reason":"node 'n9' is not a member of the cluster"}`
	const grow, shrink = "/api/queues/quorum/replicas/on/n2/grow", "/api/queues/quorum/replicas/on/n2/shrink"
	const status = `[{"Node Name":"n1","Raft State":"leader","Membership":"voter","Last Log Index":12345678,"Last Applied":9,"Commit Index":9,"Snapshot Index":0,"Term":1,` +
		`"Machine Version":2,"Lag":0,"Planned":"stays","Election":"now, after n2, which was up"},{"Node Name":"n2","Raft State":"nodedown","Membership":"","Last Log Index":"","Last Applied":"","Commit Index":"",` +
		`"Snapshot Index":"","Term":"","Machine Version":"","Lag":"","Planned":"goes"}]`
	checkVerbs(t, []verbCase{
		{
			args: []string{"grow", "n2", "all"}, method: "POST", path: grow, status: 200, answer: `[{"vhost":"/","name":"a","size":3,"result":"ok"}]`,
			body: `{"membership":"promotable","queue_pattern":".*","strategy":"all","vhost_pattern":".*"}`,
			out:  "Growing all quorum queues on n2...\nvhost\tname\tsize\tresult\n/\ta\t3\tok\n",
		},
		{
			args:   []string{"grow", "n2", "even", "--queue-pattern", "^q", "--vhost-pattern", "v", "-q", "--errors-only", "--membership", "voter"},
			method: "POST", path: grow, status: 200, answer: `[{"vhost":"/","name":"a","size":3,"result":"ok"}]`,
			body: `{"membership":"voter","queue_pattern":"^q","strategy":"even","vhost_pattern":"v"}`,
		},
		{
			args: []string{"shrink", "n2", "--errors-only"}, method: "DELETE", path: shrink, status: 200, answer: results, code: ExitSoftware,
			failed: "1 queues could not be changed",
		},
		{args: []string{"shrink", "n2", "--formatter", "json"}, method: "DELETE", path: shrink, status: 200, answer: `[]`, out: "[\n]\n"},
		{args: []string{"shrink", "n2"}, method: "DELETE", path: shrink, status: 404, answer: stranger, code: ExitData, failed: "there is no node n2"},
		{
			args: []string{"grow_to_count", "5", "even", "--queue-pattern", "^q"}, method: "POST", path: "/api/warren/replicas/grow-to-count", status: 200,
			answer: results, code: ExitSoftware, failed: "1 queues could not be changed",
			body: `{"count":5,"membership":"promotable","queue_pattern":"^q","strategy":"even","vhost_pattern":".*"}`,
			out:  "Growing even quorum queues to 5 replicas...\nvhost\tname\tsize\tresult\n/\ta\t3\tok\nv\tb\t?\terror: too late\n",
		},
		{args: []string{"grow_to_count", "0", "all"}, code: ExitUsage, failed: "count '0' is no positive number."},
		{args: []string{"grow", "n2", "odd"}, code: ExitUsage, failed: "strategy 'odd' is not recognised."},
		{args: []string{"grow", "n2"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"grow", "n2", "all", "--membership", "non_voter"}, code: ExitUsage, failed: "every replica"},
		{
			args: []string{"quorum_status", "-q", "-p", "v", "q/1"}, method: "GET", path: "/api/queues/quorum/v/q%2F1/status", status: 200, answer: status,
			out: strings.Join(statusColumns, "\t") + "\nn1\tleader\tvoter\t12345678\t9\t9\t0\t1\t2\t0\tstays\tnow, after n2, which was up\n" +
				"n2\tnodedown\t\t\t\t\t\t\t\t\tgoes\t\n",
		},
		{
			args: []string{"quorum_status", "none"}, method: "GET", path: "/api/queues/quorum/%2F/none/status", status: 404,
			answer: `{"error":"Object Not Found","reason":"Not Found"}`, code: ExitData, failed: "no queue 'none' in vhost '/'",
		},
		{
			args: []string{"transfer_leadership", "q", "n2"}, method: "PUT", path: "/api/warren/queues/%2F/q/leader", body: `{"node":"n2"}`, status: 200, answer: `{"leader":"n2"}`,
			out: "Transferring leadership of quorum queue q to node n2...\nn2\n",
		},
		{
			args: []string{"transfer_leadership", "q", "n2"}, method: "PUT", path: "/api/warren/queues/%2F/q/leader", body: `{"node":"n2"}`, status: 202,
			answer: `{"status":"under_way","reason":"it lags"}`, code: ExitTimeout, failed: "it lags",
		},
		{
			args: []string{"transfer_leadership", "q", "n2"}, method: "PUT", path: "/api/warren/queues/%2F/q/leader", body: `{"node":"n2"}`, status: 409,
			answer: `{"error":"already_leader","reason":"The target node is already the leader"}`, code: ExitSoftware, failed: "already the leader",
		},
		{args: []string{"forget_cluster_node", "n2"}, method: "DELETE", path: "/api/warren/nodes/n2", status: 204, out: "Removing node n2 from the cluster\n"},
		{args: []string{"forget_cluster_node", "-q", "n2"}, method: "DELETE", path: "/api/warren/nodes/n2", status: 202, answer: `{"status":"under_way","reason":"soon"}`, out: "soon\n"},
		{args: []string{"forget_cluster_node", "n9"}, method: "DELETE", path: "/api/warren/nodes/n9", status: 404, answer: stranger, code: ExitData, failed: "there is no node n9"},
		{
			args: []string{"forget_cluster_node", "n2"}, method: "DELETE", path: "/api/warren/nodes/n2", status: 409,
			answer: `{"error":"node_has_replicas","reason":"node 'n2' still has replicas of 3 queues"}`, code: ExitSoftware, failed: "of 3 queues",
		},
	})
}

// TestPatience has the node wait for as long as the tool does.
func TestPatience(t *testing.T) {
	for want, args := range map[string][]string{
		"60":    {"add_member", "q", "n"},
		"7":     {"delete_member", "q", "n", "-t", "7"},
		"86400": {"add_member", "q", "n", "--timeout", "0"},
		"3600":  {"shrink", "n"},
		"9":     {"grow", "n", "all", "--timeout", "9"},
	} {
		got := ""
		if code, _, failure := run(t, func(w http.ResponseWriter, r *http.Request) {
			got = r.URL.Query().Get("for")
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte("[]")) // the test sees what is missing
		}, args...); got != want {
			t.Errorf("%q: %s, want %s; %d %s", args, got, want, code, failure)
		}
	}
}
