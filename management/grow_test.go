package management

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/cluster/replicas"
)

func (f *fakeReplicas) Grow(ctx context.Context, node string, which replicas.Match) ([]replicas.Result, error) {
	return f.many(ctx, fmt.Sprint("grow ", node, " ", which.VHosts, " ", which.Queues, " ", which.Even))
}

func (f *fakeReplicas) GrowTo(ctx context.Context, count int, which replicas.Match) ([]replicas.Result, error) {
	return f.many(ctx, fmt.Sprint("grow to ", count, " ", which.VHosts, " ", which.Queues, " ", which.Even))
}

func (f *fakeReplicas) Shrink(ctx context.Context, node string) ([]replicas.Result, error) {
	return f.many(ctx, "shrink "+node)
}

func (f *fakeReplicas) many(ctx context.Context, what string) ([]replicas.Result, error) {
	until, _ := ctx.Deadline()
	f.waited = time.Until(until).Round(time.Second)
	_, err := f.note(what)
	return []replicas.Result{
		{VHost: "/", Name: "a", Size: 3},
		{VHost: "/", Name: "b", Size: 1, Err: &replicas.Error{Reason: replicas.LastMember, Text: "the last one"}},
		{VHost: "v", Name: "c", Size: 2, Err: &replicas.Error{Reason: replicas.Timeout, Text: "too late"}},
		{VHost: "v", Name: "d", Size: 2, Err: errors.New("no leader")},
	}, err
}

func (f *fakeReplicas) Forget(_ context.Context, node string) (bool, error) {
	_, err := f.note("forget", node)
	return f.done, err
}

func TestGrow(t *testing.T) {
	f := newFakeCluster("a")
	fake := &fakeReplicas{done: true}
	f.apis["a"].cfg.Replicas = fake
	const list = `[{"vhost":"/","name":"a","size":3,"result":"ok"},{"vhost":"/","name":"b","size":1,"result":"error: the last one"},` +
		`{"vhost":"v","name":"c","size":"?","result":"error: too late"},{"vhost":"v","name":"d","size":2,"result":"error: no leader"}]`
	const on, to = "/api/queues/quorum/replicas/on/n2/", "/api/warren/replicas/grow-to-count"
	for _, tc := range []struct {
		user, method, path, body string
		status                   int
		answer, call             string
		waited                   time.Duration
	}{
		{"admin", "POST", on + "grow", `{"vhost_pattern":".*","queue_pattern":"^q","strategy":"even"}`, 200, list, "grow n2 .* ^q true", time.Hour},
		{"admin", "POST", on + "grow?for=9", `{"strategy":"all","membership":"voter"}`, 200, list, "grow n2 <nil> <nil> false", 9 * time.Second},
		{"admin", "DELETE", on + "shrink", ``, 200, list, "shrink n2", time.Hour},
		{"admin", "POST", to + "?for=9", `{"count":5,"strategy":"even","queue_pattern":"^q"}`, 200, list, "grow to 5 <nil> ^q true", 9 * time.Second},
		{"admin", "POST", to, `{"count":65,"strategy":"all"}`, 400, `{"error":"bad_request","reason":"count should be 1 to 64"}`, "", 0},
		{"admin", "POST", to, `{"count":"many","strategy":"all"}`, 400, "", "", 0},
		{"admin", "POST", to, `{"strategy":"all"}`, 400, "", "", 0},
		{"maker", "POST", to, `{"count":3,"strategy":"all"}`, 401, "", "", 0},
		{"admin", "POST", on + "grow", ``, 400, `{"error":"bad_request","reason":"[{key_missing,strategy}]"}`, "", 0},
		{"admin", "POST", on + "grow", `{"strategy":"odd"}`, 400, `{"error":"bad_request","reason":"strategy 'odd' is not recognised"}`, "", 0},
		{"admin", "POST", on + "grow", `{"strategy":1}`, 400, `{"error":"bad_request","reason":"strategy should be a string, actually was 1"}`, "", 0},
		{"admin", "POST", on + "grow", `{"strategy":"all","queue_pattern":"("}`, 400, "", "", 0},
		{"admin", "POST", on + "grow", `{"strategy":"all","queue_pattern":"` + strings.Repeat("a", 5000) + `"}`, 400, `{"error":"bad_request","reason":"queue_pattern is too long"}`, "", 0},
		{"admin", "POST", on + "grow", `{"strategy":"all","vhost_pattern":[]}`, 400, "", "", 0},
		{"admin", "POST", on + "grow", `{"strategy":"all","membership":"non_voter"}`, 400, "", "", 0},
		{"admin", "POST", on + "grow?for=x", `{"strategy":"all"}`, 400, "", "", 0},
		{"monitor", "POST", on + "grow", `{"strategy":"all"}`, 401, "", "", 0},
		{"maker", "DELETE", on + "shrink", ``, 401, "", "", 0},
		{"admin", "DELETE", "/api/warren/nodes/n%2F2", ``, 204, "", "forget n/2", 0},
		{"monitor", "DELETE", "/api/warren/nodes/n2", ``, 401, "", "", 0},
	} {
		fake.calls, fake.waited = nil, 0
		status, answer := f.request(t, tc.user, tc.method, tc.path, tc.body)
		if status != tc.status || tc.answer != "" && answer != tc.answer || strings.Join(fake.calls, "; ") != tc.call || fake.waited != tc.waited {
			t.Errorf("%s %s %.40s by %q: %d %s, asked for %q, waited %v", tc.method, tc.path, tc.body, tc.user, status, answer, fake.calls, fake.waited)
		}
	}
	fake.done = false
	if status, answer := f.request(t, "admin", "DELETE", "/api/warren/nodes/n2", ""); status != 202 || !strings.Contains(answer, `"under_way"`) {
		t.Errorf("a node that is about to be forgotten: %d %s", status, answer)
	}
	for reason, want := range map[replicas.Reason]int{replicas.NoNode: 404, replicas.NodeRuns: 409, replicas.HasReplicas: 409, replicas.NotRunning: 409} {
		fake.err = &replicas.Error{Reason: reason, Text: "why"}
		for path, method := range map[string]string{on + "shrink": "DELETE", "/api/warren/nodes/n2": "DELETE"} {
			if status, answer := f.request(t, "admin", method, path, ""); status != want {
				t.Errorf("%s: %s is %d %s", reason, path, status, answer)
			}
		}
	}
}
