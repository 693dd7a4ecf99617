// Package arrows checks that imports point inward: docs/architecture.md draws the
// arrows, this test keeps them.
package arrows

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/warrenmq/warren/"

// allowed names, for each package of the product, the packages of this module it
// may import. A package that is not named here may not exist.
var allowed = map[string][]string{
	"amqp":              {},
	"amqp/spec/gen":     {},
	"auth":              {"amqp"},
	"auth/attempts":     {},
	"auth/gate":         {},
	"auth/passwords":    {"auth", "auth/gate"},
	"auth/remote":       {"auth", "auth/gate"},
	"auth/scopes":       {"auth"},
	"auth/tokens":       {},
	"backup":            {},
	"backup/cut":        {"backup"},
	"backup/restore":    {"backup", "catalog", "cluster/bootstrap", "fsm", "store", "transport"},
	"broker":            {"amqp", "auth", "auth/passwords", "catalog", "cluster/placement", "contain", "dirty", "dlx", "dlx/mover", "exchange", "fsm", "policy", "queue", "queue/leader", "queue/wire", "trace", "stats"},
	"catalog":           {"amqp", "auth", "cluster/level", "exchange", "policy", "transport"},
	"cluster/alarm":     {},
	"cluster/balance":   {},
	"cluster/bootstrap": {"cluster/level", "transport"},
	"cluster/detector":  {"transport"},
	"cluster/group":     {"cluster/balance", "cluster/detector", "failpoint", "store", "transport"},
	"cluster/level":     {},
	"cluster/member":    {"transport"},
	"cluster/placement": {},
	"cluster/recovery":  {"amqp", "catalog", "cluster/bootstrap", "transport"},
	"cluster/replicas":  {"amqp", "catalog"},
	"cluster/repair":    {"cluster/placement", "transport"},
	"certs":             {},
	"certs/issue":       {},
	"config":            {},
	"contain":           {},
	"crowd":             {},
	"definitions":       {"amqp", "auth", "broker", "catalog", "exchange", "policy", "shovel"},
	"dirty":             {},
	"dlx":               {"amqp", "queue"},
	"dlx/mover":         {"amqp", "dlx", "exchange", "failpoint", "fsm", "queue", "queue/wire", "trace"},
	"exchange":          {"amqp"},
	"failpoint":         {},
	"fsm":               {"amqp", "dlx", "queue"},
	"inspect":           {"amqp", "catalog", "dlx", "fsm", "queue", "store"},
	"api/warren/v1":     {},
	"client":            {"api/warren/v1"},
	"gateway/amqp":      {"amqp", "auth", "broker", "contain", "failpoint", "fsm", "gateway/tags", "gateway/unread", "stats"},
	"gateway/grpc":      {"amqp", "api/warren/v1", "auth", "broker", "contain", "crowd", "dirty", "exchange", "failpoint", "fsm", "gateway/tags", "gateway/unread", "policy", "stats"},
	"gateway/tags":      {},
	"gateway/unread":    {},
	"ctl":               {"auth", "backup"},
	"management":        {"amqp", "auth", "broker", "definitions", "failpoint", "fsm", "steward", "cluster/level", "cluster/recovery", "cluster/replicas", "policy", "shovel", "stats"},
	"metrics":           {"broker", "dlx", "fsm", "gateway/amqp", "stats", "store"},
	"policy":            {"amqp"},
	"queue":             {},
	"queue/leader":      {"dirty", "dlx", "failpoint", "fsm", "queue", "queue/wire"},
	"queue/wire":        {"dirty", "fsm", "queue"},
	"rabbitconf":        {},
	"shovel":            {},
	"stats":             {},
	"steward":           {"amqp", "catalog", "cluster/repair", "cluster/replicas"},
	"store":             {"failpoint"},
	"store/crashfs":     {"store"},
	"store/faultfs":     {"store"},
	"trace":             {"amqp"},
	"transport":         {"crowd", "dirty"},
	"web":               {},
	"web/bundle":        {},
	// The composition root and what stands outside may import anything but each
	// other's commands.
	"client/examples/retry":       {"client"},
	"cmd/demo":                    nil,
	"cmd/node":                    nil,
	"cmd/perf":                    nil,
	"cmd/perf/load":               nil,
	"docs/benchmarks/floor":       nil,
	"docs/benchmarks/peers":       nil,
	"deploy/k8s/check":            {"certs", "config", "deploy/k8s/check/dashboards"},
	"deploy/k8s/check/dashboards": {},
	"deploy/k8s/check/render":     {"deploy/k8s/check"},
	"deploy/k8s/test":             {"deploy/k8s/test/load", "deploy/k8s/test/rig"},
	"deploy/k8s/test/kube":        {},
	"deploy/k8s/test/load":        {},
	"deploy/k8s/test/pause":       {},
	"deploy/k8s/test/rig":         {},
	"sim":                         nil,
	"sim/deep":                    nil,
	"sim/links":                   {"transport"},
	"sim/meta":                    nil,
	"sim/scale":                   nil,
	"sim/trace":                   {},
	// The harness has arrows of its own: what judges a history knows nothing but histories.
	"jepsen":          {"jepsen/checker", "jepsen/client", "jepsen/db", "jepsen/history", "jepsen/nemesis", "jepsen/network", "jepsen/report", "jepsen/workload"},
	"jepsen/checker":  {"jepsen/history", "jepsen/model"},
	"jepsen/client":   {"api/warren/v1", "jepsen/history"},
	"jepsen/cmd":      nil,
	"jepsen/db":       {"jepsen/network", "test/cluster"},
	"jepsen/history":  {},
	"jepsen/model":    {},
	"jepsen/nemesis":  {"failpoint", "jepsen/db", "jepsen/history", "jepsen/network"},
	"jepsen/network":  {},
	"jepsen/report":   {"jepsen/checker", "jepsen/history"},
	"jepsen/workload": {"jepsen/checker", "jepsen/client", "jepsen/db", "jepsen/history"},
}

// outside are packages that the product never imports.
var outside = []string{"sim", "jepsen", "test/", "cmd/", "store/crashfs"}

func TestArrows(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || rel == "test" || rel == "data") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		seen[pkg] = true
		check(t, pkg, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range allowed {
		if !seen[pkg] {
			t.Errorf("package %s is gone: take it off the list", pkg)
		}
	}
}

func check(t *testing.T, pkg, path string) {
	may, known := allowed[pkg]
	if !known {
		t.Errorf("package %s is not on the list: say what it may import", pkg)
		return
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		inner, ours := strings.CutPrefix(name, module)
		if !ours || may == nil {
			continue
		}
		proof := strings.HasPrefix(pkg, "jepsen")
		if !slices.Contains(may, inner) || !proof && slices.ContainsFunc(outside, func(o string) bool { return strings.HasPrefix(inner, o) }) {
			t.Errorf("%s imports %s: that arrow points the wrong way", path, inner)
		}
	}
}
