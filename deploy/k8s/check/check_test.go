package check

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"

	"github.com/warrenmq/warren/config"
)

const root = ".."

// renderings are all manifests that are offered, by name.
func renderings(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, dir := range Overlays {
		text, err := Kustomize(filepath.Join(root, dir))
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		all["kustomize "+dir] = text
	}
	for name, values := range map[string]string{
		"defaults":     "",
		"all on":       "monitoring: {enabled: true, labels: {release: prometheus}, perQueue: {enabled: true, vhosts: [a, b c]}, dashboards: {enabled: true, annotations: {grafana_folder: Brokers}}}\nspread: hard\nstorage: {className: fast, size: 1Ti}\nservice: {type: LoadBalancer, annotations: {a: b}}\npodAnnotations: {a: b}\npodLabels: {team: t}\nnodeSelector: {disk: local}\ntolerations: [{key: k, operator: Exists}]\npriorityClassName: high\nimagePullSecrets: [{name: s}]\nnetworkPolicy: {monitoring: [{namespaceSelector: {matchLabels: {name: monitoring}}}], clients: [{podSelector: {matchLabels: {app: x}}}]}\nconfig: {log-level: debug, consumer-timeout: 1h, leader-moves: 0}",
		"tls accepted": "tls: {cluster: {mode: accept, secretName: a}, clients: {secretName: b, clientAuth: verify}}",
		"little on":    "networkPolicy: {enabled: false}\ncluster: {bootstrap: false}\nfullnameOverride: broker\nreplicas: 1",
		"restored":     "restore: {volume: {nfs: {server: s, path: /p}}, file: a/b.backup, salt: again}\nreplicas: 5",
		"five zones":   "zones: [{name: a, zone: zone-1, replicas: 2}, {name: b, zone: zone-2, replicas: 2}, {name: c, replicas: 1}]\nnodeSelector: {disk: local}",
	} {
		text, err := Chart(filepath.Join(root, "chart"), values, "")
		if err != nil {
			t.Fatalf("chart, %s: %v", name, err)
		}
		all["chart, "+name] = text
	}
	return all
}

// The files that kustomize starts from are those that the chart makes: there is one source.
func TestBaseIsTheChart(t *testing.T) {
	files, err := Render(root)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the chart makes: run make k8s-render", name)
		}
	}
}

// All manifests are objects of Kubernetes' types without unknown fields, and keep the rules; their settings are ones
// that the node knows and accepts.
func TestManifests(t *testing.T) {
	for name, text := range renderings(t) {
		t.Run(name, func(t *testing.T) {
			m, err := Decode(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := Rules(m); err != nil {
				t.Error(err)
			}
			for _, s := range m.Sets {
				pod := s.Spec.Template.Spec
				cfg, err := Settings(m, pod, pod.Containers[0], t.TempDir())
				if err != nil {
					t.Errorf("%s: %v", s.Name, err)
				} else {
					checkSettings(t, s.Spec.ServiceName, cfg)
				}
			}
		})
	}
}

func checkSettings(t *testing.T, service string, c config.Config) {
	t.Helper()
	if want := service + ":5682"; len(c.Join) != 1 || c.Join[0] != want {
		t.Errorf("joins %q, want %q", c.Join, want)
	}
	if want := "namespace/" + strings.TrimSuffix(service, "-nodes"); c.ClusterName != want {
		t.Errorf("cluster name %q, want %q", c.ClusterName, want)
	}
	if c.LogFormat != "json" || c.NodeID != "warren-0" || !strings.HasPrefix(c.DataDir, "/var/lib/warren/") {
		t.Errorf("log format %q, node %q, data in %q", c.LogFormat, c.NodeID, c.DataDir)
	}
}

// What the overlays are for.
func TestOverlays(t *testing.T) {
	for dir, want := range map[string]struct {
		replicas []int32
		expect   int
	}{
		"base":                {[]int32{3}, 3},
		"overlays/single":     {[]int32{1}, 1},
		"overlays/three":      {[]int32{3}, 3},
		"overlays/five-zones": {[]int32{2, 2, 1}, 5},
	} {
		text, err := Kustomize(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Sets) != len(want.replicas) {
			t.Errorf("%s: %d StatefulSets, want %d", dir, len(m.Sets), len(want.replicas))
			continue
		}
		for i, s := range m.Sets {
			pod := s.Spec.Template.Spec
			cfg, err := Settings(m, pod, pod.Containers[0], t.TempDir())
			if err != nil || *s.Spec.Replicas != want.replicas[i] || cfg.BootstrapExpect != want.expect {
				t.Errorf("%s: %s has %d replicas and expects %d, %v", dir, s.Name, *s.Spec.Replicas, cfg.BootstrapExpect, err)
			}
		}
	}
}

// Dockerfile makes what the pods expect: the program as entry point, which the manifests give no command, and their user.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "..", "..", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	_, last, ok := strings.Cut(string(text), "\nFROM scratch\n")
	if !ok {
		t.Fatal("the image is not made from scratch")
	}
	for _, want := range []string{"COPY --from=build /warren /warren\n", "USER 65532:65532\n", "ENTRYPOINT [\"/warren\"]\n", "CMD [\"serve\"]\n"} {
		if !strings.Contains(last, want) {
			t.Errorf("%q is missing", want)
		}
	}
	m, err := Decode(renderings(t)["kustomize base"])
	if err != nil {
		t.Fatal(err)
	}
	pod := m.Sets[0].Spec.Template.Spec
	if len(pod.Containers[0].Command) > 0 || *pod.SecurityContext.RunAsUser != 65532 {
		t.Errorf("the pod runs %q as %d", pod.Containers[0].Command, *pod.SecurityContext.RunAsUser)
	}
}

// A scale does not change the pods: the number that found the cluster is another value.
func TestScaleRestartsNothing(t *testing.T) {
	var templates []string
	for _, values := range []string{"replicas: 3", "replicas: 5"} {
		text, err := Chart(filepath.Join(root, "chart"), values, "statefulset.yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, template, ok := strings.Cut(string(text), "\n  template:\n")
		if !ok {
			t.Fatal("no pod template")
		}
		templates = append(templates, template)
	}
	if templates[0] != templates[1] {
		t.Error("the pods of five replicas are others than those of three")
	}
}

func TestLatestIsRefused(t *testing.T) {
	if _, err := Chart(filepath.Join(root, "chart"), "image: {tag: latest}", ""); err == nil || !strings.Contains(err.Error(), "latest is refused") {
		t.Errorf("got %v", err)
	}
}

// Alerts are what Prometheus reads, about metrics that nodes have ("up" is Prometheus' own), and their texts use labels that are left.
func TestAlertsAskForWhatIsThere(t *testing.T) {
	names := metricNames(t)
	text, err := Kustomize(filepath.Join(root, "overlays/monitoring"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`\$labels\.([a-z_]+)`)
	metric := regexp.MustCompile(`\b(?:warren|rabbitmq)_[a-z_]+`)
	alerts := 0
	for _, rule := range m.Alerts {
		for _, group := range rule.Spec.Groups {
			for _, r := range group.Rules {
				alerts++
				if r.Annotations["summary"] == "" || r.For == nil || r.Labels["severity"] == "" {
					t.Errorf("%s has no summary, time or severity", r.Alert)
				}
				expr, err := parser.ParseExpr(r.Expr.String())
				if err != nil {
					t.Errorf("%s: %v", r.Alert, err)
					continue
				}
				if a, ok := summed(expr); ok {
					for _, label := range label.FindAllStringSubmatch(r.Annotations["summary"], -1) {
						if !slices.Contains(a.Grouping, label[1]) {
							t.Errorf("%s: the text has {{ $labels.%s }}, of which nothing is left", r.Alert, label[1])
						}
					}
				}
				for _, name := range metric.FindAllString(r.Expr.String(), -1) {
					if !slices.Contains(names, strings.Replace(strings.TrimSuffix(name, "_bucket"), "_detailed_", "_", 1)) {
						t.Errorf("%s asks for %s, which no node has", r.Alert, name)
					}
				}
			}
		}
	}
	if alerts == 0 {
		t.Error("no alerts")
	}
}

// summed returns the first aggregation by labels in an expression.
func summed(expr parser.Expr) (found *parser.AggregateExpr, ok bool) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if a, is := n.(*parser.AggregateExpr); is && found == nil && !a.Without {
			found = a
		}
		return nil
	})
	return found, found != nil
}

// The rules find what they are for: each case breaks one in the base's manifests.
func TestRulesFind(t *testing.T) {
	base, err := Kustomize(filepath.Join(root, "base"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{"replicas: 3", "replica: 3", `unknown field "spec.replica"`},
		{"podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady", "do not start in parallel"},
		{"readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "can write to its root file system"},
		{"runAsNonRoot: true", "runAsNonRoot: false", "may run as root"},
		{"allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true", "privileges may grow"},
		{"image: warren:0.1.0", "image: warren", "no fixed tag"},
		{"image: warren:0.1.0", "image: host:5000/warren", "no fixed tag"},
		{"path: /readyz", "path: /healthz", "the readiness probe asks /healthz"},
		{"- drain\n", "- status\n", "stops at once"},
		{"maxUnavailable: 1", "maxUnavailable: 2", "not one at a time"},
		{"publishNotReadyAddresses: true", "publishNotReadyAddresses: false", "do not find each other"},
		{"targetPort: amqp", "targetPort: amqps", "which warren does not have"},
		{"kind: PodDisruptionBudget", "kind: PodDisruptionBudgets", "of no kind that is expected"},
		{"whenDeleted: Retain", "whenDeleted: Delete", "volumes may be deleted"},
		{"automountServiceAccountToken: false", "automountServiceAccountToken: true", "token of a service account"},
		{"topologyKey: topology.kubernetes.io/zone", "topologyKey: rack", "not spread"},
		{"port: gossip-udp\n      protocol: UDP", "port: gossip-udp", "another protocol"},
		{"serviceName: warren-nodes", "serviceName: nodes", `no Service "nodes"`},
	} {
		broken := bytes.Replace(base, []byte(tc.old), []byte(tc.new), 1)
		if bytes.Equal(broken, base) {
			t.Errorf("%q does not stand in the manifests", tc.old)
			continue
		}
		m, err := Decode(broken)
		if err == nil {
			err = Rules(m)
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.new, err, tc.want)
		}
	}
}

// The init container restores all nodes that there are, with their zones, and what it mounts is there.
func TestRestore(t *testing.T) {
	zones := "zones: [{name: a, zone: zone-1, replicas: 2}, {name: b, replicas: 1}]\n"
	for values, want := range map[string]string{
		"": "",
		"restore: {volume: {nfs: {server: s, path: /p}}}":                                    "--from=/backup/cluster.backup --data-dir=/var/lib/warren/data --node-id=$(POD_NAME) --nodes=warren-0,warren-1,warren-2",
		zones + "restore: {volume: {nfs: {server: s, path: /p}}, file: b/c.gz, salt: again}": "--from=/backup/b/c.gz --data-dir=/var/lib/warren/data --node-id=$(POD_NAME) --nodes=warren-a-0,warren-a-1,warren-b-0 --zones=warren-a-0=zone-1,warren-a-1=zone-1 --salt=again",
	} {
		text, err := Chart(filepath.Join(root, "chart"), values, "")
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range m.Sets {
			got := ""
			for _, c := range s.Spec.Template.Spec.InitContainers {
				got += strings.Join(c.Command[2:], " ")
			}
			if got != want {
				t.Errorf("%s: %s restores by %q, want %q", values, s.Name, got, want)
			}
			node := s.Spec.Template.Spec.Containers[0]
			if at := slices.IndexFunc(node.Env, func(e corev1.EnvVar) bool { return e.Name == "WARREN_DATA_DIR" }); got != "" && node.Env[at].Value != "/var/lib/warren/data" {
				t.Errorf("the node's folder is %q", node.Env[at].Value)
			}
		}
	}
}

// Definitions are mounted where the setting says, from a Secret or a ConfigMap.
func TestDefinitionsMounted(t *testing.T) {
	for values, want := range map[string]string{
		"":                                    "",
		"definitions: {existingSecret: defs}": "secret defs /etc/warren/definitions/definitions.json",
		"definitions: {configMap: defs, key: from-rabbit}":    "configmap defs /etc/warren/definitions/from-rabbit",
		"definitions: {configMap: defs, existingSecret: two}": "not both",
	} {
		text, err := Chart(filepath.Join(root, "chart"), values, "statefulset.yaml")
		if err != nil {
			if want == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", values, err)
			}
			continue
		}
		m, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		pod := m.Sets[0].Spec.Template.Spec
		got := ""
		for _, v := range pod.Volumes {
			switch {
			case v.Name != "definitions":
			case v.Secret != nil:
				got = "secret " + v.Secret.SecretName
			default:
				got = "configmap " + v.ConfigMap.Name
			}
		}
		for _, e := range pod.Containers[0].Env {
			if e.Name == "WARREN_LOAD_DEFINITIONS" {
				got += " " + e.Value
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", values, got, want)
		}
		mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(v corev1.VolumeMount) bool { return v.MountPath == "/etc/warren/definitions" })
		if mounted != (want != "") {
			t.Errorf("%s: mounted: %t", values, mounted)
		}
	}
}

// With TLS nothing listens without it, but on the pod's loopback.
func TestTLSOnly(t *testing.T) {
	text, err := Kustomize(filepath.Join(root, "overlays/tls"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	pod := m.Sets[0].Spec.Template.Spec
	cfg, err := Settings(m, pod, pod.Containers[0], t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(cfg.AMQPAddr, "127.") || !strings.HasPrefix(cfg.HTTPAddr, "127.") || cfg.ClusterTLS != "on" || cfg.AMQPSAddr == "" || cfg.HTTPSAddr == "" {
		t.Errorf("%+v", cfg)
	}
	for _, s := range m.Services {
		for _, p := range s.Spec.Ports {
			if p.Name == "amqp" || p.Name == "http" {
				t.Errorf("Service %s has port %s", s.Name, p.Name)
			}
		}
	}
}

// So does the reading of settings.
func TestSettingsFind(t *testing.T) {
	base, err := Kustomize(filepath.Join(root, "base"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{"name: WARREN_JOIN", "name: WARREN_JOINS", "no setting has the variable WARREN_JOINS"},
		{"log-level: info", "log-levels: info", `unknown key "log-levels"`},
		{"log-level: info", "log-level: loud", "log-level"},
		{"containerPort: 5681", "containerPort: 5691", "5691"},
		{"$(POD_IP)", "$(PODIP)", "does not stand before it"},
		{"value: /etc/warren/config/warren.yaml", "value: /etc/warren/config/other.yaml", "in no ConfigMap"},
		{"image: warren:0.1.0", "image: warren:0.1.0\n        args: [serve, --drain-all=1]", "--drain-all=1"},
	} {
		broken := bytes.Replace(base, []byte(tc.old), []byte(tc.new), 1)
		if bytes.Equal(broken, base) {
			t.Errorf("%q does not stand in the manifests", tc.old)
			continue
		}
		m, err := Decode(broken)
		if err != nil {
			t.Errorf("%s: %v", tc.new, err)
			continue
		}
		pod := m.Sets[0].Spec.Template.Spec
		if _, err = Settings(m, pod, pod.Containers[0], t.TempDir()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.new, err, tc.want)
		}
	}
}
