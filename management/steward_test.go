package management

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/warrenmq/warren/cluster/replicas"
	"github.com/warrenmq/warren/steward"
)

// fakeSteward knows one node.
type fakeSteward struct{ calls []string }

func (f *fakeSteward) note(node, what string) error {
	if node != "n1" {
		return &replicas.Error{Reason: replicas.NoNode, Text: "no node '" + node + "' is in the cluster"}
	}
	f.calls = append(f.calls, what)
	return nil
}

func (f *fakeSteward) Leave(_ context.Context, node string, leaves bool) error {
	return f.note(node, fmt.Sprint("leaves ", leaves))
}

func (f *fakeSteward) Progress(node string) (steward.Progress, error) {
	return steward.Progress{Node: node, State: "leaving", Replicas: 3, Waiting: 2, Underway: 1, Voter: true}, f.note(node, "progress")
}

func (f *fakeSteward) Dismiss(_ context.Context, node string) error {
	if err := f.note(node, "dismiss"); err != nil {
		return err
	}
	return &replicas.Error{Reason: replicas.HasReplicas, Text: "node 'n1' still has replicas of queues"}
}

func (f *fakeSteward) Balance(_ context.Context, kind string, which replicas.Match) ([]steward.Share, int, error) {
	f.calls = append(f.calls, fmt.Sprint(kind, " ", which.VHosts, " ", which.Queues))
	return []steward.Share{{Node: "n1", Queues: 4}}, 2, nil
}

func TestSteward(t *testing.T) {
	f, fake := newFakeCluster("a"), &fakeSteward{}
	f.apis["a"].cfg.Steward = fake
	const path, progress = "warren/nodes/n1/decommission", `{"node":"n1","state":"leaving","replicas":3,"waiting":2,"underway":1,"stalled":0,"nowhere":0,"no_majority":0,"voter":true,"done":false}`
	f.expect(t, []request{
		{"", "PUT", path, "", 200, progress},
		{"", "GET", path, "", 200, progress},
		{"", "DELETE", path, "", 200, progress},
		{"", "POST", path + "/end", "", 409, `{"error":"node_has_replicas","reason":"node 'n1' still has replicas of queues"}`},
		{"", "PUT", "warren/nodes/n9/decommission", "", 404, "…no node 'n9'"},
		{"", "GET", "warren/nodes/n9/decommission", "", 404, "…no node 'n9'"},
		{"", "POST", path, "", 405, "…Method Not Allowed"},
		{"monitor", "PUT", path, "", 401, noAdministrator},
		{"monitor", "GET", path, "", 401, noAdministrator},
		{"", "POST", "rebalance/queues", "", 200, `{"moved":2,"nodes":[{"node":"n1","queues":4}]}`},
		{"", "POST", "rebalance/queues", `{"type":"quorum","vhost_pattern":"^/$","queue_pattern":"a.*"}`, 200, `…"moved":2`},
		{"", "POST", "rebalance/queues", `{"type":"large"}`, 400, refusedAs("type 'large' is not recognised")},
		{"", "POST", "rebalance/queues", `{"type":3}`, 400, refusedAs("type should be a string, actually was 3")},
		{"", "POST", "rebalance/queues", `{"queue_pattern":"("}`, 400, "…queue_pattern: error parsing regexp"},
		{"", "POST", "rebalance/queues", `{"queue_pattern":"` + strings.Repeat("x", patternBytesMax+1) + `"}`, 400, refusedAs("queue_pattern is too long")},
		{"", "POST", "rebalance/queues", `[]`, 400, refusedAs("not_json")},
		{"manager", "POST", "rebalance/queues", "", 401, noAdministrator},
	})
	want := "[leaves true progress progress leaves false progress dismiss all <nil> <nil> quorum ^/$ a.*]"
	if got := fmt.Sprint(fake.calls); got != want {
		t.Errorf("called %s, want %s", got, want)
	}
}
