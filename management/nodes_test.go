package management

import (
	"encoding/json"
	"strings"
	"testing"
)

// fakeNodes is a cluster of nodes a, b and c, of which c does not run.
type fakeNodes struct {
	Cluster
	local string
}

func (f fakeNodes) ClusterID() string     { return "c-1" }
func (f fakeNodes) ClusterName() string   { return "c-1" }
func (f fakeNodes) CatalogLeader() string { return "b" }
func (f fakeNodes) Local() string         { return f.local }
func (f fakeNodes) Level() int            { return 2 }
func (f fakeNodes) Stats() NodeStats      { return NodeStats{PID: "pid of " + f.local, MemUsed: 7} }

func (f fakeNodes) Nodes() []Node {
	node := func(name string) Node {
		return Node{
			ID: name, Name: "node-" + name, Type: "disc", Running: name != "c", Partitions: []string{}, Zone: "z" + name[:1], CatalogVoter: true,
			State: "regular", Listeners: []Listener{},
		}
	}
	return []Node{node("c"), node("b"), node("a")}
}

func TestNodes(t *testing.T) {
	f := newFakeCluster("a", "b")
	for name, a := range f.apis {
		a.cfg.Cluster = fakeNodes{local: name}
	}
	pids := func(user string) string {
		t.Helper()
		status, body, _ := f.do(t, "a", user, "GET", "/api/nodes")
		if status != 200 {
			return body
		}
		var list []map[string]any
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, n := range list {
			pid, _ := n["os_pid"].(string)
			all = append(all, n["name"].(string)+": "+pid)
		}
		return strings.Join(all, ", ")
	}
	if got := pids("monitor"); got != "node-a: pid of a, node-b: pid of b, node-c: " {
		t.Errorf("nodes are %s", got)
	}
	// rabbitmqadmin 2 reads no list of nodes of which one that runs has not all of these.
	var running []map[string]any
	if _, body, _ := f.do(t, "a", "monitor", "GET", "/api/nodes"); json.Unmarshal([]byte(body), &running) != nil {
		t.Fatal(body)
	}
	for _, n := range running[:2] {
		for _, name := range []string{
			"name", "uptime", "run_queue", "processors", "os_pid", "fd_total", "proc_total", "mem_limit", "mem_alarm", "disk_free_limit",
			"disk_free_alarm", "rates_mode", "enabled_plugins", "being_drained",
		} {
			if n[name] == nil {
				t.Errorf("%v has no %s", n["name"], name)
			}
		}
	}
	if got := pids("manager"); !strings.Contains(got, "not_authorised") {
		t.Errorf("a manager sees %s", got)
	}
	f.lost["b"] = true
	if got := pids("admin"); got != "node-a: pid of a, node-b: , node-c: " {
		t.Errorf("without an answer the nodes are %s", got)
	}
	for path, want := range map[string]string{
		"/api/nodes/node-c": `{"name":"node-c","type":"disc","running":false,"being_drained":false,"partitions":[],"warren_storage":"c","warren_state":"regular","warren_zone":"zc",` +
			`"warren_version":"","warren_level":0,"warren_replicas":0,"warren_voter":true,"warren_down_since":0,"warren_cluster_addr":"","warren_listeners":[]}`,
		"/api/nodes/node-d":                 `{"error":"Object Not Found","reason":"Not Found"}`,
		"/api/nodes/node-b/memory":          `{"memory":"not_available"}`,
		"/api/nodes/node-b/memory/relative": `{"memory":"not_available"}`,
		"/api/nodes/node-d/memory":          `{"error":"Object Not Found","reason":"Not Found"}`,
		"/api/cluster-name":                 `{"name":"c-1"}`,
		"/api/warren/cluster": `{"cluster_id":"c-1","node":"a","level":2,"catalog_leader":"b","catalog_voters":["node-a","node-b","node-c"],` +
			`"zones":{"za":["node-a"],"zb":["node-b"],"zc":["node-c"]}}`,
	} {
		if _, body, _ := f.do(t, "a", "admin", "GET", path); body != want {
			t.Errorf("%s is %s, want %s", path, body, want)
		}
	}
}

// TestGossipKeysOfADeadNodeAreUnknown: a list without the node would seem to say that all agree.
func TestGossipKeysOfADeadNodeAreUnknown(t *testing.T) {
	f := newFakeCluster("node-a", "node-b")
	for name, a := range f.apis {
		a.cfg.Cluster = fakeNodes{local: name}
	}
	status, body, _ := f.do(t, "node-a", "admin", "GET", "/api/warren/gossip-keys")
	const want = `[{"node":"node-a","encryption":"on","keys":["aa"]},{"node":"node-b","encryption":"on","keys":["aa"]},{"node":"node-c","encryption":"","keys":[],"unknown":true}]`
	if status != 200 || body != want {
		t.Errorf("%d %s\nwant %s", status, body, want)
	}
}
