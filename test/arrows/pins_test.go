package arrows

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The HashiCorp modules are pinned together (docs/adr/0002): the shields around raft are
// written against these versions.
func TestPins(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, pin := range []string{
		"github.com/hashicorp/raft v1.8.0", "github.com/hashicorp/raft-boltdb/v2 v2.3.0",
		"github.com/hashicorp/memberlist v0.7.0", "go.etcd.io/bbolt v1.5.0",
	} {
		if !bytes.Contains(mod, []byte(pin+"\n")) && !bytes.Contains(mod, []byte(pin+" // indirect\n")) {
			t.Errorf("go.mod does not have %s: run the shields' tests against the new version and change this with it", pin)
		}
	}
}

// Raft must not take entries for committed that only a stored commit index vouches for:
// the shared log does not sync one.
func TestRestoreCommittedLogsStaysOff(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		src, err := os.ReadFile(path)
		if bytes.Contains(src, []byte("RestoreCommittedLogs = true")) || bytes.Contains(src, []byte("RestoreCommittedLogs: true")) {
			t.Errorf("%s turns RestoreCommittedLogs on", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
