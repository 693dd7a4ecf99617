package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// foreign are commands of RabbitMQ's tools that cannot be here, with what there is in their place.
var foreign = map[string]string{
	"eval": "there is no Erlang here", "eval_file": "there is no Erlang here", "remote_shell": "there is no Erlang here", "erlang_cookie_hash": "there is no Erlang here: nodes know each other by certificates (docs/operations.md)",
	"force_gc": "there is no Erlang here; memory is bounded by memory-high-watermark", "runtime_thread_stats": "see /debug/pprof and /metrics", "observer": "see /metrics and the page",
	"list_hashes": "there is no decoding of encrypted settings", "list_ciphers": "TLS versions and ciphers are those of Go's standard library", "encode": "secrets are files",
	"decode": "secrets are files", "rotate_logs": "logs go to standard error", "join_cluster": "a node with --join joins by itself when it is started", "reset": "stop the node, and start it with an empty data folder",
	"force_reset": "stop the node, and start it with an empty data folder", "start_app": "start the process", "stop_app": "use drain, or stop the process", "stop": "send the process SIGTERM", "shutdown": "send the process SIGTERM",
	"force_boot": "see recover_cluster", "force_standalone_khepri_boot": "see recover_cluster", "update_cluster_nodes": "nodes find each other by gossip", "rename_cluster_node": "a node's name never changes: add one and decommission the other",
	"change_cluster_node_type": "every node keeps a copy of the catalog on disk", "sync_queue": "queues are Raft groups: see quorum_status", "cancel_sync_queue": "queues are Raft groups: see quorum_status",
	"enable": "there are no plugins", "disable": "there are no plugins", "list": "there are no plugins", "set_disk_free_limit": "it is a setting of each node, disk-free-limit (docs/operations.md)",
	"set_vm_memory_high_watermark": "memory-high-watermark is a setting", "trace_on": "see the OpenTelemetry settings and peek", "trace_off": "see the OpenTelemetry settings and peek", "node_health_check": "use check_if_node_is_ready",
	"list_node_auth_attempt_stats": "see /metrics", "reclaim_quorum_memory": "snapshots and free space are kept by the node itself", "force_checkpoint": "snapshots and free space are kept by the node itself",
	"set_global_parameter": "the one global parameter is the cluster's name: see set_cluster_name", "clear_global_parameter": "the one global parameter is the cluster's name: see set_cluster_name",
	"check_if_new_quorum_queue_replicas_have_finished_initial_sync": "see quorum_status, and check_if_node_is_ready, which waits for them",
	"reset_statistics_db": "there is no database of statistics: each node counts from its start", "restart_vhost": "virtual hosts do not fail: one that exists runs on every node",
	"list_unresponsive_queues": "see list_queues name state", "leader_health_check": "use check_for_quorum_queues_without_an_elected_leader", "metadata_store_status": "see cluster_status",
	"alarms": "use check_alarms, or status", "log_location": "logs go to standard error; see log_tail", "version": "use warren version, or server_version",
	"tls_versions": "TLS 1.2 and 1.3", "cipher_suites": "ciphers are those of Go's standard library", "certificates": "see check_certificate_expiration", "directories": "see environment, data-dir",
	"command_line_arguments": "see environment", "os_env": "see environment", "discover_peers": "nodes find each other by gossip; see cluster_status", "maybe_stuck": "see /debug/pprof/goroutine",
	"erlang_version": "there is no Erlang here", "erlang_cookie_sources": "there is no Erlang here", "schema_info": "there is no Mnesia here", "list_network_interfaces": "see listeners",
	"resolve_hostname": "use the system's tools; nodes look names up by Go's resolver", "resolver_info": "use the system's tools; nodes look names up by Go's resolver", "disable_tls_session_cache": "there is none",
	"suspend_all_listeners": "use drain", "resume_all_listeners": "use revive", "pid": "see status", "wait": "use await_startup", "autocomplete": "use completion",
	"federation_status": "there is no federation", "restart_federation_link": "there is no federation",
	"add_super_stream": "there are no streams", "delete_super_stream": "there are no streams", "stream_status": "there are no streams", "restart_stream": "there are no streams", "add_replica": "there are no streams; see add_member",
	"delete_replica": "there are no streams; see delete_member", "set_stream_retention_policy": "there are no streams", "coordinator_status": "there are no streams", "list_stream_connections": "there are no streams",
	"list_stream_consumers": "there are no streams", "list_stream_publishers": "there are no streams", "check_if_node_is_mirror_sync_critical": "nothing is mirrored: use check_if_node_is_quorum_critical",
	"check_if_cluster_has_classic_queue_mirroring_policy": "nothing is mirrored", "remove_classic_queue_mirroring_from_policies": "nothing is mirrored", "await_online_synchronized_mirror": "nothing is mirrored: use await_online_quorum_plus_one",
	"set_vhost_tags": "use update_vhost_metadata",
}

// notFound is the error for a command that does not exist among those of cmd.
func notFound(cmd *cobra.Command, name string) *Error {
	if text, ok := foreign[name]; ok {
		return usage("Command '%s' is RabbitMQ's: %s.", name, text)
	}
	return usage("Command '%s' not found.%s", name, meant(cmd, name))
}

// meant names the commands that look or begin like name, and where all are listed.
func meant(cmd *cobra.Command, name string) string {
	cmd.SuggestionsMinimumDistance = min(3, max(1, len(name)/2)) // a short name is like many
	if like := cmd.SuggestionsFor(name); len(like) > 0 {
		return " Did you mean '" + strings.Join(like, "' or '") + "'?"
	}
	return fmt.Sprintf(" See '%s --help'.", cmd.CommandPath())
}
