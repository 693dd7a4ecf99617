package management

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/broker"
)

// outboxBroker knows outboxes.
type outboxBroker struct {
	fakeBroker
	list    []broker.OutboxStatus
	unknown []broker.OutboxStatus
	err     error
}

func (f *outboxBroker) UnknownOutboxes() []broker.OutboxStatus { return f.unknown }

func (f *outboxBroker) Outbox(_ context.Context, vhost, name string) (broker.OutboxStatus, error) {
	for _, s := range f.list {
		if s.VHost == vhost && s.Queue == name {
			return s, nil
		}
	}
	if name == "lost" {
		return broker.OutboxStatus{}, broker.ErrNoLeader
	}
	return broker.OutboxStatus{}, broker.Errorf(broker.NotFound, "no queue '%s' in vhost '%s'", name, vhost)
}

func (f *outboxBroker) Outboxes(_ context.Context, older time.Duration) (list []broker.OutboxStatus, err error) {
	for _, s := range f.list {
		if s.OldestAge >= older.Milliseconds() {
			list = append(list, s)
		}
	}
	return list, f.err
}

func (f *outboxBroker) Closings(context.Context) ([]broker.ClosingQueue, error) {
	return []broker.ClosingQueue{{ID: 3, VHost: "v", Queue: "b", Why: "moving slowly"}, {ID: 1, VHost: "gone", DelayOf: "x"}, {ID: 2, VHost: "/", Queue: "a"}}, f.err
}

// TestClosings: deleted queues that have not ended are listed, those of deleted vhosts to who may see all.
func TestClosings(t *testing.T) {
	f := newFakeCluster("a")
	b := &outboxBroker{fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"manager"}, "v": {}}}}
	f.apis["a"].cfg.Broker = b
	for _, tc := range []struct {
		user, path string
		status     int
		has        string
	}{
		{"admin", "", 200, `[{"id":2,"vhost":"/","queue":"a","members":null,"state":"","leader":"","messages_dlx":0,"message_bytes_dlx":0,"oldest_age_ms":0,"why":""},{"id":1,"vhost":"gone",`},
		{"monitor", "/v", 200, `"why":"moving slowly"}]`},
		{"admin", "/gone", 200, `"delay_of":"x"`},
		{"admin", "/none", 200, `[]`},
		{"manager", "", 200, `"why":""}]`},
		{"manager", "/v", 401, "not_authorised"},
		{"manager", "/gone", 404, "Not Found"},
		{"manager", "?page=1&page_size=1", 200, `"item_count":1`},
		{"nobody", "", 401, "Login failed"},
	} {
		status, body, _ := f.do(t, "a", tc.user, "GET", "/api/warren/closing-queues"+tc.path)
		if status != tc.status || !strings.Contains(body, tc.has) {
			t.Errorf("%s %s: %d %s, want %d with %s", tc.user, tc.path, status, body, tc.status, tc.has)
		}
	}
	b.err = errors.New("node c: timed out")
	if status, body, _ := f.do(t, "a", "monitor", "GET", "/api/warren/closing-queues"); status != 200 || !strings.Contains(body, `"queue":"a"`) {
		t.Errorf("without a node: %d %s", status, body)
	}
}

func TestOutboxes(t *testing.T) {
	f := newFakeCluster("a")
	b := &outboxBroker{
		fakeBroker: fakeBroker{vhosts: map[string][]string{"/": {"manager"}, "v": {}}},
		list: []broker.OutboxStatus{
			{ID: 2, VHost: "v", Queue: "b", Messages: 1, OldestAge: 5},
			{ID: 1, VHost: "/", Queue: "a/1", Messages: 3, OldestAge: 90_000, Targets: []broker.OutboxTarget{{ID: 9, Queue: "dead", Pending: 3, State: "full"}}},
		},
	}
	f.apis["a"].cfg.Broker = b
	for _, tc := range []struct {
		user, path string
		status     int
		has        string
	}{
		{"admin", "/api/warren/outboxes", 200, `"queue":"a/1"`},
		{"admin", "/api/warren/outboxes/v", 200, `"queue":"b"`},
		{"manager", "/api/warren/outboxes", 200, `[{"id":1,`},
		{"manager", "/api/warren/outboxes/v", 401, "not_authorised"},
		{"admin", "/api/warren/outboxes/w", 404, "Not Found"},
		{"admin", "/api/warren/queues/%2F/a%2F1/outbox", 200, `"messages_dlx":3`},
		{"admin", "/api/warren/queues/%2F/c/outbox", 404, "Not Found"},
		{"admin", "/api/warren/queues/%2F/lost/outbox", 503, "no leader"},
		{"manager", "/api/warren/queues/v/b/outbox", 401, "not_authorised"},
		{"nobody", "/api/warren/outboxes", 401, "Login failed"},

		{"monitor", "/api/health/checks/warren/dead-letters", 503, "dead letters of 1 queue(s) have waited for 1m0s or longer"},
		{"monitor", "/api/health/checks/warren/dead-letters", 503, `"why":"target dead is full"`},
		{"monitor", "/api/health/checks/warren/dead-letters?older_than=90.5", 200, `{"status":"ok"}`},
		{"monitor", "/api/health/checks/warren/dead-letters?older_than=0", 503, "2 queue(s)"},
		{"monitor", "/api/health/checks/warren/dead-letters?older_than=soon", 400, "older_than is not a number of seconds"},
		{"monitor", "/api/health/checks/warren/dead-letters?older_than=-1", 400, "bad_request"},
		{"monitor", "/api/health/checks/warren/dead-letters?older_than=NaN", 400, "bad_request"},
		{"monitor", "/api/health/checks/warren/dead-letters?older_than=1e300", 400, "bad_request"},
		{"manager", "/api/health/checks/warren/dead-letters", 401, "not_authorised"},
		{"nobody", "/api/health/checks/warren/dead-letters", 401, "Login failed"},
	} {
		status, body, _ := f.do(t, "a", tc.user, "GET", tc.path)
		if status != tc.status || !strings.Contains(body, tc.has) {
			t.Errorf("%s %s: %d %s, want %d with %s", tc.user, tc.path, status, body, tc.status, tc.has)
		}
	}
	b.list, b.err = nil, errors.New("node c: timed out")
	status, body, _ := f.do(t, "a", "monitor", "GET", "/api/health/checks/warren/dead-letters")
	var h struct{ Status, Reason string }
	if err := json.Unmarshal([]byte(body), &h); err != nil || status != 503 || h.Status != "failed" || h.Reason != "not every node answered: node c: timed out" {
		t.Errorf("%d %s %v", status, body, err)
	}
	// Of a queue without a majority nobody knows: that is no health.
	b.err, b.unknown = nil, []broker.OutboxStatus{{ID: 3, VHost: "/", Queue: "lost"}}
	status, body, _ = f.do(t, "a", "monitor", "GET", "/api/health/checks/warren/dead-letters")
	if status != 503 || !strings.Contains(body, "of 1 queue(s) wait is not known") || !strings.Contains(body, `"queue":"lost"`) || !strings.Contains(body, `"why":"not known`) {
		t.Errorf("%d %s", status, body)
	}
}
