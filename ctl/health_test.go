package ctl

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func TestHealthVerbs(t *testing.T) {
	const ok = `{"status":"ok"}`
	at := func(check string) string { return "/api/health/checks/" + check }
	checkVerbs(t, []verbCase{
		{args: []string{"check_alarms", "-q"}, method: "GET", path: at("alarms"), status: 200, answer: ok, out: "No alarms are in effect in the cluster\n"},
		{args: []string{"check_alarms", "-s"}, method: "GET", path: at("alarms"), status: 200, answer: ok},
		{args: []string{"check_alarms", "--formatter", "json"}, method: "GET", path: at("alarms"), status: 200, answer: ok, out: `{"result":"ok"}` + "\n"},
		{
			args: []string{"check_local_alarms"}, method: "GET", path: at("local-alarms"), status: 503, code: ExitUnavailable,
			answer: `{"status":"failed","reason":"r","alarms":[{"node":"n1","resource":"memory"},{"node":"n1","resource":"disk"}]}`,
			failed: "Error:\nMemory alarm on node n1\nFree disk space alarm on node n1\n",
		},
		{
			args: []string{"check_virtual_hosts"}, method: "GET", path: at("virtual-hosts"), status: 503, code: ExitUnavailable,
			answer: `{"status":"failed","reason":"Some virtual hosts are down","virtual-hosts":["/","v"]}`, failed: "Some virtual hosts are down: /, v",
		},
		{
			args: []string{"check_if_node_is_quorum_critical"}, method: "GET", path: at("node-is-quorum-critical"), status: 503, code: ExitUnavailable,
			answer: `{"status":"failed","reason":"r","queues":[{"readable_name":"queue 'q' in vhost '/'"}]}`, failed: "queue 'q' in vhost '/' would lose quorum if",
		},
		{
			args: []string{"check_if_node_is_ready"}, method: "GET", path: at("ready-to-serve-clients"), status: 503, code: ExitUnavailable,
			answer: `{"status":"failed","reason":"the node is drained"}`, failed: "the node is drained",
		},
		{args: []string{"check_port_listener", "-q", "5672"}, method: "GET", path: at("port-listener/5672"), status: 200, answer: ok, out: "A listener for port 5672 is running.\n"},
		{
			args: []string{"check_port_listener", "1"}, method: "GET", path: at("port-listener/1"), status: 503, code: ExitUnavailable,
			answer: `{"status":"failed","reason":"r","missing":1,"ports":[7,5]}`, failed: "No listener for port 1 is active. Found listeners that use the following ports: 5, 7",
		},
		{
			args: []string{"check_protocol_listener", "amqp/ssl"}, method: "GET", path: at("protocol-listener/amqp%2Fssl"), status: 503, code: ExitUnavailable,
			answer: `{"status":"failed","reason":"r","missing":["amqp/ssl"],"protocols":["amqp","http"]}`, failed: "protocols: amqp, http",
		},
		{args: []string{"check_port_listener"}, code: ExitUsage, failed: "not enough arguments"},
		{args: []string{"check_port_listener", "x"}, method: "GET", path: at("port-listener/x"), status: 400, answer: `{"error":"bad_request","reason":"Invalid port"}`, code: ExitSoftware, failed: "Invalid port"},
		{args: []string{"check_certificate_expiration", "-s"}, method: "GET", path: at("certificate-expiration/4/weeks"), status: 200, answer: ok},
		{
			args: []string{"check_certificate_expiration", "--within", "2", "--unit", "days"}, method: "GET", path: at("certificate-expiration/2/days"), status: 503, code: ExitUnavailable,
			answer: `{"status":"failed","expired":[{"protocol":"https","port":15671,"certfile_expires_on":["2026-11-22 05:00:00"]}]}`,
			failed: "the certificate of https on port 15671 expires at 2026-11-22 05:00:00",
		},
		{
			args: []string{"check_certificate_expiration", "--within", "2", "--unit", "days"}, method: "GET", path: at("certificate-expiration/2/days"), status: 503, code: ExitUnavailable,
			answer: `{"status":"failed","expired":[{"protocol":"clustering","port":5681,"cacertfile_expires_on":["2026-11-22 05:00:00"]}]}`,
			failed: "an authority (CA) of clustering on port 5681 expires at 2026-11-22 05:00:00",
		},
		{args: []string{"check_certificate_expiration", "--unit", "moons"}, code: ExitUsage, failed: "unit 'moons' is not supported"},
		{args: []string{"check_certificate_expiration", "--within", "-1"}, code: ExitUsage},
		{args: []string{"check_alarms"}, method: "GET", path: at("alarms"), status: 503, answer: "node is not ready", code: ExitUnavailable, failed: "node is not ready"},
		{args: []string{"check_alarms"}, method: "GET", path: at("alarms"), status: 401, answer: `{"error":"not_authorised","reason":"Login failed"}`, code: ExitNoPerm, failed: "Login failed"},
		{args: []string{"ping", "-q"}, method: "GET", path: "/healthz", status: 200, answer: "ok\n", out: "Ping succeeded\n"},
		{args: []string{"ping"}, method: "GET", path: "/healthz", status: 503, answer: "a write is stuck", code: ExitUnavailable, failed: "a write is stuck"},
		{args: []string{"check_running"}, method: "GET", path: "/readyz", status: 503, answer: `{"status":"failed","reason":"starting: cluster","step":"starting"}`, code: ExitUnavailable, failed: "starting: cluster"},
		{args: []string{"check_running", "-s"}, method: "GET", path: "/readyz", status: 503, answer: `{"status":"failed","reason":"the node is drained","step":"draining"}`},
		{args: []string{"is_running", "--formatter", "json"}, method: "GET", path: "/readyz", status: 200, answer: "no JSON", code: ExitSoftware},
		{args: []string{"await_startup", "-q"}, method: "GET", path: "/readyz", status: 200, answer: `{"status":"ok"}`},
		{args: []string{"await_startup", "-t", "1"}, method: "GET", path: "/readyz", status: 503, answer: `{"status":"failed","reason":"starting: broker","step":"starting"}`, code: ExitTimeout, failed: "not within 1 seconds: starting: broker"},
		{args: []string{"await_online_nodes", "-q", "2"}, method: "GET", path: "/api/nodes", status: 200, answer: `[{"running":true},{"running":false},{"running":true}]`},
		{args: []string{"await_online_nodes", "-t", "1", "3"}, method: "GET", path: "/api/nodes", status: 200, answer: `[{"running":true}]`, code: ExitTimeout, failed: "1 nodes run"},
		{args: []string{"await_online_nodes", "many"}, code: ExitData, failed: "'many' is no number of nodes"},
		{args: []string{"await_online_quorum_plus_one", "-q"}, method: "GET", path: at("node-is-quorum-critical"), status: 200, answer: ok},
		{
			args: []string{"await_online_quorum_plus_one", "-t", "1"}, method: "GET", path: at("node-is-quorum-critical"), status: 503,
			answer: `{"status":"failed","queues":[{},{}]}`, code: ExitTimeout, failed: "2 queues have no replica to spare",
		},
		{
			args: []string{"await_online_quorum_plus_one", "-t", "1"}, method: "GET", path: at("node-is-quorum-critical"), status: 503,
			answer: `{"status":"failed","queues":[{"readable_name":"the catalog","type":"process"}]}`, code: ExitTimeout, failed: "0 queues have no replica to spare, and the catalog has no voter",
		},
		{args: []string{"await_online_nodes", "1"}, method: "GET", path: "/api/nodes", status: 401, answer: "{}", code: ExitNoPerm},
	})
	for args, want := range map[string]string{"is_booting": `{"message":"Node URL is starting: broker","result":true}`, "is_running": `"result":false`} {
		code, out, failure := run(t, says(503, `{"status":"failed","reason":"starting: broker","step":"starting"}`), args, "--formatter", "json")
		if i := strings.Index(out, "http://"); i >= 0 {
			out = out[:i] + "URL" + out[strings.Index(out, " is "):]
		}
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d %s %s", args, code, out, failure)
		}
	}
}

// TestAwaitGoesOn waits for a node that is not there at first.
func TestAwaitGoesOn(t *testing.T) {
	var asked atomic.Int64
	code, _, failure := run(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			http.Error(w, "node is not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`[{"running":true}]`)) // the test sees what is missing
	}, "await_online_nodes", "1")
	if code != 0 || asked.Load() != 3 {
		t.Errorf("%d after %d questions: %s", code, asked.Load(), failure)
	}
}

func TestPortConnectivity(t *testing.T) {
	open, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	shut, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := shut.Close(); err != nil {
		t.Fatal(err)
	}
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	node := func(ports ...int) http.HandlerFunc {
		var listeners []string
		for _, p := range ports {
			listeners = append(listeners, fmt.Sprintf(`{"protocol":"amqp","ip_address":"127.0.0.1","port":%d}`, p))
		}
		return func(w http.ResponseWriter, r *http.Request) {
			answer := `{"node":"n1"}`
			if r.URL.Path == "/api/nodes/n1" {
				answer = `{"name":"n1","warren_listeners":[` + strings.Join(listeners, ",") + `]}`
			}
			_, _ = w.Write([]byte(answer)) // the test sees what is missing
		}
	}
	if code, out, failure := run(t, node(port(open)), "check_port_connectivity", "-q"); code != 0 || out != fmt.Sprintf("Successfully connected to ports %d on node n1.\n", port(open)) {
		t.Errorf("%d %s %s", code, out, failure)
	}
	if code, _, failure := run(t, node(port(open), port(shut)), "check_port_connectivity"); code != ExitUnavailable || !strings.Contains(failure, fmt.Sprintf("port: %d", port(shut))) {
		t.Errorf("%d %s", code, failure)
	}
}

// TestWhoseMachine: listeners of the node's own machine are no matter for check_port_connectivity on another one.
func TestWhoseMachine(t *testing.T) {
	for url, want := range map[string]bool{
		"http://127.0.0.1:15672": true, "https://[::1]:15671": true, "http://localhost:15672": true, "unix:///data/control.sock": true,
		"http://node2:15672": false, "http://10.0.0.2:15672": false, "http://[fd00::2]:15672": false,
	} {
		if got := (&session{opt: options{url: url}}).isHere(); got != want {
			t.Errorf("%s: %t", url, got)
		}
	}
	far := &session{opt: options{url: "http://node2:15672"}}
	if far.concerns("127.0.0.2") || !far.concerns("10.0.0.2") || !(&session{opt: options{url: "http://localhost:1"}}).concerns("::1") {
		t.Error("the wrong listeners are connected to")
	}
}
