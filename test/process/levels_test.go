package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/cluster"
)

// olderCluster prepares three nodes that run the program before, on which later programs settle as told.
func olderCluster(t *testing.T, settle string) (c *cluster.Cluster, newer, older string) {
	t.Helper()
	older, err := shared.older()
	if err != nil {
		t.Fatal(err)
	}
	if newer, err = shared.binary(); err != nil {
		t.Fatal(err)
	}
	c = newCluster(t, 3, func(cfg *cluster.Config) { cfg.Binary, cfg.Args = older, []string{"--upgrade-settle", settle} })
	return c, newer, older
}

// upgrade stops a node and starts it with another program.
func upgrade(t *testing.T, n *cluster.Node, binary string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if n.Running() {
		if err := n.Stop(ctx); err != nil {
			t.Fatal(err)
		}
	}
	n.SetBinary(binary)
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	if err := n.WaitReady(ctx); err != nil {
		t.Fatalf("%v\n%s", err, n.LogTail())
	}
}

// flags is what a node says of the levels, as in "enabled disabled".
func flags(t *testing.T, n *cluster.Node) string {
	t.Helper()
	var rows []struct{ State string }
	if err := json.Unmarshal([]byte(mustCtl(t, n, "list_feature_flags", "-q", "--formatter", "json")), &rows); err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, r := range rows {
		states = append(states, r.State)
	}
	return strings.Join(states, " ")
}

func untilFlags(t *testing.T, c *cluster.Cluster, want string) {
	t.Helper()
	for _, n := range c.Nodes() {
		var got string
		for end := time.Now().Add(timeoutStart); ; time.Sleep(50 * time.Millisecond) {
			if got = flags(t, n); got == want {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s says %q, want %q", n.Name, got, want)
			}
		}
	}
}

// version is that of a node's folder.
func version(t *testing.T, n *cluster.Node) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.DataDir(), "node.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct{ Version int }
	if err := json.Unmarshal(raw, &r); err != nil {
		t.Fatal(err)
	}
	return r.Version
}

// workOn declares, publishes, consumes and dead-letters through a node.
func workOn(t *testing.T, n *cluster.Node) {
	t.Helper()
	s := at(t, n)
	dlq := s.queue("dead", nil)
	q := s.queue("work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq})
	s.fill(q, "one", "two")
	_, deliveries := s.consume(q, 0)
	for range 2 {
		s.noError("reject", s.next(deliveries).Reject(false))
	}
	s.ready(dlq, 2)
}

// TestTwoVersions has nodes of two programs in one cluster, each of which leads queues: nothing of the newer one is used.
func TestTwoVersions(t *testing.T) {
	t.Parallel()
	c, newer, older := olderCluster(t, "manual")
	startAll(t, c)
	workOn(t, c.Node(0))
	upgrade(t, c.Node(2), newer)
	upgrade(t, c.Node(1), newer)
	for _, n := range c.Nodes() {
		workOn(t, n)
	}
	if code, _, failed := ctl(t, c.Node(2), "enable_feature_flag", "all"); code == 0 || !strings.Contains(failed, "level 1") {
		t.Errorf("the level of two nodes was taken: %d %s", code, failed)
	}
	if got := flags(t, c.Node(2)); got != "enabled disabled" {
		t.Errorf("levels are %q", got)
	}
	for _, n := range c.Nodes() { // the first one runs the older program
		if code, _, failed := ctl(t, n, "add_user", "costly", "pw", "--hashing", "bcrypt:4"); code == 0 || !strings.Contains(failed, "level 2") {
			t.Errorf("%s takes a hash that the older program does not know: %d %s", n.Name, code, failed)
		}
	}
	mustCtl(t, c.Node(2), "add_user", "cheap", "pw")
	rpcRejectionRefused(rpcAt(t, c.Node(2), "guest", "guest"))
	// Back to the older one: nothing has been written that it cannot read.
	upgrade(t, c.Node(1), older)
	for _, n := range c.Nodes() {
		workOn(t, n)
		if v := version(t, n); v != 1 {
			t.Errorf("the folder of %s is of version %d", n.Name, v)
		}
	}
}

// TestLevelSwitchesWhenAllHaveIt updates one node after the other; when the last one runs the new program, it is
// used.
func TestLevelSwitchesWhenAllHaveIt(t *testing.T) {
	t.Parallel()
	for _, settle := range []string{"0s", "manual"} {
		t.Run(settle, func(t *testing.T) {
			c, newer, _ := olderCluster(t, settle)
			startAll(t, c)
			for i, n := range c.Nodes() {
				if i > 0 {
					if got := flags(t, c.Node(0)); got != "enabled disabled" {
						t.Errorf("with %d new nodes the levels are %q", i, got)
					}
				}
				upgrade(t, n, newer)
			}
			if settle == "manual" {
				untilFlags(t, c, "enabled disabled")
				var out string
				for end := time.Now().Add(timeoutStart); ; time.Sleep(50 * time.Millisecond) {
					code, _, failed := ctl(t, c.Node(1), "enable_feature_flag", "all")
					if code == 0 {
						break
					}
					if out = failed; time.Now().After(end) {
						t.Fatal(out)
					}
				}
			}
			untilFlags(t, c, "enabled enabled")
			for _, n := range c.Nodes() {
				if v := version(t, n); v != 2 {
					t.Errorf("the folder of %s is of version %d", n.Name, v)
				}
			}
			workOn(t, c.Node(1))
		})
	}
}

// TestOldNodeIsRefusedAfterwards starts the older program when the cluster has left it behind: on a folder of the new one,
// which it does not open, and on an empty one, with which it is not let in.
func TestOldNodeIsRefusedAfterwards(t *testing.T) {
	t.Parallel()
	older, err := shared.older()
	if err != nil {
		t.Fatal(err)
	}
	c := startCluster(t, 3)
	untilFlags(t, c, "enabled enabled")
	n := c.Node(2)
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	n.SetBinary(older)
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	untilLog(t, n, "version 2, this program knows version 1")
	if err := cluster.Poll(ctx, func() (bool, error) { return !n.Running(), nil }); err != nil {
		t.Error("it runs on")
	}
	if err := os.RemoveAll(n.DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := n.Launch(); err != nil {
		t.Fatal(err)
	}
	untilLog(t, n, "the cluster is at level 2, the program of node "+n.Name)
	workOn(t, c.Node(0))
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	upgrade(t, n, "") // the same empty folder, by the new program
	workOn(t, n)
	if v := version(t, n); v != 2 {
		t.Errorf("the folder of %s is of version %d", n.Name, v)
	}
}

// untilLog waits until a node's log has a text.
func untilLog(t *testing.T, n *cluster.Node, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	err := cluster.Poll(ctx, func() (bool, error) {
		raw, err := os.ReadFile(n.LogFile())
		return strings.Contains(string(raw), text), err
	})
	if err != nil {
		t.Fatal(fmt.Errorf("%q is not in the log of %s: %w\n%s", text, n.Name, err, n.LogTail()))
	}
}
