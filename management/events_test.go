package management

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/broker"
)

// changing is a broker in which something changes in each tick.
type changing struct {
	*fakeBroker
	mu   sync.Mutex
	list []broker.Change
}

func (c *changing) Mark() broker.Mark { return broker.Mark{} }

func (c *changing) ChangesSince(m broker.Mark, _ int) ([]broker.Change, broker.Mark, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	return list, m, true
}

// listenTo reads the events of a node as "event data".
func listenTo(t *testing.T, f *fakeCluster, user string) (next func() string, end func()) {
	t.Helper()
	server := httptest.NewServer(f.apis["c"])
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/warren/events", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.SetBasicAuth(user, "secret")
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s", resp.Status)
	}
	return func() string {
		event := ""
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return event + " " + data
			}
		}
		return "over"
	}, cancel
}

func TestEvents(t *testing.T) {
	f := figured()
	b := &changing{fakeBroker: f.apis["c"].cfg.Broker.(*fakeBroker)}
	f.apis["c"].cfg.Broker = b
	b.list = []broker.Change{{Kind: "queue", Action: "created", VHost: "v", Name: "hidden"}, {Kind: "queue", Action: "deleted", VHost: "/", Name: "seen"}}
	next, end := listenTo(t, f, "manager")
	if got := next(); got != `hello {"node":"c","revision":0}` {
		t.Errorf("%s", got)
	}
	if got := next(); got != `change {"kind":"queue","action":"deleted","vhost":"/","name":"seen"}` {
		t.Errorf("%s", got)
	}
	if got := next(); !strings.HasPrefix(got, "overview {") || !strings.Contains(got, `"publish":15`) {
		t.Errorf("%s", got)
	}
	end()
	if got := next(); got != "over" {
		t.Errorf("%s", got)
	}

	next, _ = listenTo(t, f, "admin")
	for range 2 {
		next()
	}
	f.apis["c"].EndStreams()
	f.apis["c"].EndStreams()
	if got := next(); got != `end {"reason":"the node stops"}` {
		t.Errorf("%s", got)
	}
	if got := next(); got != "over" {
		t.Errorf("%s", got)
	}
	for end := time.Now().Add(30 * time.Second); f.apis["c"].streams.open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a stream is still open")
		}
	}
	f.apis["c"].streams.open.Store(streamsMax)
	for user, want := range map[string]int{"": 401, "plain": 401, "admin": 503} {
		if status, body, _ := f.do(t, "c", user, "GET", "/api/warren/events"); status != want {
			t.Errorf("%q: %d %s", user, status, body)
		}
	}
}

// stuck is a reader that does not read.
type stuck struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (s *stuck) SetWriteDeadline(t time.Time) error {
	s.deadline = t
	return nil
}

func (s *stuck) Write([]byte) (int, error) { return 0, errors.New("i/o timeout") }

// A reader that does not read ends its stream, and nothing is kept for it.
func TestStuckReaderIsCutOff(t *testing.T) {
	f := figured()
	f.apis["c"].cfg.Broker = &changing{fakeBroker: f.apis["c"].cfg.Broker.(*fakeBroker)}
	r := httptest.NewRequest(http.MethodGet, "/api/warren/events", http.NoBody)
	r.RemoteAddr = "127.0.0.1:1"
	r.SetBasicAuth("admin", "secret")
	w := &stuck{ResponseRecorder: httptest.NewRecorder()}
	f.apis["c"].ServeHTTP(w, r)
	if left := time.Until(w.deadline); left < 0 || left > eventPatience || f.apis["c"].streams.open.Load() != 0 {
		t.Errorf("%v", left)
	}
}

// TestMovedLeaders: a queue's first leader is no news; that it lost its leader, and who came then, is.
func TestMovedLeaders(t *testing.T) {
	f := figured()
	a := f.apis["c"]
	a.cfg.Broker = &changing{fakeBroker: a.cfg.Broker.(*fakeBroker)}
	s := &eventStream{a: a, user: User{Name: "admin", Tags: []string{"administrator"}}}
	look := func(leader string) string {
		t.Helper()
		table := newTable(1)
		table.make(1).leader = leader
		a.tables.mu.Lock()
		a.tables.table, a.tables.made, a.tables.until = table, time.Now(), time.Now().Add(time.Minute)
		a.tables.mu.Unlock()
		s.revision = 100 // the queues are older
		var all []string
		moved, every := s.movedLeaders(t.Context())
		if !every {
			t.Error("not all are told")
		}
		for _, m := range moved {
			all = append(all, m.Name+" "+m.From+">"+m.To)
		}
		return strings.Join(all, ", ")
	}
	for i, step := range []struct{ leader, told string }{
		{"", ""}, {"a", ""}, {"b", "first a>b"}, {"", "first b>"}, {"", ""}, {"b", "first >b"}, {"b", ""}, {"a", "first b>a"},
	} {
		if got := look(step.leader); got != step.told {
			t.Errorf("look %d, led by %q: told %q, want %q", i, step.leader, got, step.told)
		}
	}
}

// alarmed is a cluster of a node a and one called c, which runs or not, and answers or not.
type alarmed struct {
	fakeNodes
	runs bool
}

func (alarmed) Stats() NodeStats { return NodeStats{} }

func (c alarmed) Nodes() []Node {
	return []Node{{ID: "a", Name: "node-a", Running: true}, {ID: "b", Name: "node-b", Running: c.runs}}
}

// TestAlarmOfADeadNodeIsOver: readers are told that a node's alarm is over when the node is found dead, as publishers are, and not while it only does not answer.
func TestAlarmOfADeadNodeIsOver(t *testing.T) {
	f := newFakeCluster("a", "b")
	a := f.apis["a"]
	s := &eventStream{a: a}
	look := func(runs bool) string {
		a.cfg.Cluster = alarmed{fakeNodes{local: "a"}, runs}
		return fmt.Sprint(s.changedAlarms(t.Context()))
	}
	f.apis["b"].cfg.Cluster = fakeStats{fakeNodes: fakeNodes{local: "b"}, stats: NodeStats{DiskAlarm: true}}
	if got := look(true); got != "[{node-b false true}]" {
		t.Errorf("told %s", got)
	}
	call := a.cfg.Call
	a.cfg.Call = func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("timed out") }
	if got := look(true); got != "[]" {
		t.Errorf("of a node that does not answer: told %s", got)
	}
	if got := look(false); got != "[{node-b false false}]" {
		t.Errorf("of a dead node: told %s", got)
	}
	a.cfg.Call = call
	if got := look(true); got != "[{node-b false true}]" {
		t.Errorf("of a node that is back: told %s", got)
	}
}

// moreQueues is a broker with more queues than are told of one by one.
type moreQueues struct{ *changing }

func (moreQueues) QueueNames(string) (list []broker.QueueName) {
	for i := range changesMax + 1 {
		list = append(list, broker.QueueName{ID: uint64(i + 1), VHost: "/", Name: "q"})
	}
	return list
}

// TestMoreMovedLeadersThanAreTold: a reader learns that more queues have other leaders than it is told of, as after the death of a node.
func TestMoreMovedLeadersThanAreTold(t *testing.T) {
	f := figured()
	a := f.apis["c"]
	a.cfg.Broker = moreQueues{&changing{fakeBroker: a.cfg.Broker.(*fakeBroker)}}
	w := httptest.NewRecorder()
	s := &eventStream{
		a: a, r: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), w: w, ctl: http.NewResponseController(w),
		user: User{Name: "admin", Tags: []string{"administrator"}},
	}
	s.r.RemoteAddr = "127.0.0.1:1"
	s.r.SetBasicAuth("admin", "secret")
	for i, leader := range []string{"a", "b"} {
		table := newTable(changesMax + 1)
		for id := range uint64(changesMax + 1) {
			table.make(id + 1).leader = leader
		}
		a.tables.mu.Lock()
		a.tables.table, a.tables.made, a.tables.until = table, time.Now(), time.Now().Add(time.Minute)
		a.tables.mu.Unlock()
		s.revision = changesMax + 1 // the queues are older
		if err := s.look(); err != nil {
			t.Fatal(err)
		}
		told, incomplete := strings.Count(w.Body.String(), "event: leader"), strings.Count(w.Body.String(), `event: catalog`+"\n"+`data: {"complete":false,`)
		if told != i*changesMax || incomplete != i {
			t.Errorf("after look %d: %d leaders, %d times not complete", i, told, incomplete)
		}
	}
}

// TestAlarmsOfNodesThatGo: the alarm of a node that is down or forgotten is over, that of one that runs and does not answer stays.
func TestAlarmsOfNodesThatGo(t *testing.T) {
	f := newFakeCluster("a", "b")
	f.lost["b"] = true
	s := &eventStream{a: f.apis["a"], alarms: map[string]alarmChanged{}}
	for _, name := range []string{"node-b", "node-c", "forgotten"} {
		s.alarms[name] = alarmChanged{Node: name, Memory: true}
	}
	for _, want := range []string{"forgotten node-c", ""} {
		var over []string
		for _, e := range s.changedAlarms(t.Context()) {
			if e.Memory || e.Disk {
				t.Errorf("%+v", e)
			}
			over = append(over, e.Node)
		}
		slices.Sort(over)
		if got := strings.Join(over, " "); got != want {
			t.Errorf("the alarms of %q are over, want %q", got, want)
		}
	}
}
