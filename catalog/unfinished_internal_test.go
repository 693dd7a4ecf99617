package catalog

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// TestSnapshotThatFailsGoes: raft leaves a snapshot where it is whose end could not be written, or that could not be given up because the disk is full.
func TestSnapshotThatFailsGoes(t *testing.T) {
	for name, end := range map[string]func(*cuttingSink, string) error{
		"closed": func(k *cuttingSink, dir string) error {
			meta := filepath.Join(dir, k.ID()+unfinished, "meta.json")
			if err := errors.Join(os.Remove(meta), os.Mkdir(meta, 0o700)); err != nil {
				t.Fatal(err)
			}
			return k.Close()
		},
		"given up": func(k *cuttingSink, _ string) error {
			k.SnapshotSink = fullSink{k.SnapshotSink}
			return k.Cancel()
		},
	} {
		dir := t.TempDir()
		kept, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, raftLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(dir, snapshotsDir)
		sink, err := (&cuttingSnapshots{SnapshotStore: kept, folder: folder}).Create(1, 5, 2, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := end(sink.(*cuttingSink), folder); err == nil {
			t.Errorf("%s: no error", name)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s: %v, %v are left", name, left, err)
		}
	}
}

// fullSink is a sink of a full disk: raft does not come to remove it.
type fullSink struct{ raft.SnapshotSink }

func (fullSink) Cancel() error { return syscall.ENOSPC }
