package process

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	rabbithole "github.com/michaelklishin/rabbit-hole/v2"
)

// TestOperationsTools asks three nodes, or one of its own, what tools for the operation of RabbitMQ ask, of which each once failed.
func TestOperationsTools(t *testing.T) {
	t.Parallel()
	needWarren(t)
	for name, run := range map[string]func(*hole){
		"login": toolsLogIn, "nodes": toolsNodes, "bindings": toolsBindings, "lists": toolsLists, "bytes": toolsBytes,
	} {
		t.Run(name, func(t *testing.T) {
			c := sharedCluster(t, 3)
			client, err := rabbithole.NewClient(c.Node(1).HTTP(), "guest", "guest")
			if err != nil {
				t.Fatal(err)
			}
			client.SetTimeout(timeoutReply)
			run(&hole{at(t, c.Node(0)), client})
		})
	}
}

// seen is what a path of the API shows.
func (h *hole) seen(path string, to any) {
	h.Helper()
	status, body := api(h.T, "GET", h.Endpoint+"/api/"+path)
	if err := json.Unmarshal(body, to); status != http.StatusOK || err != nil {
		h.Fatalf("%s: %d %s", path, status, body)
	}
}

// toolsLogIn: the checks of nagios-plugins-rabbitmq send name and password to this realm only.
func toolsLogIn(h *hole) {
	req, err := http.NewRequestWithContext(h.Context(), http.MethodGet, h.Endpoint+"/api/overview", http.NoBody)
	if err != nil {
		h.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.Fatal(err)
	}
	_ = resp.Body.Close()
	if realm := resp.Header.Get("WWW-Authenticate"); resp.StatusCode != http.StatusUnauthorized || realm != `Basic realm="RabbitMQ Management"` {
		h.Errorf("without a login: %s, %s", resp.Status, realm)
	}
}

// toolsNodes: those checks and Zabbix's template put "rabbit@" in front of a host's name, and telegraf reads numbers of a node's memory.
func toolsNodes(h *hole) {
	nodes, err := h.ListNodes()
	if err != nil || len(nodes) != 3 {
		h.Fatalf("%+v %v", nodes, err)
	}
	for _, n := range nodes { // of which the API asks two
		var one struct {
			Name   string
			Memory map[string]any
		}
		h.seen("nodes/rabbit@"+n.Name+"?memory=true", &one)
		used, _ := one.Memory["other_system"].(float64)
		if total, _ := one.Memory["total"].(map[string]any); one.Name != n.Name || used == 0 || total["rss"] == nil {
			h.Errorf("%+v", one)
		}
		var percent struct{ Memory map[string]int }
		h.seen("nodes/"+n.Name+"/memory/relative", &percent)
		sum := 0
		for _, part := range percent.Memory {
			sum += part
		}
		if percent.Memory["total"] != 100 || sum < 180 || sum > 220 {
			h.Errorf("%v: %d in all", percent, sum)
		}
	}
	var check struct{ Protocols []string }
	if h.seen("health/checks/protocol-listener/amqp091,http", &check); !slices.Contains(check.Protocols, "amqp") {
		h.Errorf("%+v", check)
	}
}

// toolsBindings: when the queue of a binding has been deleted, the provider of Terraform must find no binding, and no error.
func toolsBindings(h *hole) {
	x, q := h.exchange("x", "direct", nil), h.queue("q", nil)
	h.bind(q, "k", x, nil)
	if list, err := h.ListQueueBindingsBetween("/", x, q); err != nil || len(list) != 1 {
		h.Fatalf("%v %v", list, err)
	}
	res, err := h.DeleteQueue("/", q)
	h.ok(204, res, err)
	for what, look := range map[string]func() ([]rabbithole.BindingInfo, error){
		"between":            func() ([]rabbithole.BindingInfo, error) { return h.ListQueueBindingsBetween("/", x, q) },
		"from a missing one": func() ([]rabbithole.BindingInfo, error) { return h.ListQueueBindingsBetween("/", q, q) },
		"of the queue":       func() ([]rabbithole.BindingInfo, error) { return h.ListQueueBindings("/", q) },
		"of an exchange":     func() ([]rabbithole.BindingInfo, error) { return h.ListExchangeBindingsWithSource("/", q) },
		"to an exchange":     func() ([]rabbithole.BindingInfo, error) { return h.ListExchangeBindingsWithDestination("/", q) },
		"between exchanges":  func() ([]rabbithole.BindingInfo, error) { return h.ListExchangeBindingsBetween("/", x, q) },
	} {
		if list, err := look(); err != nil || len(list) != 0 {
			h.Errorf("%s: %v %v", what, list, err)
		}
	}
	if _, err := h.ListQueueBindings(q, q); err == nil || !strings.Contains(err.Error(), "404") {
		h.Errorf("of a missing vhost: %v", err)
	}
}

// toolsLists: lists of one queue or channel are there without members, too.
func toolsLists(h *hole) {
	q := h.queue("q", nil)
	var one map[string]any
	h.seen("queues/%2F/"+q, &one)
	for _, name := range []string{"consumer_details", "deliveries", "incoming"} {
		if list, ok := one[name].([]any); !ok || len(list) != 0 {
			h.Errorf("%s is %v", name, one[name])
		}
	}
}

// toolsBytes: alerts on the bytes of a queue tell what waits from what clients hold.
func toolsBytes(h *hole) {
	q := h.queue("q", nil)
	h.fill(q, "four", "seventy")
	_, deliveries := h.consume(q, 1)
	h.next(deliveries)
	ready, unacked := fmt.Sprintf(`rabbitmq_queue_messages_ready_bytes{queue=%q,vhost="/"} 7`, q), fmt.Sprintf(`rabbitmq_queue_messages_unacked_bytes{queue=%q,vhost="/"} 4`, q)
	c := sharedCluster(h.T, 3)
	eventually(h.T, func() error { // the node that leads has them
		for i := range 3 {
			if _, body := api(h.T, "GET", c.Node(i).HTTP()+"/metrics/per-object"); strings.Contains(string(body), ready) && strings.Contains(string(body), unacked) {
				return nil
			}
		}
		return fmt.Errorf("no node has %s and %s", ready, unacked)
	})
}

// TestClusterNameInOverview: the name that an operator has given the cluster is what tools label their figures with.
func TestClusterNameInOverview(t *testing.T) {
	t.Parallel()
	needWarren(t)
	n := startCluster(t, 1).Node(0)
	var o struct {
		Name string `json:"cluster_name"`
	}
	read := func() string {
		status, body := api(t, "GET", n.HTTP()+"/api/overview")
		if err := json.Unmarshal(body, &o); status != http.StatusOK || err != nil {
			t.Fatalf("%d %s", status, body)
		}
		return o.Name
	}
	id := read()
	mustCtl(t, n, "set_cluster_name", "shop")
	if name := read(); name != "shop" || id == "" || id == name {
		t.Errorf("the overview names %q, and named %q", name, id)
	}
	_, body := api(t, "GET", n.HTTP()+"/metrics")
	if want := fmt.Sprintf(`rabbitmq_cluster="shop",rabbitmq_cluster_permanent_id=%q`, id); !strings.Contains(string(body), want) {
		t.Errorf("the metrics have no %s", want)
	}
}
