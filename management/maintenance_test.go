package management

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"
)

// fakeLife is a node that can be drained.
type fakeLife struct {
	Cluster
	self  string
	calls []string
	err   error
}

func (f *fakeLife) Self() string { return f.self }

func (f *fakeLife) NodeByName(name string) (string, bool) { return name, name != "nobody" }

func (f *fakeLife) Maintain(_ context.Context, drain bool, limit time.Duration) (Drained, error) {
	f.calls = append(f.calls, fmt.Sprint(drain, " ", limit))
	return Drained{Moved: 3, Clients: 2}, f.err
}

func TestMaintenance(t *testing.T) {
	f := newFakeCluster("a", "b")
	lives := map[string]*fakeLife{}
	for name, api := range f.apis {
		lives[name] = &fakeLife{self: name}
		api.cfg.Cluster = lives[name]
	}
	const moved = `{"queues_moved":3,"queues_stayed":0,"leads_catalog":false,"clients":2,"clients_unanswered":0}`
	for _, tc := range []struct {
		user, method, path string
		status             int
		body               string
		at, call           string // where what was asked
	}{
		{"admin", "PUT", "/api/warren/maintenance", 200, moved, "a", "true 0s"},
		{"admin", "PUT", "/api/warren/nodes/a/maintenance?for=1.5", 200, moved, "a", "true 1.5s"},
		{"admin", "PUT", "/api/warren/nodes/b/maintenance?for=20", 200, moved, "b", "true 20s"},
		{"admin", "DELETE", "/api/warren/nodes/b/maintenance", 204, "", "b", "false 0s"},
		{"admin", "PUT", "/api/warren/nodes/nobody/maintenance", 404, "", "", ""},
		{"admin", "PUT", "/api/warren/maintenance?for=soon", 400, "", "", ""},
		{"admin", "PUT", "/api/warren/maintenance?for=-1", 400, "", "", ""},
		{"admin", "PUT", "/api/warren/maintenance?for=100000", 400, "", "", ""},
		{"monitor", "PUT", "/api/warren/maintenance", 401, "", "", ""},
		{"maker", "DELETE", "/api/warren/maintenance", 401, "", "", ""},
		{"", "PUT", "/api/warren/maintenance", 401, "", "", ""},
	} {
		for _, l := range lives {
			l.calls = nil
		}
		status, body, _ := f.do(t, "a", tc.user, tc.method, tc.path)
		if status != tc.status || tc.body != "" && body != tc.body {
			t.Errorf("%s %s by %q: %d %s", tc.method, tc.path, tc.user, status, body)
		}
		for name, l := range lives {
			if want := name == tc.at; want != (len(l.calls) == 1) || want && l.calls[0] != tc.call {
				t.Errorf("%s %s by %q: %s was asked %q", tc.method, tc.path, tc.user, name, l.calls)
			}
		}
	}
	lives["b"].err = errors.New("the node is being stopped")
	if status, body, _ := f.do(t, "a", "admin", "PUT", "/api/warren/nodes/b/maintenance"); status != 503 {
		t.Errorf("a node that stops: %d %s", status, body)
	}
	// The control socket needs no login, whatever it sends.
	r := httptest.NewRequestWithContext(t.Context(), "PUT", "/api/warren/maintenance", nil)
	r.SetBasicAuth("nobody", "wrong")
	w := httptest.NewRecorder()
	f.apis["a"].ServeHTTP(w, AsOperator(r))
	if w.Code != 200 {
		t.Errorf("by the control socket: %d %s", w.Code, w.Body)
	}
}
