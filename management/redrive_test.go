package management

import (
	"context"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/broker"
)

// redriveBroker answers every request, and keeps what it was asked.
type redriveBroker struct {
	fakeBroker
	calls []string
	asked broker.Redrive
}

func (b *redriveBroker) answer(call, name string) (st broker.RedriveStatus, err error) {
	b.calls = append(b.calls, call)
	if name != "q" {
		return st, broker.Errorf(broker.NotFound, "no queue")
	}
	return broker.RedriveStatus{Number: 3, State: "running", Moved: 7}, nil
}

func (b *redriveBroker) StartRedrive(_ context.Context, _ broker.User, _, name string, r broker.Redrive) (broker.RedriveStatus, error) {
	b.asked = r
	if r.To == "nowhere" {
		return broker.RedriveStatus{}, broker.Errorf(broker.PreconditionFailed, "no way")
	}
	return b.answer("start", name)
}

func (b *redriveBroker) StopRedrive(_ context.Context, _ broker.User, _, name string) (broker.RedriveStatus, error) {
	return b.answer("stop", name)
}

func (b *redriveBroker) RedriveStatus(_ context.Context, _ broker.User, _, name string) (broker.RedriveStatus, error) {
	return b.answer("status", name)
}

func (b *redriveBroker) ReleaseParked(_ context.Context, _ broker.User, _, _ string) (broker.Released, error) {
	b.calls = append(b.calls, "release")
	return broker.Released{Unrouted: 2, Cycle: 1}, nil
}

func (b *redriveBroker) PlanRedrive(_ context.Context, _ broker.User, _, _ string, _ broker.Redrive) (broker.RedrivePlan, error) {
	b.calls = append(b.calls, "plan")
	return broker.RedrivePlan{Destinations: map[string]uint64{"a": 2}, Missing: map[string]uint64{}, Messages: 2, Looked: 5}, nil
}

func TestRedrive(t *testing.T) {
	b := &redriveBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"manager"}}}}
	f := newFakeCluster("a")
	f.apis["a"].cfg.Broker = b
	const path = "/api/warren/queues/%2F/q/redrive"
	for _, tc := range []struct {
		user, method, path, body string
		status                   int
		want                     string
	}{
		{"admin", "POST", path, "", 200, `"number":3,"state":"running"`},
		{"admin", "POST", path, `{"dry_run":true}`, 200, `{"destinations":{"a":2},"missing":{},"no_origin":0,"messages":2,"looked":5}`},
		{"manager", "GET", path, "", 200, `"moved":7`},
		{"admin", "DELETE", path, "", 200, `"moved":7`},
		{"manager", "POST", path, "", 401, "not_authorised"},
		{"manager", "DELETE", path, "", 401, "not_authorised"},
		{"monitor", "POST", path, "", 401, "not_authorised"},
		{"admin", "POST", strings.Replace(path, "/q/", "/none/", 1), "", 404, "Not Found"},
		{"admin", "POST", path, `{"to":"nowhere"}`, 400, "no way"},
		{"admin", "POST", path, `{"speed":1}`, 400, "unknown field"},
		{"admin", "POST", path, `{"discard":true,"ids":[]}`, 400, "ids is an empty list"},
		{"admin", "POST", path, `{"message_ids":[]}`, 400, "message_ids is an empty list"},
		{"admin", "POST", path, `{"reasons":[]}`, 400, "reasons is an empty list"},
		{"admin", "POST", path, `{"discard":true}{"ids":[1]}`, 400, "something follows"},
		{"admin", "POST", path, `{"older_than":"x"}`, 400, "no age"},
		{"admin", "POST", path, `{"header":"x"}`, 400, "name=value"},
		{"admin", "POST", path, `[`, 400, "body"},
		{"admin", "POST", "/api/warren/queues/%2F/q/release", "", 200, `{"unrouted":2,"cycle":1}`},
		{"monitor", "POST", "/api/warren/queues/%2F/q/release", "", 401, "not_authorised"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, tc.path, strings.NewReader(tc.body))
		r.RemoteAddr = "127.0.0.1:1"
		r.SetBasicAuth(tc.user, "secret")
		w := httptest.NewRecorder()
		f.apis["a"].ServeHTTP(w, r)
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %s %s %s: %d %s", tc.user, tc.method, tc.path, tc.body, w.Code, w.Body)
		}
	}
	if got := strings.Join(b.calls, " "); got != "start plan status stop start release" {
		t.Errorf("calls: %s", got)
	}
	r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(
		`{"to":"queue","queue":"t","rate":5,"reasons":["expired"],"from":"src","older_than":"1m","newer_than":"90","ids":[4],"message_ids":["m"],"header":"a=b"}`))
	r.RemoteAddr = "127.0.0.1:1"
	r.SetBasicAuth("admin", "secret")
	f.apis["a"].ServeHTTP(httptest.NewRecorder(), r)
	if want := (broker.Redrive{To: "queue", Queue: "t", Rate: 5, Filter: broker.Filter{
		Reasons: []string{"expired"}, From: "src", OlderThan: time.Minute, NewerThan: 90 * time.Second, IDs: []uint64{4}, MessageIDs: []string{"m"}, Header: "a", HeaderValue: "b",
	}}); !reflect.DeepEqual(b.asked, want) {
		t.Errorf("asked for %+v", b.asked)
	}
}
