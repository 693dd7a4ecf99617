package management

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// fakeNodes is a cluster of nodes a, b and c, of which c does not run.
type fakeNodes struct {
	Cluster
	local string
}

func (f fakeNodes) ClusterID() string     { return "c-1" }
func (f fakeNodes) ClusterName() string   { return "shop" }
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
		a.cfg.Cluster, a.cfg.Local = fakeNodes{local: name}, measuredLocal{}
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
		"/api/nodes/node-b/memory":          `{"memory":"not_available"}`, // it has not answered
		"/api/nodes/node-b/memory/relative": `{"memory":"not_available"}`,
		"/api/nodes/node-c/memory":          `{"memory":"not_available"}`, // it does not run
		"/api/nodes/node-d/memory":          `{"error":"Object Not Found","reason":"Not Found"}`,
		"/api/cluster-name":                 `{"name":"shop"}`,
		"/api/warren/cluster": `{"cluster_id":"c-1","node":"a","level":2,"catalog_leader":"b","catalog_voters":["node-a","node-b","node-c"],` +
			`"zones":{"za":["node-a"],"zb":["node-b"],"zc":["node-c"]}}`,
	} {
		if _, body, _ := f.do(t, "a", "admin", "GET", path); body != want {
			t.Errorf("%s is %s, want %s", path, body, want)
		}
	}
}

// TestMemoryOfNodes: telegraf drops all that it has read of a node if it finds no numbers here. Each of RabbitMQ's names has one.
func TestMemoryOfNodes(t *testing.T) {
	f := newFakeCluster("a", "b")
	for name, a := range f.apis {
		a.cfg.Cluster, a.cfg.Local = fakeNodes{local: name}, measuredLocal{}
	}
	memory := func(path string) map[string]any {
		t.Helper()
		var got struct{ Memory map[string]any }
		if _, body, _ := f.do(t, "a", "monitor", "GET", path); json.Unmarshal([]byte(body), &got) != nil || got.Memory == nil {
			t.Fatalf("%s is %s", path, body)
		}
		return got.Memory
	}
	for _, node := range []string{"node-a", "node-b", "rabbit@node-a", "rabbit%40node-b"} {
		for _, path := range []string{"/api/nodes/" + node + "/memory", "/api/nodes/" + node + "?memory=true"} {
			m := memory(path)
			for _, name := range erlangParts {
				if _, ok := m[name].(float64); !ok {
					t.Errorf("%s has no number %s", path, name)
				}
			}
			total, _ := m["total"].(map[string]any)
			if m["quorum_queue_procs"] != 4.0 || m["other_proc"] != 5.0 || m["strategy"] != "rss" || total["rss"] != 7.0 || total["allocated"] != 9.0 || total["erlang"] != 9.0 {
				t.Errorf("%s is %v", path, m)
			}
		}
		if m := memory("/api/nodes/" + node + "/memory/relative"); m["total"] != 100.0 || m["quorum_queue_procs"] != 44.0 || m["other_proc"] != 56.0 || m["atom"] != 0.0 {
			t.Errorf("relative: %v", m)
		}
	}
	if _, body, _ := f.do(t, "a", "monitor", "GET", "/api/nodes/node-a"); strings.Contains(body, `"memory"`) {
		t.Errorf("without being asked for: %s", body)
	}
	whole := Memory{Total: 1000, Parts: []MemoryPart{{Part: "heap_free", Bytes: 300}, {Part: "heap_unused", Bytes: 100}, {Part: "transient_messages", Bytes: 1}, {Part: "of a newer node", Bytes: 599}}}
	if b := whole.breakdown(); fmt.Sprint(b["total"]) != "map[allocated:700 erlang:600 rss:0]" || b["other_system"] != uint64(599) || b["queue_procs"] != uint64(1) {
		t.Errorf("breakdown %v", b)
	}
	if r := whole.relative(); r["queue_procs"] != 1 || r["other_system"] != 60 || r["reserved_unallocated"] != 30 {
		t.Errorf("relative %v", r)
	}
}

// TestNodesByRabbitMQsNames: the checks of nagios-plugins-rabbitmq and Zabbix's template ask for "rabbit@" and the name of a host.
func TestNodesByRabbitMQsNames(t *testing.T) {
	f := newFakeCluster("a", "b")
	for name, a := range f.apis {
		a.cfg.Cluster = fakeNodes{local: name}
	}
	for path, want := range map[string]int{"nodes/rabbit@node-b": 200, "nodes/rabbit%40node-b": 200, "nodes/rabbit@rabbit@node-b": 404, "nodes/hare@node-b": 404, "nodes/rabbit@": 404} {
		status, body, _ := f.do(t, "a", "monitor", "GET", "/api/"+path)
		if status != want || status == 200 && !strings.Contains(body, `"name":"node-b"`) {
			t.Errorf("%s: %d %s", path, status, body)
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
