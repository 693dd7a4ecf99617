package catalog_test

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// transactions is the number of the newest transaction in the file of a log that nobody has open.
func transactions(t *testing.T, dir string) (id int) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "log.db"), 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.View(func(tx *bbolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return id
}

// TestStartSyncsWhatItReads: a process that was killed may have written its newest transaction, a vote or entries, and not synced it, and the next one reads it
// from the page cache and answers by it. raft-boltdb writes a transaction of its own, and syncs it, whenever it opens the file.
func TestStartSyncsWhatItReads(t *testing.T) {
	t.Parallel()
	c := newNodes(t, 3)
	c.ready()
	dirs := map[string]string{}
	for _, n := range c.all {
		n.stop(t)
		dirs[string(n.id)] = n.dir
	}
	for _, id := range c.ids {
		dir := dirs[string(id)]
		before := transactions(t, dir)
		alone := c.start(id, dir, false)
		alone.stop(t)
		if after := transactions(t, dir); after == before {
			t.Errorf("%s began with transaction %d and has written none of its own", id, before)
		}
	}
}
