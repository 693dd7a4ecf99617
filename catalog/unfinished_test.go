package catalog_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUnfinishedSnapshotsGo: a process that ends while it writes a snapshot leaves it there under another name. Nobody else removes it: each such end would cost the disk
// a snapshot, and each look at the folder a line of the log.
func TestUnfinishedSnapshotsGo(t *testing.T) {
	t.Parallel()
	c := newNodes(t, 1)
	c.ready()
	n := c.leader()
	if err := n.catalog.Compact(0); err != nil {
		t.Fatal(err)
	}
	n.stop(t)
	folder := filepath.Join(n.dir, "snapshots")
	left := filepath.Join(folder, "2-9-946684800000.tmp")
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "state.bin"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	c.start(n.id, n.dir, true)
	c.ready()
	all, err := os.ReadDir(folder)
	if err != nil || len(all) != 1 || all[0].Name() == filepath.Base(left) {
		t.Errorf("the folder has %v, %v; want the snapshot that is whole", all, err)
	}
}
