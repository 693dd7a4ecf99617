package catalog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// TestRehome makes another cluster of a catalog: other nodes, queues where the plan says, nothing of the old nodes.
func TestRehome(t *testing.T) {
	s, q := level2(t)
	for _, c := range []Command{
		declare("gone"), declare("closing"), &DeleteQueue{Vhost: "/", Name: "closing"}, declare("closing"),
		&DeclareQueue{Queue{Vhost: "/", Name: "t", Kind: Transient, Members: []NodeID{n3}, Preferred: n3}, s.view().Node(n3).Incarnation},
		declareX("x", exchange.Direct), &DeclareExchange{Exchange: Exchange{Vhost: "/", Name: "fleeting", Type: exchange.Fanout}},
		bind("x", "q", "k"), bind("x", "t", "k"), bind("x", "gone", "k"), bind("fleeting", "q", ""),
		&DeclareExchange{Exchange{Vhost: "/", Name: "late", Type: exchange.Delayed, Durable: true, Arguments: amqp.Table{{Name: "x-delayed-type", Value: "fanout"}}}, []NodeID{n1, n2}, n1, 0},
		bind("late", "q", ""),
		&PlanMembers{q().ID, []NodeID{n1, n3}, nil, n3, q().Settings, "half way"},
		&SetNodeState{ID: n2, State: NodeLeaving},
	} {
		s.ok(c)
	}
	var raw bytes.Buffer
	if err := s.view().WriteSnapshot(&raw); err != nil {
		t.Fatal(err)
	}
	const m1, m2 = NodeID("m1/x"), NodeID("n1/y") // one has a name that was there
	var asked []uint64
	to := Rehoming{ClusterID: "other", Nodes: []Rehomed{{m1, "a"}, {m2, ""}}, Place: func(q *Queue) ([]NodeID, NodeID) {
		asked = append(asked, q.ID)
		if q.Name == "gone" || q.Name == "late" {
			return nil, ""
		}
		return []NodeID{m1, m2}, m2
	}}
	v, err := Rehome(bytes.NewReader(raw.Bytes()), to)
	if err != nil {
		t.Fatal(err)
	}
	check(t, v)
	if !slices.IsSorted(asked) || len(asked) != 5 {
		t.Errorf("asked for %d", asked)
	}
	if v.ClusterID() != "other" || v.Level() != 2 || v.Revision() != s.view().Revision()+rehomedAhead {
		t.Errorf("cluster %s at %d, level %d", v.ClusterID(), v.Revision(), v.Level())
	}
	if got := where(v.Queue("/", "q")); got != `[m1/x n1/y] [0 0] by n1/y, wanted [] by ""` || v.Queue("/", "q").Founders != nil || v.Queue("/", "q").Settings != v.Revision() {
		t.Errorf("q is on %s", got)
	}
	var left []string
	for q := range v.AllQueues() {
		left = append(left, fmt.Sprint(q.Name, " ", q.State))
	}
	if got := strings.Join(left, ", "); got != "q 1, closing 2, closing 1" {
		t.Errorf("queues %s", got)
	}
	if v.Exchange("/", "fleeting") != nil || v.Exchange("/", "late") != nil || v.Exchange("/", "x") == nil {
		t.Error("exchanges that are not durable are there, or others are not")
	}
	if found, err := v.Route("/", "x", []string{"k"}, nil, nil); err != nil || len(found) != 1 {
		t.Errorf("x leads to %v (%v)", found, err)
	}
	var nodes []string
	old := uint32(0)
	for n := range s.view().Nodes() {
		old = max(old, n.Number)
	}
	for n := range v.Nodes() {
		nodes = append(nodes, string(n.ID)+" "+n.Zone)
		if n.Number <= old || n.Incarnation != v.Revision() || n.State != NodeRegular {
			t.Errorf("node %+v", n)
		}
	}
	if got := strings.Join(nodes, ", "); got != "m1/x a, n1/y " || !v.Forgotten(n1) {
		t.Errorf("nodes %s", got)
	}
	// Every node of the new cluster writes the same, and its replica begins with it.
	var again [2]bytes.Buffer
	for i := range again {
		v, err := Rehome(bytes.NewReader(raw.Bytes()), to)
		if err == nil {
			err = v.WriteSnapshot(&again[i])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(again[0].Bytes(), again[1].Bytes()) {
		t.Error("two nodes do not make the same")
	}
	dir := t.TempDir()
	if err := MakeRestored(dir, v); err != nil {
		t.Fatal(err)
	}
	if err := Whole(dir); err != nil {
		t.Error(err)
	}
	kept, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := kept.List()
	if err != nil || len(list) != 1 || list[0].Index != v.Revision() || len(list[0].Configuration.Servers) != 2 {
		t.Fatalf("snapshots %+v, %v", list, err)
	}
	for name, to := range map[string]Rehoming{
		"no nodes":  {ClusterID: "other", Place: to.Place},
		"a bad id":  {ClusterID: "other", Nodes: []Rehomed{{"", ""}}, Place: to.Place},
		"a former":  {ClusterID: "other", Nodes: []Rehomed{{n1, ""}}, Place: func(*Queue) ([]NodeID, NodeID) { return nil, "" }},
		"bad place": {ClusterID: "other", Nodes: to.Nodes, Place: func(*Queue) ([]NodeID, NodeID) { return []NodeID{m1}, m2 }},
	} {
		if _, err := Rehome(bytes.NewReader(raw.Bytes()), to); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := Rehome(bytes.NewReader(raw.Bytes()[:raw.Len()-1]), to); err == nil {
		t.Error("half a snapshot is taken")
	}
}

// TestRehomeDelaysOfAnAutoDelete: an exchange that goes with its last binding, to a queue of a node's memory, leaves no queue of what it kept back
// that runs and that nobody can delete.
func TestRehomeDelaysOfAnAutoDelete(t *testing.T) {
	s := newScript(t)
	inc := s.ok(&RegisterNode{ID: n1}).ID
	s.ok(&DeclareQueue{Queue{Vhost: "/", Name: "t", Kind: Transient, Members: []NodeID{n1}, Preferred: n1}, inc})
	x := delayed("x", "fanout")
	x.Exchange.Durable, x.Exchange.AutoDelete = true, true
	s.ok(x)
	s.ok(bind("x", "t", ""))
	var raw bytes.Buffer
	if err := s.view().WriteSnapshot(&raw); err != nil {
		t.Fatal(err)
	}
	const m1 = NodeID("m1/x")
	v, err := Rehome(&raw, Rehoming{ClusterID: "other", Nodes: []Rehomed{{m1, ""}}, Place: func(*Queue) ([]NodeID, NodeID) { return []NodeID{m1}, m1 }})
	if err != nil {
		t.Fatal(err)
	}
	check(t, v)
	if v.Exchange("/", "x") != nil {
		t.Error("the exchange is still there")
	}
	for q := range v.AllQueues() {
		if q.State != Closing {
			t.Errorf("queue %d of exchange %q runs", q.ID, q.DelayOf)
		}
	}
}

// TestRehomeLives rehomes queues in a later life, one of them on its way into it: it is not taken over a second time.
func TestRehomeLives(t *testing.T) {
	s, q := level2(t)
	s.ok(declare("begun"))
	first, second := q().ID, s.view().Queue("/", "begun").ID
	s.ok(&NodeDown{n2, s.view().Node(n2).Incarnation, 1000})
	now := s.ok(&RecoverQueue{first, []NodeID{n1}, []NodeID{n2}, first})
	s.ok(&QueueRecovered{now.ID, now.ID, Kept{9, 2, 3, 1}})
	under := s.ok(&RecoverQueue{second, []NodeID{n1}, []NodeID{n2}, second})
	var raw, again bytes.Buffer
	if err := s.view().WriteSnapshot(&raw); err != nil {
		t.Fatal(err)
	}
	const m1, m2 = NodeID("m1/x"), NodeID("m2/y")
	v, err := Rehome(&raw, Rehoming{ClusterID: "other", Nodes: []Rehomed{{m1, ""}, {m2, ""}}, Place: func(*Queue) ([]NodeID, NodeID) {
		return []NodeID{m1, m2}, m2
	}})
	if err == nil {
		err = v.WriteSnapshot(&again)
	}
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err = readSnapshot(&again); err != nil {
		t.Fatal(err)
	}
	check(t, v)
	for name, want := range map[string]string{
		"q":     fmt.Sprintf("%d after [%d] on [m1/x m2/y] [0 0], of [], kept {9 2 3 1}", now.ID, first),
		"begun": fmt.Sprintf("%d after [%d] on [m1/x m2/y] [0 0], of [], kept {0 0 0 0}", under.ID, second),
	} {
		q := v.Queue("/", name)
		if got := lives(q); got != want || q.Founders != nil || q.FirstMembers() == nil {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	for id, name := range map[uint64]string{first: "q", second: "begun"} {
		if next, life := v.Successor(id); next == nil || next.Name != name || life != 1 {
			t.Errorf("%d goes on as %v", id, next)
		}
	}
}
