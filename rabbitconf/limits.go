package rabbitconf

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// messageBytesMax is the largest max-message-size of Warren's, channelsMax the number of channels that AMQP 0-9-1 can number.
const (
	messageBytesMax = 128 << 20
	channelsMax     = 65535
	frameMax        = "131072"
)

// limits are those of clients. RabbitMQ 4.3 has new names for some.
func (t *translator) limits() {
	connections, channels := t.first("max_connections", "connection_max"), t.first("max_channels_per_connection", "channel_max")
	t.set("connection-max", connections.Value, connections)
	if n, ok := t.number(channels); ok {
		if n == 0 {
			t.set("channel-max", strconv.Itoa(channelsMax), channels)
		} else {
			t.set("channel-max", strconv.Itoa(n), channels)
		}
	}
	heartbeat := t.take("heartbeat")
	if n, ok := t.number(heartbeat); ok {
		t.set("heartbeat", (time.Duration(n) * time.Second).String(), heartbeat)
	}
	largest := t.take("max_message_size")
	if n, ok := t.number(largest); ok {
		if n > messageBytesMax {
			t.todo(largest, "Warren takes messages of up to 128 MiB")
			n = messageBytesMax
		}
		t.set("max-message-size", strconv.Itoa(n), largest)
	}
	if e := t.take("frame_max"); e.Key != "" {
		if e.Value == frameMax {
			t.note(e, isDefault)
		} else {
			t.note(e, "it is 131,072; what it is makes no difference to clients")
		}
	}
	t.consumerTimeout()
	for key, text := range map[string]string{
		"vhost_max":                     "there is no limit of virtual hosts",
		"cluster_queue_limit":           "queues are limited for each virtual host: warren ctl set_vhost_limits",
		"cluster_exchange_limit":        "there is no limit of exchanges",
		"consumer_max_per_channel":      "there is no limit of consumers",
		"channel_max_per_node":          "there is no limit of channels of a node: channel-max is one of a connection, and users and virtual hosts have limits",
		"channel_tx_message_max":        "a transaction is limited by its bytes: docs/compatibility.md",
		"default_queue_type":            "set it for each virtual host: warren ctl update_vhost_metadata VHOST --default-queue-type TYPE",
		"queue_leader_locator":          "set it by a policy (queue-leader-locator); what counts without one is in docs/operations.md",
		"queue_master_locator":          "set it by a policy (queue-leader-locator); what counts without one is in docs/operations.md",
		"management.path_prefix":        "a prefix of paths is for a reverse proxy in front of Warren to take away",
		"consumer_disconnected_timeout": "messages of a consumer whose node is gone are taken back when the node's death is known, after seconds",
	} {
		t.todo(t.take(key), text)
	}
	for _, e := range t.takeAll("default_limits.vhosts.") {
		t.todo(e, "set limits for each virtual host: warren ctl set_vhost_limits")
	}
	for _, e := range t.takeAll("default_policies.operator.") {
		t.todo(e, "set it by an operator policy in each virtual host: warren ctl set_operator_policy")
	}
}

// consumerTimeout is in milliseconds there.
func (t *translator) consumerTimeout() {
	const longest = 365 * 24 * time.Hour
	e := t.take("consumer_timeout")
	if e.Value == "infinity" || e.Value == "undefined" || e.Value == "false" {
		t.set("consumer-timeout", "0s", e)
		return
	}
	if n, ok := t.number(e); ok {
		if n > int(longest/time.Millisecond) {
			n = 0 // a consumer that may take more than a year
		}
		t.set("consumer-timeout", (time.Duration(n) * time.Millisecond).String(), e)
	}
}

// resources are memory and disk.
func (t *translator) resources() {
	if e := t.take("vm_memory_high_watermark.relative"); e.Key != "" {
		if f, err := strconv.ParseFloat(e.Value, 64); err == nil && f > 0 && f <= 1 {
			t.set("memory-high-watermark", e.Value, e)
		} else {
			t.todo(e, "it is no part of the memory (0 to 1)")
		}
	}
	if e := t.take("vm_memory_high_watermark.absolute"); e.Key != "" {
		if n, ok := size(e.Value); ok {
			t.set("memory-high-watermark", strconv.FormatUint(n, 10)+"B", e)
		} else {
			t.todo(e, "it is no size")
		}
	}
	if e := t.take("disk_free_limit.absolute"); e.Key != "" {
		if n, ok := size(e.Value); ok {
			t.set("disk-free-limit", strconv.FormatUint(n, 10)+"B", e)
		} else {
			t.todo(e, "it is no size")
		}
	}
	t.todo(t.take("disk_free_limit.relative"), "it is a multiple of the machine's memory there, and would be a part of the disk here: set disk-free-limit to a size")
	t.todo(t.take("total_memory_available_override_value"), "Warren takes the memory of the machine or of its control group: set memory-high-watermark to a size")
}

// cluster is how nodes find each other.
func (t *translator) cluster() {
	const p = "cluster_formation."
	hint := t.take(p + "target_cluster_size_hint")
	expect, known := t.number(hint)
	nodes := t.takeAll(p + "classic_config.nodes.")
	dns := t.take(p + "dns.hostname")
	backend := t.take(p + "peer_discovery_backend")
	var hosts []string
	for _, e := range nodes {
		_, host, ok := strings.Cut(e.Value, "@")
		if !ok {
			t.todo(e, "it is no name of a node (NAME@HOST)")
			continue
		}
		hosts = append(hosts, host+":5682")
	}
	if len(hosts) > 0 {
		t.set("join", strings.Join(hosts, ","), nodes...)
		if !known {
			expect, known, hint = len(hosts), true, nodes[0]
		}
	} else if dns.Key != "" {
		t.set("join", dns.Value+":5682", dns)
		if !known {
			t.todo(dns, "set bootstrap-expect to the number of nodes that form the cluster")
		}
	}
	if len(hosts) > 0 || dns.Key != "" {
		from := cmp.Or(dns, append(nodes, Entry{})[0])
		t.set("gossip-addr", "0.0.0.0:5682", from)
		t.set("cluster-addr", "0.0.0.0:5681", from)
		t.todo(from, "keep the ports 5681 and 5682 in a network of the nodes' own, or encrypt them (cluster-tls, gossip-encryption)")
	}
	if known {
		t.set("bootstrap-expect", strconv.Itoa(expect), hint)
	}
	switch name := path.Ext("." + strings.TrimPrefix(strings.TrimPrefix(backend.Value, "rabbit_peer_discovery_"), "rabbitmq_peer_discovery_")); name {
	case ".", ".classic_config", ".dns":
		t.note(backend, "nothing to set: addresses and names are both for join")
	case ".k8s", ".kubernetes":
		t.todo(backend, "in Kubernetes use the chart (docs/kubernetes.md), whose nodes find each other by their service's name")
	default:
		t.todo(backend, "nodes find each other by addresses and names (join)")
	}
	for _, e := range t.takeAll(p) {
		t.note(e, "it belongs to RabbitMQ's way of finding nodes")
	}
	if e := t.take("cluster_name"); e.Key != "" {
		t.todo(e, fmt.Sprintf("once the cluster is there: warren ctl set_cluster_name %q (cluster-name is something else)", e.Value))
	}
	for _, e := range append(t.takeAll("cluster_partition_handling"), t.takeAll("net_ticktime")...) {
		t.note(e, "a minority of nodes confirms and delivers nothing until the partition ends (docs/guarantees.md)")
	}
}

// logging is on standard error.
func (t *translator) logging() {
	levels := map[string]string{"debug": "debug", "info": "info", "notice": "info", "warning": "warn", "error": "error", "critical": "error", "alert": "error", "emergency": "error", "none": "error"}
	level := t.first("log.console.level", "log.file.level", "log.default.level")
	if level.Key != "" {
		if to, ok := levels[level.Value]; ok {
			t.set("log-level", to, level)
		} else {
			t.todo(level, "it is no level")
		}
	}
	if formatter := t.first("log.console.formatter", "log.file.formatter"); formatter.Value == "json" {
		t.set("log-format", "json", formatter)
	} else {
		t.note(formatter, isDefault)
	}
	for _, e := range t.takeAll("log.") {
		t.note(e, "the log is on standard error, for whatever starts Warren to keep")
	}
}

// definitions is what is imported at the start.
func (t *translator) definitions() {
	if e := t.first("definitions.local.path", "load_definitions", "management.load_definitions"); e.Key != "" {
		t.set("load-definitions", e.Value, e)
		if path.Ext(e.Value) == "" {
			t.todo(e, "Warren loads one file, no directory")
		}
	}
	if backend := t.take("definitions.import_backend"); backend.Value == "local_filesystem" || backend.Value == "local" {
		t.note(backend, isDefault)
	} else {
		t.todo(backend, "definitions are loaded from a file: fetch it before the start, or import it with warren ctl import_definitions")
	}
	for _, e := range t.takeAll("definitions.") {
		switch {
		case strings.HasPrefix(e.Key, "definitions.tls.") || e.Key == "definitions.https.url":
			t.todo(e, "definitions are loaded from a file")
		default:
			t.note(e, "what was imported last is not imported again")
		}
	}
}
