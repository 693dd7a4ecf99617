package ctl

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/backup"
)

// archive is a backup of a cluster without queues, with so many bytes of catalog.
func archive(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := backup.NewWriter(&b, backup.Header{
		ID: "11111111-2222-4333-8444-555555555555", ClusterID: "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", Made: time.Now(), Level: 2, Revision: 1, CatalogBytes: int64(size),
	})
	if err == nil {
		err = errors.Join(w.Catalog(bytes.NewReader(make([]byte, size))), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBackupFileHasOneWriter: a command whose file another one is writing to, or has finished meanwhile, leaves it alone; what a killed one has left is replaced.
func TestBackupFileHasOneWriter(t *testing.T) {
	output := filepath.Join(t.TempDir(), "b")
	first, second := archive(t, 100), archive(t, 1000)
	if err := os.WriteFile(output+partialSuffix, bytes.Repeat([]byte("left"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	in, feed := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := keepBackup(in, output)
		done <- err
	}()
	if _, err := feed.Write(first[:len(first)/2]); err != nil { // it has locked the file now
		t.Fatal(err)
	}
	if _, err := keepBackup(bytes.NewReader(second), output); err == nil || !strings.Contains(err.Error(), "another command is writing to "+output+partialSuffix) {
		t.Errorf("beside another one: %v", err)
	}
	if _, err := feed.Write(first[len(first)/2:]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(feed.Close(), <-done); err != nil {
		t.Error(err)
	}
	if _, err := keepBackup(bytes.NewReader(second), output); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("behind another one: %v", err)
	}
	if raw, err := os.ReadFile(output); err != nil || !bytes.Equal(raw, first) {
		t.Errorf("%d bytes, want %d, %v", len(raw), len(first), err)
	}
	if _, err := os.Lstat(output + partialSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}
