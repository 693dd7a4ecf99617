package member

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBookIsSavedAfterAnError: what could not be written, on a disk that was full, is written with the next change of anything.
func TestBookIsSavedAfterAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "away")
	path := filepath.Join(dir, "book")
	b, err := openBook(path, func(NodeID) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	b.hear(Info{Node: "a/1", Boot: 1, ClusterAddr: "127.0.0.1:1", GossipAddr: "127.0.0.1:2", ClusterID: clusterA})
	if b.save(clusterA) == nil {
		t.Fatal("saved in a folder that is not there")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.save(clusterA); err != nil {
		t.Fatal(err)
	}
	again, err := openBook(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := again.lookup("a/1"); !ok {
		t.Error("the book lacks what was heard before the error")
	}
}
