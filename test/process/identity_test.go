package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/cluster"
)

// TestLostLogFolderIsRefused takes one folder out of a stopped node's data, as an unmounted disk
// does. A node that started with an empty one would vote and answer under a name whose
// promises it has forgotten.
func TestLostLogFolderIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	s := at(t, c.Node(0))
	plainQueue(s, "kept", nil)
	s.fill("kept", numbered("m", 20)...)
	s.noError("close", s.conn.Close())
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	n := c.Node(0)
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"log", "catalog"} {
		dir := filepath.Join(n.DataDir(), part)
		away := filepath.Join(n.Dir, part+"-away")
		if err := os.Rename(dir, away); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a refusal makes nothing that the next start would take
			if err := n.Launch(); err != nil {
				t.Fatal(err)
			}
			if code, err := n.Wait(ctx); err != nil || code != 1 {
				t.Fatalf("without %s/: exit code %d, %v\n%s", part, code, err, n.LogTail())
			}
		}
		lines := strings.Split(strings.TrimSpace(n.LogTail()), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, "warren: data folder: a part of the data directory is missing: "+dir) {
			t.Errorf("without %s/ it says %q", part, last)
		}
		if err := os.Rename(away, dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
	at(t, n).ready("kept", 20)
}

// TestNameInUse starts a second node with the name of one that runs, as a copied configuration
// does. It waits, the first one is not disturbed, and takes its place once that has ended.
func TestNameInUse(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := at(t, c.Node(0))
	plainQueue(s, "kept", nil)
	s.fill("kept", numbered("m", 5)...)
	gossip := make([]string, len(c.Nodes()))
	for i, n := range c.Nodes() {
		gossip[i] = n.GossipAddr()
	}
	twin := newCluster(t, 1, func(cfg *cluster.Config) {
		cfg.Args = []string{"--join", strings.Join(gossip, ","), "--bootstrap-expect", "0"}
	}).Node(0)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := twin.Launch(); err != nil {
		t.Fatal(err)
	}
	refused := "node '" + twin.Name + "' is running with another storage"
	if err := cluster.Poll(ctx, func() (bool, error) { return strings.Contains(twin.LogTail(), refused), nil }); err != nil {
		t.Fatalf("it never says %q: %v\n%s", refused, err, twin.LogTail())
	}
	s.fill("kept", numbered("n", 5)...) // over the first one, which is still who it was
	s.ready("kept", 10)
	if !twin.Running() {
		t.Fatalf("the second one ended\n%s", twin.LogTail())
	}
	kill(t, c.Node(0))
	if err := twin.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	at(t, twin).ready("kept", 10)
}
