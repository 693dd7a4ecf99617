package process

import (
	"context"
	"errors"
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

// TestOlderFolderIsRefused puts an older copy of a stopped node's folder back, as who restores the snapshot of a file system does. With a node that has
// missed the newest messages it would be a majority that has never heard of them.
func TestOlderFolderIsRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	late, whole, victim := c.Node(0), c.Node(1), c.Node(2)
	s := at(t, whole)
	plainQueue(s, "kept", nil)
	s.fill("kept", numbered("m", 5)...)
	caughtUp(t, whole, "kept")
	ctx, cancel := context.WithTimeout(t.Context(), timeoutStart)
	defer cancel()
	if err := victim.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(victim.Dir, "older")
	if err := os.CopyFS(older, os.DirFS(victim.DataDir())); err != nil {
		t.Fatal(err)
	}
	start(t, victim)
	caughtUp(t, whole, "kept")
	kill(t, late)
	s.fill("kept", numbered("n", 5)...)
	kill(t, victim)
	kill(t, whole)
	newest := filepath.Join(victim.Dir, "newest")
	if err := errors.Join(os.Rename(victim.DataDir(), newest), os.Rename(older, victim.DataDir())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := errors.Join(late.Launch(), victim.Launch()); err != nil {
			t.Fatal(err)
		}
		if code, err := victim.Wait(ctx); err != nil || code != 1 || !strings.Contains(victim.LogTail(), "the data folder is older than what the node had") {
			t.Fatalf("exit code %d, %v\n%s", code, err, victim.LogTail())
		}
		kill(t, late)
	}
	// The newest folder is taken.
	if err := errors.Join(os.RemoveAll(victim.DataDir()), os.Rename(newest, victim.DataDir())); err != nil {
		t.Fatal(err)
	}
	startSome(t, late, victim)
	at(t, late).ready("kept", 10)
	// Without one the node is a new one.
	start(t, whole)
	kill(t, victim)
	if err := os.RemoveAll(victim.DataDir()); err != nil {
		t.Fatal(err)
	}
	start(t, victim)
	at(t, victim).ready("kept", 10)
}
