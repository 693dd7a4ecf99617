package catalog_test

import (
	"errors"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/warrenmq/warren/catalog"
)

// deadTerm is the term of a leader whose entries nobody else has.
const deadTerm = 7

// awayUntilASnapshot has a node of three be away while the others go on, beyond what their logs keep. Its log ends with count entries of a leader that
// died before they were committed. It returns the node, which runs again and has what the others have.
func awayUntilASnapshot(t *testing.T, count uint64) (*nodes, *node) {
	c := newNodes(t, 3)
	c.ready()
	var away *node
	for _, n := range c.all {
		if !n.catalog.Leading() {
			away = n
			break
		}
	}
	away.stop(t)
	delete(c.all, away.id)
	var tail []*raft.Log
	for i := range count {
		tail = append(tail, &raft.Log{Index: lastIndex(t, away.dir) + 1 + i, Term: deadTerm, Type: raft.LogNoop, AppendedAt: time.Now()})
	}
	writeTail(t, away.dir, deadTerm, tail)
	beganAnew(t, c, deadTerm)
	c.declareAndCompact(t, 160)
	c.start(away.id, away.dir, true)
	c.ready()
	back := c.all[away.id]
	until(t, "the node has the snapshot", func() bool {
		return back.catalog.View().QueueCount() == 160 && back.catalog.Stats()["last_snapshot_index"] != "0"
	})
	return c, back
}

// beganAnew has all nodes that run start again in a term, that of a leader that they have voted for.
func beganAnew(t *testing.T, c *nodes, term uint64) {
	t.Helper()
	for _, n := range c.all {
		n.stop(t)
		writeTail(t, n.dir, term, nil)
	}
	for _, n := range c.all {
		c.start(n.id, n.dir, true)
	}
}

// readLog calls f with the log in a folder that nobody has open.
func readLog(t *testing.T, dir string, f func(logs raft.LogStore)) {
	t.Helper()
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "log.db")})
	if err != nil {
		t.Fatal(err)
	}
	f(bolt)
	if err := bolt.Close(); err != nil {
		t.Fatal(err)
	}
}

func lastIndex(t *testing.T, dir string) (last uint64) {
	readLog(t, dir, func(logs raft.LogStore) {
		var err error
		if last, err = logs.LastIndex(); err != nil {
			t.Fatal(err)
		}
	})
	return last
}

// TestSnapshotTakesThePlaceOfTheLog: what a replica had below a snapshot that it was sent is none of the cluster's history, and as a leader it would
// send it to others, who would apply it.
func TestSnapshotTakesThePlaceOfTheLog(t *testing.T) {
	t.Parallel()
	c, back := awayUntilASnapshot(t, 100)
	back.stop(t)
	delete(c.all, back.id)
	readLog(t, back.dir, func(logs raft.LogStore) {
		first, _ := logs.FirstIndex()
		last, _ := logs.LastIndex()
		for i := first; i <= last && last > 0; i++ {
			var l raft.Log
			switch err := logs.GetLog(i, &l); {
			case errors.Is(err, raft.ErrLogNotFound):
				t.Fatalf("the log, from %d to %d, has no entry %d", first, last, i)
			case err != nil:
				t.Fatal(err)
			case l.Term == deadTerm:
				t.Fatalf("the log, from %d to %d, still has entry %d of the dead leader", first, last, i)
			}
		}
	})
	if _, err := catalog.Inspect(back.dir); err != nil {
		t.Error(err)
	}
}

// TestTailThatEndsWhereASnapshotDoes: raft keeps in memory which entry its log ends with, and goes by that although a snapshot that ends at the same place
// has replaced it. It refused what follows the snapshot, and was sent the snapshot again, without a pause.
func TestTailThatEndsWhereASnapshotDoes(t *testing.T) {
	t.Parallel()
	c := newNodes(t, 3)
	c.ready()
	away := c.follower()
	away.stop(t)
	delete(c.all, away.id)
	beganAnew(t, c, deadTerm)
	c.declareAndCompact(t, 160)
	end, err := strconv.ParseUint(c.leader().catalog.Stats()["last_snapshot_index"], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	var tail []*raft.Log
	for i := lastIndex(t, away.dir) + 1; i <= end; i++ {
		tail = append(tail, &raft.Log{Index: i, Term: deadTerm, Type: raft.LogNoop, AppendedAt: time.Now()})
	}
	writeTail(t, away.dir, deadTerm, tail)
	back := c.start(away.id, away.dir, true)
	until(t, "the node has the snapshot", func() bool { return back.catalog.View().QueueCount() == 160 })
	propose(t, c.leader(), replicated("late", c.ids...))
	until(t, "the node has what followed the snapshot", func() bool { return back.catalog.View().Queue("/", "late") != nil })
}

// TestTailAboveASnapshotThatCameLater: as TestTailOfADeadLeaderAboveASnapshot, of a replica that had a log before it was sent the snapshot.
func TestTailAboveASnapshotThatCameLater(t *testing.T) {
	t.Parallel()
	c, back := awayUntilASnapshot(t, 0)
	back.stop(t)
	delete(c.all, back.id)
	var snapshot uint64
	in, err := catalog.Inspect(back.dir)
	if err != nil {
		t.Fatal(err)
	}
	snapshot = in.Snapshot
	readLog(t, back.dir, func(logs raft.LogStore) { // what came behind the snapshot
		if last, _ := logs.LastIndex(); last > snapshot {
			if err := logs.DeleteRange(snapshot+1, last); err != nil {
				t.Fatal(err)
			}
		}
	})
	const later = 10 * deadTerm
	var tail []*raft.Log
	for i := range uint64(2) {
		tail = append(tail, &raft.Log{Index: snapshot + 1 + i, Term: later, Type: raft.LogNoop, AppendedAt: time.Now()})
	}
	writeTail(t, back.dir, later, tail)
	beganAnew(t, c, later)
	propose(t, c.leader(), replicated("late", c.ids...))
	third := c.start(back.id, back.dir, true)
	until(t, "the node has what the others have", func() bool { return third.catalog.View().Queue("/", "late") != nil })
}
