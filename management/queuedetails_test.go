package management

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// Details come from the node that leads and are of the queues on the page; when a queue was used last, from all nodes.
func TestQueueDetails(t *testing.T) {
	f := figured()
	at := uint64(1234)
	clock := time.Now()
	for _, a := range f.apis {
		a.now = func() time.Time { return clock }
	}
	now := clock.UnixMilli()
	peer, local := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 4}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 5672}
	f.apis["a"].cfg.Broker.(*fakeBroker).details = map[uint64]broker.QueueDetail{
		1: {Session: 9, Memory: 5000, HeadTimestamp: &at, Since: now - 3_600_000, Owner: peer, OwnerLocal: local},
		2: {Session: 1, Memory: 1}, // it does not know that it leads no more
	}
	f.apis["b"].cfg.Broker.(*fakeBroker).details = map[uint64]broker.QueueDetail{2: {Session: 4, Memory: 7000, Since: now - 60_000}}

	var q map[string]any
	f.get(t, "admin", "/api/queues/%2F/first", &q)
	for _, name := range []string{"consumer_details", "deliveries", "incoming"} { // tools count them
		if list, ok := q[name].([]any); !ok {
			t.Errorf("%s of a queue is %v, want a list", name, list)
		}
	}
	owner, _ := q["owner_pid_details"].(map[string]any)
	if q["memory"] != 5000.0 || q["head_message_timestamp"] != 1234.0 || q["idle_since"] != Instant(now-3_600_000) ||
		owner["name"] != "10.0.0.9:4 -> 10.0.0.2:5672" || owner["peer_host"] != "10.0.0.9" || owner["peer_port"] != 4.0 {
		t.Errorf("%v", q)
	}
	var list []map[string]any
	f.get(t, "admin", "/api/queues?name=first", &list)
	if q := list[0]; q["head_message_timestamp"] != 1234.0 || q["messages_persistent"] != 7.0 || q["messages_ram"] != 0.0 || q["message_bytes_persistent"] != 700.0 || q["message_bytes_ram"] != 0.0 {
		t.Errorf("%v", q)
	}
	// A client of b has used it, by what that node has sampled.
	f.apis["b"].cfg.Sampler.Sample(now - 20_000)
	if f.get(t, "admin", "/api/queues/%2F/first", &q); q["idle_since"] != Instant(now-20_000) {
		t.Errorf("%v", q["idle_since"])
	}
	f.apis["a"].cfg.Sampler.Sample(now)
	q = nil
	if f.get(t, "admin", "/api/queues/%2F/first", &q); q["idle_since"] != nil {
		t.Errorf("%v", q["idle_since"])
	}

	list = nil
	f.get(t, "admin", "/api/queues?sort=memory&sort_reverse=true&columns=name,memory", &list)
	if text := fmt.Sprint(list); text != "[map[memory:7000 name:second] map[memory:5000 name:first] map[name:other] map[name:third]]" {
		t.Error(text)
	}
	of := func() int { return f.apis["a"].cfg.Broker.(*fakeBroker).detailed }
	before := of()
	for _, query := range []string{"columns=name,messages", "disable_stats=true", "disable_stats=true&enable_queue_totals=true"} {
		f.get(t, "admin", "/api/queues?"+query, &list)
	}
	if of() != before {
		t.Error("details are asked for that nobody wants")
	}
	var page Page
	f.get(t, "admin", "/api/queues?page=1&page_size=1", &page)
	if of() != before+1 {
		t.Errorf("%d details for a page of one", of()-before)
	}

	// A list of all of many has none; its columns may ask for them, in as many questions as it takes.
	b := f.apis["c"].cfg.Broker.(*fakeBroker)
	for i := range 2 * detailsBatch {
		b.queues = append(b.queues, broker.QueueInfo{VHost: "/", Name: fmt.Sprint("many ", i), State: "running", Leader: "c"})
		b.rows = append(b.rows, broker.QueueRow{ID: uint64(i + 5), Session: 1})
	}
	f.apis["c"].tables.table = nil
	before = of()
	_, body, _ := f.do(t, "c", "admin", "GET", "/api/queues")
	if of() != before || strings.Contains(body, `"memory"`) {
		t.Error("a list of thousands has details")
	}
	list = nil
	f.get(t, "admin", "/api/queues?columns=memory", &list)
	if of() != before+2*detailsBatch+4 || list[0]["memory"] != 5000.0 {
		t.Errorf("%d details, %v", of()-before, list[0])
	}
}

// The capacity is what of the last seconds the consumers were not all busy.
func TestConsumerCapacity(t *testing.T) {
	f := figured()
	a := f.apis["a"]
	blocked := uint64(0)
	a.cfg.Sampler = stats.New(func(yield func(stats.Key, *stats.Set)) {
		yield(stats.Key{Kind: stats.Led, ID: 1}, &stats.Set{stats.Ready: 5, stats.Blocked: blocked})
	})
	for at, tc := range []struct {
		blocked uint64
		want    float64
	}{{0, 1}, {2000, 0.6}, {7000, 0}, {13000, 0}, {100, 1}, {100, 1}} { // more than five seconds: the clocks differ; less: another leader
		blocked = tc.blocked
		a.cfg.Sampler.Sample(int64(at+1) * 5000)
		f.apis["c"].tables.table = nil
		var q map[string]any
		f.get(t, "admin", "/api/queues/%2F/first", &q)
		if q["consumer_capacity"] != tc.want || q["consumer_utilisation"] != tc.want {
			t.Errorf("sample %d: %v, want %v", at, q["consumer_capacity"], tc.want)
		}
		if f.get(t, "admin", "/api/queues/%2F/second", &q); q["consumer_capacity"] != 0.0 {
			t.Errorf("without consumers: %v", q["consumer_capacity"])
		}
	}
}
