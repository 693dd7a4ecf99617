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
	identityInfo = gauge("rabbitmq_identity_info", "Identity of the node and its cluster", "rabbitmq_node", "rabbitmq_cluster", "rabbitmq_cluster_permanent_id", "rabbitmq_endpoint")
	buildInfo    = gauge("rabbitmq_build_info", "Product and version, as reported to clients", "rabbitmq_version", "product_name", "product_version")

	connections       = gauge("rabbitmq_connections", "Open AMQP connections")
	channels          = gauge("rabbitmq_channels", "Open AMQP channels")
	consumers         = gauge("rabbitmq_consumers", "Consumers connected to this node")
	connectionsOpened = inFamily(familyChurn, counter("rabbitmq_connections_opened_total", "AMQP connections that were opened"))
	connectionsClosed = inFamily(familyChurn, counter("rabbitmq_connections_closed_total", "AMQP connections that were closed"))
	channelsOpened    = inFamily(familyChurn, counter("rabbitmq_channels_opened_total", "AMQP channels that were opened"))
	channelsClosed    = inFamily(familyChurn, counter("rabbitmq_channels_closed_total", "AMQP channels that were closed"))
	queuesDeclared    = inFamily(familyChurn, counter("rabbitmq_queues_declared_total", "Successful queue declarations"))
	queuesCreated     = inFamily(familyChurn, counter("rabbitmq_queues_created_total", "Queues created"))
	queuesDeleted     = inFamily(familyChurn, counter("rabbitmq_queues_deleted_total", "Deleted queues that this node had led"))
	queues            = gauge("rabbitmq_queues", "Queues that this node leads")

	grpcConnections       = gauge("warren_grpc_connections", "Open gRPC connections; rabbitmq_connections does not include them")
	grpcStreams           = gauge("warren_grpc_streams", "Active gRPC streams, and calls that publish or consume")
	grpcConnectionsOpened = counter("warren_grpc_connections_opened_total", "gRPC connections that were opened")

	residentBytes    = inFamily(familyNodeCoarse, gauge("rabbitmq_process_resident_memory_bytes", "Memory in use, measured as for the memory alarm"))
	residentLimit    = inFamily(familyNode, gauge("rabbitmq_resident_memory_limit_bytes", "Memory high watermark"))
	openFDs          = inFamily(familyNodeCoarse, gauge("rabbitmq_process_open_fds", "Open file descriptors"))
	maxFDs           = inFamily(familyNode, gauge("rabbitmq_process_max_fds", "Maximum number of open file descriptors"))
	diskFree         = inFamily(familyNodeCoarse, gauge("rabbitmq_disk_space_available_bytes", "Free space on the file system of the data directory"))
	diskLimit        = inFamily(familyNode, gauge("rabbitmq_disk_space_available_limit_bytes", "Free space below which the disk alarm is set"))
	alarmMemory      = gauge("rabbitmq_alarms_memory_used_watermark", "1 while the memory alarm of this node is set")
	alarmDisk        = gauge("rabbitmq_alarms_free_disk_space_watermark", "1 while the disk alarm of this node is set")
	certExpiry       = gauge("warren_certificate_expiry_seconds", "Time until the certificate in use expires; negative once it has expired. use is clients or nodes", "use")
	authorityExpiry  = gauge("warren_authority_expiry_seconds", "Time until the next certificate of the CA file expires, or since the last one did, negative, when all have; use is clients or nodes", "use")
	certReloads      = counter("warren_certificate_reloads_total", "Times that replaced certificates, keys or CAs were loaded", "use")
	certFailures     = counter("warren_certificate_reload_failures_total", "Times that replaced certificates, keys or CAs could not be read, or were rejected", "use")
	loginAttempts    = counter("rabbitmq_auth_attempts_total", "Login attempts with a password or a token, by clients and over the management API", "protocol")
	loginsAccepted   = counter("rabbitmq_auth_attempts_succeeded_total", "Successful logins", "protocol")
	loginsFailed     = counter("rabbitmq_auth_attempts_failed_total", "Refused logins", "protocol")
	loginsHeld       = counter("warren_logins_held_up_total", "Login attempts delayed without checking the password, after too many failures of that user from that address", "protocol")
	shovels          = gauge("warren_shovels", "Shovels that this node runs, by state: starting, running or terminated", "state")
	shovelForwarded  = counter("warren_shovel_messages_forwarded_total", "Messages that shovels on this node have forwarded")
	shovelWaiting    = gauge("warren_shovel_messages_waiting", "Messages that wait in shovels on this node: the destination refuses them, or has no queue for them")
	passwordChecks   = counter("warren_password_checks_total", "Checks of expensive password hashes, by outcome: computed, found in the cache, or turned away because too many were waiting", "outcome")
	remoteRequests   = counter("warren_auth_http_requests_total", "Requests to the server that is asked about logins, by question (user, vhost, resource or topic) and outcome: allowed, denied, unusable (an answer that is none) or failed (no answer)", "question", "outcome")
	remoteSeconds    = counter("warren_auth_http_request_seconds_total", "Time that these requests took together", "question")
	remoteSpared     = counter("warren_auth_http_remembered_total", "Questions that no request was needed for, by outcome: remembered, or old (an answer of before counts on because the server does not answer)", "question", "outcome")
	remoteBusy       = counter("warren_auth_http_busy_total", "Questions about logins that were not asked because too many were waiting")
	remoteAway       = gauge("warren_auth_http_away", "1 while the server that is asked about logins does not answer")
	nodeState        = gauge("warren_node_state", "1 for the current state of the node: starting, serving, draining, drained or stopping", "state")
	nodeUnready      = gauge("warren_node_unready", "1 for what keeps the node from being ready for clients, as /readyz says: starting, draining, stopping, catalog, queue logs, catching up or disk; 0 for the others", "step")
	panicsContained  = counter("warren_panics_contained_total", "Faults of the program that ended the work for one client: a connection of amqp, a call of grpc, a request of http", "protocol")
	unreachablePeers = gauge("rabbitmq_unreachable_cluster_peers_count", "Nodes of the cluster that this node cannot reach, or has found dead")
	clusterNodes     = gauge("warren_nodes", "Nodes of the cluster by state as this node sees it: running, down, or leaving, which may run", "state")
	catalogVoters    = gauge("warren_catalog_voters", "Nodes that vote in the catalog, down or not")
	drainTime        = gauge("warren_drain_seconds", "Duration of each step of the latest drain", "step")
	gossipKeys       = gauge("warren_gossip_keys", "Number of gossip keys in use")
	gossipUnopened   = counter("warren_gossip_unopened_total", "Encrypted gossip that no key of this node could decrypt")
	gossipFailures   = counter("warren_gossip_key_reload_failures_total", "Times that a changed gossip key file was rejected")
	traceSpans       = counter("warren_trace_spans_total", "Trace spans that ended, were exported, or were rejected by the collector; the rest are still waiting, or were dropped because too many were waiting", "outcome")
	leadersSought    = gauge("warren_queues_without_leader", "Replicas on this node that do not know their leader and are looking for it")
	majorityMissing  = gauge("warren_queues_without_majority", "Durable queues of the whole cluster of which this node reaches too few replicas for a majority: those that have no majority anywhere are counted by every node")
	queuesClosing    = gauge("warren_queues_closing", "Deleted queues of the whole cluster that have not ended: dead letters are on their way out of them, or no leader ends them; every node counts the same")
	replicasAsleep   = gauge("warren_replicas_asleep", "Sleeping replicas on this node; they wake when their queue is used")
	replicasDamaged  = gauge("warren_replicas_damaged", "Replicas on this node whose log is damaged and that have not begun anew")
	replicasHurt     = counter("warren_replicas_damaged_total", "Replicas on this node whose log was found damaged: bytes did not match their checksums, or the disk did not return them")
	leadersAway      = gauge("warren_queues_led_away", "Queues led by this node whose preferred leader is another node")
	quorumCritical   = gauge("warren_queues_quorum_critical", "Queues with at least three replicas, one of them on this node, that would lose their quorum if this node stopped. Replicas of nodes that can be reached count, damaged ones (warren_replicas_damaged) too: check_if_node_is_quorum_critical asks for those")
	replicasMissing  = gauge("warren_queues_replica_missing", "Queues led by this node that have a replica on an unreachable node")
	replicasBehind   = gauge("warren_replicas_behind", "Replicas on this node that lack more than 64 log entries of their leader, or whose leader does not report its position")
	elections        = counter("warren_leader_elections_total", "Leader elections started by this node")
	leadersFled      = counter("warren_leaders_fled_total", "Queues whose leadership was moved to other nodes because this node's disk hung")
	leadersMoved     = counter("warren_leaders_returned_total", "Queues handed back to their preferred leaders, by outcome: moved or failed", "outcome")
	leaderSearch     = histogram("warren_leader_search_seconds", "How long replicas on this node were without a leader")
	repairPlans      = counter("warren_repair_plans_total", "Queues for which this node, as the catalog's leader, planned a change of members, by reason: gone (a lost disk), down, leaving, or missing (too few members)", "reason")
	repairRefused    = counter("warren_repair_plans_refused_total", "Planned changes of members that the catalog refused")
	repairQueues     = gauge("warren_repair_queues", "Queues with replicas to be moved: waiting, underway, stalled (underway, and a node does not answer), nowhere (no node can take it), no_majority, or short (no nodes for members that it should have more); 0 but at the catalog's leader", "state")
	fillBytes        = counter("warren_replica_fill_bytes_total", "Bytes sent to other nodes to fill new replicas")
	fillWait         = counter("warren_replica_fill_wait_seconds_total", "Time spent waiting because of repair-rate while filling replicas")
	storeSyncTime    = histogram("warren_store_sync_seconds", "Duration of the log's syncs to disk")
	storeWritten     = counter("warren_store_written_bytes_total", "Bytes appended to the log")
	storeSegments    = gauge("warren_store_segments", "Number of the log's segment files")
	storeBytes       = gauge("warren_store_segment_bytes", "Total size of the log's segment files")
	storeSpare       = gauge("warren_store_spare_bytes", "Total size of freed segment files that are kept for reuse")
	storeZeroed      = counter("warren_store_zeroed_bytes_total", "Bytes of zeros written to prepare segment files")
	storePrepared    = counter("warren_store_prepared_segments_total", "Segment files prepared, by method: recycled, reserved or zeroed", "by")
	storeLiveBytes   = gauge("warren_store_live_bytes", "Bytes of the log that are still in use")
	storeCached      = gauge("warren_store_cache_bytes", "Memory used to cache the newest part of the log: at most 8 MiB, or 16 MiB while more of it is being read")
)

// Messages.
var (
	globalReceived        = counter("rabbitmq_global_messages_received_total", "Messages received from publishers", "protocol")
	globalReceivedConfirm = counter("rabbitmq_global_messages_received_confirm_total", "Messages received from publishers that use confirms", "protocol")
	globalRouted          = counter("rabbitmq_global_messages_routed_total", "Messages routed to queues, counted once for each queue", "protocol")
	globalConfirmed       = counter("rabbitmq_global_messages_confirmed_total", "Messages confirmed to publishers", "protocol")
	globalDropped         = counter("rabbitmq_global_messages_unroutable_dropped_total", "Messages that were not mandatory and were dropped because they had no route", "protocol")
	globalReturned        = counter("rabbitmq_global_messages_unroutable_returned_total", "Mandatory messages that were returned because they had no route", "protocol")
	globalPublishers      = gauge("rabbitmq_global_publishers", "Channels on this node that have published", "protocol")
	globalConsumers       = gauge("rabbitmq_global_consumers", "Consumers connected to this node", "protocol")
	globalDelivered       = counter("rabbitmq_global_messages_delivered_total", "Messages delivered to consumers or fetched with basic.get", "protocol", "queue_type")
	globalManual          = counter("rabbitmq_global_messages_delivered_consume_manual_ack_total", "Messages delivered to consumers that acknowledge", "protocol", "queue_type")
	globalAuto            = counter("rabbitmq_global_messages_delivered_consume_auto_ack_total", "Messages delivered to consumers without acknowledgements (auto-ack)", "protocol", "queue_type")
	globalGetManual       = counter("rabbitmq_global_messages_delivered_get_manual_ack_total", "Messages fetched with basic.get, to be acknowledged", "protocol", "queue_type")
	globalGetAuto         = counter("rabbitmq_global_messages_delivered_get_auto_ack_total", "Messages fetched with basic.get without acknowledgements (auto-ack)", "protocol", "queue_type")
	globalGetEmpty        = counter("rabbitmq_global_messages_get_empty_total", "basic.get calls on empty queues", "protocol", "queue_type")
	globalRedelivered     = counter("rabbitmq_global_messages_redelivered_total", "Messages delivered again", "protocol", "queue_type")
	globalAcked           = counter("rabbitmq_global_messages_acknowledged_total", "Messages acknowledged by consumers", "protocol", "queue_type")

	channelPublished   = channelCounter(familyChannelIn, "rabbitmq_channel_messages_published_total", "Messages published to exchanges")
	channelConfirmed   = channelCounter(familyChannelIn, "rabbitmq_channel_messages_confirmed_total", "Messages confirmed to publishers")
	channelDropped     = channelCounter(familyChannelIn, "rabbitmq_channel_messages_unroutable_dropped_total", "Messages that were not mandatory and were dropped because they had no route")
	channelReturned    = channelCounter(familyChannelIn, "rabbitmq_channel_messages_unroutable_returned_total", "Mandatory messages that were returned because they had no route")
	channelDelivered   = channelCounter(familyChannelOut, "rabbitmq_channel_messages_delivered_total", "Messages delivered to consumers without acknowledgements (auto-ack)")
	channelDeliveredM  = channelCounter(familyChannelOut, "rabbitmq_channel_messages_delivered_ack_total", "Messages delivered to consumers that acknowledge")
	channelRedelivered = channelCounter(familyChannelOut, "rabbitmq_channel_messages_redelivered_total", "Messages delivered again")
	channelAcked       = channelCounter(familyChannelOut, "rabbitmq_channel_messages_acked_total", "Messages acknowledged")
	channelGet         = channelCounter(familyChannelOut, "rabbitmq_channel_get_total", "Messages fetched with basic.get without acknowledgements (auto-ack)")
	channelGetAck      = channelCounter(familyChannelOut, "rabbitmq_channel_get_ack_total", "Messages fetched with basic.get, to be acknowledged")
	channelGetEmpty    = channelCounter(familyChannelOut, "rabbitmq_channel_get_empty_total", "basic.get calls on empty queues")
)

// Queues.
var (
	queueMessages     = queueGauge(familyCoarse, "rabbitmq_queue_messages", "Messages that are ready, unacknowledged or waiting for a delayed retry")
	queueReady        = queueGauge(familyCoarse, "rabbitmq_queue_messages_ready", "Messages ready to be delivered")
	queueUnacked      = queueGauge(familyCoarse, "rabbitmq_queue_messages_unacked", "Messages delivered and not yet acknowledged")
	queueBytes        = queueGauge(familyQueue, "rabbitmq_queue_messages_bytes", "Total size of the bodies of all messages in queues")
	queueReadyBytes   = queueGauge(familyQueue, "rabbitmq_queue_messages_ready_bytes", "Total size of the bodies of messages that no client holds")
	queueUnackedBytes = queueGauge(familyQueue, "rabbitmq_queue_messages_unacked_bytes", "Total size of the bodies of messages delivered and not yet acknowledged")
	queuePublished    = queueCounter(familyQueue, "rabbitmq_queue_messages_published_total", "Messages that queues have taken: of one queue since it was declared, in sum by those that this node led since the process began")
	queueDuplicates   = queueCounter(familyQueue, "warren_queue_duplicates_total", "Duplicates dropped by deduplication: of one queue since it was declared, in sum by those that this node led since the process began")
	queueDedupIDs     = queueGauge(familyQueue, "warren_queue_deduplication_ids", "Deduplication ids that are currently remembered")
	queueForgotten    = queueCounter(familyQueue, "warren_queue_deduplication_ids_forgotten_total", "Deduplication ids forgotten before the end of the window, because there were too many: of one queue since it was declared, in sum by those that this node led since the process began")
	queueHeld         = queueGauge(familyQueue, "warren_queue_publishers_held", "Queues whose publishers are slowed down to the rate of their consumers")
	queueConsumers    = queueGauge(familyConsumers, "rabbitmq_queue_consumers", "Consumers of queues")

	raftTerm    = queueGauge(familyRaft, "rabbitmq_raft_term", "Raft term of the queue replicas on this node")
	raftCommit  = queueGauge(familyRaft, "rabbitmq_raft_commit_index", "Raft commit index")
	raftApplied = queueGauge(familyRaft, "rabbitmq_raft_last_applied", "Index of the last log entry that was applied")
	raftWritten = queueGauge(familyRaft, "rabbitmq_raft_last_written_index", "Index of the last log entry that was written to disk")
)

// Dead letters.
var (
	deadRejected  = counter("rabbitmq_global_messages_dead_lettered_rejected_total", "Messages dead-lettered because of basic.reject or basic.nack", "queue_type", "dead_letter_strategy")
	deadExpired   = counter("rabbitmq_global_messages_dead_lettered_expired_total", "Messages dead-lettered because they expired", "queue_type", "dead_letter_strategy")
	deadMaxLen    = counter("rabbitmq_global_messages_dead_lettered_maxlen_total", "Messages dead-lettered because their queue had reached its length limit", "queue_type", "dead_letter_strategy")
	deadDelivery  = counter("rabbitmq_global_messages_dead_lettered_delivery_limit_total", "Messages dead-lettered because they had reached the delivery limit", "queue_type", "dead_letter_strategy")
	deadRemoved   = counter("warren_dead_letters_queue_removed_total", "Messages dead-lettered because their queue was deleted or had expired", "queue_type", "dead_letter_strategy")
	deadConfirmed = counter("rabbitmq_global_messages_dead_lettered_confirmed_total", "Dead letters that every target queue has committed", "queue_type", "dead_letter_strategy")

	deadDropped     = counter("warren_dead_letters_dropped_total", "Messages that were dropped instead of being dead-lettered, by cause", "cause")
	deadMoveTime    = histogram("warren_dead_letter_move_seconds", "Time from a message's death until its last target queue has committed it")
	deadForwarded   = counter("warren_delayed_messages_forwarded_total", "Messages of delayed exchanges that every target queue has committed")
	deadRedriven    = counter("warren_redriven_messages_total", "Messages that redrives have sent back and every target queue has committed")
	transfersSent   = counter("warren_transfers_sent_total", "Dead letters sent to target queues, including repeats")
	transfersFull   = counter("warren_transfers_refused_total", "Dead letters refused by a target queue because it was full")
	queuesRecovered = counter("warren_queues_recovered_total", "Queues recovered from a replica on this node after losing the majority of their replicas")
	publishesResent = counter("warren_publishes_resent_total", "Publishes of clients of this node that were sent again to a recovered queue, which may have them already")
	lettersResent   = counter("warren_dead_letters_resent_total", "Dead letters on their way out of queues recovered here: their targets may have them already")
	lettersLost     = counter("warren_dead_letters_lost_total", "Dead letters that a target had taken and lost with the majority of its replicas")
	transfersLost   = counter("warren_transfers_unanswered_total", "Times that no leader of a target queue answered within a second")

	outboxMessages = queueGauge(familyOutbox, "warren_outbox_messages", "Dead letters on their way to their targets, by what they are waiting for", "state")
	outboxBytes    = queueGauge(familyOutbox, "warren_outbox_message_bytes", "Total size of the bodies of dead letters on their way to their targets")
	outboxAge      = queueGauge(familyOutbox, "warren_outbox_oldest_age_seconds", "How long the oldest dead letter has been on its way; the sum is the oldest of all")
	outboxTargets  = queueGauge(familyOutbox, "warren_outbox_stuck_targets", "Target queues that currently accept nothing, by reason", "state")

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
