package restore

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/backup"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/store"
)

// TestReplicaBeginsInTheTermOfItsState: in an earlier term the entries of its leaders would seem older than what a replica has that got nothing but the state,
// which so could lead without what was confirmed since.
func TestReplicaBeginsInTheTermOfItsState(t *testing.T) {
	const index, term, id = 20, 9, 4
	open := func(dir string) *store.Store {
		t.Helper()
		s, err := store.Open(store.Options{Dir: dir, FS: store.OSFS{}, Logger: slog.New(slog.DiscardHandler), OnFatal: func(err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	source := open(t.TempDir())
	state, size, err := source.Group(id).OpenState(index, []byte("manifest"), nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, members := t.TempDir(), []catalog.NodeID{"b/2", "a/1"}
	w := &writer{self: "a/1"}
	if err := w.open(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	part := &backup.Part{Queue: &backup.Queue{ID: id, Index: index, Term: term, Bytes: size}, Reader: state}
	if err := errors.Join(w.queue(part, members), w.close(), state.Close(), source.Close()); err != nil {
		t.Fatal(err)
	}
	made := open(dir)
	defer func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	}()
	g := made.Group(id)
	if now, err := g.GetUint64([]byte("CurrentTerm")); err != nil || now != term {
		t.Errorf("its term is %d, %v", now, err)
	}
	list, err := g.Snapshots().List()
	if err != nil || len(list) != 1 {
		t.Fatalf("snapshots %v, %v", list, err)
	}
	s := list[0].Configuration.Servers
	if list[0].Index != index || list[0].Term != term || len(s) != 2 || s[0].ID != "a/1" || s[0].Suffrage != raft.Voter || s[1].ID != "b/2" {
		t.Errorf("it begins with %+v", list[0])
	}
}

// TestOtherOptionsMakeAnotherCluster: nodes that were restored with unlike options do not take each other for nodes of one cluster, whose catalog and members of queues
// they would know differently.
func TestOtherOptionsMakeAnotherCluster(t *testing.T) {
	h := &backup.Header{ID: "11111111-2222-4333-8444-555555555555"}
	made := map[string]string{}
	for what, o := range map[string]Options{
		"none": {}, "replicas": {Replicas: 3}, "more replicas": {Replicas: 5}, "a zone": {Zones: map[string]string{"a": "x"}},
		"another zone": {Zones: map[string]string{"b": "x"}}, "a salt": {Salt: "2"}, "other nodes": {Nodes: []string{"a", "c"}},
		"zones": {Zones: map[string]string{"a": "x", "b": "y"}},
	} {
		if o.Nodes == nil {
			o.Nodes = []string{"a", "b"}
		}
		id := newPlan(h, &o).clusterID
		if other, ok := made[id]; ok {
			t.Errorf("%s and %s make the same cluster", what, other)
		}
		made[id] = what
		slices.Reverse(o.Nodes)
		if again := newPlan(h, &o).clusterID; again != id {
			t.Errorf("%s: %s, and %s by the same options", what, id, again)
		}
	}
}
