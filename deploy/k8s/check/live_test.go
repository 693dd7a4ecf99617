package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/warrenmq/warren/deploy/k8s/check/dashboards"
)

// fire are alerts about what the load does.
var fire = []string{"WarrenDeadLettersDropped", "WarrenDeadLettersStuck"}

// rareMetrics are asked for by dashboards or alerts, and nodes that have neither TLS, nor a server of logins, nor a trouble do not have them.
var rareMetrics = []string{
	"warren_certificate_expiry_seconds", "warren_authority_expiry_seconds", "warren_certificate_reload_failures_total", "warren_auth_http_requests_total",
}

// mayBeEmpty are panels that show nothing while nothing is wrong, or has been used.
var mayBeEmpty = []string{
	"Certificates expire in", "Time without a leader",
}

// rabbitOverview are the figures of RabbitMQ 4's overview dashboard that nodes have; the others are Erlang's and TCP sockets.
var rabbitOverview = []string{
	"rabbitmq_global_publishers", "rabbitmq_channel_messages_unconfirmed",
	"rabbitmq_queue_messages_ready", "rabbitmq_queue_messages_unacked", "rabbitmq_connections", "rabbitmq_channels", "rabbitmq_queues", "rabbitmq_consumers", "rabbitmq_global_consumers",
	"rabbitmq_build_info", "rabbitmq_resident_memory_limit_bytes - rabbitmq_process_resident_memory_bytes", "rabbitmq_disk_space_available_bytes", "rabbitmq_disk_space_available_limit_bytes",
	"rabbitmq_process_max_fds - rabbitmq_process_open_fds",
	"rate(rabbitmq_global_messages_received_total[1m])", "rate(rabbitmq_global_messages_confirmed_total[1m])", "rate(rabbitmq_global_messages_routed_total[1m])",
	"rate(rabbitmq_global_messages_received_confirm_total[1m])", "rate(rabbitmq_global_messages_unroutable_dropped_total[1m])", "rate(rabbitmq_global_messages_unroutable_returned_total[1m])",
	"rate(rabbitmq_global_messages_delivered_total[1m])", "rate(rabbitmq_global_messages_redelivered_total[1m])", "rate(rabbitmq_global_messages_delivered_consume_manual_ack_total[1m])",
	"rate(rabbitmq_global_messages_delivered_consume_auto_ack_total[1m])", "rate(rabbitmq_global_messages_acknowledged_total[1m])",
	"rate(rabbitmq_global_messages_delivered_get_auto_ack_total[1m])", "rate(rabbitmq_global_messages_get_empty_total[1m])", "rate(rabbitmq_global_messages_delivered_get_manual_ack_total[1m])",
	"rate(rabbitmq_queues_declared_total[1m])", "rate(rabbitmq_queues_created_total[1m])", "rate(rabbitmq_queues_deleted_total[1m])",
	"rate(rabbitmq_channels_opened_total[1m])", "rate(rabbitmq_channels_closed_total[1m])", "rate(rabbitmq_connections_opened_total[1m])", "rate(rabbitmq_connections_closed_total[1m])",
}

// metricNames are all that stand in package metrics.
func metricNames(t *testing.T) (names []string) {
	t.Helper()
	sources, err := filepath.Glob(filepath.Join(root, "..", "..", "metrics", "*.go"))
	if err != nil || len(sources) == 0 {
		t.Fatal("no metrics found", err)
	}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"((?:warren|rabbitmq)_[a-z_]+)"`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// alertExpressions are those of the chart and of the plain file, by name. Where the job has another name, it is the chart's.
func alertExpressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	text, err := Kustomize(filepath.Join(root, "overlays/monitoring"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range m.Alerts {
		for _, g := range rule.Spec.Groups {
			for _, r := range g.Rules {
				all["chart, "+r.Alert] = r.Expr.String()
			}
		}
	}
	plain, err := os.ReadFile(filepath.Join(root, PlainRules))
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(plain, false)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all["plain, "+r.Alert] = strings.ReplaceAll(r.Expr, `job="warren"`, `job="warren-nodes"`)
			for _, label := range []string{"pod", "namespace"} {
				if strings.Contains(r.Annotations["summary"]+r.Expr, label) {
					t.Errorf("plain, %s speaks of a %s", r.Alert, label)
				}
			}
		}
	}
	if len(all) == 0 || len(all)%2 != 0 {
		t.Errorf("%d alerts", len(all))
	}
	return all
}

// What dashboards and alerts ask for is what real nodes show under load: names, labels, and numbers in every panel.
func TestDashboardsAndAlertsOnRealNodes(t *testing.T) {
	c := threeNodes(t)
	work := newClients(t, c)
	s := &scraped{series: map[string]*storedSeries{}}
	for range 5 {
		work.burst()
		time.Sleep(500 * time.Millisecond) // the clock of the samples
		if err := s.scrape(t.Context(), c.Nodes()); err != nil {
			t.Fatal(err)
		}
	}
	names, engine, defined := s.names(), newEngine(), metricNames(t)
	rare := func(name string) bool { return slices.Contains(rareMetrics, name) && slices.Contains(defined, name) }
	for _, d := range dashboards.All {
		for _, row := range d.Rows {
			for _, p := range row.Panels {
				for _, expr := range p.Expressions() {
					at := fmt.Sprintf("%s, %s: %s", d.Title, p.Title, expr)
					expr = dashboards.Fill(expr, "1m")
					parsed, err := parser.ParseExpr(expr)
					if err != nil {
						t.Errorf("%s: %v", at, err)
						continue
					}
					for _, problem := range unknown(parsed, names, rare) {
						t.Errorf("%s: %s", at, problem)
					}
					numbers, err := s.evaluate(t.Context(), engine, expr)
					if err != nil || len(numbers) == 0 && !slices.Contains(mayBeEmpty, p.Title) {
						t.Errorf("%s is empty: %v", at, err)
					}
				}
			}
		}
	}
	for name, expr := range alertExpressions(t) {
		parsed, err := parser.ParseExpr(expr)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, problem := range unknown(parsed, names, rare) {
			t.Errorf("%s: %s", name, problem)
		}
		if fires, err := s.evaluate(t.Context(), engine, expr); err != nil || (len(fires) > 0) != slices.ContainsFunc(fire, func(alert string) bool { return strings.HasSuffix(name, ", "+alert) }) {
			t.Errorf("%s fires by %v, %v", name, fires, err)
		}
	}
	if t.Failed() {
		t.Log(c.Logs())
	}
	// RabbitMQ's own overview multiplies each figure with the identity of its node.
	for _, name := range rabbitOverview {
		numbers, err := s.evaluate(t.Context(), engine, "sum(("+name+`) * on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) rabbitmq_identity_info{namespace="default"})`)
		if err != nil || len(numbers) != 1 {
			t.Errorf("RabbitMQ's overview has %s: %v, %v", name, numbers, err)
		}
	}
	// The load did what it is for.
	for expr, least := range map[string]float64{
		"sum(rate(rabbitmq_global_messages_received_total[1m]))":               1,
		"sum(rate(rabbitmq_global_messages_dead_lettered_expired_total[1m]))":  0.001,
		"sum(rate(rabbitmq_global_messages_dead_lettered_rejected_total[1m]))": 0.001,
		"sum(warren_dead_letters_dropped_total{cause=\"no_exchange\"})":        1,
		"sum(rate(rabbitmq_global_messages_redelivered_total[1m]))":            0.001,
		"sum(rabbitmq_detailed_queue_messages{queue=\"dead\"})":                1,
	} {
		numbers, err := s.evaluate(t.Context(), engine, expr)
		if err != nil || len(numbers) != 1 || numbers[0] < least {
			t.Errorf("%s is %v, %v", expr, numbers, err)
		}
	}
}

// The check finds what it is for.
func TestUnknownFinds(t *testing.T) {
	seen := map[string][]string{"a": {"job", "x"}, "b": {"job"}}
	for expr, want := range map[string]string{
		`sum by (x) (rate(a{job="j"}[5m]))`: "", `a / on (job) b`: "", `rare{z="1"}`: "",
		`c{job="j"}`: "no node has c", `b{x="1"}`: "b has no label x", `sum by (y) (a)`: "the label y", `a / on (z) b`: "the label z",
	} {
		parsed, err := parser.ParseExpr(expr)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(unknown(parsed, seen, func(name string) bool { return name == "rare" }), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

// The dashboards are JSON that Grafana takes: ids once each, no panel over another one, every panel's data source chosen by the variable.
func TestDashboardsAreWellFormed(t *testing.T) {
	uids := map[string]bool{}
	for _, d := range dashboards.All {
		var got struct {
			UID    string
			Panels []struct {
				ID      int
				Title   string
				Type    string
				GridPos struct{ X, Y, W, H int }
				Targets []struct{ Expr, LegendFormat string }
			}
			Templating struct{ List []struct{ Name string } }
		}
		if err := json.Unmarshal(d.JSON(), &got); err != nil {
			t.Fatal(err)
		}
		if uids[got.UID] || got.UID == "" {
			t.Errorf("%s: uid %q", d.File, got.UID)
		}
		uids[got.UID] = true
		taken := map[[2]int]string{}
		ids := map[int]bool{}
		for _, p := range got.Panels {
			if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || p.Title == "" {
				t.Errorf("%s: panel %d %q at %+v", d.File, p.ID, p.Title, p.GridPos)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %q lies over %q", d.File, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			for _, target := range p.Targets {
				for _, v := range regexp.MustCompile(`\$([a-z]+)\b`).FindAllStringSubmatch(target.Expr, -1) {
					if !slices.ContainsFunc(got.Templating.List, func(l struct{ Name string }) bool { return l.Name == v[1] }) {
						t.Errorf("%s, %s: there is no variable $%s", d.File, p.Title, v[1])
					}
				}
			}
		}
	}
}

// The chart's ConfigMaps hold the dashboards as they are, with the label that Grafana's sidecar looks for, and only if they are wanted.
func TestChartShipsDashboards(t *testing.T) {
	for values, want := range map[string]int{"": 0, "monitoring: {dashboards: {enabled: true}}": len(dashboards.All)} {
		text, err := Chart(filepath.Join(root, "chart"), values, "dashboards.yaml")
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Configs) != want {
			t.Errorf("%q: %d ConfigMaps, want %d", values, len(m.Configs), want)
		}
		files := map[string]string{}
		for _, c := range m.Configs {
			if c.Labels["grafana_dashboard"] != "1" {
				t.Errorf("%s has the labels %v", c.Name, c.Labels)
			}
			maps.Copy(files, c.Data)
		}
		for _, d := range dashboards.All {
			if got := files[d.File+".json"]; want > 0 && got != string(bytes.TrimSpace(d.JSON())) {
				t.Errorf("%s is not the dashboard: %.80q", d.File, got)
			}
		}
	}
}
