package rabbitconf

import (
	"maps"
	"slices"
	"strings"
)

// family is what is to be said of keys that begin alike.
type family struct {
	prefixes []string
	text     string
	todo     bool
}

var families = []family{
	{[]string{"mqtt.", "web_mqtt.", "stomp.", "web_stomp.", "stream.", "amqp1_0.", "session_max_per_connection", "link_max_per_session"}, "Warren speaks AMQP 0-9-1, and gRPC of its own", true},
	{[]string{"auth_ldap."}, "there are no logins by LDAP", true},
	{[]string{"auth_http.", "auth_cache."}, "no backend of auth_backends asks an HTTP server", false},
	{[]string{"trust_store."}, "clients' certificates are verified by authorities: tls-ca-file", true},
	{[]string{"shovel."}, "shovels are parameters: warren ctl set_parameter shovel (docs/operations.md)", true},
	{[]string{"federation.", "exchange_federation.", "queue_federation."}, "there is no federation", true},
	{[]string{"event_exchange.", "tracing."}, "watch events by the stream of the management API, and messages by traces (docs/operations.md)", true},
	{[]string{"credential_validator."}, "passwords are not checked: users are made by whoever may make them", true},
	{[]string{"message_interceptors.", "channel_interceptor."}, "there are no interceptors", true},
	{[]string{"management.cors."}, "the management API is for its own page and for programs, not for other sites' scripts", true},
	{[]string{"management.oauth_", "management.disable_basic_auth", "management.enable_uaa", "management.uaa_"}, "the page has no login at the provider; a token can be its password", true},
	{[]string{"management.restrictions."}, "what a user may change is decided by tags", true},
	{[]string{"cluster_tags.", "node_tags."}, "clusters and nodes have no tags; a node may have a zone (zone)", true},
	{[]string{"queue_types.", "exchange_types."}, "types cannot be turned off", true},
	{[]string{"runtime_parameters.limits."}, "the limits are Warren's own", false},
	{
		[]string{
			"quorum_queue.", "classic_queue.", "raft.", "metadata_store.", "mnesia_", "mirroring_", "message_store_", "queue_index_", "vhost_restart_strategy", "cluster_keepalive_interval",
			"prevent_startup_if_node_was_reset", "distribution.", "hipe_compile", "deprecated_features.", "erlang.", "sysmon_handler.", "delegate_count", "default_worker_pool_size", "background_gc_", "credentials_obfuscation.", "aws.",
		},
		"it is about how RabbitMQ works inside", false,
	},
	{
		[]string{
			"tcp_listen_options", "num_acceptors.", "socket_writer.", "reverse_dns_lookups", "handshake_timeout", "ssl_handshake_timeout", "initial_frame_max", "ranch_connection_max", "listeners.startup_delay",
			"ssl_options", "ssl_allow_poodle_attack", "amqp_client.", "amqp10_client.", "management.ssl.", "management.tcp.", "management.listener.", "prometheus.ssl.", "prometheus.tcp.", "http_dispatch.",
		},
		"Warren has its own values for sockets and TLS", false,
	},
	{
		[]string{"collect_statistics", "management_agent.", "management.", "prometheus.", "memory_monitor_interval", "vm_memory_", "motd_file"},
		"Warren has its own figures, memory limits and page, which need no such setting", false,
	},
}

// rest takes what is left.
func (t *translator) rest() {
	if name, version := t.take("product.name"), t.take("product.version"); name.Key != "" && version.Key != "" {
		t.set("amqp-product", name.Value+"/"+version.Value, name, version)
	} else {
		t.note(name, "with product.version it would be amqp-product")
		t.note(version, "with product.name it would be amqp-product")
	}
	for _, key := range slices.Sorted(maps.Keys(t.left)) {
		e := t.take(key)
		i := slices.IndexFunc(families, func(f family) bool {
			return slices.ContainsFunc(f.prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
		})
		if i < 0 {
			t.todo(e, "no such key of RabbitMQ's is known here")
			continue
		}
		t.remark(e, families[i].text, families[i].todo)
	}
}
