package jepsen

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/jepsen/report"
	"github.com/warrenmq/warren/test/cluster"
)

var (
	seed     = flag.Uint64("jepsen.seed", 1, "the first seed of TestSample")
	loadTime = flag.Duration("jepsen.time", 15*time.Second, "how long the clients of each run of TestSample work")
	reports  = flag.String("jepsen.out", "", "where the reports of TestSample stay; empty: only those of invalid runs do")
)

// TestMain compiles the node outside of the network namespace and runs the tests in it.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		if !network.Inside() {
			dir, err := os.MkdirTemp("", "warren-jepsen-")
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			defer os.RemoveAll(dir)
			binary, err := cluster.Build(context.Background(), dir, cluster.FailpointsTag)
			if err == nil {
				err = os.Setenv(cluster.BinaryEnv, binary)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			if code, entered := network.Enter(); entered {
				return code
			}
		}
		return m.Run()
	}())
}

// TestSample is some minutes of the harness under all faults, in short runs.
func TestSample(t *testing.T) {
	out := *reports
	if out == "" {
		var err error
		if out, err = os.MkdirTemp("", "warren-jepsen-reports-"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if !t.Failed() {
				os.RemoveAll(out)
			}
		})
	}
	for i, sample := range []struct {
		workload string
		nodes    int
	}{
		{"queue", 3},
		{"deadletter", 3},
	} {
		cfg := Default()
		cfg.Workload, cfg.Nodes, cfg.Seed, cfg.Time = sample.workload, sample.nodes, *seed+uint64(i), *loadTime
		cfg.Rate = 100 // the nodes have the race detector
		cfg.Binary, cfg.Failpoints, cfg.Out = os.Getenv(cluster.BinaryEnv), true, out
		t.Run(cfg.Name(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), cfg.Time+5*time.Minute)
			defer cancel()
			r, err := Run(ctx, cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r.Line())
			if !r.Valid {
				text, _ := os.ReadFile(filepath.Join(r.Dir, report.TextFile))
				t.Errorf("reports, history and logs are in %s\n%s", r.Dir, text)
			}
		})
	}
}

// TestBadConfig: what cannot be run is refused with everything that is wrong with it.
func TestBadConfig(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"system":   func(c *Config) { c.System = "sparrow" },
		"workload": func(c *Config) { c.Workload = "nothing" },
		"nemesis":  func(c *Config) { c.Nemeses = []string{"thunder"} },
		"time":     func(c *Config) { c.Time = 0 },
		"hold":     func(c *Config) { c.Hold = -1 },
		"nodes":    func(c *Config) { c.Nodes = 0 },
		"rate":     func(c *Config) { c.Rate = -1 },
		"binary":   func(c *Config) { c.Binary = "" },
		"out":      func(c *Config) { c.Out = "" },
	} {
		cfg := Default()
		cfg.Binary, cfg.Out = "warren", t.TempDir()
		change(&cfg)
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("a bad %s is accepted", name)
		}
	}
}
