package metrics

import (
	"slices"
	"strings"
)

// def is one metric.
type def struct {
	name, help string
	kind       kind
	labels     []string
	// of is what one series tells of.
	of object
	// family is that of /metrics/detailed; "" if it is not there.
	family string
	// objectOnly: there is no sum over objects.
	objectOnly bool

	index                 int // in defs
	sum, object, detailed *form
}

// object is a kind of thing that a series tells of.
type object uint8

const (
	node object = iota
	queue
	connection
	channel
	used // an exchange that clients of the node have published to
	// exchange and vhost are the cluster's, the same on every node: in /metrics/detailed alone, for sums over nodes would be wrong.
	exchange
	vhost
)

// objectLabels are the labels by which objects are named.
var objectLabels = [...][]string{
	queue: {"vhost", "queue"}, connection: {"connection", "vhost", "user"}, channel: {"connection", "channel", "vhost", "user"}, used: {"vhost", "exchange"}, exchange: {"vhost", "exchange"}, vhost: {"vhost"},
}

// defs are all metrics, in the order of their definition.
var defs []*def

func define(d def) *def {
	labels := append(slices.Clone(objectLabels[d.of]), d.labels...)
	switch {
	case d.of == node:
		d.sum = newForm(d.name, labels)
		d.object = d.sum
	case d.of < exchange:
		d.object = newForm(d.name, labels)
		if !d.objectOnly {
			d.sum = newForm(d.name, d.labels)
		}
	}
	if d.family != "" {
		d.detailed = newForm(d.detailedName(), labels)
	}
	d.index = len(defs)
	defs = append(defs, &d)
	return &d
}

// detailedName is the name in /metrics/detailed. It is another one than in /metrics, which is scraped beside it: sums would have everything twice.
func (d *def) detailedName() string {
	if d.of >= exchange {
		return d.name
	}
	whose, name, _ := strings.Cut(d.name, "_")
	return whose + "_detailed_" + name
}

func gauge(name, help string, labels ...string) *def {
	return define(def{name: name, help: help, kind: gaugeKind, labels: labels})
}

func counter(name, help string, labels ...string) *def {
	return define(def{name: name, help: help, kind: counterKind, labels: labels})
}

// inFamily puts figures of the node into a family, too.
func inFamily(family string, d *def) *def {
	d.family = family
	defs = defs[:len(defs)-1]
	return define(*d)
}

func histogram(name, help string) *def {
	return define(def{name: name, help: help, kind: histogramKind})
}

func channelCounter(family, name, help string) *def {
	return define(def{name: name, help: help, kind: counterKind, of: channel, family: family})
}

func channelGauge(name, help string) *def {
	return define(def{name: name, help: help, kind: gaugeKind, of: channel, family: familyChannel})
}

func queueGauge(family, name, help string, labels ...string) *def {
	return define(def{name: name, help: help, kind: gaugeKind, labels: labels, of: queue, family: family})
}

func queueCounter(family, name, help string, labels ...string) *def {
	return define(def{name: name, help: help, kind: counterKind, labels: labels, of: queue, family: family})
}

// The families of /metrics/detailed.
const (
	familyCoarse    = "queue_coarse_metrics"
	familyQueue     = "queue_metrics"
	familyConsumers = "queue_consumer_count"
	familyRaft      = "ra_metrics"
	familyOutbox    = "warren_outbox"

	familyChurn            = "connection_churn_metrics"
	familyNodeCoarse       = "node_coarse_metrics"
	familyNode             = "node_metrics"
	familyConnectionCoarse = "connection_coarse_metrics"
	familyConnection       = "connection_metrics"
	familyChannel          = "channel_metrics"
	familyChannelIn        = "channel_exchange_metrics"
	familyChannelOut       = "channel_queue_metrics"
	familyDelivery         = "queue_delivery_metrics"
	familyExchange         = "exchange_metrics"
	familyVhosts           = "vhost_status"
	familyExchanges        = "exchange_names"
	familyBindings         = "exchange_bindings"
)

// The node.
var (
	identityInfo = gauge("rabbitmq_identity_info", "Node and cluster identity", "rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id", "rabbitmq_endpoint")
	buildInfo    = gauge("rabbitmq_build_info", "Version of the product, as clients are told it", "rabbitmq_version", "product_name", "product_version")

	connections       = gauge("rabbitmq_connections", "Connections open now")
	channels          = gauge("rabbitmq_channels", "Channels open now")
	consumers         = gauge("rabbitmq_consumers", "Consumers of this node's clients")
	connectionsOpened = inFamily(familyChurn, counter("rabbitmq_connections_opened_total", "Connections opened"))
	connectionsClosed = inFamily(familyChurn, counter("rabbitmq_connections_closed_total", "Connections closed"))
	channelsOpened    = inFamily(familyChurn, counter("rabbitmq_channels_opened_total", "Channels opened"))
	channelsClosed    = inFamily(familyChurn, counter("rabbitmq_channels_closed_total", "Channels closed"))
	queuesDeclared    = inFamily(familyChurn, counter("rabbitmq_queues_declared_total", "Declarations of queues that succeeded"))
	queuesCreated     = inFamily(familyChurn, counter("rabbitmq_queues_created_total", "Queues created"))
	queuesDeleted     = inFamily(familyChurn, counter("rabbitmq_queues_deleted_total", "Queues deleted that this node led"))
	queues            = gauge("rabbitmq_queues", "Queues that this node leads")

	grpcConnections       = gauge("warren_grpc_connections", "Connections of clients of the gRPC API open now; rabbitmq_connections does not have them")
	grpcStreams           = gauge("warren_grpc_streams", "Streams of gRPC clients, and calls that publish or consume, at work now")
	grpcConnectionsOpened = counter("warren_grpc_connections_opened_total", "Connections of gRPC clients opened")

	residentBytes   = inFamily(familyNodeCoarse, gauge("rabbitmq_process_resident_memory_bytes", "Memory in use, as the memory alarm counts it"))
	residentLimit   = inFamily(familyNode, gauge("rabbitmq_resident_memory_limit_bytes", "Memory high watermark"))
	openFDs         = inFamily(familyNodeCoarse, gauge("rabbitmq_process_open_fds", "Open file descriptors"))
	maxFDs          = inFamily(familyNode, gauge("rabbitmq_process_max_fds", "Limit of open file descriptors"))
	diskFree        = inFamily(familyNodeCoarse, gauge("rabbitmq_disk_space_available_bytes", "Free space on the data folder's file system"))
	diskLimit       = inFamily(familyNode, gauge("rabbitmq_disk_space_available_limit_bytes", "Free space below which the disk alarm is set"))
	alarmMemory     = gauge("rabbitmq_alarms_memory_used_watermark", "1 while the memory alarm of this node is set")
	alarmDisk       = gauge("rabbitmq_alarms_free_disk_space_watermark", "1 while the disk alarm of this node is set")
	certExpiry      = gauge("warren_certificate_expiry_seconds", "Time until the certificate in use expires, negative afterwards; use: clients or nodes", "use")
	certReloads     = counter("warren_certificate_reloads_total", "Replaced certificates, keys or authorities that were taken into use", "use")
	certFailures    = counter("warren_certificate_reload_failures_total", "Certificates, keys or authorities that were not taken into use, and files that could not be read", "use")
	loginAttempts   = counter("rabbitmq_auth_attempts_total", "Logins with a password, of clients and of the management API", "protocol")
	loginsAccepted  = counter("rabbitmq_auth_attempts_succeeded_total", "Logins that were let in", "protocol")
	loginsFailed    = counter("rabbitmq_auth_attempts_failed_total", "Logins that were refused", "protocol")
	loginsHeld      = counter("warren_logins_held_up_total", "Logins that were not looked at, because too many of the user from that address had failed", "protocol")
	passwordChecks  = counter("warren_password_checks_total", "Costly password hashes that were computed, were known to be right, and had no turn among many", "outcome")
	nodeState       = gauge("warren_node_state", "1 for what the node is doing as a whole: starting, serving, draining, drained or stopping", "state")
	drainTime       = gauge("warren_drain_seconds", "Time that the steps of the newest drain took", "step")
	gossipKeys      = gauge("warren_gossip_keys", "Keys of gossip in use")
	gossipUnopened  = counter("warren_gossip_unopened_total", "Sealed gossip that no key of this node opened")
	gossipFailures  = counter("warren_gossip_key_reload_failures_total", "Contents of the file of gossip keys that were not taken into use")
	traceSpans      = counter("warren_trace_spans_total", "Spans of traces that ended, that the collector took, and that it did not take; what ended and is neither waits, or was dropped because too many waited", "outcome")
	leadersSought   = gauge("warren_queues_without_leader", "Replicas here whose leader is not known and being looked for")
	replicasAsleep  = gauge("warren_replicas_asleep", "Replicas here that sleep until their queue is used")
	leadersAway     = gauge("warren_queues_led_away", "Queues that this node leads and another should")
	quorumCritical  = gauge("warren_queues_quorum_critical", "Queues with three replicas or more, one of them here, that would be without a quorum if this node went")
	replicasMissing = gauge("warren_queues_replica_missing", "Queues that this node leads and of which a replica is on a node that does not answer")
	replicasBehind  = gauge("warren_replicas_behind", "Replicas here that miss more than 64 entries of their leader's, or whose leader does not say")
	elections       = counter("warren_leader_elections_total", "Elections that this node has begun")
	leadersFled     = counter("warren_leaders_fled_total", "Queues that other nodes were made to lead because this node's disk hung")
	leadersMoved    = counter("warren_leaders_returned_total", "Queues given back to the nodes that should lead them, by outcome: moved or failed", "outcome")
	leaderSearch    = histogram("warren_leader_search_seconds", "Time for which replicas here missed a leader")
	repairPlans     = counter("warren_repair_plans_total", "Queues for which this node, as the catalog's leader, planned other members: gone (a lost disk), down, leaving, or missing (they have too few)", "reason")
	repairRefused   = counter("warren_repair_plans_refused_total", "Such plans that were not taken")
	repairQueues    = gauge("warren_repair_queues", "Queues with replicas to be moved: waiting, underway, stalled (underway, and a node does not answer), nowhere (no node can take it), no_majority, or short (no nodes for members that it should have more); 0 but at the catalog's leader", "state")
	fillBytes       = counter("warren_replica_fill_bytes_total", "Bytes sent to fill replicas on other nodes")
	fillWait        = counter("warren_replica_fill_wait_seconds_total", "Time for which that waited because of repair-rate")
	storeSyncTime   = histogram("warren_store_sync_seconds", "Time of the log's syncs to disk")
	storeWritten    = counter("warren_store_written_bytes_total", "Bytes appended to the log")
	storeSegments   = gauge("warren_store_segments", "Segment files of the log")
	storeBytes      = gauge("warren_store_segment_bytes", "Size of the log's segment files")
	storeSpare      = gauge("warren_store_spare_bytes", "Size of freed segment files kept for reuse")
	storeZeroed     = counter("warren_store_zeroed_bytes_total", "Zeroes written to prepare segment files")
	storePrepared   = counter("warren_store_prepared_segments_total", "Segment files made ready, by recycled, reserved or zeroed", "by")
	storeLiveBytes  = gauge("warren_store_live_bytes", "Bytes of the log that are still needed")
	storeCached     = gauge("warren_store_cache_bytes", "Memory that holds what was written to the log last, 8 MiB at most, 16 while more of it is read again")
)

// Messages.
var (
	globalReceived        = counter("rabbitmq_global_messages_received_total", "Messages received from publishers", "protocol")
	globalReceivedConfirm = counter("rabbitmq_global_messages_received_confirm_total", "Messages received from publishers using confirms", "protocol")
	globalRouted          = counter("rabbitmq_global_messages_routed_total", "Messages routed to queues, once for each", "protocol")
	globalConfirmed       = counter("rabbitmq_global_messages_confirmed_total", "Messages confirmed to publishers", "protocol")
	globalDropped         = counter("rabbitmq_global_messages_unroutable_dropped_total", "Messages published without a route, not mandatory", "protocol")
	globalReturned        = counter("rabbitmq_global_messages_unroutable_returned_total", "Mandatory messages returned for want of a route", "protocol")
	globalPublishers      = gauge("rabbitmq_global_publishers", "Channels of this node's clients that have published", "protocol")
	globalConsumers       = gauge("rabbitmq_global_consumers", "Consumers of this node's clients", "protocol")
	globalDelivered       = counter("rabbitmq_global_messages_delivered_total", "Messages delivered to consumers and fetched by basic.get", "protocol", "queue_type")
	globalManual          = counter("rabbitmq_global_messages_delivered_consume_manual_ack_total", "Messages delivered to consumers with acks", "protocol", "queue_type")
	globalAuto            = counter("rabbitmq_global_messages_delivered_consume_auto_ack_total", "Messages delivered to consumers without acks", "protocol", "queue_type")
	globalGetManual       = counter("rabbitmq_global_messages_delivered_get_manual_ack_total", "Messages fetched by basic.get with acks", "protocol", "queue_type")
	globalGetAuto         = counter("rabbitmq_global_messages_delivered_get_auto_ack_total", "Messages fetched by basic.get without acks", "protocol", "queue_type")
	globalGetEmpty        = counter("rabbitmq_global_messages_get_empty_total", "basic.get of empty queues", "protocol", "queue_type")
	globalRedelivered     = counter("rabbitmq_global_messages_redelivered_total", "Messages delivered again", "protocol", "queue_type")
	globalAcked           = counter("rabbitmq_global_messages_acknowledged_total", "Messages acknowledged by consumers", "protocol", "queue_type")

	channelPublished   = channelCounter(familyChannelIn, "rabbitmq_channel_messages_published_total", "Messages published into exchanges")
	channelConfirmed   = channelCounter(familyChannelIn, "rabbitmq_channel_messages_confirmed_total", "Messages confirmed to publishers")
	channelDropped     = channelCounter(familyChannelIn, "rabbitmq_channel_messages_unroutable_dropped_total", "Messages published without a route, not mandatory")
	channelReturned    = channelCounter(familyChannelIn, "rabbitmq_channel_messages_unroutable_returned_total", "Mandatory messages returned for want of a route")
	channelDelivered   = channelCounter(familyChannelOut, "rabbitmq_channel_messages_delivered_total", "Messages delivered to consumers without acks")
	channelDeliveredM  = channelCounter(familyChannelOut, "rabbitmq_channel_messages_delivered_ack_total", "Messages delivered to consumers with acks")
	channelRedelivered = channelCounter(familyChannelOut, "rabbitmq_channel_messages_redelivered_total", "Messages delivered again")
	channelAcked       = channelCounter(familyChannelOut, "rabbitmq_channel_messages_acked_total", "Messages acknowledged")
	channelGet         = channelCounter(familyChannelOut, "rabbitmq_channel_get_total", "Messages fetched by basic.get without acks")
	channelGetAck      = channelCounter(familyChannelOut, "rabbitmq_channel_get_ack_total", "Messages fetched by basic.get with acks")
	channelGetEmpty    = channelCounter(familyChannelOut, "rabbitmq_channel_get_empty_total", "basic.get of empty queues")
)

// Queues.
var (
	queueMessages   = queueGauge(familyCoarse, "rabbitmq_queue_messages", "Messages ready, unacknowledged or waiting out a retry delay")
	queueReady      = queueGauge(familyCoarse, "rabbitmq_queue_messages_ready", "Messages ready for consumers")
	queueUnacked    = queueGauge(familyCoarse, "rabbitmq_queue_messages_unacked", "Messages that clients hold")
	queueBytes      = queueGauge(familyQueue, "rabbitmq_queue_messages_bytes", "Bytes of the bodies of these messages")
	queuePublished  = queueCounter(familyQueue, "rabbitmq_queue_messages_published_total", "Messages published to queues since these were declared")
	queueDuplicates = queueCounter(familyQueue, "warren_queue_duplicates_total", "Messages that deduplication dropped since queues were declared")
	queueDedupIDs   = queueGauge(familyQueue, "warren_queue_deduplication_ids", "Deduplication ids that are remembered")
	queueForgotten  = queueCounter(familyQueue, "warren_queue_deduplication_ids_forgotten_total", "Deduplication ids forgotten before their time since queues were declared, because there were too many")
	queueHeld       = queueGauge(familyQueue, "warren_queue_publishers_held", "Queues whose publishers are held to what goes out, because consumers are faster then")
	queueConsumers  = queueGauge(familyConsumers, "rabbitmq_queue_consumers", "Consumers of queues")

	raftTerm    = queueGauge(familyRaft, "rabbitmq_raft_term", "Raft terms of this node's replicas of queues")
	raftCommit  = queueGauge(familyRaft, "rabbitmq_raft_commit_index", "Raft commit indexes")
	raftApplied = queueGauge(familyRaft, "rabbitmq_raft_last_applied", "Newest log entries applied")
	raftWritten = queueGauge(familyRaft, "rabbitmq_raft_last_written_index", "Newest log entries written")
)

// Dead letters.
var (
	deadRejected  = counter("rabbitmq_global_messages_dead_lettered_rejected_total", "Messages dead-lettered because of basic.reject or basic.nack", "queue_type", "dead_letter_strategy")
	deadExpired   = counter("rabbitmq_global_messages_dead_lettered_expired_total", "Messages dead-lettered because their time to live was over", "queue_type", "dead_letter_strategy")
	deadMaxLen    = counter("rabbitmq_global_messages_dead_lettered_maxlen_total", "Messages dead-lettered because of a length limit", "queue_type", "dead_letter_strategy")
	deadDelivery  = counter("rabbitmq_global_messages_dead_lettered_delivery_limit_total", "Messages dead-lettered because of a delivery limit", "queue_type", "dead_letter_strategy")
	deadRemoved   = counter("warren_dead_letters_queue_removed_total", "Messages dead-lettered because their queue was removed", "queue_type", "dead_letter_strategy")
	deadConfirmed = counter("rabbitmq_global_messages_dead_lettered_confirmed_total", "Dead letters that every target queue has committed", "queue_type", "dead_letter_strategy")

	deadDropped     = counter("warren_dead_letters_dropped_total", "Messages that ended without a target, by cause", "cause")
	deadMoveTime    = histogram("warren_dead_letter_move_seconds", "Time between death and commit in the last target")
	deadForwarded   = counter("warren_delayed_messages_forwarded_total", "Messages of delayed exchanges that every target queue has committed")
	deadRedriven    = counter("warren_redriven_messages_total", "Messages that redrives have sent back and every target queue has committed")
	transfersSent   = counter("warren_transfers_sent_total", "Dead letters sent to target queues, repeats included")
	transfersFull   = counter("warren_transfers_refused_total", "Times that a target queue answered that it is full")
	queuesRecovered = counter("warren_queues_recovered_total", "Queues that go on from a replica of this node since they lost the majority of their replicas")
	publishesResent = counter("warren_publishes_resent_total", "Publishes of clients of this node that were sent again to a recovered queue, which may have them already")
	lettersResent   = counter("warren_dead_letters_resent_total", "Dead letters on their way out of queues recovered here: their targets may have them already")
	lettersLost     = counter("warren_dead_letters_lost_total", "Dead letters that a target had taken and lost with the majority of its replicas")
	transfersLost   = counter("warren_transfers_unanswered_total", "Times that no leader of a target queue answered within a second")

	outboxMessages = queueGauge(familyOutbox, "warren_outbox_messages", "Dead letters on their way, by what they wait for", "state")
	outboxBytes    = queueGauge(familyOutbox, "warren_outbox_message_bytes", "Bytes of the bodies of dead letters on their way")
	outboxAge      = queueGauge(familyOutbox, "warren_outbox_oldest_age_seconds", "How long the oldest dead letter has been on its way; the sum is the oldest of all")
	outboxTargets  = queueGauge(familyOutbox, "warren_outbox_stuck_targets", "Target queues that take nothing, by why", "state")

	queueDead     = define(def{of: queue, family: familyOutbox, objectOnly: true, kind: counterKind, name: "warren_queue_dead_letters_total", help: "Messages that died since the queue was declared", labels: []string{"reason"}})
	queueStayed   = define(def{of: queue, family: familyOutbox, objectOnly: true, kind: counterKind, name: "warren_queue_messages_stayed_total", help: "Expired messages that lost their time to live instead of leaving, since the queue was declared"})
	queueRedriven = define(def{of: queue, family: familyOutbox, objectOnly: true, kind: counterKind, name: "warren_queue_redriven_total", help: "Messages that redrives have sent from the queue and targets have committed, since it was declared"})
	queueDropped  = define(def{of: queue, family: familyOutbox, objectOnly: true, kind: counterKind, name: "warren_queue_dead_letters_dropped_total", help: "Dead letters dropped since the queue was declared", labels: []string{"cause"}})
)

// Names are the names of all metrics, Go's and the process' own left out.
func Names() []string {
	names := make([]string, len(defs))
	for i, d := range defs {
		names[i] = d.name
	}
	return names
}
