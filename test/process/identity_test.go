package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
