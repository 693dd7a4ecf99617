package ctl

import "testing"

func TestMembers(t *testing.T) {
	const missing, stranger = `{"error":"Object Not Found","reason":"Not Found"}`, `{"error":"not_cluster_member","reason":"node 'n9' is not a member of the cluster"}`
	const add, remove = "/api/queues/quorum/%2F/q%2F1/replicas/add", "/api/queues/quorum/v/q/replicas/delete"
	checkVerbs(t, []verbCase{
		{
			args: []string{"add_member", "q/1", "n2"}, method: "POST", path: add, body: `{"node":"n2"}`, status: 204,
			out: "Adding a member for queue q/1 on node n2...\n",
		},
		{args: []string{"add_member", "-q", "q/1", "n2", "--membership", "voter"}, method: "POST", path: add, body: `{"node":"n2"}`, status: 204},
		{
			args: []string{"delete_member", "--vhost", "v", "q", "n2"}, method: "DELETE", path: remove, body: `{"node":"n2"}`, status: 204,
			out: "Removing a replica of queue q on node n2...\n",
		},
		{
			args: []string{"add_member", "q/1", "n2"}, method: "POST", path: add, body: `{"node":"n2"}`, status: 202,
			answer: `{"status":"under_way","reason":"r","members":["n1","n2"]}`, code: ExitTimeout, failed: "the change goes on: queue 'q/1' in vhost '/' shall be on n1, n2",
		},
		{args: []string{"add_member", "q/1", "n9"}, method: "POST", path: add, body: `{"node":"n9"}`, status: 404, answer: stranger, code: ExitData, failed: "Error:\nnode 'n9' is not"},
		{args: []string{"add_member", "q/1", "n2"}, method: "POST", path: add, body: `{"node":"n2"}`, status: 404, answer: missing, code: ExitData, failed: "no queue 'q/1' in vhost '/'"},
		{
			args: []string{"delete_member", "-p", "v", "q", "n2"}, method: "DELETE", path: remove, body: `{"node":"n2"}`, status: 409,
			answer: `{"error":"last_node","reason":"the last member"}`, code: ExitSoftware, failed: "the last member",
		},
		{args: []string{"add_member", "q"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"delete_member", "q", "n", "m"}, code: ExitUsage, failed: "too many arguments"},
		{args: []string{"add_member", "q", "n", "--membership", "non_voter"}, code: ExitUsage, failed: "every replica becomes a voter"},
		{args: []string{"add_member", "q", "n", "--membership", "king"}, code: ExitUsage, failed: "voter status 'king' is not recognised."},
	})
}
