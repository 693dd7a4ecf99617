package catalog

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/exchange"
)

const nextLife = "11111111-2222-4333-8444-555555555555"

// TestSucceed goes on without two of three nodes: their storages are as if others had taken their names, indexes and node numbers that they may have
// given are never given again, and every queue's settings count as new.
func TestSucceed(t *testing.T) {
	s, q := level2(t)
	for _, c := range []Command{
		&DeclareQueue{Queue{Vhost: "/", Name: "t", Kind: Transient, Members: []NodeID{n3}, Preferred: n3}, s.view().Node(n3).Incarnation},
		&DeclareQueue{Queue{Vhost: "/", Name: "mine", Kind: Transient, Members: []NodeID{n1}, Preferred: n1}, s.view().Node(n1).Incarnation},
		declareX("x", exchange.Direct), bind("x", "q", "k"), bind("x", "t", "k"),
		&PlanMembers{q().ID, []NodeID{n1, n3}, nil, n3, q().Settings, "half way"},
	} {
		s.ok(c)
	}
	const stranger = NodeID("n9/only-others-knew-it")
	old := s.view()
	have := &Salvaged{View: old, Last: old.revision + 7, LastTerm: 4} // seven entries that are no commands
	v, err := have.Succeed(Succession{ClusterID: nextLife, Lost: []NodeID{n2, n3, stranger}})
	if err != nil {
		t.Fatal(err)
	}
	check(t, v)
	if v.ClusterID() != nextLife || v.Revision() != have.Last+succeededAhead || v.nodeNumber != old.nodeNumber+succeededNumbersAhead {
		t.Errorf("cluster %s at %d, numbers to %d", v.ClusterID(), v.Revision(), v.nodeNumber)
	}
	if v.Node(n1).Superseded || !v.Node(n2).Superseded || !v.Node(n3).Superseded || !v.Forgotten(stranger) {
		t.Error("others are lost than were said to be")
	}
	moved := v.Queue("/", "q")
	if moved.ID != q().ID || moved.Settings != v.Revision() || where(moved) != where(q()) || v.Queue("/", "t") != nil || v.Queue("/", "mine") == nil {
		t.Errorf("q is %+v", moved)
	}
	if found, err := v.Route("/", "x", []string{"k"}, nil, nil); err != nil || len(found) != 1 {
		t.Errorf("x leads to %v (%v)", found, err)
	}
	for index, want := range map[uint64]bool{have.Last: false, have.Last + 1: true, v.Revision() - 1: true, v.Revision(): false, q().ID: false} {
		if v.Unaccounted(index) != want {
			t.Errorf("index %d is accounted for: %t", index, want)
		}
	}
	// It goes on: what is given from now on is new, and who was lost is not let in.
	m := newMachine(func(*applied) {})
	m.view.Store(v)
	apply := func(c Command) *applied {
		return m.apply(m.view.Load().revision+1, encodeEntry(requestID{byte(m.view.Load().revision), 1}, c))
	}
	for _, lost := range []NodeID{n2, stranger} {
		if a := apply(&RegisterNode{ID: lost}); a.outcome.code == 0 {
			t.Errorf("%s registers", lost)
		}
	}
	if a := apply(&RegisterNode{ID: "n2/new"}); a.outcome.code != 0 || a.outcome.index <= v.Revision() {
		t.Errorf("a new storage: %+v", a.outcome)
	}
	if n := m.view.Load().Node("n2/new"); n.Number <= v.nodeNumber {
		t.Errorf("it has the number %d", n.Number)
	}
	if a := apply(&RecoverQueue{moved.ID, []NodeID{n1}, []NodeID{n2, n3}, moved.Settings}); a.outcome.code != 0 {
		t.Errorf("its queues cannot be recovered: %s", a.outcome.text)
	}
	// Behind a snapshot it is the same, byte for byte, and once more.
	var first, second bytes.Buffer
	if err := v.WriteSnapshot(&first); err != nil {
		t.Fatal(err)
	}
	back, err := ReadSnapshot(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	check(t, back)
	if err := back.WriteSnapshot(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) || len(back.Lives()) != 1 {
		t.Errorf("the snapshot differs: %v", err)
	}
	again, err := (&Salvaged{View: back, Last: back.revision + 1, LastTerm: 9}).Succeed(Succession{ClusterID: testOther, Lost: []NodeID{n1}})
	if err != nil || len(again.Lives()) != 2 || again.Lives()[1].ClusterID != nextLife {
		t.Errorf("lives %+v, %v", again.Lives(), err)
	}
	if _, err := have.Succeed(Succession{ClusterID: old.clusterID}); err == nil {
		t.Error("it goes on as what it was")
	}
}

const testOther = "22222222-2222-4333-8444-555555555555"

// TestSalvage reads a replica's log as far as it is one: to its end, committed or not, over a snapshot or without one, and not what an installed snapshot has
// taken the place of.
func TestSalvage(t *testing.T) {
	dir := t.TempDir()
	if err := Make(dir); err != nil {
		t.Fatal(err)
	}
	bolt, err := openBolt(filepath.Join(dir, logFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bolt.Close() }()
	index := uint64(1)
	if err := writeFounding(&guardedStore{durable: bolt}, foundingServers([]NodeID{n1, n2, n3})); err != nil {
		t.Fatal(err)
	}
	store := func(term uint64, c Command) {
		t.Helper()
		index++
		l := &raft.Log{Index: index, Term: term, Type: raft.LogNoop}
		if c != nil {
			l.Type, l.Data = raft.LogCommand, encodeEntry(requestID{byte(index)}, c)
		}
		if err := bolt.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(last, term uint64, vhosts string) *Salvaged {
		t.Helper()
		s, err := salvage(dir, bolt)
		if err != nil {
			t.Fatal(err)
		}
		names := ""
		for h := range s.View.Vhosts() {
			names += h.Name
		}
		if s.Last != last || s.LastTerm != term || names != vhosts || len(s.Servers) != 3 {
			t.Errorf("%d/%d with %q and %d servers, want %d/%d with %q", s.LastTerm, s.Last, names, len(s.Servers), term, last, vhosts)
		}
		return s
	}
	expect(1, 1, "")
	store(1, &PutVhost{Vhost: Vhost{Name: "a"}})
	store(2, nil)
	store(2, &PutVhost{Vhost: Vhost{Name: "b"}})
	store(2, nil)
	s := expect(5, 2, "ab")
	// A snapshot of a later term at index 4; what lies above it in the log is of an older one.
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	_, nobody := raft.NewInmemTransport("")
	sink, err := snapshots.Create(raft.SnapshotVersionMax, 4, 3, raft.Configuration{Servers: s.Servers}, 1, nobody)
	if err != nil {
		t.Fatal(err)
	}
	tx := begin(s.View, 4)
	if _, refusal := (&DeleteVhost{Name: "b"}).apply(tx); refusal != nil {
		t.Fatal(refusal)
	}
	if err := (&snapshot{view: &tx.View}).Persist(sink); err != nil {
		t.Fatal(err)
	}
	expect(4, 3, "a")
	if err := bolt.DeleteRange(5, 5); err != nil {
		t.Fatal(err)
	}
	index = 4
	store(3, &PutVhost{Vhost: Vhost{Name: "c"}})
	expect(5, 3, "ac")
	// A hole is no log.
	index++
	store(3, nil)
	if s, err := salvage(dir, bolt); err == nil {
		t.Errorf("read over a hole: %+v", s)
	}
}

// TestMakeSuccessor makes the folders of two nodes: both begin with the same.
func TestMakeSuccessor(t *testing.T) {
	s, _ := level2(t)
	v, err := (&Salvaged{View: s.view(), Last: s.view().revision, LastTerm: 4}).Succeed(Succession{ClusterID: nextLife, Lost: []NodeID{n2}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		dir := t.TempDir()
		if err := MakeSuccessor(dir, v, []NodeID{n1, n3}, 5); err != nil {
			t.Fatal(err)
		}
		got, err := Inspect(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got.Snapshot != v.Revision() || got.SnapshotTerm != 5 || got.Term != 5 || len(got.Servers) != 2 || got.View.ClusterID() != nextLife {
			t.Errorf("%+v", got)
		}
	}
}
