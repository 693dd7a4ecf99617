package metrics

import (
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	"github.com/warrenmq/warren/stats"
	"github.com/warrenmq/warren/store"
)

// fakeBroker has fixed figures.
type fakeBroker struct {
	dead    broker.DeadTotals
	traffic broker.Traffic
	figures []broker.QueueFigures
}

func (f *fakeBroker) Traffic() broker.Traffic { return f.traffic }
func (f *fakeBroker) Arrivals() fsm.Arrivals {
	return fsm.Arrivals{Taken: 21, Duplicates: 22, Forgotten: 23}
}
func (f *fakeBroker) DeadTotals() broker.DeadTotals { return f.dead }
func (f *fakeBroker) QueueChurn() broker.QueueChurn {
	return broker.QueueChurn{Declared: 3, Created: 2, Deleted: 1}
}

func (f *fakeBroker) MoveTotals() broker.MoveTotals {
	return broker.MoveTotals{Sent: 9, Full: 2, Unanswered: 1}
}

func (f *fakeBroker) Lives() broker.Lives {
	return broker.Lives{Recovered: 3, Resent: 5, Again: 6, Lost: 7}
}

func (f *fakeBroker) Clients() broker.Clients        { return broker.Clients{Consumers: 4} }
func (f *fakeBroker) Figures() []broker.QueueFigures { return f.figures }

func (f *fakeBroker) UsedQueues(yield func(uint64, *stats.Set)) {
	yield(1, &stats.Set{stats.Get: 1, stats.GetNoAck: 2, stats.Deliver: 3, stats.DeliverNoAck: 4, stats.Redeliver: 5, stats.Ack: 6, stats.GetEmpty: 7})
	yield(99, &stats.Set{stats.Ack: 1}) // it is no more
}

func (f *fakeBroker) ExchangeCounters(yield func(stats.Key, *stats.Set)) {
	yield(broker.ExchangeKey("v", "x"), &stats.Set{stats.PublishIn: 8, stats.PublishOut: 16})
}

func fake() Config {
	b := &fakeBroker{figures: []broker.QueueFigures{
		{
			ID: 1, VHost: "/", Name: "a", Ready: 3, Unacked: 2, Delayed: 1, Bytes: 60, UnackedBytes: 20, Consumers: 2, Held: true, Type: broker.QuorumQueue,
			Outbox: broker.OutboxStates{Routed: 4}, OutboxBytes: 44, OutboxAgeMillis: 2500, Full: 1,
			Counters: fsm.Counters{Published: 10, Transferred: 1},
		},
		{ID: 2, VHost: "v", Name: "b", Ready: 5, OutboxAgeMillis: 100, Outbox: broker.OutboxStates{ParkedCycle: 1}},
		{ID: 3, VHost: "/", Name: "a", Ready: 100, Closing: true}, // one that had the name before
		{ID: 4, VHost: "/", DelayOf: "later", Ready: 7},
	}}
	b.figures[0].Counters.Died[dlx.Rejected] = 6
	b.figures[0].Counters.Redriven = 4
	b.dead.Died[broker.ClassicQueue][broker.AtMostOnce][dlx.QueueRemoved] = 7
	b.figures[0].Counters.Dropped[dlx.Rejected][fsm.DropCycle] = 2
	b.dead.Died[broker.QuorumQueue][broker.AtLeastOnce][dlx.Expired] = 8
	b.dead.Confirmed[broker.ClassicQueue][broker.AtMostOnce] = 5
	b.dead.Dropped[broker.DropUnroutable] = 3
	b.dead.Redriven = 13
	b.dead.Waited[0], b.dead.Waited[3], b.dead.WaitedMillis = 2, 1, 7
	b.traffic.Received = 11
	b.traffic.ByType[broker.ClassicQueue].Acked = 12
	return Config{
		Node:      func() Node { return Node{Name: "n1", Cluster: "c", ClusterID: "c", Product: "Warren", Version: "1"} },
		Resources: func() Resources { return Resources{MemoryBytes: 5, MemoryAlarm: true, OpenFilesMax: 9} },
		Connections: func() []gateway.ConnectionInfo {
			return []gateway.ConnectionInfo{
				{Name: "a -> b", User: "u", VHost: "v", Channels: 3, ReceivedBytes: 70, WrittenBytes: 80}, {Name: "c -> d", User: "u", VHost: "/"},
			}
		},
		Channels: func() []gateway.ChannelInfo {
			return []gateway.ChannelInfo{
				{Connection: &gateway.ConnectionInfo{Name: "a -> b", User: "u", VHost: "v"}, Number: 7, Counted: stats.Set{stats.Publish: 5, stats.Ack: 4}, Prefetch: 9, Limit: 10, Unacked: 2, Consumers: 1},
				{Connection: &gateway.ConnectionInfo{Name: "c -> d", User: "u", VHost: "/"}, Number: 1, Unacked: 3, Unconfirmed: 6},
			}
		},
		Vhosts: func() []string { return []string{"/", "v"} },
		Exchanges: func(vhost string) []Exchange {
			if vhost == "v" {
				return []Exchange{{Name: "x", Type: "topic", Bindings: 4}}
			}
			return []Exchange{{Name: "amq.direct", Type: "direct"}}
		},
		Gateway: func() gateway.Stats {
			return gateway.Stats{Connections: 2, Accepted: 5, Closed: 3, ChannelsOpened: 8, ChannelsClosed: 1}
		},
		GRPC: func() GRPC { return GRPC{Connections: 4, Streams: 9, Accepted: 12} },
		Store: func() store.Stats {
			s := store.Stats{FreeBytes: 1000, Quarantined: 2, Damaged: 5}
			s.SyncTimes.Classes[8], s.SyncTimes.Sum = 4, time.Millisecond
			return s
		},
		Panics: func() map[string]uint64 { return map[string]uint64{"amqp": 2} },
		Life: func() Life {
			return Life{State: "drained", States: []string{"serving", "drained"}, Unready: "disk", Unreadies: []string{"catalog", "disk"}, Steps: map[string]time.Duration{"leaders": 1500 * time.Millisecond}}
		},
		Cluster: func() Cluster { return Cluster{Running: 4, Down: 1, Leaving: 2, Voters: 3} },
		Certificates: func() []Certificate {
			return []Certificate{
				{Use: "clients", NotAfter: time.Now().Add(time.Hour)},
				{Use: "nodes", NotAfter: time.Now().Add(time.Hour), Authorities: time.Now().Add(-90 * time.Minute)},
			}
		},
		Repair: func() Repair {
			return Repair{
				Plans: map[string]uint64{"down": 3}, Refused: 1, Queues: map[string]int{"waiting": 8}, FillBytes: 99, FillWait: 2500 * time.Millisecond,
			}
		},
		Leaders: func() Leaders {
			return Leaders{Searching: 1, WithoutMajority: 14, Closing: 15, Away: 2, Asleep: 10, Critical: 7, Missing: 8, Behind: 9, Elections: 3, Returned: 4, NotGiven: 5, Searches: []uint64{0, 0, 0, 0, 0, 6, 0}, SearchesMS: 120}
		},
		Raft:      func() []Raft { return []Raft{{Queue: 1, Term: 2, Commit: 30}, {Queue: 3, Commit: 5}} },
		Broker:    b,
		QueueName: func(id uint64) (string, string, bool) { return "/", "a", id == 1 },
	}
}

func scrapeText(t *testing.T, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(fake(), slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func TestForms(t *testing.T) {
	for _, tc := range []struct {
		path      string
		has, lack []string
	}{
		{"/metrics", []string{
			`rabbitmq_identity_info{rabbitmq_cluster="c",rabbitmq_cluster_permanent_id="c",rabbitmq_endpoint="aggregated",rabbitmq_node="n1"} 1`,
			`warren_leaders_returned_total{outcome="moved"} 4`, `warren_panics_contained_total{protocol="amqp"} 2`, `warren_panics_contained_total{protocol="http"} 0`, `warren_node_unready{step="disk"} 1`, `warren_node_unready{step="catalog"} 0`, "warren_queues_led_away 2", "warren_queues_without_leader 1", "warren_queues_without_majority 14", "warren_queues_closing 15", "warren_queues_quorum_critical 7", "warren_queues_replica_missing 8", "warren_replicas_behind 9", "warren_replicas_damaged 2", "warren_replicas_damaged_total 5", `warren_leader_search_seconds_bucket{le="0.032"} 6`,
			"rabbitmq_connections 2", "warren_grpc_connections 4", "warren_grpc_streams 9", "warren_grpc_connections_opened_total 12", "rabbitmq_connections_opened_total 5", "rabbitmq_connections_closed_total 3", "rabbitmq_channels 7",
			"rabbitmq_queues 3", "rabbitmq_queue_messages 118", "rabbitmq_queue_messages_ready 115", "rabbitmq_queue_messages_unacked 2",
			"rabbitmq_queue_messages_bytes 60", "rabbitmq_queue_messages_ready_bytes 40", "rabbitmq_queue_messages_unacked_bytes 20",
			"rabbitmq_queue_messages_published_total 21", "warren_queue_duplicates_total 22", "warren_queue_deduplication_ids_forgotten_total 23", "warren_queue_publishers_held 1", "rabbitmq_queue_consumers 2", "rabbitmq_raft_commit_index 35",
			`rabbitmq_global_messages_received_total{protocol="amqp091"} 11`,
			`rabbitmq_global_messages_acknowledged_total{protocol="amqp091",queue_type="rabbit_classic_queue"} 12`,
			`rabbitmq_global_messages_dead_lettered_expired_total{dead_letter_strategy="at_least_once",queue_type="rabbit_quorum_queue"} 8`,
			`rabbitmq_global_messages_dead_lettered_confirmed_total{dead_letter_strategy="at_most_once",queue_type="rabbit_classic_queue"} 5`,
			`rabbitmq_global_messages_dead_lettered_maxlen_total{dead_letter_strategy="disabled",queue_type="rabbit_classic_queue"} 0`,
			`warren_dead_letters_queue_removed_total{dead_letter_strategy="at_most_once",queue_type="rabbit_classic_queue"} 7`,
			`warren_dead_letters_dropped_total{cause="unroutable"} 3`, `warren_outbox_messages{state="routed"} 4`,
			"warren_redriven_messages_total 13", "warren_outbox_oldest_age_seconds 2.5", `warren_outbox_stuck_targets{state="full"} 1`, "warren_transfers_sent_total 9",
			`warren_dead_letter_move_seconds_bucket{le="0.001"} 2`, `warren_dead_letter_move_seconds_bucket{le="0.008"} 3`,
			"warren_dead_letter_move_seconds_sum 0.007", "warren_dead_letter_move_seconds_count 3",
			`warren_store_sync_seconds_bucket{le="0.000256"} 4`, "rabbitmq_alarms_memory_used_watermark 1",
			`warren_repair_plans_total{reason="down"} 3`, "warren_repair_plans_refused_total 1", `warren_repair_queues{state="waiting"} 8`,
			`warren_nodes{state="running"} 4`, `warren_nodes{state="down"} 1`, `warren_nodes{state="leaving"} 2`, "rabbitmq_unreachable_cluster_peers_count 1", "warren_catalog_voters 3", `warren_certificate_expiry_seconds{use="clients"} 3`, `warren_authority_expiry_seconds{use="nodes"} -5`,
			"warren_replica_fill_bytes_total 99", "warren_replica_fill_wait_seconds_total 2.5",
			"process_open_fds", "go_goroutines", "rabbitmq_channel_messages_unacked 5", "rabbitmq_channel_messages_unconfirmed 6", "rabbitmq_channel_consumers 1",
			`rabbitmq_global_publishers{protocol="amqp091"} 1`, "rabbitmq_channel_messages_published_total 11",
		}, []string{`queue="a"`, "connection=", "prefetch", `authority_expiry_seconds{use="clients"`}},
		{"/metrics/per-object", []string{
			`rabbitmq_identity_info{rabbitmq_cluster="c",rabbitmq_cluster_permanent_id="c",rabbitmq_endpoint="per-object",rabbitmq_node="n1"} 1`,
			`rabbitmq_queue_messages_ready{queue="a",vhost="/"} 3`, `rabbitmq_queue_messages_ready{queue="b",vhost="v"} 5`,
			`rabbitmq_queue_messages_ready{queue="exchange later",vhost="/"} 7`, `rabbitmq_raft_commit_index{queue="a",vhost="/"} 30`,
			`rabbitmq_queue_messages_ready_bytes{queue="a",vhost="/"} 40`, `rabbitmq_queue_messages_unacked_bytes{queue="a",vhost="/"} 20`,
			`rabbitmq_global_publishers{protocol="amqp091"} 1`,
			`warren_outbox_messages{queue="b",state="parked_cycle",vhost="v"} 1`, `warren_outbox_oldest_age_seconds{queue="a",vhost="/"} 2.5`,
			`warren_queue_dead_letters_total{queue="a",reason="rejected",vhost="/"} 6`,
			`warren_queue_redriven_total{queue="a",vhost="/"} 4`,
			`warren_queue_dead_letters_dropped_total{cause="cycle",queue="a",vhost="/"} 2`, "rabbitmq_connections 2",
			`rabbitmq_connection_channels{connection="a -> b",user="u",vhost="v"} 3`,
		}, []string{"rabbitmq_cluster_vhost", "rabbitmq_queue_messages_ready 1", `messages_ready{queue="a",vhost="/"} 100`}},
		{"/metrics/detailed?family=connection_coarse_metrics&family=connection_metrics&vhost=v", []string{
			`rabbitmq_detailed_connection_incoming_bytes_total{connection="a -> b",user="u",vhost="v"} 70`,
			`rabbitmq_detailed_connection_outgoing_bytes_total{connection="a -> b",user="u",vhost="v"} 80`,
			`rabbitmq_detailed_connection_channels{connection="a -> b",user="u",vhost="v"} 3`,
		}, []string{`vhost="/"`, "rabbitmq_connections", "queue"}},
		{"/metrics/detailed?family=connection_metrics", []string{`rabbitmq_detailed_connection_channels{connection="c -> d",user="u",vhost="/"} 0`}, []string{"incoming_bytes"}},
		{"/metrics/detailed?family=channel_metrics&vhost=v", []string{
			`rabbitmq_detailed_channel_messages_unacked{channel="7",connection="a -> b",user="u",vhost="v"} 2`,
			`rabbitmq_detailed_channel_prefetch{channel="7",connection="a -> b",user="u",vhost="v"} 10`,
			`rabbitmq_detailed_consumer_prefetch{channel="7",connection="a -> b",user="u",vhost="v"} 9`,
		}, []string{`vhost="/"`, "published_total"}},
		{"/metrics/detailed?family=channel_exchange_metrics&family=channel_queue_metrics", []string{
			`rabbitmq_detailed_channel_messages_published_total{channel="7",connection="a -> b",user="u",vhost="v"} 5`,
			`rabbitmq_detailed_channel_messages_acked_total{channel="7",connection="a -> b",user="u",vhost="v"} 4`,
		}, []string{"prefetch", "global"}},
		{"/metrics/detailed?family=queue_delivery_metrics", []string{
			`rabbitmq_detailed_queue_get_ack_total{queue="a",vhost="/"} 1`, `rabbitmq_detailed_queue_get_total{queue="a",vhost="/"} 2`,
			`rabbitmq_detailed_queue_messages_delivered_ack_total{queue="a",vhost="/"} 3`, `rabbitmq_detailed_queue_messages_delivered_total{queue="a",vhost="/"} 4`,
			`rabbitmq_detailed_queue_messages_redelivered_total{queue="a",vhost="/"} 5`, `rabbitmq_detailed_queue_messages_acked_total{queue="a",vhost="/"} 6`,
			`rabbitmq_detailed_queue_get_empty_total{queue="a",vhost="/"} 7`,
		}, []string{"messages_ready", "channel"}},
		{"/metrics/detailed?family=exchange_metrics", []string{
			`rabbitmq_detailed_exchange_messages_published_total{exchange="x",vhost="v"} 8`, `warren_detailed_exchange_messages_routed_total{exchange="x",vhost="v"} 16`,
		}, []string{`queue="`}},
		{"/metrics/detailed?family=connection_churn_metrics&family=node_coarse_metrics", []string{
			"rabbitmq_detailed_connections_opened_total 5", "rabbitmq_detailed_queues_deleted_total 1", "rabbitmq_detailed_process_resident_memory_bytes 5",
			"rabbitmq_detailed_disk_space_available_bytes 1000",
		}, []string{"max_fds", "queue_messages", "alarms"}},
		{"/metrics/detailed?family=node_metrics", []string{"rabbitmq_detailed_process_max_fds 9"}, []string{"open_fds"}},
		{"/metrics/detailed?family=vhost_status&family=exchange_names", []string{
			`rabbitmq_cluster_vhost_status{vhost="v"} 1`, `rabbitmq_cluster_exchange_name{exchange="x",type="topic",vhost="v"} 1`,
		}, []string{"bindings"}},
		{"/metrics/detailed?family=exchange_bindings&vhost=v", []string{`rabbitmq_cluster_exchange_bindings{exchange="x",type="topic",vhost="v"} 4`}, []string{"vhost_status", `vhost="/"`}},
		{"/metrics/detailed", nil, []string{"rabbitmq_"}},
		{"/metrics/detailed?family=none", nil, []string{"rabbitmq_"}},
		{"/metrics/detailed?family=queue_coarse_metrics", []string{
			`rabbitmq_detailed_queue_messages_ready{queue="a",vhost="/"} 3`, `rabbitmq_detailed_queue_messages{queue="b",vhost="v"} 5`,
		}, []string{"rabbitmq_connections", "queue_consumers", "warren_"}},
		{"/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&family=ra_metrics&vhost=%2F", []string{
			`rabbitmq_detailed_queue_messages_ready{queue="a",vhost="/"} 3`, `rabbitmq_detailed_queue_consumers{queue="a",vhost="/"} 2`,
			`rabbitmq_detailed_raft_commit_index{queue="a",vhost="/"} 30`,
		}, []string{`vhost="v"`}},
		{"/metrics/detailed?family=channel_metrics&family=channel_exchange_metrics", nil, []string{"global_publishers"}},
		{"/metrics/detailed?family=warren_outbox", []string{`warren_detailed_outbox_messages{queue="a",state="routed",vhost="/"} 4`}, []string{"rabbitmq", "\nwarren_outbox"}},
	} {
		text := "\n" + scrapeText(t, tc.path)
		for _, want := range tc.has {
			if !strings.Contains(text, "\n"+want) {
				t.Errorf("%s: no %s", tc.path, want)
			}
		}
		for _, not := range tc.lack {
			if strings.Contains(text, not) {
				t.Errorf("%s has %s", tc.path, not)
			}
		}
		if t.Failed() {
			t.Fatal(text)
		}
	}
}

// Our own names follow Prometheus' rules; RabbitMQ's are as they are.
func TestLint(t *testing.T) {
	for _, path := range []string{"/metrics", "/metrics/per-object"} {
		problems, err := promlint.New(strings.NewReader(scrapeText(t, path))).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "warren_") {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	}
}

// parse reads an answer as Prometheus does.
func parse(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return families
}

// What clients name as they like comes out whole, and what no label can hold spoils nothing else.
func TestStrangeNames(t *testing.T) {
	for name, want := range map[string]string{
		"plain": "plain", "a \"b\" \\ c\nd": "a \"b\" \\ c\nd", "ä–𝛼": "ä–𝛼", "a\xffb\xc3": `a\xffb\xc3`, "\uFFFD": "\uFFFD", "\x00": "\x00", "": "",
	} {
		cfg := fake()
		cfg.Broker.(*fakeBroker).figures = []broker.QueueFigures{{VHost: name, Name: name, Ready: 3}}
		for _, path := range []string{"/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics"} {
			w := httptest.NewRecorder()
			Handler(cfg, slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
			families := parse(t, w.Body.String())
			f := families["rabbitmq_queue_messages_ready"]
			if f == nil {
				f = families["rabbitmq_detailed_queue_messages_ready"]
			}
			got := f.GetMetric()[0]
			if len(got.Label) != 2 || got.Label[0].GetValue() != want || got.Label[1].GetValue() != want || got.GetGauge().GetValue() != 3 {
				t.Errorf("%s: %q became %v", path, name, got)
			}
		}
	}
}

func FuzzLabel(f *testing.F) {
	f.Add("a\xff\\x", "\"\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		text := newForm("m", []string{"b", "a"}).append([]byte("# TYPE m gauge\n"), 1.5, []string{b, a})
		got := parse(t, string(text))["m"].GetMetric()[0]
		if got.GetGauge().GetValue() != 1.5 || len(got.Label) != 2 || got.Label[0].GetName() != "a" {
			t.Fatalf("%v", got)
		}
		if utf8.ValidString(a) && got.Label[0].GetValue() != a || utf8.ValidString(b) && got.Label[1].GetValue() != b {
			t.Fatalf("%q and %q became %v", a, b, got)
		}
	})
}

// All that is counted and shown is of the kind that is said, and a histogram's classes add up.
func TestWellFormed(t *testing.T) {
	for _, path := range []string{"/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics&family=ra_metrics&family=warren_outbox"} {
		for name, f := range parse(t, scrapeText(t, path)) {
			if f.GetHelp() == "" || f.GetType() == dto.MetricType_UNTYPED {
				t.Errorf("%s: %s is %v, %q", path, name, f.GetType(), f.GetHelp())
			}
			for _, m := range f.GetMetric() {
				if h := m.GetHistogram(); h != nil && h.Bucket[len(h.Bucket)-1].GetCumulativeCount() != h.GetSampleCount() {
					t.Errorf("%s: %v", name, h)
				}
			}
		}
	}
}

// Who accepts gzip gets it, and more than some requests at once are refused.
func TestHandler(t *testing.T) {
	cfg := fake()
	entered, leave := make(chan struct{}, inFlightMax), make(chan struct{})
	cfg.Leaders = func() Leaders {
		entered <- struct{}{}
		<-leave
		return Leaders{}
	}
	h := Handler(cfg, slog.New(slog.DiscardHandler))
	get := func() *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		r.Header.Set("Accept-Encoding", "gzip")
		h.ServeHTTP(w, r)
		return w
	}
	answers := make(chan *httptest.ResponseRecorder, inFlightMax)
	for range inFlightMax {
		go func() { answers <- get() }()
	}
	for range inFlightMax {
		<-entered
	}
	if w := get(); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one too many gets %d", w.Code)
	}
	close(leave)
	for range inFlightMax {
		w := <-answers
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(w.Code, w.Header(), err)
		}
		text, err := io.ReadAll(z)
		if err != nil || w.Header().Get("Content-Type") != contentType || !strings.Contains(string(text), "\nprocess_open_fds ") {
			t.Errorf("%v %v %.100s", err, w.Header(), text)
		}
	}
}

// Every metric is in the documents, and they name no other.
func TestDocumentedNames(t *testing.T) {
	raw, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := Names()
	documented := regexp.MustCompile("`((?:rabbitmq|warren)_[a-z0-9_]+)").FindAllStringSubmatch(string(raw), -1)
	var found []string
	for _, m := range documented {
		name := m[1]
		name = strings.Replace(name, "_detailed_", "_", 1)
		found = append(found, name)
		if !slices.Contains(names, name) && name != familyOutbox && name != "rabbitmq_" && name != "warren_" {
			t.Errorf("docs/operations.md names %s, which is not there", name)
		}
	}
	for _, name := range names {
		if !slices.Contains(found, name) {
			t.Errorf("docs/operations.md does not name %s", name)
		}
	}
}

// BenchmarkScrape reads 10,000 queues.
func BenchmarkScrape(b *testing.B) {
	cfg := fake()
	figures := make([]broker.QueueFigures, 10_000)
	for i := range figures {
		figures[i] = broker.QueueFigures{ID: uint64(i), VHost: "/", Name: fmt.Sprint("queue ", i)}
	}
	cfg.Broker.(*fakeBroker).figures = figures
	for _, m := range []struct {
		name string
		mode mode
	}{{"aggregated", aggregated}, {"per-object", perObject}} {
		b.Run(m.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if text := (&request{cfg: &cfg, mode: m.mode}).collect(); len(text) == 0 {
					b.Fatal()
				}
			}
		})
	}
}
