package dashboards

import "fmt"

// All are the dashboards that are offered.
var All = []Dashboard{overview, queues, deadLetters, raft}

func number(title, unit, expr string) Panel {
	return Panel{Title: title, Unit: unit, Kind: Number, Queries: []Query{{expr, ""}}}
}

// alarm is a number that should be 0.
func alarm(title, help, expr string) Panel {
	return Panel{Title: title, Help: help, Unit: "short", Kind: Number, Alarm: true, Queries: []Query{{expr, ""}}}
}

func plot(title, unit, help string, queries ...Query) Panel {
	return Panel{Title: title, Unit: unit, Help: help, Queries: queries}
}

func stack(title, unit, help string, queries ...Query) Panel {
	return Panel{Title: title, Unit: unit, Help: help, Kind: Stack, Queries: queries}
}

// byNode sums an expression for each node.
func byNode(expr string) Query { return Query{"sum by (instance) (" + expr + ")", "{{instance}}"} }

// rate is a counter's rate by a label.
func rate(name, label string) Query {
	return Query{fmt.Sprintf("sum by (%s) (rate(%s{S}[R]))", label, name), "{{" + label + "}}"}
}

// total is a counter's rate over all nodes.
func total(name, legend string) Query {
	return Query{fmt.Sprintf("sum(rate(%s{S}[R]))", name), legend}
}

// quantiles are some of a histogram, and its slowest node's.
func quantiles(name string) []Query {
	of := func(q, by string) string {
		return fmt.Sprintf("histogram_quantile(%s, sum by (%s) (rate(%s_bucket{S}[R])))", q, by, name)
	}
	return []Query{{of("0.5", "le"), "half"}, {of("0.99", "le"), "99 %"}, {"max(" + of("0.99", "instance, le") + ")", "99 % of the slowest node"}}
}

// ofQueues are the highest of the queues by an expression.
func ofQueues(expr string) Query {
	return Query{"topk(15, sum by (vhost, queue) (" + expr + "))", "{{vhost}} {{queue}}"}
}

const nodeLabel = "instance"

var overview = Dashboard{
	File: "warren-overview", Title: "Warren / Overview", About: "A cluster as a whole: messages, clients, nodes.",
	Rows: []Row{
		{"Now", []Panel{
			number("Nodes that answer", "short", "count(rabbitmq_identity_info{S})"),
			number("Queues", "short", "sum(rabbitmq_queues{S})"),
			number("Messages ready", "short", "sum(rabbitmq_queue_messages_ready{S})"),
			number("Messages unacknowledged", "short", "sum(rabbitmq_queue_messages_unacked{S})"),
			number("Connections", "short", "sum(rabbitmq_connections{S})"),
			number("Consumers", "short", "sum(rabbitmq_consumers{S})"),
			alarm("Alarms", "Nodes that are short of memory or disk: no publisher of the cluster is read.", "sum(rabbitmq_alarms_memory_used_watermark{S}) + sum(rabbitmq_alarms_free_disk_space_watermark{S})"),
			alarm("Queues without a leader", "They serve nobody. A few for some seconds are what a failover looks like.", "max(warren_queues_without_leader{S})"),
			alarm("Queues without a majority", "Too few of their replicas can be reached: nothing is confirmed or delivered.", "min(warren_queues_without_majority{S})"),
			alarm("Queues without a replica to spare", "They stop with the next node that is lost.", "max(warren_queues_quorum_critical{S})"),
			number("Dead letters on their way", "short", "sum(warren_outbox_messages{S})"),
			alarm("Stuck targets of dead letters", "Queues that have taken nothing.", "sum(warren_outbox_stuck_targets{S})"),
			number("Publishes", "cps", "sum(rate(rabbitmq_global_messages_received_total{S}[R]))"),
		}},
		{"Messages", []Panel{
			plot("In", "cps", "What publishers send, what is confirmed to them, and the copies that queues get.",
				total("rabbitmq_global_messages_received_total", "published"), total("rabbitmq_global_messages_confirmed_total", "confirmed"), total("rabbitmq_global_messages_routed_total", "routed to queues")),
			plot("Out", "cps", "What clients get and settle.",
				total("rabbitmq_global_messages_delivered_total", "delivered"), total("rabbitmq_global_messages_acknowledged_total", "acknowledged"), total("rabbitmq_global_messages_redelivered_total", "delivered again")),
			stack("In queues", "short", "",
				Query{"sum(rabbitmq_queue_messages_ready{S})", "ready"}, Query{"sum(rabbitmq_queue_messages_unacked{S})", "unacknowledged"}),
			plot("Delivered, by way", "cps", "",
				total("rabbitmq_global_messages_delivered_consume_manual_ack_total", "consumers with acks"), total("rabbitmq_global_messages_delivered_consume_auto_ack_total", "consumers without acks"),
				total("rabbitmq_global_messages_delivered_get_manual_ack_total", "get with acks"), total("rabbitmq_global_messages_delivered_get_auto_ack_total", "get without acks"), total("rabbitmq_global_messages_get_empty_total", "get of empty queues")),
			plot("Without a route", "cps", "Messages that no queue was bound for.",
				total("rabbitmq_global_messages_unroutable_dropped_total", "dropped"), total("rabbitmq_global_messages_unroutable_returned_total", "returned")),
			stack("Dead letters", "cps", "Messages that died, by reason.",
				total("rabbitmq_global_messages_dead_lettered_rejected_total", "rejected"), total("rabbitmq_global_messages_dead_lettered_expired_total", "expired"),
				total("rabbitmq_global_messages_dead_lettered_maxlen_total", "maxlen"), total("rabbitmq_global_messages_dead_lettered_delivery_limit_total", "delivery_limit"), total("warren_dead_letters_queue_removed_total", "queue removed")),
			plot("Published, by node", "cps", "Nodes at which publishers are.", rate("rabbitmq_global_messages_received_total", nodeLabel)),
			plot("Bytes in queues", "bytes", "Bodies of messages.", byNode("rabbitmq_queue_messages_bytes{S}")),
			plot("Messages ready, by node", "short", "Nodes that lead the queues.", byNode("rabbitmq_queue_messages_ready{S}")),
		}},
		{"Clients", []Panel{
			plot("Connections", "short", "", byNode("rabbitmq_connections{S}")),
			plot("Channels", "short", "", byNode("rabbitmq_channels{S}")),
			plot("Consumers and publishers", "short", "Publishers are channels that have published.", Query{"sum(rabbitmq_consumers{S})", "consumers"}, Query{"sum(rabbitmq_global_publishers{S})", "publishers"}),
			plot("Connections come and go", "cps", "Clients that connect for each message cost much more than those that stay.",
				total("rabbitmq_connections_opened_total", "opened"), total("rabbitmq_connections_closed_total", "closed")),
			plot("Channels come and go", "cps", "", total("rabbitmq_channels_opened_total", "opened"), total("rabbitmq_channels_closed_total", "closed")),
			plot("Queues come and go", "cps", "", total("rabbitmq_queues_declared_total", "declared"), total("rabbitmq_queues_created_total", "created"), total("rabbitmq_queues_deleted_total", "deleted")),
		}},
		{"Nodes", []Panel{
			plot("Memory, part of the watermark", "percentunit", "At 1 publishers are held up.", Query{"rabbitmq_process_resident_memory_bytes{S} / (rabbitmq_resident_memory_limit_bytes{S} > 0)", "{{instance}}"}),
			plot("Disk space above the reserve", "bytes", "At 0 publishers are held up.", Query{"rabbitmq_disk_space_available_bytes{S} - rabbitmq_disk_space_available_limit_bytes{S}", "{{instance}}"}),
			plot("Processor time", "short", "Cores.", Query{"rate(process_cpu_seconds_total{S}[R])", "{{instance}}"}),
			plot("File descriptors, part of the limit", "percentunit", "", Query{"rabbitmq_process_open_fds{S} / (rabbitmq_process_max_fds{S} > 0)", "{{instance}}"}),
			plot("Syncs to disk", "s", "A confirm waits for those of two nodes of three.", quantiles("warren_store_sync_seconds")...),
			plot("Written to the log", "Bps", "", rate("warren_store_written_bytes_total", nodeLabel)),
			plot("Queues led", "short", "", byNode("rabbitmq_queues{S}")),
			plot("Queues whose publishers are held", "short", "To what their consumers take, who are faster then.", byNode("warren_queue_publishers_held{S}")),
			plot("What nodes do", "short", "", Query{`sum by (state) (warren_node_state{S})`, "{{state}}"}),
		}},
	},
}

var queues = Dashboard{
	File: "warren-queues", Title: "Warren / Queues", PerQueue: true,
	About: "Single queues. It needs /metrics/detailed?family=queue_coarse_metrics&family=queue_metrics&family=queue_consumer_count&family=queue_delivery_metrics scraped beside /metrics.",
	Rows: []Row{
		{"Of the queues chosen", []Panel{
			number("Queues", "short", "count(rabbitmq_detailed_queue_messages{Q})"),
			number("Messages ready", "short", "sum(rabbitmq_detailed_queue_messages_ready{Q})"),
			number("Messages unacknowledged", "short", "sum(rabbitmq_detailed_queue_messages_unacked{Q})"),
			number("Bytes of messages", "bytes", "sum(rabbitmq_detailed_queue_messages_bytes{Q})"),
			number("Published", "cps", "sum(rate(rabbitmq_detailed_queue_messages_published_total{Q}[R]))"),
			alarm("Messages and no consumer", "Queues in which messages wait that nobody consumes from.", "count((rabbitmq_detailed_queue_messages_ready{Q} > 0) and on (vhost, queue) (rabbitmq_detailed_queue_consumers{Q} == 0)) or vector(0)"),
		}},
		{"Over time", []Panel{
			plot("Ready", "short", "The fifteen highest, as in all that follow.", ofQueues("rabbitmq_detailed_queue_messages_ready{Q}")),
			plot("Unacknowledged", "short", "", ofQueues("rabbitmq_detailed_queue_messages_unacked{Q}")),
			plot("Published", "cps", "", ofQueues("rate(rabbitmq_detailed_queue_messages_published_total{Q}[R])")),
			plot("Delivered", "cps", "To consumers.", ofQueues("rate(rabbitmq_detailed_queue_messages_delivered_ack_total{Q}[R]) + rate(rabbitmq_detailed_queue_messages_delivered_total{Q}[R])")),
			plot("Acknowledged", "cps", "", ofQueues("rate(rabbitmq_detailed_queue_messages_acked_total{Q}[R])")),
			plot("Delivered again", "cps", "Clients that fail, or end before they have acknowledged.", ofQueues("rate(rabbitmq_detailed_queue_messages_redelivered_total{Q}[R])")),
			plot("Growth", "cps", "Messages more in each second, over ten minutes.", ofQueues("deriv(rabbitmq_detailed_queue_messages{Q}[10m]) > 0")),
			plot("Bytes", "bytes", "Bodies of messages.", ofQueues("rabbitmq_detailed_queue_messages_bytes{Q}")),
			plot("Consumers", "short", "", ofQueues("rabbitmq_detailed_queue_consumers{Q}")),
		}},
		{"Lists", []Panel{
			{Title: "Most messages", Kind: Table, Unit: "short", Queries: []Query{{"topk(50, sum by (vhost, queue) (rabbitmq_detailed_queue_messages{Q}))", ""}}},
			{Title: "Messages and no consumer", Kind: Table, Unit: "short", Queries: []Query{{"topk(50, sum by (vhost, queue) ((rabbitmq_detailed_queue_messages_ready{Q} > 0) and on (vhost, queue) (rabbitmq_detailed_queue_consumers{Q} == 0)))", ""}}},
		}},
	},
}

var deadLetters = Dashboard{
	File: "warren-dead-letters", Title: "Warren / Dead letters", PerQueue: true,
	About: "What dies, why, where it goes and what is stuck. The last row needs /metrics/detailed?family=queue_coarse_metrics&family=warren_outbox scraped beside /metrics.",
	Rows: []Row{
		{"Now", []Panel{
			number("Die", "cps", "sum(rate(rabbitmq_global_messages_dead_lettered_rejected_total{S}[R])) + sum(rate(rabbitmq_global_messages_dead_lettered_expired_total{S}[R])) + sum(rate(rabbitmq_global_messages_dead_lettered_maxlen_total{S}[R])) + sum(rate(rabbitmq_global_messages_dead_lettered_delivery_limit_total{S}[R]))"),
			number("Arrive", "cps", "sum(rate(rabbitmq_global_messages_dead_lettered_confirmed_total{S}[R]))"),
			number("On their way", "short", "sum(warren_outbox_messages{S})"),
			number("Oldest on its way", "s", "max(warren_outbox_oldest_age_seconds{S})"),
			alarm("Targets that take nothing", "", "sum(warren_outbox_stuck_targets{S})"),
			alarm("Dropped, last hour", "Messages that ended without a target: no dead-letter exchange, no route, a cycle.", `sum(increase(warren_dead_letters_dropped_total{S,cause!="no_dlx",cause!="queue_deleted"}[1h]))`),
		}},
		{"What dies", []Panel{
			stack("By reason", "cps", "",
				total("rabbitmq_global_messages_dead_lettered_rejected_total", "rejected"), total("rabbitmq_global_messages_dead_lettered_expired_total", "expired"),
				total("rabbitmq_global_messages_dead_lettered_maxlen_total", "maxlen"), total("rabbitmq_global_messages_dead_lettered_delivery_limit_total", "delivery_limit"), total("warren_dead_letters_queue_removed_total", "queue removed")),
			stack("Rejected, by strategy", "cps", "disabled: there is no dead-letter exchange, and the message is gone.", rate("rabbitmq_global_messages_dead_lettered_rejected_total", "dead_letter_strategy")),
			stack("Dropped, by cause", "cps", "", rate("warren_dead_letters_dropped_total", "cause")),
		}},
		{"The way", []Panel{
			stack("On their way, by what they wait for", "short", "parked: nobody takes them until an operator or a policy says where they go.", Query{"sum by (state) (warren_outbox_messages{S})", "{{state}}"}),
			plot("Age of the oldest", "s", "", Query{"max by (instance) (warren_outbox_oldest_age_seconds{S})", "{{instance}}"}),
			plot("From death to the target's log", "s", "", quantiles("warren_dead_letter_move_seconds")...),
			plot("Sent to targets", "cps", "sent holds repeats; confirmed by all targets does not.",
				total("warren_transfers_sent_total", "sent"), total("rabbitmq_global_messages_dead_lettered_confirmed_total", "confirmed"), total("warren_transfers_refused_total", "target is full"), total("warren_transfers_unanswered_total", "target does not answer")),
			plot("Targets that take nothing", "short", "", Query{"sum by (state) (warren_outbox_stuck_targets{S})", "{{state}}"}),
			plot("Sent back, and delayed", "cps", "", total("warren_redriven_messages_total", "by redrives"), total("warren_delayed_messages_forwarded_total", "from delayed exchanges")),
		}},
		{"By queue", []Panel{
			plot("Deaths", "cps", "The fifteen highest.", ofQueues("rate(warren_detailed_queue_dead_letters_total{Q}[R])")),
			plot("On their way", "short", "", ofQueues("warren_detailed_outbox_messages{Q}")),
			plot("Dropped", "cps", "", ofQueues("rate(warren_detailed_queue_dead_letters_dropped_total{Q}[R])")),
			{Title: "Deaths by queue and reason", Help: "Since the queue was declared.", Kind: Table, Unit: "short", Queries: []Query{{"topk(50, sum by (vhost, queue, reason) (warren_detailed_queue_dead_letters_total{Q}))", ""}}},
			{Title: "Stuck", Kind: Table, Unit: "short", Queries: []Query{{"topk(50, sum by (vhost, queue, state) (warren_detailed_outbox_stuck_targets{Q}) > 0)", ""}}},
		}},
	},
}

var raft = Dashboard{
	File: "warren-raft", Title: "Warren / Raft and log", About: "Leaders, replicas, repair and the log on disk.",
	Rows: []Row{
		{"Now", []Panel{
			alarm("Queues without a leader", "", "max(warren_queues_without_leader{S})"),
			alarm("Queues without a majority", "", "min(warren_queues_without_majority{S})"),
			alarm("Queues without a replica to spare", "", "max(warren_queues_quorum_critical{S})"),
			alarm("Queues with a replica that is missing", "It is on a node that does not answer.", "sum(warren_queues_replica_missing{S})"),
			alarm("Replicas that lag", "They miss more than 64 entries.", "sum(warren_replicas_behind{S})"),
			number("Queues led by another node than they should be", "short", "sum(warren_queues_led_away{S})"),
			number("Queues being repaired", "short", "sum(warren_repair_queues{S})"),
		}},
		{"Leaders", []Panel{
			plot("Elections", "cps", "Elections that a node has begun.", rate("warren_leader_elections_total", nodeLabel)),
			plot("Time without a leader", "s", "", quantiles("warren_leader_search_seconds")...),
			plot("Given back to the nodes that should lead", "cps", "", rate("warren_leaders_returned_total", "outcome")),
			plot("Queues led", "short", "", byNode("rabbitmq_queues{S}")),
			plot("Terms", "short", "The sum of all groups' terms: it grows with every election.", byNode("rabbitmq_raft_term{S}")),
			plot("Queues led away", "short", "", byNode("warren_queues_led_away{S}")),
		}},
		{"Replicas", []Panel{
			plot("Committed", "cps", "Entries of all groups of which a node has a replica.", Query{"sum by (instance) (rate(rabbitmq_raft_commit_index{S}[R]))", "{{instance}}"}),
			plot("Committed and not applied", "short", "", Query{"rabbitmq_raft_commit_index{S} - rabbitmq_raft_last_applied{S}", "{{instance}}"}),
			plot("Written and not committed", "short", "", Query{"rabbitmq_raft_last_written_index{S} - rabbitmq_raft_commit_index{S}", "{{instance}}"}),
			plot("Replicas that lag", "short", "", byNode("warren_replicas_behind{S}")),
			plot("Queues with a replica that is missing", "short", "", byNode("warren_queues_replica_missing{S}")),
			plot("Queues without a replica to spare", "short", "", byNode("warren_queues_quorum_critical{S}")),
			plot("Replicas that sleep", "short", "Their queues have had nothing to do for --sleep-after, and wake with the first use.", byNode("warren_replicas_asleep{S}")),
		}},
		{"Repair", []Panel{
			plot("Queues with replicas to be moved", "short", "", Query{"sum by (state) (warren_repair_queues{S})", "{{state}}"}),
			plot("Plans", "cps", "", rate("warren_repair_plans_total", "reason")),
			plot("Sent to fill replicas", "Bps", "", rate("warren_replica_fill_bytes_total", nodeLabel)),
		}},
		{"Log", []Panel{
			plot("Syncs to disk", "s", "", quantiles("warren_store_sync_seconds")...),
			plot("Syncs", "cps", "", Query{"sum by (instance) (rate(warren_store_sync_seconds_count{S}[R]))", "{{instance}}"}),
			plot("Written", "Bps", "", rate("warren_store_written_bytes_total", nodeLabel)),
			plot("Size", "bytes", "", byNode("warren_store_segment_bytes{S}")),
			plot("Still needed", "bytes", "The rest is given back when whole files are free.", byNode("warren_store_live_bytes{S}")),
			plot("Certificates expire in", "s", "Empty without TLS.", Query{"min by (instance, use) (warren_certificate_expiry_seconds{S})", "{{instance}} {{use}}"}),
			plot("Files made ready", "cps", "recycled costs least, zeroed most.", rate("warren_store_prepared_segments_total", "by")),
		}},
	},
}
