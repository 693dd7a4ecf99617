package management

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// manyQueues is the API of one of three nodes with n queues, which were all used.
func manyQueues(n int) *API {
	f := newFakeCluster("a", "b", "c")
	var queues []broker.QueueInfo
	for i := range n {
		queues = append(queues, broker.QueueInfo{
			VHost: "/", Name: fmt.Sprintf("queue %05d", i*7919%n), State: []string{"running", "minority"}[i%2], Type: []string{"quorum", "classic"}[i%2],
			Policy: []string{"", "b", "a"}[i%3], Durable: i%2 == 0, Members: []string{"a", "b", "c"}, Online: []string{"a", "b", "c"},
		})
	}
	for i, name := range []string{"a", "b", "c"} {
		a := f.apis[name]
		a.cfg.Cluster = fakeNodes{local: name}
		fb := &fakeBroker{vhosts: map[string][]string{"/": {"admin"}}, queues: queues, used: map[uint64]stats.Set{}}
		for id := i; id < n; id += 3 {
			u := uint64(id)
			fb.rows = append(fb.rows, broker.QueueRow{ID: u + 1, Session: 1 << 21, Ready: u, Consumers: 1, Bytes: 100 * u})
			fb.used[u+1] = stats.Set{stats.Publish: u, stats.Deliver: u, stats.Ack: u}
		}
		a.cfg.Broker = fb
	}
	return f.apis["a"]
}

// sortedPage asks for the third hundred.
func sortedPage(t testing.TB, a *API, sort string) []Queue {
	r := httptest.NewRequest(http.MethodGet, "/api/queues?page=3&page_size=100&sort="+sort, http.NoBody)
	answer, err := a.queueList(r, slices.Clone(a.cfg.Broker.QueueNames("")))
	if err != nil {
		t.Fatal(err)
	}
	return answer.(Page).Items.([]Queue)
}

// sortedBy are the columns of the management page, and others.
var sortedBy = []string{
	"", "name", "vhost", "type", "state", "policy", "operator_policy", "durable", "auto_delete", "exclusive", "messages_ready", "messages_unacknowledged",
	"messages", "messages_dlx", "message_stats.publish_details.rate", "message_stats.deliver_get_details.rate", "message_stats.ack_details.rate", "consumers",
	"leader", "messages_delayed", "messages_parked", "messages_transferred", "message_bytes",
}

// TestSortIsByWhatIsShown: the short ways to what queues are sorted by give what their JSON does.
func TestSortIsByWhatIsShown(t *testing.T) {
	a := manyQueues(400)
	table := a.queueTable(t.Context())
	names := a.cfg.Broker.QueueNames("")
	shown := a.describeQueues(t.Context(), names, table, nil, false)
	for _, sort := range sortedBy[1:] {
		q := listQuery{}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/?sort="+sort, http.NoBody)
		if err == nil {
			q, err = readListQuery(r)
		}
		if err != nil {
			t.Fatal(err)
		}
		of := a.queueKeys(names, table, nil, q.sort)
		for i := range names {
			if shown[i].State != "running" && (sort == "leader" || figureKey(q.sort) != nil) {
				continue // nobody is asked for its figures, but who led it may have told them
			}
			if got, want := of(i), keyOf(&shown[i], q.sort); got != want {
				t.Fatalf("sort=%s: %+v, shown is %+v", sort, got, want)
			}
		}
	}
}

// TestSortIsCheap bounds what a page costs for each queue that is not on it, by the memory that is allocated: with ten thousand queues each
// object more is a millisecond, and work for the collector.
func TestSortIsCheap(t *testing.T) {
	const n = 6_000
	a := manyQueues(n)
	a.queueTable(t.Context())
	a.tables.until = time.Now().Add(time.Hour) // a table that is made anew is not the page's cost
	for _, sort := range sortedBy {
		objects := testing.AllocsPerRun(3, func() { sortedPage(t, a, sort) })
		// The hundred that are shown take some sixty objects each, an outline of a fake broker one.
		if most := 100*100 + 1.2*n; objects > most {
			t.Errorf("sort=%s: %.0f objects, want %.0f at most", sort, objects, most)
		}
	}
}

// BenchmarkQueueList makes a page of a hundred queues of ten thousand from the tables of three nodes.
func BenchmarkQueueList(b *testing.B) {
	a := manyQueues(10_000)
	for _, sort := range []string{"", "name", "messages", "message_stats.publish_details.rate", "policy"} {
		b.Run("by "+sort, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				a.tables.table = nil
				sortedPage(b, a, sort)
			}
		})
	}
}

// fleeting has queues that are deleted while they are described: one when they are found, and one when its leader is asked.
type fleeting struct{ fakeBroker }

func (f *fleeting) OutlineQueues(list []broker.QueueName, policies bool, yield func(int, *broker.QueueInfo)) {
	f.fakeBroker.OutlineQueues(list, policies, func(i int, info *broker.QueueInfo) {
		if list[i].Name == "found" {
			info = nil
		}
		yield(i, info)
	})
}

func (f *fleeting) AskQueue(ctx context.Context, id uint64) (broker.QueueInfo, bool) {
	info, _ := f.fakeBroker.AskQueue(ctx, id)
	return info, info.Name != "asked"
}

// TestQueuesDeletedMeanwhileAreLeftOut: a queue that is deleted while a list is made is not in it, and not one that is down; nor is it one without a leader to health checks.
func TestQueuesDeletedMeanwhileAreLeftOut(t *testing.T) {
	f := newFakeCluster("a")
	var queues []broker.QueueInfo
	for _, name := range []string{"asked", "found", "stays"} {
		queues = append(queues, broker.QueueInfo{VHost: "/", Name: name, Type: "quorum", Durable: true, State: "running", Ready: 5})
	}
	queues[0].Error = "queue is gone"
	b := &fleeting{fakeBroker{vhosts: map[string][]string{"/": {}}, queues: queues}}
	f.apis["a"].cfg.Broker = b
	for _, path := range []string{"/api/queues?", "/api/queues?page=1&page_size=5&", "/api/queues?sort=messages&"} {
		_, body, _ := f.do(t, "a", "admin", "GET", path+"columns=name,messages,state")
		if strings.Count(body, `"name"`) != 1 || !strings.Contains(body, `{"messages":5,"name":"stays","state":"running"}`) || strings.Contains(path, "page") && !strings.Contains(body, `"item_count":1`) {
			t.Errorf("%s: %s", path, body)
		}
	}
	if status, body, _ := f.do(t, "a", "admin", "GET", "/api/health/checks/quorum-queues-without-elected-leaders/all-vhosts"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	f.apis["a"].QueueFigures(t.Context(), b.QueueNames("/"), func(i int, info *broker.QueueInfo, _ uint64, _ *stats.Rates) {
		if gone := i < 2; gone != (info.State == "") {
			t.Errorf("%s is %+v", queues[i].Name, info)
		}
	})
}
