package management

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

func (f *fakeBroker) NodeCounters() (sum stats.Set) {
	for _, s := range f.vhostUsed {
		sum.Add(s)
	}
	return sum
}

func (f *fakeBroker) VhostCounters() map[string]*stats.Set { return f.vhostUsed }

func (f *fakeBroker) ExchangeCounters(yield func(stats.Key, *stats.Set)) {
	for name, s := range f.exchangesUsed {
		yield(stats.Key{Kind: stats.Exchange, Name: name}, &s)
	}
}

func (f *fakeBroker) CountExchanges(string) int { return 7 }

// figured are three nodes: a leads the first queue, b the second, nobody the third. Clients of a and b use the first.
func figured() *fakeCluster {
	f := newFakeCluster("a", "b", "c")
	queues := []broker.QueueInfo{
		{VHost: "/", Name: "first", Type: "quorum", State: "running", Members: []string{"a"}, Online: []string{"a"}, Arguments: amqp.Table{{Name: "x-single-active-consumer", Value: true}}},
		{VHost: "/", Name: "second", Type: "classic", State: "running"},
		{VHost: "/", Name: "third", Type: "classic", State: "running", Ready: 77, Consumers: 5, Leader: "x"},
		{VHost: "v", Name: "other", Type: "classic", State: "minority"},
	}
	for name, a := range f.apis {
		a.cfg.Cluster = fakeNodes{local: name + "/uuid"}
		a.cfg.Product = func() (string, string) { return "Warren", "1.2.3" }
		b := &fakeBroker{vhosts: map[string][]string{"/": {"manager"}, "v": {}}, queues: queues, asked: new(atomic.Int64), vhostUsed: map[string]*stats.Set{}}
		a.cfg.Broker = b
		a.cfg.Churn = func(yield func(stats.Key, *stats.Set)) {
			yield(stats.Key{Kind: stats.Churn}, &stats.Set{stats.QueueCreated: 3})
		}
		switch name {
		case "a":
			b.rows = []broker.QueueRow{{ID: 1, Session: 9, Ready: 5, Unacked: 2, Bytes: 700, UnackedBytes: 200, Consumers: 2, ActiveNode: 2, ActiveNumber: 8}, {ID: 2, Session: 1, Ready: 999}}
			b.used = map[uint64]stats.Set{1: {stats.Publish: 10, stats.Get: 1}}
			b.vhostUsed["/"] = &stats.Set{stats.Publish: 10, stats.Get: 1}
			b.vhostUsed["v"] = &stats.Set{stats.Publish: 4}
			b.exchangesUsed = map[string]stats.Set{"/\x00logs": {stats.PublishIn: 1, stats.PublishOut: 3}}
		case "b":
			b.rows = []broker.QueueRow{{ID: 2, Session: 4, Ready: 1}}
			b.used = map[uint64]stats.Set{1: {stats.Publish: 5, stats.Deliver: 6, stats.Ack: 4}}
			b.vhostUsed["/"] = &stats.Set{stats.Publish: 5, stats.Deliver: 6, stats.Ack: 4}
			b.exchangesUsed = map[string]stats.Set{"/\x00logs": {stats.PublishIn: 2, stats.PublishOut: 2}}
			peer, local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4000}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 5672}
			for no := uint64(7); no < 9; no++ {
				b.consumers = append(b.consumers, broker.ConsumerInfo{
					QueueID: 1, VHost: "/", Queue: "first", Tag: fmt.Sprint("tag ", no), Node: 2, No: no, NoAck: no == 7, Prefetch: 10, User: "guest", Peer: peer, Local: local, Channel: 3, Delivered: no, TimeoutMillis: 1800,
				})
			}
			f.nodes["b"].channels = []Channel{
				{Name: "b -> x (1)", Number: 1, User: "manager", VHost: "/", Node: "b", ConnectionDetails: ConnectionDetails{Name: "b -> x"}},
				{Name: "b -> x (2)", Number: 2, User: "manager", VHost: "/", Node: "b", ConnectionDetails: ConnectionDetails{Name: "b -> x"}},
			}
			f.nodes["b"].list = []Connection{{Name: "b -> x", Node: "b", User: "manager", VHost: "/", Channels: 2}}
		}
		a.cfg.Sampler = stats.New(func(yield func(stats.Key, *stats.Set)) {
			for id, s := range b.used {
				yield(stats.Key{Kind: stats.Queue, ID: id}, &s)
			}
			for _, r := range b.rows {
				yield(stats.Key{Kind: stats.Led, ID: r.ID}, &stats.Set{stats.Ready: r.Ready, stats.Unacked: r.Unacked})
			}
			for name, s := range b.vhostUsed {
				yield(stats.Key{Kind: stats.VHost, Name: name}, s)
			}
			node := b.NodeCounters()
			yield(stats.Key{Kind: stats.Node}, &node)
		})
		f.nodes[name].channels = append(f.nodes[name].channels, Channel{
			Name: name + " -> y (1)", Number: 1, User: "other", VHost: "v", Node: name, ConnectionDetails: ConnectionDetails{Name: name + " -> y"},
		})
	}
	return f
}

// get decodes an answer of node c.
func (f *fakeCluster) get(t *testing.T, user, path string, to any) {
	t.Helper()
	status, body, _ := f.do(t, "c", user, "GET", path)
	if err := json.Unmarshal([]byte(body), to); status != 200 || err != nil {
		t.Fatalf("%s: %d %s: %v", path, status, body, err)
	}
}

func TestQueueFigures(t *testing.T) {
	f := figured()
	names := func(user, path string) string {
		t.Helper()
		var list []Queue
		f.get(t, user, path, &list)
		var out []string
		for _, q := range list {
			out = append(out, fmt.Sprint(q.Name, "=", q.Messages))
		}
		return strings.Join(out, " ")
	}
	asked := func() (n int64) { return f.apis["c"].cfg.Broker.(*fakeBroker).asked.Load() }
	for _, tc := range []struct{ user, query, want string }{
		{"admin", "", "first=7 second=1 third=77 other=0"},
		{"manager", "", "first=7 second=1 third=77"},
		{"admin", "?sort=messages&sort_reverse=true", "first=7 second=1 other=0 third=77"}, // nobody told of the third
		{"admin", "?sort=name", "first=7 other=0 second=1 third=77"},
		{"admin", "?sort=vhost&name=o", "second=1 other=0"},
		{"admin", "?sort=type", "second=1 third=77 other=0 first=7"},
		{"admin", "?sort=state&sort_reverse=true", "third=77 second=1 first=7 other=0"},
		{"admin", "?sort=message_stats.publish&sort_reverse=true&name=first", "first=7"},
		{"admin", "/%2F?sort=leader&sort_reverse=true", "second=1 first=7 third=77"},
		{"admin", "/detailed?name=second", "second=1"},
		{"admin", "?disable_stats=true&enable_queue_totals=true&name=first", "first=7"},
	} {
		if got := names(tc.user, "/api/queues"+tc.query); got != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.user, tc.query, got, tc.want)
		}
	}
	before := asked()
	if _, body, _ := f.do(t, "c", "admin", "GET", "/api/queues?disable_stats=true&name=first"); body !=
		`[{"arguments":{"x-single-active-consumer":true},"auto_delete":false,"durable":false,"effective_policy_definition":{},"exclusive":false,"members":["a"],"name":"first","online":["a"],"operator_policy":null,"policy":null,"state":"running","type":"quorum","vhost":"/"}]` {
		t.Error(body)
	}
	var page Page
	f.get(t, "admin", "/api/queues?page=1&page_size=2", &page)
	if page.TotalCount != 4 || page.ItemCount != 2 || asked() != before {
		t.Errorf("%+v, asked %d times", page, asked()-before)
	}

	f.apis["a"].cfg.Broker.(*fakeBroker).incoming = map[uint64][]broker.Incoming{1: {{Exchange: "x", Publish: 3}, {Exchange: "", Publish: 10}}}
	f.apis["c"].cfg.Broker.(*fakeBroker).incoming = map[uint64][]broker.Incoming{1: {{Exchange: "x", Publish: 2}}}
	var q map[string]any
	f.get(t, "admin", "/api/queues/%2F/first", &q)
	if raw, _ := json.Marshal(q["incoming"]); string(raw) != `[{"exchange":{"name":"","vhost":"/"},"stats":{"publish":10,"publish_details":{"rate":0}}},`+
		`{"exchange":{"name":"x","vhost":"/"},"stats":{"publish":5,"publish_details":{"rate":0}}}]` {
		t.Errorf("%s", raw)
	}
	s, _ := q["message_stats"].(map[string]any)
	for name, want := range map[string]float64{"publish": 15, "deliver": 6, "get": 1, "ack": 4, "deliver_get": 7, "redeliver": 0} {
		if s[name] != want {
			t.Errorf("%s is %v, want %v", name, s[name], want)
		}
	}
	if q["message_bytes"] != 700.0 || q["message_bytes_ready"] != 500.0 || q["message_bytes_unacknowledged"] != 200.0 || q["single_active_consumer_tag"] != "tag 8" {
		t.Errorf("%v", q)
	}
	if d, _ := q["consumer_details"].([]any); len(d) != 2 {
		t.Errorf("%v", q["consumer_details"])
	}
	if raw, _ := json.Marshal(q["deliveries"]); !strings.Contains(string(raw), `"stats":{"deliver":8,"deliver_get":15,"deliver_no_ack":7}`) {
		t.Errorf("%s", raw)
	}

	// The others are shown without a node that does not answer.
	f.lost["a"] = true
	f.apis["c"].tables.table = nil
	if got := names("admin", "/api/queues?sort=messages"); got != "third=77 other=0 second=1 first=7" {
		t.Errorf("by what a told before: %s", got)
	}
	old := f.apis["c"].tables.told["a"]
	old.at = old.at.Add(-keepTold)
	f.apis["c"].tables.table, f.apis["c"].tables.told["a"] = nil, old
	if got := names("admin", "/api/queues?sort=messages"); got != "first=0 third=77 other=0 second=1" {
		t.Errorf("without a: %s", got)
	}
	if n := len(f.apis["c"].tables.told); n != 1 {
		t.Errorf("what %d nodes told is kept", n)
	}
}

// TestSlowNode: a list does not wait for a node that does not answer in time, if it has told of its queues a moment ago.
func TestSlowNode(t *testing.T) {
	f := figured()
	a := f.apis["c"]
	a.queueTable(t.Context())
	call := a.cfg.Call
	a.cfg.Call = func(ctx context.Context, node string, req []byte) ([]byte, error) {
		if node == "a" {
			if end, ok := ctx.Deadline(); !ok || time.Until(end) > tellTime {
				t.Errorf("it is waited for until %s", end)
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return call(ctx, node, req)
	}
	a.tables.table = nil
	table := a.queueTable(t.Context())
	if q := table.of(1); q.leader != "a" || q.row.Ready == 0 {
		t.Errorf("%+v", q)
	}
}

func TestConsumersAndChannels(t *testing.T) {
	f := figured()
	var consumers []map[string]any
	f.get(t, "admin", "/api/consumers", &consumers)
	if len(consumers) != 2 || consumers[0]["active"] != false || consumers[0]["activity_status"] != "waiting" || consumers[1]["activity_status"] != "single_active" ||
		consumers[0]["ack_required"] != false || consumers[1]["consumer_timeout"] != 1800.0 {
		t.Fatalf("%v", consumers)
	}
	if raw, _ := json.Marshal(consumers[1]["channel_details"]); string(raw) !=
		`{"connection_name":"10.0.0.1:4000 -\u003e 10.0.0.2:5672","name":"10.0.0.1:4000 -\u003e 10.0.0.2:5672 (3)","node":"b","number":3,"peer_host":"10.0.0.1","peer_port":4000,"user":"guest"}` {
		t.Errorf("%s", raw)
	}
	for path, want := range map[string]int{"/api/consumers/v": 0, "/api/consumers/%2F": 2} {
		if f.get(t, "admin", path, &consumers); len(consumers) != want {
			t.Errorf("%s: %v", path, consumers)
		}
	}
	f.lists(t, "c", []listCase{
		{"monitor", "/api/channels", 200, "a -> y (1), b -> x (1), b -> x (2), b -> y (1), c -> y (1)"},
		{"manager", "/api/channels", 200, "b -> x (1), b -> x (2)"},
		{"other", "/api/channels?name=a", 200, "a -> y (1)"},
		{"admin", "/api/vhosts/%2F/channels", 200, "b -> x (1), b -> x (2)"},
		{"manager", "/api/connections/b%20-%3E%20x/channels", 200, "b -> x (1), b -> x (2)"},
		{"other", "/api/connections/b%20-%3E%20x/channels", 401, ""},
		{"admin", "/api/connections/none/channels", 404, ""},
		{"other", "/api/channels/b%20-%3E%20x%20(1)", 401, ""},
		{"admin", "/api/channels/none", 404, ""},
		{"manager", "/api/consumers/v", 401, ""},
	})
	var c Channel
	if f.get(t, "manager", "/api/channels/b%20-%3E%20x%20(2)", &c); c.Number != 2 || c.Node != "b" {
		t.Errorf("%+v", c)
	}
	f.lost["b"] = true
	var list []Channel
	if f.get(t, "admin", "/api/channels", &list); len(list) != 2 {
		t.Errorf("without b: %v", list)
	}
}

func TestOverview(t *testing.T) {
	f := figured()
	clock := time.Now().Truncate(stats.Interval)
	now := clock.UnixMilli()
	for _, a := range f.apis {
		a.now = func() time.Time { return clock }
		b := a.cfg.Broker.(*fakeBroker)
		full := b.vhostUsed["/"]
		if full != nil {
			b.vhostUsed["/"] = &stats.Set{}
		}
		a.cfg.Sampler.Sample(now - 10_000)
		a.cfg.Sampler.Sample(now - 5_000)
		if full != nil {
			b.vhostUsed["/"] = full
		}
		a.cfg.Sampler.Sample(now)
	}
	type seen struct {
		Totals  map[string]int          `json:"object_totals"`
		Stats   map[string]any          `json:"message_stats"`
		Queues  map[string]any          `json:"queue_totals"`
		Churn   map[string]any          `json:"churn_rates"`
		Name    string                  `json:"product_name"`
		Version string                  `json:"rabbitmq_version"`
		Types   []struct{ Name string } `json:"exchange_types"`
		Node    string                  `json:"node"`
		Cluster string                  `json:"cluster_name"`
	}
	var o seen
	f.get(t, "admin", "/api/overview?msg_rates_age=20&msg_rates_incr=5&lengths_age=10&lengths_incr=5", &o)
	if fmt.Sprint(o.Totals) != "map[channels:2 connections:1 consumers:2 exchanges:14 queues:4]" {
		t.Errorf("%v", o.Totals)
	}
	d, _ := o.Stats["publish_details"].(map[string]any)
	if o.Stats["publish"] != 19.0 || o.Stats["deliver_get"] != 7.0 || d["rate"] != 3.0 || o.Queues["messages"] != 8.0 || o.Queues["warren_queues_uncounted"] != 2.0 || o.Churn["queue_created"] != 9.0 {
		t.Errorf("%+v", o)
	}
	samples, _ := d["samples"].([]any)
	if len(samples) != 5 || samples[0].(map[string]any)["sample"] != 19.0 || samples[1].(map[string]any)["sample"] != 4.0 {
		t.Errorf("%v", d)
	}
	if o.Cluster != "shop" { // what people call it, as in RabbitMQ, not its id
		t.Errorf("the cluster's name is %q", o.Cluster)
	}
	if o.Name != "Warren" || o.Version != "1.2.3" || len(o.Types) != 9 || o.Node != "c" {
		t.Errorf("%+v", o)
	}
	o = seen{}
	f.get(t, "manager", "/api/overview", &o)
	if o.Stats["publish"] != 15.0 || o.Totals["queues"] != 3 || o.Queues["messages"] != 8.0 || o.Churn != nil {
		t.Errorf("a manager sees %+v", o)
	}
	for query, want := range map[string]int{"msg_rates_age=0&msg_rates_incr=5": 400, "lengths_age=5000&lengths_incr=1": 400, "lengths_age=x&lengths_incr=1": 200} {
		if status, body, _ := f.do(t, "c", "admin", "GET", "/api/overview?"+query); status != want {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}

	var vhosts []map[string]any
	f.get(t, "admin", "/api/vhosts?sort=messages&sort_reverse=true", &vhosts)
	if len(vhosts) != 2 || vhosts[0]["name"] != "/" || vhosts[0]["messages"] != 8.0 || vhosts[0]["message_stats"].(map[string]any)["publish"] != 15.0 || vhosts[1]["messages"] != 0.0 {
		t.Errorf("%v", vhosts)
	}
	if counts := f.apis["c"].exchangeCounts(t.Context()); counts["/\x00logs"].Set[stats.PublishIn] != 3 || counts["/\x00logs"].Set[stats.PublishOut] != 5 {
		t.Errorf("%v", counts)
	}
}

// Any table that is written is read as it was.
func TestTableRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64())
		b := &fakeBroker{used: map[uint64]stats.Set{}}
		for _, id := range rapid.SliceOfNDistinct(rapid.Uint64(), 0, 5, rapid.ID[uint64]).Draw(t, "led") {
			r := broker.QueueRow{ID: id}
			for _, f := range rowFields(&r) {
				*f = number.Draw(t, "field")
			}
			b.rows = append(b.rows, r)
		}
		for _, id := range rapid.SliceOfNDistinct(rapid.Uint64(), 0, 5, rapid.ID[uint64]).Draw(t, "used") {
			var s stats.Set
			for i := range s {
				s[i] = number.Draw(t, "counter")
			}
			b.used[id] = s
		}
		a := &API{cfg: Config{Broker: b, Sampler: stats.New()}}
		table := newTable(0)
		raw := a.encodeTable()
		if err := table.decode(raw, "n"); err != nil {
			t.Fatal(err)
		}
		for _, r := range b.rows {
			f, id, session := table.of(r.ID), r.ID, r.Session
			if r.ID, r.Session = 0, 0; *f.row != r || f.session != session || f.leader != "n" {
				t.Fatalf("%d: %+v, want %+v", id, f.row, r)
			}
		}
		for id, s := range b.used {
			if got := table.of(id).counted().Set; got != s {
				t.Fatalf("%v, want %v", got, s)
			}
		}
		for cut := range len(raw) {
			other := newTable(0)
			if err := other.decode(raw[:cut], "n"); err == nil {
				t.Fatalf("%d of %d bytes are a table", cut, len(raw))
			}
		}
	})
}

func FuzzTable(f *testing.F) {
	a := figured().apis["a"]
	a.cfg.Sampler.Sample(1_000)
	a.cfg.Sampler.Sample(2_000)
	f.Add(a.encodeTable())
	f.Add([]byte{1, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, raw []byte) {
		table := newTable(0)
		_ = table.decode(raw, "n")
		for _, q := range table.queues {
			if math.IsNaN(q.readyRate) || math.IsInf(q.counted().Rates[0], 0) {
				t.Fatal("a rate that is none")
			}
		}
	})
}
