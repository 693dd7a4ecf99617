package ctl

import "testing"

func TestDiagnosticVerbs(t *testing.T) {
	const leaders = "/api/health/checks/quorum-queues-without-elected-leaders/"
	const checking = "Checking for quorum queues without an elected leader ...\n"
	checkVerbs(t, []verbCase{
		{
			args: []string{"check_for_quorum_queues_without_an_elected_leader", "^a/b"}, method: "GET", path: leaders + "vhost/%2F/pattern/%5Ea%2Fb", status: 200,
			answer: `{"status":"ok"}`, out: checking + "All of these quorum queues have a leader\n",
		},
		{
			args: []string{"-q", "check_for_quorum_queues_without_an_elected_leader", "--across-all-vhosts"}, method: "GET", path: leaders + "all-vhosts", status: 503,
			answer: `{"status":"failed","reason":"r","queues":[{"readable_name":"queue 'q' in vhost '/'"}]}`, code: ExitUnavailable, failed: "queue 'q' in vhost '/' has no leader",
		},
		{
			args: []string{"-q", "check_if_metadata_store_is_initialized"}, method: "GET", path: "/api/health/checks/metadata-store/initialized", status: 503,
			answer: `{"status":"failed","reason":"no leader"}`, code: ExitUnavailable, failed: "no leader",
		},
		{args: []string{"-q", "check_if_any_deprecated_features_are_used"}, method: "GET", path: "/api/deprecated-features/used", status: 200, answer: `[]`, out: "No deprecated features are used\n"},
		{
			args: []string{"-q", "check_if_any_deprecated_features_are_used"}, method: "GET", path: "/api/deprecated-features/used", status: 200, answer: `[{"name":"old"}]`,
			code: ExitUnavailable, failed: "deprecated features are used: old",
		},
		{args: []string{"-q", "list_deprecated_features"}, method: "GET", path: "/api/deprecated-features", status: 200, answer: `[]`, out: ""},
		{args: []string{"list_policies_that_match", "q", "--object-type", "user"}, code: ExitUsage, failed: "--object-type is queue or exchange"},
		{args: []string{"list_policies_that_match", "q"}, method: "GET", path: "/api/queues/%2F/q", status: 404, answer: `{}`, code: ExitData, failed: "no queue 'q' in vhost '/'"},
		{args: []string{"enable_vhost_deletion_protection", "v"}, method: "POST", path: "/api/vhosts/v/deletion/protection", status: 204, out: "Protecting virtual host \"v\" from deletion ...\n"},
		{args: []string{"-q", "disable_vhost_deletion_protection", "v"}, method: "DELETE", path: "/api/vhosts/v/deletion/protection", status: 404, answer: `{}`, code: ExitData, failed: "v"},
		{args: []string{"update_vhost_metadata", "v"}, code: ExitUsage, failed: "nothing to change"},
		{args: []string{"update_vhost_metadata", "v", "--tags", "a"}, method: "PATCH", path: "/api/warren/vhosts/v", body: `{"tags":"a"}`, status: 404, answer: `{}`, code: ExitData, failed: "v"},
		{args: []string{"alarms"}, code: ExitUsage, failed: "Command 'alarms' is RabbitMQ's: use check_alarms, or status."},
	})
}
