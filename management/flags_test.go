package management

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/cluster/level"
)

// fakeLevels is a cluster at a level.
type fakeLevels struct {
	Cluster
	at    int
	asked []int
	err   error
}

func (f *fakeLevels) Level() int { return f.at }

func (f *fakeLevels) RaiseLevel(_ context.Context, to int) error {
	f.asked = append(f.asked, to)
	return f.err
}

func TestFeatureFlags(t *testing.T) {
	l := &fakeLevels{at: level.First}
	f := newFakeCluster("a")
	f.apis["a"].cfg.Cluster = l
	if status, body, _ := f.do(t, "a", "manager", "GET", "/api/feature-flags"); status != 200 || !strings.Contains(body, `"state":"enabled"`) {
		t.Errorf("a manager gets %d %s", status, body)
	}
	states := func() string {
		_, body, _ := f.do(t, "a", "admin", "GET", "/api/feature-flags")
		var list []featureFlag
		if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) != level.Now {
			t.Fatalf("%v: %s", err, body)
		}
		var all []string
		for _, f := range list {
			all = append(all, f.State)
		}
		return strings.Join(all, " ")
	}
	if got := states(); got != "enabled disabled" {
		t.Errorf("states at level 1: %s", got)
	}
	for _, tc := range []struct {
		name, user string
		err        error
		status     int
		body       string
	}{
		{"all", "admin", nil, 204, ""},
		{level.Name(2), "admin", nil, 204, ""},
		{"all", "manager", nil, 401, ""},
		{"quorum_queue", "admin", nil, 400, `{"error":"bad_request","reason":"unsupported"}`},
		{"all", "admin", amqp.Errorf(amqp.PreconditionFailed, 0, "node 'b' is not there"), 400, `{"error":"bad_request","reason":"node 'b' is not there"}`},
		{"all", "admin", errors.New("no leader"), 503, `{"error":"service_unavailable","reason":"no leader"}`},
	} {
		l.err = tc.err
		status, body, _ := f.do(t, "a", tc.user, "PUT", "/api/feature-flags/"+tc.name+"/enable")
		if status != tc.status || tc.body != "" && body != tc.body {
			t.Errorf("%s for %s: %d %s, want %d %s", tc.name, tc.user, status, body, tc.status, tc.body)
		}
	}
	if len(l.asked) != 4 || l.asked[0] != level.Now {
		t.Errorf("asked for %v", l.asked)
	}
	l.at = 2
	if got := states(); got != "enabled enabled" {
		t.Errorf("states at level 2: %s", got)
	}
}
