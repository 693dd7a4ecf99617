package management

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/cluster/replicas"
)

// fakeReplicas takes every change.
type fakeReplicas struct {
	Replicas
	calls  []string
	err    error         // of the change
	done   bool          // what Wait says
	waited time.Duration // that Wait was given
	lost   error         // of Wait
}

func (f *fakeReplicas) note(what ...string) (replicas.Change, error) {
	f.calls = append(f.calls, strings.Join(what, " "))
	return replicas.Change{Members: []string{"n1", "n2"}}, f.err
}

func (f *fakeReplicas) Add(_ context.Context, vhost, queue, node string) (replicas.Change, error) {
	return f.note("add", vhost, queue, node)
}

func (f *fakeReplicas) Remove(_ context.Context, vhost, queue, node string) (replicas.Change, error) {
	return f.note("remove", vhost, queue, node)
}

func (f *fakeReplicas) Wait(ctx context.Context, _ replicas.Change) (bool, error) {
	until, _ := ctx.Deadline()
	f.waited = time.Until(until).Round(time.Second)
	return f.done, f.lost
}

// request sends a request with a body as JSON to node a.
func (f *fakeCluster) request(t *testing.T, user, method, path, body string) (status int, answer string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	if user != "" {
		r.SetBasicAuth(user, "secret")
	}
	w := httptest.NewRecorder()
	f.apis["a"].ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestMembers(t *testing.T) {
	f := newFakeCluster("a")
	fake := &fakeReplicas{done: true}
	f.apis["a"].cfg.Replicas = fake
	const add, remove = "/api/queues/quorum/%2F/q%2F1/replicas/add", "/api/queues/quorum/v/q/replicas/delete"
	for _, tc := range []struct {
		user, method, path, body string
		status                   int
		answer, call             string
		waited                   time.Duration
	}{
		{"admin", "POST", add, `{"node":"n2"}`, 204, "", "add / q/1 n2", 30 * time.Second},
		{"admin", "POST", add + "?for=5", `{"node":"n2","x":1}`, 204, "", "add / q/1 n2", 5 * time.Second},
		{"admin", "DELETE", remove + "?for=0", `{"node":"n2"}`, 204, "", "remove v q n2", 0},
		{"admin", "POST", add, ``, 400, `{"error":"bad_request","reason":"[{key_missing,node}]"}`, "", 0},
		{"admin", "POST", add, `{"node":3}`, 400, `{"error":"bad_request","reason":"node should be a name, actually was 3"}`, "", 0},
		{"admin", "POST", add, `{"node"`, 400, `{"error":"bad_request","reason":"not_json"}`, "", 0},
		{"admin", "POST", add, `["n2"]`, 400, `{"error":"bad_request","reason":"not_json"}`, "", 0},
		{"admin", "DELETE", remove, strings.Repeat(" ", requestBytesMax+1), 400, "", "", 0},
		{"admin", "POST", add + "?for=-1", `{"node":"n2"}`, 400, "", "", 0},
		{"admin", "POST", add + "?for=90000", `{"node":"n2"}`, 400, "", "", 0},
		{"admin", "GET", add, ``, 405, "", "", 0},
		{"admin", "DELETE", add, `{"node":"n2"}`, 405, "", "", 0},
		{"monitor", "POST", add, `{"node":"n2"}`, 401, "", "", 0},
		{"maker", "DELETE", remove, `{"node":"n2"}`, 401, "", "", 0},
		{"", "POST", add, `{"node":"n2"}`, 401, "", "", 0},
	} {
		fake.calls, fake.waited = nil, 0
		status, answer := f.request(t, tc.user, tc.method, tc.path, tc.body)
		if status != tc.status || tc.answer != "" && answer != tc.answer || strings.Join(fake.calls, "; ") != tc.call || fake.waited != tc.waited {
			t.Errorf("%s %s %.20s by %q: %d %s, asked for %q, waited %v", tc.method, tc.path, tc.body, tc.user, status, answer, fake.calls, fake.waited)
		}
	}
	fake.done = false
	if status, answer := f.request(t, "admin", "POST", add, `{"node":"n2"}`); status != http.StatusAccepted ||
		answer != `{"status":"under_way","reason":"the replicas are being changed","members":["n1","n2"]}` {
		t.Errorf("a change that goes on: %d %s", status, answer)
	}
}

func TestMembersRefusals(t *testing.T) {
	f := newFakeCluster("a")
	fake := &fakeReplicas{}
	f.apis["a"].cfg.Replicas = fake
	for reason, want := range map[replicas.Reason]string{
		replicas.NoQueue:       `404 {"error":"Object Not Found","reason":"Not Found"}`,
		replicas.NoNode:        `404 {"error":"not_cluster_member","reason":"why"}`,
		replicas.NotReplicated: `400 {"error":"classic_queue_not_supported","reason":"why"}`,
		replicas.Refused:       `400 {"error":"bad_request","reason":"why"}`,
		replicas.NotRunning:    `409 {"error":"node_not_running","reason":"why"}`,
		replicas.GoesAway:      `409 {"error":"node_being_drained","reason":"why"}`,
		replicas.LastMember:    `409 {"error":"last_node","reason":"why"}`,
		replicas.Busy:          `409 {"error":"cluster_change_not_permitted","reason":"why"}`,
		replicas.NoQuorum:      `409 {"error":"no_quorum","reason":"why"}`,
		replicas.OldLevel:      `409 {"error":"feature_flag_disabled","reason":"why"}`,
	} {
		fake.err = &replicas.Error{Reason: reason, Text: "why"}
		for method, path := range map[string]string{"POST": "add", "DELETE": "delete"} {
			status, answer := f.request(t, "admin", method, "/api/queues/quorum/v/q/replicas/"+path, `{"node":"n"}`)
			if fmt.Sprint(status, " ", answer) != want {
				t.Errorf("%s: %d %s, want %s", reason, status, answer, want)
			}
		}
	}
	fake.err = errors.New("the catalog has no leader")
	if status, answer := f.request(t, "admin", "POST", "/api/queues/quorum/v/q/replicas/add", `{"node":"n"}`); status != 503 || !strings.Contains(answer, "no leader") {
		t.Errorf("%d %s", status, answer)
	}
	fake.err, fake.lost = nil, &replicas.Error{Reason: replicas.Busy, Text: "another one"}
	if status, answer := f.request(t, "admin", "POST", "/api/queues/quorum/v/q/replicas/add", `{"node":"n"}`); status != 409 {
		t.Errorf("%d %s", status, answer)
	}
}
