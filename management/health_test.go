package management

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/broker"
)

// fakeHealth is a node with what a test wants.
type fakeHealth struct {
	why      string
	opening  bool
	target   int
	critical []CriticalQueue
	expires  time.Time
	// authorities are those of the other nodes.
	authorities time.Time
}

func (f *fakeHealth) Unready() string { return f.why }
func (f *fakeHealth) TargetSize() int { return f.target }
func (f *fakeHealth) Hosting() bool   { return !f.opening }

func (f *fakeHealth) QuorumCritical(context.Context) []CriticalQueue { return f.critical }

func (f *fakeHealth) Listening() []Listener {
	return []Listener{
		{Node: "node-a", Protocol: "clustering", Address: "::1", Port: 5680},
		{Node: "node-a", Protocol: "amqp", Address: "127.0.0.1", Port: 5672},
		{Node: "node-a", Protocol: "amqp/ssl", Address: "::", Port: 5671},
	}
}

func (f *fakeHealth) CertificateExpiry(protocol string) (certificate, authorities time.Time) {
	switch protocol {
	case "amqp":
		return time.Time{}, time.Time{}
	case "clustering":
		return f.expires, f.authorities
	}
	return f.expires, time.Time{}
}

// fakeStats has alarms on some nodes.
type fakeStats struct {
	fakeNodes
	stats NodeStats
	heard bool
}

func (f fakeStats) Stats() NodeStats { return f.stats }
func (f fakeStats) Local() string    { return f.local + "/uuid" }

// Alarms of c, which does not run, were heard of a moment ago.
func (f fakeStats) Alarms(id string) (memory, disk bool) { return false, f.heard && id == "c" }

type vhostNames struct{ fakeBroker }

func (vhostNames) Vhosts() []string { return []string{"/", "v"} }

func TestHealth(t *testing.T) {
	f := newFakeCluster("a", "b")
	h := &fakeHealth{expires: time.Now().Add(10 * 24 * time.Hour)}
	f.apis["b"].cfg.Broker = &vhostNames{}
	f.apis["a"].cfg.Health, f.apis["a"].cfg.Broker = h, &vhostNames{fakeBroker{
		vhosts: map[string][]string{"/": {}},
		queues: []broker.QueueInfo{
			{VHost: "/", Name: "lost", Type: "quorum", State: "down"},
			{VHost: "/", Name: "led", Type: "quorum", State: "running", Leader: "a"},
			{VHost: "/", Name: "l", Type: "classic", State: "down"},
			{VHost: "/", Name: "r", Type: "classic", Durable: true, State: "minority"},
		},
	}}
	f.apis["a"].cfg.Cluster, f.apis["b"].cfg.Cluster = fakeStats{fakeNodes: fakeNodes{local: "a"}}, fakeStats{fakeNodes: fakeNodes{local: "b"}}
	check := func(path, want string) {
		t.Helper()
		if status, body, _ := f.do(t, "a", "manager", "GET", "/api/health/checks/"+path); fmt.Sprint(status, " ", body) != want {
			t.Errorf("%s: %d %s\nwant %s", path, status, body, want)
		}
	}
	const ok = `200 {"status":"ok"}`
	for path, want := range map[string]string{
		"is-in-service": ok, "metadata-store/initialized": ok, "metadata-store/initialized/with-data": ok, "below-node-connection-limit": ok,
		"quorum-queues-without-elected-leaders/all-vhosts": `503 {"status":"failed","reason":"There are quorum queues without an elected leader",` +
			`"queues":[{"readable_name":"queue 'lost' in vhost '/'","name":"lost","virtual_host":"/","type":"rabbit_quorum_queue"},` +
			`{"readable_name":"queue 'r' in vhost '/'","name":"r","virtual_host":"/","type":"rabbit_classic_queue"}]}`,
		"quorum-queues-without-elected-leaders/vhost/%2F": `503 {"status":"failed","reason":"There are quorum queues without an elected leader",` +
			`"queues":[{"readable_name":"queue 'lost' in vhost '/'","name":"lost","virtual_host":"/","type":"rabbit_quorum_queue"},` +
			`{"readable_name":"queue 'r' in vhost '/'","name":"r","virtual_host":"/","type":"rabbit_classic_queue"}]}`,
		"quorum-queues-without-elected-leaders/vhost/none":                `404 {"error":"Object Not Found","reason":"Not Found"}`,
		"quorum-queues-without-elected-leaders/all-vhosts/pattern/%5Eled": ok,
		"quorum-queues-without-elected-leaders/vhost/%2F/pattern/(":       `400 {"error":"bad_request","reason":"pattern is no regular expression: error parsing regexp: missing closing ): ` + "`(`" + `"}`,
		"alarms": ok, "local-alarms": ok, "virtual-hosts": ok, "node-is-quorum-critical": ok, "ready-to-serve-clients": ok,
		"reached-target-cluster-size":         ok,
		"port-listener/5672":                  `200 {"status":"ok","port":5672}`,
		"port-listener/1":                     `503 {"status":"failed","reason":"No active listener","missing":1,"ports":[5680,5672,5671]}`,
		"port-listener/amqp":                  `400 {"error":"bad_request","reason":"Invalid port"}`,
		"port-listener/65536":                 `400 {"error":"bad_request","reason":"Invalid port"}`,
		"protocol-listener/AMQP0-9-1":         `200 {"status":"ok","protocols":["clustering","amqp","amqp/ssl"]}`,
		"protocol-listener/amqps":             `200 {"status":"ok","protocols":["clustering","amqp","amqp/ssl"]}`,
		"protocol-listener/amqp%2Fssl":        `200 {"status":"ok","protocols":["clustering","amqp","amqp/ssl"]}`,
		"protocol-listener/mqtt":              `503 {"status":"failed","reason":"No active listener","missing":["mqtt"],"protocols":["clustering","amqp","amqp/ssl"]}`,
		"protocol-listener/amqp091,amqps":     `200 {"status":"ok","protocols":["clustering","amqp","amqp/ssl"]}`,
		"protocol-listener/amqp,https,mqtt":   `503 {"status":"failed","reason":"No active listener","missing":["https","mqtt"],"protocols":["clustering","amqp","amqp/ssl"]}`,
		"certificate-expiration/1/weeks":      ok,
		"certificate-expiration/0/DAYS":       ok,
		"certificate-expiration/1/fortnights": `400 {"error":"bad_request","reason":"Time unit not recognised. Supported units: days, weeks, months, years."}`,
		"certificate-expiration/-1/days":      `400 {"error":"bad_request","reason":"Invalid expiration value."}`,
		"certificate-expiration/soon/days":    `400 {"error":"bad_request","reason":"Invalid expiration value."}`,
	} {
		check(path, want)
	}
	on := h.expires.UTC().Format(time.DateTime)
	for _, path := range []string{"certificate-expiration/2/weeks", "certificate-expiration/2147483647/years"} {
		check(path, `503 {"status":"failed","reason":"Certificates expiring","expired":[`+
			`{"node":"node-a","protocol":"amqp/ssl","interface":"::","port":5671,"certfile_expires_on":["`+on+`"]},`+
			`{"node":"node-a","protocol":"clustering","interface":"::1","port":5680,"certfile_expires_on":["`+on+`"]}]}`)
	}
	h.authorities = time.Now().Add(3 * 24 * time.Hour)
	check("certificate-expiration/1/weeks", `503 {"status":"failed","reason":"Certificates expiring","expired":[`+
		`{"node":"node-a","protocol":"clustering","interface":"::1","port":5680,"cacertfile_expires_on":["`+h.authorities.UTC().Format(time.DateTime)+`"]}]}`)
	f.apis["b"].cfg.Cluster = fakeStats{fakeNodes: fakeNodes{local: "b"}, stats: NodeStats{MemAlarm: true, DiskAlarm: true}}
	check("local-alarms", ok)
	f.apis["a"].cfg.Cluster = fakeStats{fakeNodes: fakeNodes{local: "a"}, heard: true}
	check("alarms", `503 {"status":"failed","reason":"There are alarms in effect in the cluster","alarms":[{"node":"node-b","resource":"memory"},{"node":"node-b","resource":"disk"},{"node":"node-c","resource":"disk"}]}`)
	f.apis["a"].cfg.Cluster = fakeStats{fakeNodes: fakeNodes{local: "a"}}
	check("alarms", `503 {"status":"failed","reason":"There are alarms in effect in the cluster","alarms":[{"node":"node-b","resource":"memory"},{"node":"node-b","resource":"disk"}]}`)
	f.apis["a"].cfg.Cluster = fakeStats{fakeNodes: fakeNodes{local: "a"}, stats: NodeStats{DiskAlarm: true}}
	check("local-alarms", `503 {"status":"failed","reason":"There are alarms in effect on the node","alarms":[{"node":"a","resource":"disk"}]}`)
	h.opening, h.why, h.target = true, "the node is drained", 3
	check("reached-target-cluster-size", `503 {"status":"failed","reason":"2 of 3 nodes run"}`)
	h.critical = []CriticalQueue{{ReadableName: "queue 'q' in vhost '/'", Name: "q", VHost: "/", Type: "rabbit_quorum_queue"}}
	check("virtual-hosts", `503 {"status":"failed","reason":"Some virtual hosts are down","virtual-hosts":["/","v"]}`)
	check("ready-to-serve-clients", `503 {"status":"failed","reason":"the node is drained"}`)
	check("node-is-quorum-critical", `503 {"status":"failed","reason":"There are quorum queues that would lose their quorum if the target node is shut down",`+
		`"queues":[{"readable_name":"queue 'q' in vhost '/'","name":"q","virtual_host":"/","type":"rabbit_quorum_queue"}]}`)
	for _, user := range []string{"", "plain"} {
		if status, body, _ := f.do(t, "a", user, "GET", "/api/health/checks/alarms"); status != 401 || !strings.Contains(body, "not_authorised") {
			t.Errorf("%q: %d %s", user, status, body)
		}
	}
	if status, _, _ := f.do(t, "a", "admin", "PUT", "/api/health/checks/alarms"); status != 405 {
		t.Errorf("PUT is %d", status)
	}
}
