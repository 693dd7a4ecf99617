package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestStarting starts processes on a folder, on an older copy of it, and on one that knows of no starts.
func TestStarting(t *testing.T) {
	dir, older := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "older")
	at := func(dir string, process, last uint64) error {
		t.Helper()
		i := mustOpen(t, dir, "n1")
		defer mustClose(t, i)
		return errors.Join(i.Starting(process, last), i.Starting(process, process)) // it asks again if it does not know what came of the first
	}
	must := func(process, last uint64) {
		t.Helper()
		if err := at(dir, process, last); err != nil {
			t.Fatalf("process %d after %d: %v", process, last, err)
		}
	}
	must(1, 0)
	must(2, 1)
	if err := os.CopyFS(older, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	must(3, 2)
	must(4, 2) // the third has not registered, or it is not known yet
	must(5, 3)
	must(6, 2) // the cluster goes on from an older copy of its catalog
	for process := uint64(7); process < 7+2*startsMax; process++ {
		must(process, 2) // none registers
	}
	must(1000, 2)
	must(1001, 7+2*startsMax-1)
	if err := at(older, 1002, 3); !errors.Is(err, ErrOlder) {
		t.Errorf("the older folder: %v", err)
	}
	if err := at(older, 1003, 2); err != nil {
		t.Errorf("the older folder while the cluster has nothing newer: %v", err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	if err := at(fresh, 1004, 3); err != nil {
		t.Errorf("a folder without notes: %v", err)
	}
	i := mustOpen(t, dir, "n1")
	defer mustClose(t, i)
	i.fault = func() error { return errors.New("disk") }
	if err := i.Starting(1005, 1001); err == nil || errors.Is(err, ErrOlder) {
		t.Errorf("a note that could not be written: %v", err)
	}
}
