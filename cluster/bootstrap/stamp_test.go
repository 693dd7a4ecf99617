package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warrenmq/warren/cluster/level"
)

// TestSetLevel stamps a folder, with a failed write in between, and opens it again.
func TestSetLevel(t *testing.T) {
	dir := t.TempDir()
	i := mustOpen(t, dir, "n1")
	if i.Level() != level.First {
		t.Fatalf("a new folder is of level %d", i.Level())
	}
	for _, n := range []int{0, level.Now + 1} {
		if err := i.SetLevel(n); err == nil {
			t.Errorf("level %d was taken", n)
		}
	}
	i.fault = func() error { return errors.New("disk") }
	if err := i.SetLevel(2); err == nil || i.Level() != level.First {
		t.Fatalf("a write that failed: %v, level %d", err, i.Level())
	}
	i.fault = nil
	for _, n := range []int{2, 1, 2} {
		if err := i.SetLevel(n); err != nil || i.Level() != 2 {
			t.Fatalf("level %d: %v, the folder has %d", n, err, i.Level())
		}
	}
	id := i.NodeID()
	mustClose(t, i)
	i = mustOpen(t, dir, "n1")
	if i.Level() != 2 || i.NodeID() != id {
		t.Errorf("opened again: level %d, node %s", i.Level(), i.NodeID())
	}
	mustClose(t, i)
}

// TestNewerFolderIsRefused opens a folder that a newer program has stamped.
func TestNewerFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	content := `{"version":3,"node":"n1","storage":"` + newUUID() + `"}`
	if err := os.WriteFile(filepath.Join(dir, identityFile), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenIdentity(dir, "n1"); err == nil || !strings.Contains(err.Error(), "version 3, this program knows version 2") {
		t.Errorf("opened: %v", err)
	}
}
