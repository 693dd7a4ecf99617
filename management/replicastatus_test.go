package management

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster/replicas"
)

// fakeQueue is a node's replica of queue 7, which node b leads.
type fakeQueue struct {
	*fakeReplicas
	found   replicas.Queue
	replica Replica
	runs    bool
	changed bool
	moved   *string // to whom
}

func (f *fakeQueue) Find(_ context.Context, vhost, queue string) (replicas.Queue, error) {
	if queue != "q/1" || vhost != "/" {
		return replicas.Queue{}, &replicas.Error{Reason: replicas.NoQueue, Text: "none"}
	}
	return f.found, nil
}

func (f *fakeQueue) Prefer(ctx context.Context, vhost, queue, node string) (replicas.Queue, string, bool, error) {
	q, err := f.Find(ctx, vhost, queue)
	if f.err != nil {
		err = f.err
	}
	return q, node, f.changed, err
}

func (f *fakeQueue) Replica(queue uint64) (Replica, bool) { return f.replica, f.runs && queue == 7 }

func (f *fakeQueue) MoveLeader(_ context.Context, queue uint64, to string) error {
	if *f.moved = to; to == "c" {
		return errors.New("the target lags")
	}
	return f.err
}

type selfOnly struct {
	Cluster
	self string
}

func (s selfOnly) Self() string { return s.self }

// replicated is a cluster in which queue 7 is on a, b, which leads, c and d, which does not run.
func replicated() (f *fakeCluster, at map[string]*fakeQueue, moved *string) {
	f, at, moved = newFakeCluster("a", "b", "c"), map[string]*fakeQueue{}, new(string)
	found := replicas.Queue{ID: 7, Preferred: "b", Members: []replicas.Member{
		{ID: "a", Name: "node-a", Running: true, Stays: true},
		{ID: "b", Name: "node-b", Running: true, Stays: true},
		{ID: "c", Name: "node-c", Running: true, Stays: true},
		{ID: "d", Name: "node-d"},
	}}
	for name, api := range f.apis {
		at[name] = &fakeQueue{fakeReplicas: &fakeReplicas{}, found: found, runs: true, moved: moved}
		api.cfg.Replicas, api.cfg.Cluster = at[name], selfOnly{self: name}
		api.cfg.Broker = &fakeBroker{vhosts: map[string][]string{"/": {"manager"}}, queues: []broker.QueueInfo{}}
	}
	at["a"].replica = Replica{State: "leader", Term: 3, Last: 90, Commit: 80, Applied: 80, Membership: "voter", Level: 2} // of a term that is over
	at["b"].replica = Replica{
		State: "leader", Term: 4, Last: 100, Commit: 100, Applied: 99, Snapshot: 50, Membership: "voter", Level: 2,
		Elected: 1_600_000_000_000, ElectedFrom: "a",
	}
	at["c"].replica = Replica{State: "follower", Term: 4, Last: 101, Commit: 60, Applied: 60, Membership: "promotable", Level: 2}
	return f, at, moved
}

func TestQuorumStatus(t *testing.T) {
	f, at, _ := replicated()
	const path = "/api/queues/quorum/%2F/q%2F1/status"
	const a = `{"Node Name":"node-a","Raft State":"leader","Membership":"voter","Last Log Index":90,"Last Applied":80,"Commit Index":80,"Snapshot Index":0,` +
		`"Term":3,"Machine Version":2,"Lag":10,"Planned":"stays"}`
	const b = `{"Node Name":"node-b","Raft State":"leader","Membership":"voter","Last Log Index":100,"Last Applied":99,"Commit Index":100,"Snapshot Index":50,` +
		`"Term":4,"Machine Version":2,"Lag":0,"Planned":"stays","Election":"2020-09-13T12:26:40.000+00:00, after node-a, which could not be reached"}`
	const c = `{"Node Name":"node-c","Raft State":"follower","Membership":"promotable","Last Log Index":101,"Last Applied":60,"Commit Index":60,"Snapshot Index":0,` +
		`"Term":4,"Machine Version":2,"Lag":0,"Planned":"joins"}`
	silent := func(node, state, planned string) string {
		return `{"Node Name":"` + node + `","Raft State":"` + state + `","Membership":"","Last Log Index":"","Last Applied":"","Commit Index":"","Snapshot Index":"",` +
			`"Term":"","Machine Version":"","Lag":"","Planned":"` + planned + `"}`
	}
	for _, user := range []string{"admin", "monitor", "manager"} {
		if status, body, _ := f.do(t, "a", user, "GET", path); status != 200 || body != "["+strings.Join([]string{a, b, c, silent("node-d", "nodedown", "goes")}, ",")+"]" {
			t.Errorf("%s sees %d %s", user, status, body)
		}
	}
	f.lost["c"] = true
	at["b"].runs = false
	if _, body, _ := f.do(t, "a", "admin", "GET", path); !strings.Contains(body, silent("node-b", "noproc", "stays")) || !strings.Contains(body, silent("node-c", "timeout", "stays")) {
		t.Errorf("without answers: %s", body)
	}
	for _, tc := range []struct {
		user, path string
		status     int
	}{
		{"other", path, 401}, {"", path, 401}, {"admin", "/api/queues/quorum/%2F/none/status", 404}, {"admin", "/api/queues/quorum/w/q%2F1/status", 404},
	} {
		if status, body, _ := f.do(t, "a", tc.user, "GET", tc.path); status != tc.status {
			t.Errorf("%s %q: %d %s", tc.path, tc.user, status, body)
		}
	}
}

func TestMoveLeader(t *testing.T) {
	f, at, moved := replicated()
	const path = "/api/warren/queues/%2F/q%2F1/leader"
	put := func(user, body string) string {
		status, answer := f.request(t, user, "PUT", path, body)
		return strings.TrimSpace(strings.Join([]string{strconv.Itoa(status), answer}, " "))
	}
	if got := put("admin", `{"node":"a"}`); got != `200 {"leader":"a"}` || *moved != "a" {
		t.Errorf("%s, to %q", got, *moved)
	}
	if got := put("admin", `{"node":"b"}`); got != `409 {"error":"already_leader","reason":"The target node is already the leader of this queue"}` {
		t.Error(got)
	}
	at["a"].changed = true // it leads, but was not at home there
	if got := put("admin", `{"node":"b"}`); got != `200 {"leader":"b"}` {
		t.Error(got)
	}
	if got := put("admin", `{"node":"c"}`); !strings.HasPrefix(got, `202 {"status":"under_way","reason":"the leadership goes there as soon as that can be: `) || !strings.Contains(got, "the target lags") {
		t.Error(got)
	}
	at["b"].replica.State, at["a"].replica.State = "follower", "follower"
	if got := put("admin", `{"node":"a"}`); !strings.Contains(got, "no replica leads the queue") {
		t.Error(got)
	}
	for body, want := range map[string]string{``: "400 ", `{"node":7}`: "400 "} {
		if got := put("admin", body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", body, got)
		}
	}
	if got := put("monitor", `{"node":"a"}`); !strings.HasPrefix(got, "401 ") {
		t.Error(got)
	}
	at["a"].err = &replicas.Error{Reason: replicas.NotMember, Text: "why"}
	if got := put("admin", `{"node":"a"}`); got != `409 {"error":"not_member","reason":"why"}` {
		t.Error(got)
	}
}
