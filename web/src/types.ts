// JSON of the API, as far as the page reads it: RabbitMQ's names.

export interface Rate { rate: number; samples?: { sample: number; timestamp: number }[] }
export type Stats = { [name: string]: number | Rate | undefined };

export interface Paged<T> {
  items: T[];
  total_count: number;
  filtered_count: number;
  item_count: number;
  page: number;
  page_count: number;
  page_size: number;
}

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Table = { [name: string]: Json };

export interface Queue {
  name: string; vhost: string; type: string; durable: boolean; auto_delete: boolean; exclusive: boolean; arguments: Table;
  node: string; leader: string; members: string[] | null; online: string[] | null; state: string;
  policy: string | null; operator_policy: string | null; effective_policy_definition: Table | null;
  consumers: number; messages: number; messages_ready: number; messages_unacknowledged: number; messages_delayed: number;
  messages_dlx: number; message_bytes_dlx: number; messages_parked: number; messages_transferred: number; messages_deduplicated: number;
  message_bytes?: number;
  single_active_consumer_tag?: string | null;
  messages_details?: Rate; messages_ready_details?: Rate; messages_unacknowledged_details?: Rate;
  message_stats?: Stats; consumer_details?: Consumer[];
}

export interface Consumer {
  queue: { name: string; vhost: string };
  consumer_tag: string; ack_required: boolean; exclusive: boolean; prefetch_count: number; active: boolean; activity_status: string;
  arguments: Table; consumer_timeout?: number | null;
  channel_details: { name?: string; connection_name?: string; node?: string; number?: number; peer_host?: string; peer_port?: number; user?: string };
}

export interface Binding {
  source: string; vhost: string; destination: string; destination_type: "queue" | "exchange"; routing_key: string; arguments: Table; properties_key: string;
}

export interface Exchange {
  name: string; vhost: string; type: string; durable: boolean; auto_delete: boolean; internal: boolean; arguments: Table;
  policy?: string | null; message_stats?: Stats;
}

export interface Connection {
  name: string; node: string; user: string; vhost: string; user_provided_name?: string; protocol: string; state: string; auth_mechanism: string;
  peer_host: string; peer_port: number; host: string; port: number; ssl: boolean; ssl_protocol?: string; ssl_cipher?: string;
  peer_cert_subject?: string; channels: number; channel_max: number; frame_max: number; timeout: number; connected_at: number;
  client_properties: Table; recv_oct: number; send_oct: number; recv_oct_details?: Rate; send_oct_details?: Rate;
}

export interface Channel {
  name: string; number: number; node?: string; user: string; vhost: string; prefetch_count: number; global_prefetch_count: number; confirm: boolean;
  transactional: boolean; messages_unacknowledged: number; messages_unconfirmed: number; messages_uncommitted: number; acks_uncommitted: number;
  consumer_count: number; state: string; idle_since?: string | null; connection_details?: { name: string; peer_host?: string; peer_port?: number };
  message_stats?: Stats;
}

export interface Node {
  name: string; running: boolean; being_drained: boolean; uptime?: number; processors?: number; os_pid?: string;
  mem_used?: number; mem_limit?: number; mem_alarm?: boolean; disk_free?: number; disk_free_limit?: number; disk_free_alarm?: boolean;
  fd_used?: number; fd_total?: number; sockets_used?: number;
  warren_state: string; warren_zone: string; warren_version: string; warren_level: number; warren_replicas: number; warren_voter: boolean;
  warren_down_since: number; warren_cluster_addr: string; warren_listeners: Listener[] | null;
}

export interface Listener { node: string; protocol: string; ip_address: string; port: number; purpose: string }

export interface ClusterInfo {
  cluster_id: string; node: string; level: number; catalog_leader: string; catalog_voters: string[]; zones: { [zone: string]: string[] };
}

export interface Overview {
  cluster_name: string; node: string; product_version?: string; rabbitmq_version?: string; default_queue_type?: string;
  object_totals: { connections: number; channels: number; exchanges: number; queues: number; consumers: number };
  queue_totals: { messages?: number; messages_ready?: number; messages_unacknowledged?: number; [name: string]: number | Rate | undefined };
  message_stats: Stats; churn_rates?: Stats; listeners?: Listener[];
}

export interface Message {
  id: number; exchange: string; routing_key: string; routing_keys: string[] | null; properties: Properties;
  payload: string; payload_encoding: "string" | "base64"; payload_bytes: number; truncated: boolean; deaths: Death[];
  redelivered: boolean; priority?: number; acquired_count?: number; delivery_count?: number; expires_at?: number; node?: string;
  reason?: string; died_at?: number; detail?: string; stage?: string; to?: string[]; retried: boolean; deaths_since_retry?: number;
}

export interface Properties { headers?: Table; content_type?: string; content_encoding?: string; [name: string]: Json | undefined }

export interface Death {
  queue: string; reason: string; count: number; first_time: number; last_time: number; exchange: string; routing_keys: string[] | null; original_expiration?: string; detail?: string; count_before_retry?: number;
}

export interface DeadGroup { reason: string; queue: string; messages: number; retried: number; bytes: number; oldest: number; newest: number; ages: number[] }
export interface DeadLetters { groups: DeadGroup[]; never_died: number; looked: number; complete: boolean; age_bounds_ms: number[] }

export interface OutboxStatus {
  id: number; vhost: string; queue: string; delay_of?: string; leader: string; messages_dlx: number; message_bytes_dlx: number; oldest_age_ms: number;
  states: { unrouted: number; routed: number; parked_unrouted: number; parked_cycle: number };
  targets: { id: number; vhost?: string; queue?: string; pending: number; state: string; since: number }[] | null;
  last_error: { text: string; at: number } | null;
  dead_lettered: { [reason: string]: number } | null; confirmed: number; dropped: { [cause: string]: number } | null; stayed: number;
}

export interface RedriveStatus {
  number: number; state: string; started_at: number; ended_at?: number; position: number; tail: number; discard: boolean; to: string; queue?: string; rate?: number;
  moved: number; under_way: number; waits_for?: { vhost?: string; queue?: string; messages?: number; state?: string }[]; returned: number; missing: number; no_origin: number; busy: number;
}

export interface RedrivePlan {
  destinations: { [queue: string]: number }; missing: { [name: string]: number }; no_origin: number; messages: number; looked: number; next?: number;
}

export interface Policy { vhost: string; name: string; pattern: string; "apply-to": string; definition: Table; priority: number }
export interface Vhost { name: string; description: string; tags: string[]; default_queue_type: string; protected_from_deletion: boolean; messages?: number }
export interface User { name: string; tags: string[]; limits: { [name: string]: number }; password_hash: string; hashing_algorithm: string }
export interface Permission { user: string; vhost: string; configure: string; write: string; read: string }
export interface TopicPermission { user: string; vhost: string; exchange: string; write: string; read: string }
export interface Limits { user?: string; vhost?: string; value: { [name: string]: number } }
export interface FeatureFlag { name: string; state: string; stability: string; desc: string; level: number }
export interface ReplicaRow {
  "Node Name": string; "Raft State": string; Membership: string; "Last Log Index": number | ""; "Last Applied": number | ""; "Commit Index": number | "";
  "Snapshot Index": number | ""; Term: number | ""; Lag: number | ""; Planned: string; Election?: string;
}
export interface Whoami { name: string; tags: string[] }
export interface Parameter { vhost: string; component: string; name: string; value: Table }
export interface Shovel {
  node: string; name: string; vhost: string; state: string; reason?: string; timestamp?: string; src_uri?: string; src_queue?: string; src_exchange?: string; src_exchange_key?: string;
  dest_uri?: string; dest_queue?: string; dest_exchange?: string; dest_exchange_key?: string; blocked_status?: string; remaining?: number | string; forwarded: number; pending: number; waiting: number;
}
