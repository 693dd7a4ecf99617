package catalog_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// TestTailOfADeadLeaderAboveASnapshot: three nodes begin with a snapshot and no log, as after a restore. One of them has taken entries of a leader that
// died before they were committed; the others have gone on without them. It gets what they have: its log ends above the
// snapshot, so that raft asks the log for the entry of the snapshot itself.
func TestTailOfADeadLeaderAboveASnapshot(t *testing.T) {
	t.Parallel()
	one := newNodes(t, 1)
	one.ready()
	var raw bytes.Buffer
	if err := one.leader().catalog.View().WriteSnapshot(&raw); err != nil {
		t.Fatal(err)
	}
	ids := []transport.NodeID{nodeID(11), nodeID(12), nodeID(13)}
	to := catalog.Rehoming{ClusterID: testCluster}
	for _, id := range ids {
		to.Nodes = append(to.Nodes, catalog.Rehomed{ID: id})
	}
	v, err := catalog.Rehome(&raw, to)
	if err != nil {
		t.Fatal(err)
	}
	dirs := make(map[transport.NodeID]string)
	for _, id := range ids {
		dirs[id] = filepath.Join(t.TempDir(), "catalog")
		if err := catalog.MakeRestored(dirs[id], v); err != nil {
			t.Fatal(err)
		}
	}
	const deadTerm = 7
	for _, id := range ids {
		var tail []*raft.Log
		if id == ids[0] {
			for i := range uint64(2) {
				tail = append(tail, &raft.Log{Index: v.Revision() + 1 + i, Term: deadTerm, Type: raft.LogNoop, AppendedAt: time.Now()})
			}
		}
		writeTail(t, dirs[id], deadTerm, tail)
	}
	c := newNodesOf(t, 0, &nodes{})
	c.ids = slices.Clone(ids)
	for _, id := range ids[1:] {
		c.start(id, dirs[id], false)
	}
	propose(t, c.leader(), replicated("q", ids...))
	late := c.start(ids[0], dirs[ids[0]], false)
	until(t, "the third has what the others have", func() bool { return late.catalog.View().Queue("/", "q") != nil })
}

// writeTail writes a term and entries into a replica's folder.
func writeTail(t *testing.T, dir string, term uint64, tail []*raft.Log) {
	t.Helper()
	bolt, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "log.db")})
	if err != nil {
		t.Fatal(err)
	}
	if err := bolt.SetUint64([]byte("CurrentTerm"), term); err != nil {
		t.Fatal(err)
	}
	if err := bolt.StoreLogs(tail); err != nil {
		t.Fatal(err)
	}
	if err := bolt.Close(); err != nil {
		t.Fatal(err)
	}
}
