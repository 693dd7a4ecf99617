package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/stats"
)

// fakeNode is a node's connections.
type fakeNode struct {
	mu       sync.Mutex
	list     []Connection
	channels []Channel
	closed   []string // name and text
	listed   int      // how often all were described
}

func (f *fakeNode) List() []Connection {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listed++
	return slices.Clone(f.list)
}

func (f *fakeNode) Channels() []Channel { return f.channels }

func (f *fakeNode) Close(name, text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, c := range f.list {
		if c.Name == name {
			f.list = slices.Delete(f.list, i, i+1)
			f.closed = append(f.closed, name+": "+text)
			return true
		}
	}
	return false
}

// fakeCluster are APIs that can ask each other.
type fakeCluster struct {
	apis  map[string]*API
	nodes map[string]*fakeNode
	lost  map[string]bool // do not answer
}

var tags = map[string][]string{
	"admin": {"administrator"}, "monitor": {"monitoring"}, "manager": {"management"}, "other": {"management"}, "plain": {}, "maker": {"policymaker"},
}

func newFakeCluster(names ...string) *fakeCluster {
	f := &fakeCluster{apis: map[string]*API{}, nodes: map[string]*fakeNode{}, lost: map[string]bool{}}
	for _, name := range names {
		f.nodes[name] = &fakeNode{}
		f.apis[name] = New(Config{
			GossipKeys: func() GossipKeys { return GossipKeys{Node: name, Encryption: "on", Keys: []string{"aa"}} },
			Sampler:    stats.New(), Connections: f.nodes[name], Cluster: fakeNodes{local: name}, Shovels: &fakeShovels{}, Churn: func(func(stats.Key, *stats.Set)) {}, Logger: slog.New(slog.DiscardHandler),
			HashPassword: func(_ context.Context, password, _ string) (auth.PasswordHash, error) {
				if password == "busy" {
					return "", &Busy{Reason: "too many"}
				}
				return auth.Hashing{BcryptCost: auth.BcryptCostMin}.Hash(password)
			},
			HoldUp: func(context.Context) string { return "" },
			Login: func(_ context.Context, user, password, from string) (User, error) {
				if user == "busy" {
					return User{}, &Busy{Reason: "too many logins at a time"}
				}
				if user == "held" {
					return User{}, &HeldUp{Wait: 1500 * time.Millisecond}
				}
				t, ok := tags[user]
				if !ok || password != "secret" || !strings.HasPrefix(from, "127.") {
					return User{}, errors.New("refused")
				}
				return User{Name: user, Tags: t}, nil
			},
			Peers: func() (peers []string) {
				for _, n := range names {
					if n != name {
						peers = append(peers, n)
					}
				}
				return peers
			},
			Call: func(ctx context.Context, node string, req []byte) ([]byte, error) {
				if f.lost[node] {
					return nil, errors.New("no link")
				}
				return f.apis[node].Answer(ctx, req)
			},
		})
	}
	return f
}

func (f *fakeCluster) do(t *testing.T, node, user, method, path string, header ...string) (status int, body string, h http.Header) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody)
	r.RemoteAddr = "127.0.0.1:1"
	if user != "" {
		r.SetBasicAuth(user, "secret")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	f.apis[node].ServeHTTP(w, r)
	raw, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(raw), w.Result().Header
}

// listCase is what a user gets who asks for a list: a status, and the names in the list.
type listCase struct {
	user, path string
	status     int
	names      string
}

// lists asks a node for lists.
func (f *fakeCluster) lists(t *testing.T, node string, cases []listCase) {
	t.Helper()
	for _, tc := range cases {
		status, body, _ := f.do(t, node, tc.user, "GET", tc.path)
		var list []struct{ Name string }
		if status == http.StatusOK {
			if err := json.Unmarshal([]byte(body), &list); err != nil {
				t.Fatal(err)
			}
		}
		var names []string
		for _, x := range list {
			names = append(names, x.Name)
		}
		if got := strings.Join(names, ", "); status != tc.status || got != tc.names {
			t.Errorf("%s %s: %d %q, want %d %q", tc.user, tc.path, status, got, tc.status, tc.names)
		}
	}
}

func (f *fakeCluster) names(t *testing.T, node, user string) (names []string) {
	t.Helper()
	status, body, _ := f.do(t, node, user, "GET", "/api/connections")
	var list []Connection
	if err := json.Unmarshal([]byte(body), &list); status != http.StatusOK || err != nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

func path(name string) string { return "/api/connections/" + url.PathEscape(name) }

func TestListOfAllNodes(t *testing.T) {
	f := newFakeCluster("a", "b", "c")
	f.nodes["a"].list = []Connection{{Name: "1 -> 2", Node: "a", User: "manager", ConnectedAt: 30}}
	f.nodes["b"].list = []Connection{{Name: "3 -> 4", Node: "b", User: "other", ConnectedAt: 10}}
	if got := f.names(t, "c", "monitor"); !slices.Equal(got, []string{"3 -> 4", "1 -> 2"}) {
		t.Errorf("got %q", got)
	}
	if got := f.names(t, "c", "manager"); !slices.Equal(got, []string{"1 -> 2"}) {
		t.Errorf("a manager sees %q", got)
	}
	f.lost["b"] = true
	if got := f.names(t, "c", "admin"); !slices.Equal(got, []string{"1 -> 2"}) {
		t.Errorf("without b: %q", got)
	}
	f.nodes["a"].list = nil
	if _, body, _ := f.do(t, "c", "admin", "GET", "/api/connections/"); body != "[]" {
		t.Errorf("empty list is %s", body)
	}
}

func TestLongListComesInPages(t *testing.T) {
	f := newFakeCluster("a", "b")
	const n = 500
	for i := range n {
		f.nodes["b"].list = append(f.nodes["b"].list, Connection{
			Name: fmt.Sprintf("%d", n-i), Node: "b", ConnectedAt: int64(i / 3),
			ClientProperties: map[string]any{"long": strings.Repeat("x", 4000)},
		})
	}
	if raw, err := f.apis["b"].page(""); err != nil || len(raw) > pageBytes+10_000 {
		t.Errorf("a page of %d bytes, %v", len(raw), err)
	}
	got := f.names(t, "a", "admin")
	slices.Sort(got)
	if got = slices.Compact(got); len(got) != n {
		t.Errorf("%d connections, want %d", len(got), n)
	}
}

func TestCloseConnection(t *testing.T) {
	f := newFakeCluster("a", "b")
	f.nodes["b"].list = []Connection{{Name: "[::1]:3 -> 4", Node: "b", User: "other"}, {Name: "5 -> 4", Node: "b", User: "other"}}
	f.nodes["a"].list = []Connection{{Name: "1 -> 2", Node: "a", User: "manager"}}
	if status, body, _ := f.do(t, "a", "other", "DELETE", path("1 -> 2")); status != http.StatusUnauthorized {
		t.Errorf("another's connection: %d %s", status, body)
	}
	for _, tc := range []struct{ user, name, reason, node, want string }{
		{"admin", "[::1]:3 -> 4", "tired of it", "b", "[::1]:3 -> 4: tired of it"},
		{"other", "5 -> 4", "", "b", "5 -> 4: Closed via management plugin"},
		{"manager", "1 -> 2", "", "a", "1 -> 2: Closed via management plugin"},
	} {
		status, body, _ := f.do(t, "a", tc.user, "DELETE", path(tc.name), "X-Reason", tc.reason)
		if closed := f.nodes[tc.node].closed; status != http.StatusNoContent || body != "" || !slices.Contains(closed, tc.want) {
			t.Errorf("%s: %d %q, closed %q", tc.name, status, body, closed)
		}
		status, body, _ = f.do(t, "a", tc.user, "DELETE", path(tc.name))
		if status != http.StatusNotFound || body != `{"error":"Object Not Found","reason":"Not Found"}` {
			t.Errorf("%s again: %d %s", tc.name, status, body)
		}
	}
	// Who sees all connections, and may close many one by one, does not have all of them described for each.
	f.nodes["b"].list = []Connection{{Name: "7 -> 8", Node: "b", User: "other"}}
	before := f.nodes["a"].listed + f.nodes["b"].listed
	if status, _, _ := f.do(t, "a", "monitor", "DELETE", path("7 -> 8")); status != http.StatusNoContent || f.nodes["a"].listed+f.nodes["b"].listed != before {
		t.Errorf("%d, and all connections were looked at", status)
	}
	f.lost["b"] = true
	if status, _, _ := f.do(t, "a", "admin", "DELETE", path("9 -> 9")); status != http.StatusServiceUnavailable {
		t.Errorf("%d while b does not answer: it may have it", status)
	}
}

func TestGetConnection(t *testing.T) {
	f := newFakeCluster("a", "b")
	f.nodes["b"].list = []Connection{{Name: "1 -> 2", Node: "b", User: "other", ClientProperties: amqp.Table{
		{Name: "connection_name", Value: "mine"},
		{Name: "odd", Value: amqp.Array{math.NaN(), amqp.Decimal{Scale: 2, Value: 314}, amqp.Timestamp(7), []byte("raw"), nil, int8(-1)}},
	}.JSON()}}
	status, body, h := f.do(t, "a", "other", "GET", path("1 -> 2"))
	if status != http.StatusOK || h.Get("Content-Type") != "application/json" ||
		!strings.Contains(body, `"client_properties":{"connection_name":"mine","odd":["NaN",3.14,7,"raw",null,-1]}`) {
		t.Errorf("%d %s", status, body)
	}
	if status, _, _ := f.do(t, "a", "manager", "GET", path("1 -> 2")); status != http.StatusUnauthorized {
		t.Errorf("another's connection: %d", status)
	}
}

func TestRefusals(t *testing.T) {
	f := newFakeCluster("a")
	for _, tc := range []struct {
		user, method, path string
		status             int
		body               string
	}{
		{"", "GET", "/api/connections", 401, `{"error":"not_authorised","reason":"Login failed"}`},
		{"nobody", "GET", "/api/connections", 401, `{"error":"not_authorised","reason":"Login failed"}`},
		{"plain", "GET", "/api/connections", 401, `{"error":"not_authorised","reason":"Not management user"}`},
		{"admin", "GET", "/api/nothing", 404, `{"error":"Object Not Found","reason":"Not Found"}`},
		{"admin", "PUT", "/api/connections/x", 405, `{"error":"Method Not Allowed","reason":"Method Not Allowed"}`},
	} {
		status, body, h := f.do(t, "a", tc.user, tc.method, tc.path)
		if status != tc.status || tc.body != "" && body != tc.body {
			t.Errorf("%s %s by %q: %d %s", tc.method, tc.path, tc.user, status, body)
		}
		if challenge := h.Get("WWW-Authenticate"); (status == 401) != (challenge == `Basic realm="RabbitMQ Management"`) { // tools log in to that one
			t.Errorf("%s %s by %q: WWW-Authenticate %q", tc.method, tc.path, tc.user, challenge)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/connections", http.NoBody)
	r.SetBasicAuth("admin", "secret")
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	if f.apis["a"].ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
		t.Errorf("from elsewhere: %d", w.Code)
	}
}

func TestAnswerRefusesNonsense(t *testing.T) {
	f := newFakeCluster("a")
	for _, raw := range []string{"", "{", `{"version":2,"op":"connections"}`, `{"version":1,"op":"no"}`, `[]`} {
		if _, err := f.apis["a"].Answer(t.Context(), []byte(raw)); err == nil {
			t.Errorf("%q is answered", raw)
		}
	}
}
