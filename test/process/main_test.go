package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// urlsEnv names brokers to test in place of Warren.
const urlsEnv = "WARREN_TEST_AMQP_URLS"

// everyNodeEnv runs every scenario through each of three nodes in place of one of them.
const everyNodeEnv = "WARREN_TEST_EVERY_NODE"

const (
	timeoutStart = 2 * time.Minute
	timeoutStop  = 30 * time.Second
)

// house is what the tests of this package share: the binary, built once, and
// one running cluster of each size. The zero value builds and starts on demand.
type house struct {
	dir string

	binary func() (string, error)
	// stoppable is the binary with failpoints.
	stoppable func() (string, error)
	// older is the binary that stands for the program before: it knows level 1 only.
	older    func() (string, error)
	clusters map[int]func() (*cluster.Cluster, error)

	mu      sync.Mutex
	started []*cluster.Cluster
}

var shared *house

func TestMain(m *testing.M) {
	os.Exit(func() int {
		if os.Getenv("GORACE") == "" {
			// Else each node and each `warren ctl` with the race detector ends a second late.
			os.Setenv("GORACE", "atexit_sleep_ms=10")
		}
		dir, err := os.MkdirTemp("", "warren-process-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		http.DefaultClient.Timeout = timeoutStart // a node that does not answer ends its test, not the run
		shared = newHouse(dir)
		cluster.WatchStalls()
		defer shared.close()
		return m.Run()
	}())
}

func newHouse(dir string) *house {
	h := &house{dir: dir}
	h.binary = sync.OnceValues(func() (string, error) { return cluster.Build(context.Background(), dir) })
	h.stoppable = sync.OnceValues(func() (string, error) {
		return cluster.Build(context.Background(), dir, cluster.FailpointsTag)
	})
	h.older = sync.OnceValues(func() (string, error) {
		return cluster.Build(context.Background(), dir, "level1")
	})
	h.clusters = map[int]func() (*cluster.Cluster, error){
		1: sync.OnceValues(func() (*cluster.Cluster, error) { return h.start(1) }),
		3: sync.OnceValues(func() (*cluster.Cluster, error) { return h.start(3) }),
	}
	return h
}

func (h *house) start(nodes int) (*cluster.Cluster, error) {
	binary, err := h.binary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(h.dir, "cluster-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeoutStart)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Config{Nodes: nodes, Binary: binary, Dir: dir})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started = append(h.started, c)
	return c, nil
}

func (h *house) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, c := range h.started {
		errs = append(errs, c.Close())
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// sharedCluster returns the running cluster of that size. Tests that harm nodes
// take newCluster.
func sharedCluster(t *testing.T, nodes int) *cluster.Cluster {
	t.Helper()
	c, err := shared.clusters[nodes]()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkLogs(t, c) })
	return c
}

// checkLogs fails the test when a node crashed, and shows the logs of a test
// that failed.
func checkLogs(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if crashes := c.Crashes(); crashes != "" {
		t.Error(crashes)
	}
	if t.Failed() {
		t.Log(c.Logs())
	}
}

// newCluster returns a cluster of its own for t that nobody started yet.
func newCluster(t *testing.T, nodes int, change ...func(*cluster.Config)) *cluster.Cluster {
	t.Helper()
	needWarren(t)
	binary, err := shared.binary()
	if err != nil {
		t.Fatal(err)
	}
	cfg := cluster.Config{Nodes: nodes, Binary: binary, Dir: t.TempDir()}
	for _, f := range change {
		f(&cfg)
	}
	c, err := cluster.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		checkLogs(t, c)
	})
	return c
}

// startCluster returns a running cluster of its own for t.
func startCluster(t *testing.T, nodes int) *cluster.Cluster {
	t.Helper()
	c := newCluster(t, nodes)
	startAll(t, c)
	return c
}

func startAll(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := c.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
}

func stopAll(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStop)
	defer cancel()
	if err := c.StopAll(ctx); err != nil {
		t.Fatal(err)
	}
}

// foreignURLs returns the brokers to test in place of Warren, or nil.
func foreignURLs() []string {
	if s := os.Getenv(urlsEnv); s != "" {
		return strings.Split(s, ",")
	}
	return nil
}

// needWarren leaves out a test that makes no sense against another broker.
func needWarren(t *testing.T) {
	t.Helper()
	if foreignURLs() != nil {
		t.Skip("needs Warren, and " + urlsEnv + " names other brokers")
	}
}

// target is one address to run scenarios against.
type target struct {
	name string
	url  string
	// warren is false for a foreign broker: an old RabbitMQ does not do all
	// that scenarios check.
	warren bool
	// node is nil for a foreign broker.
	node *cluster.Node
	// turn is which of the three nodes this is, -1 for anything else.
	turn int
}

// takes tells whether the target runs the scenario with that number: nodes of a cluster take
// turns, as they are alike.
func (to target) takes(scenario int) bool {
	return to.turn < 0 || to.turn == scenario%3 || os.Getenv(everyNodeEnv) != ""
}

// eachTarget runs f for a single node and through each of three nodes, or for
// each foreign broker.
func eachTarget(t *testing.T, f func(*testing.T, target)) {
	t.Helper()
	if urls := foreignURLs(); urls != nil {
		for i, url := range urls {
			t.Run(fmt.Sprintf("foreign%d", i+1), func(t *testing.T) { f(t, target{name: "foreign", url: url, turn: -1}) })
		}
		return
	}
	t.Run("single", func(t *testing.T) {
		node := sharedCluster(t, 1).Node(0)
		f(t, target{name: "single", url: node.URL(), warren: true, node: node, turn: -1})
	})
	for i := range 3 {
		t.Run(fmt.Sprintf("three-%d", i+1), func(t *testing.T) {
			node := sharedCluster(t, 3).Node(i)
			f(t, target{name: "three", url: node.URL(), warren: true, node: node, turn: i})
		})
	}
}
