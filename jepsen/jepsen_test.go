package jepsen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/network"
	"github.com/warrenmq/warren/jepsen/report"
	"github.com/warrenmq/warren/test/cluster"
)

var (
	seed     = flag.Uint64("jepsen.seed", 1, "the first seed of TestSample")
	loadTime = flag.Duration("jepsen.time", 15*time.Second, "how long the clients of each run of TestSample work")
	reports  = flag.String("jepsen.out", "", "where the reports of TestSample stay; empty: only those of invalid runs do")
)

// testSlack is for machines on which other tests run, too, and nodes with the race detector.
const testSlack = 10

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
		workload, protocol string
		nodes              int
	}{
		{"queue", "both", 3},
		{"deadletter", "both", 3},
	} {
		cfg := Default()
		cfg.Slack = testSlack
		cfg.Workload, cfg.Protocol, cfg.Nodes, cfg.Seed, cfg.Time = sample.workload, sample.protocol, sample.nodes, *seed+uint64(i), *loadTime
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

// TestFindsLossAndDuplicate: a run in which a dead letter is lost and another one doubled, by
// a client that nobody records, is invalid, and says which.
func TestFindsLossAndDuplicate(t *testing.T) {
	cfg := Default()
	cfg.Slack = testSlack
	cfg.Nemeses, cfg.Nodes, cfg.Time = []string{"none"}, 1, 2*time.Second
	cfg.Binary, cfg.Out = os.Getenv(cluster.BinaryEnv), t.TempDir()
	var lost, doubled string
	cfg.sabotage = func(_ context.Context, system db.DB) error {
		conn, err := amqp.Dial("amqp://" + db.User + ":" + db.User + "@" + system.AMQP(system.Nodes()[0]) + "/")
		if err != nil {
			return err
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err == nil {
			err = ch.Confirm(false)
		}
		if err != nil {
			return err
		}
		first, ok1, err1 := ch.Get("queue.dead", true)
		second, ok2, err2 := ch.Get("queue.dead", true)
		if err := errors.Join(err1, err2); err != nil || !ok1 || !ok2 {
			return fmt.Errorf("no two messages to work on: %w", err)
		}
		lost, doubled = first.MessageId, second.MessageId
		for range 2 {
			m := amqp.Publishing{MessageId: doubled, Body: second.Body, DeliveryMode: amqp.Persistent}
			confirm, err := ch.PublishWithDeferredConfirm("", "queue.dead", false, false, m)
			if err != nil {
				return err
			}
			confirm.Wait()
		}
		return nil
	}
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, c := range r.Results {
		found[c.Checker] = strings.Join(c.Problems, "\n")
	}
	if r.Valid || r.Errors != nil || !strings.Contains(found["nothing lost"], lost+" is lost") ||
		!strings.Contains(found["exactly one place"], doubled+" of") || !strings.Contains(found["no duplicate without redelivered"], doubled+" came") {
		t.Errorf("%s was lost and %s doubled, and the report says\n%s\n%q", lost, doubled, r.Line(), found)
	}
}

// TestBadConfig: what cannot be run is refused with everything that is wrong with it.
func TestBadConfig(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"system":   func(c *Config) { c.System = "sparrow" },
		"workload": func(c *Config) { c.Workload = "nothing" },
		"protocol": func(c *Config) { c.Protocol = "mqtt" },
		"nemesis":  func(c *Config) { c.Nemeses = []string{"thunder"} },
		"time":     func(c *Config) { c.Time = 0 },
		"hold":     func(c *Config) { c.Hold = -1 },
		"nodes":    func(c *Config) { c.Nodes = 0 },
		"rate":     func(c *Config) { c.Rate = -1 },
		"binary":   func(c *Config) { c.Binary = "" },
		"out":      func(c *Config) { c.Out = "" },
	} {
		cfg := Default()
		cfg.Slack = testSlack
		cfg.Binary, cfg.Out = "warren", t.TempDir()
		change(&cfg)
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("a bad %s is accepted", name)
		}
	}
}
