package ctl

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

const statusAnswers = `{
"/api/warren/cluster": {"cluster_id":"c-1","node":"a","level":2,"catalog_leader":"a","catalog_voters":["a","b"],"zones":{"east":["a"],"":["b"]}},
"/api/nodes": [
 {"name":"a","running":true,"being_drained":false,"processors":4,"mem_alarm":true,"disk_free_alarm":true,"warren_zone":"east","warren_state":"regular","warren_version":"1.0",
  "warren_listeners":[{"node":"a","protocol":"amqp","ip_address":"10.0.0.1","port":5672,"purpose":"AMQP 0-9-1"}]},
 {"name":"b","running":true,"being_drained":true,"warren_state":"draining"},
 {"name":"c","running":false,"warren_state":"leaving"}],
"/api/feature-flags": [{"name":"x","state":"enabled"}]}`

func answerStatus(w http.ResponseWriter, r *http.Request) {
	var answers map[string]json.RawMessage
	if err := json.Unmarshal([]byte(statusAnswers), &answers); err != nil {
		panic(err)
	}
	_, _ = w.Write(answers[r.URL.Path]) // the test sees what is missing
}

func TestClusterStatus(t *testing.T) {
	code, out, failed := run(t, answerStatus, "cluster_status")
	want := `Cluster status of node a ...
Basics

Cluster name: c-1
Total CPU cores available cluster-wide: 4

Cluster Tags

(none)

Disk Nodes

a
b
c

Running Nodes

a
b

Versions

a: Warren 1.0

CPU Cores

Node: a, available CPU cores: 4

Maintenance status

Node: a, status: not under maintenance
Node: b, status: marked for maintenance

Alarms

Memory alarm on node a
Free disk space alarm on node a

Network Partitions

(none)

Listeners

Node: a, interface: 10.0.0.1, port: 5672, protocol: amqp, purpose: AMQP 0-9-1

Feature flags

Flag: x, state: enabled

Catalog

Leader: a
Voters: a, b
Level: 2
Zone: east, nodes: a
Node: b, state: draining
Node: c, state: leaving

`
	if code != ExitOK || out != want {
		t.Errorf("%d %s\n%s", code, out, failed)
	}
	_, out, _ = run(t, answerStatus, "cluster_status", "--formatter", "json")
	for _, part := range []string{
		`"alarms":[{"node":"a","resource":"memory"},{"node":"a","resource":"disk"}]`, `"cluster_name":"c-1"`, `"disk_nodes":["a","b","c"]`, `"running_nodes":["a","b"]`,
		`"maintenance_status":{"a":"not under maintenance","b":"marked for maintenance"}`, `"partitions":{}`, `"cpu_cores":{"a":4}`,
		`"listeners":{"a":[{"interface":"10.0.0.1","node":"a","port":5672,"protocol":"amqp","purpose":"AMQP 0-9-1"}]}`, `"catalog_voters":["a","b"]`,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%s is not in %s", part, out)
		}
	}
}
