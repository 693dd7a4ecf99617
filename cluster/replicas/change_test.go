package replicas

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/transport"
)

// rig is an operator at the catalog of a cluster of which only this node is real: the others are registered.
type rig struct {
	t    *testing.T
	cat  *catalog.Catalog
	op   *Operator
	down map[catalog.NodeID]bool
}

const local = catalog.NodeID("n1/a")

func newRig(t *testing.T, others ...catalog.NodeID) *rig {
	t.Helper()
	return newRigAt(t, level.Now, others...)
}

// newRigAt is a rig with programs that know no later level.
func newRigAt(t *testing.T, known int, others ...catalog.NodeID) *rig {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mesh, err := transport.New(transport.Config{
		Local: local, Listener: l, ClusterID: func() string { return "c" }, Level: known,
		Resolve: func(transport.NodeID) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, mesh.Close()) })
	cat, err := catalog.Open(catalog.Config{Local: local, Dir: t.TempDir(), Mesh: mesh, Founding: &catalog.Founding{
		ClusterID: "c", Members: []catalog.NodeID{local}, Admin: func() (auth.User, error) {
			return auth.User{Name: "guest", PasswordHash: auth.HashPassword("guest")}, nil
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, cat.Close()) })
	r := &rig{t: t, cat: cat, down: map[catalog.NodeID]bool{}}
	r.op = &Operator{Catalog: cat, Running: func(id catalog.NodeID) bool { return !r.down[id] }}
	for end := time.Now().Add(30 * time.Second); cat.View().Level() < known || cat.View().ClusterID() == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the cluster does not reach its level")
		}
	}
	for _, id := range append([]catalog.NodeID{local}, others...) {
		r.propose(&catalog.RegisterNode{ID: id})
	}
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func (r *rig) propose(c catalog.Command) {
	r.t.Helper()
	if _, err := r.cat.Propose(r.t.Context(), c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) declare(name string, members ...catalog.NodeID) {
	r.t.Helper()
	r.propose(&catalog.DeclareQueue{Queue: catalog.Queue{
		Vhost: "/", Name: name, Durable: true, Kind: catalog.Replicated, Members: members, Preferred: members[0],
	}})
}

func (r *rig) queue(name string) *catalog.Queue { return r.cat.View().Queue("/", name) }

// reached is what the leader of the queue's group says when all is as planned.
func (r *rig) reached(name string) {
	r.t.Helper()
	r.propose(&catalog.MembersReached{ID: r.queue(name).ID, IfSettings: r.queue(name).Settings})
}

func (r *rig) where(name string) string {
	q := r.queue(name)
	return fmt.Sprintf("%v by %s, wanted %v by %s", q.Members, q.Preferred, q.Wanted, q.WantedPreferred)
}

// refused checks that err is a refusal.
func refused(t *testing.T, err error, want Reason, text string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Reason != want || !strings.Contains(e.Text, text) {
		t.Errorf("%v, want %s: %s", err, want, text)
	}
}

// ends checks what Wait says of a change, within a moment.
func (r *rig) ends(c Change, want bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 200*time.Millisecond)
	defer cancel()
	if done, err := r.op.Wait(ctx, c); done != want || err != nil {
		r.t.Errorf("done: %t, %v", done, err)
	}
}

func TestAddAndRemove(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c", "n4/d")
	ctx := t.Context()
	r.declare("q", "n1/a", "n2/b")
	c, err := r.op.Add(ctx, "/", "q", "n3")
	if err != nil || strings.Join(c.Members, " ") != "n1 n2 n3" {
		t.Fatalf("%+v %v", c, err)
	}
	if got := r.where("q"); got != "[n1/a n2/b n3/c] by n1/a, wanted [n1/a n2/b n3/c] by n1/a" {
		t.Error(got)
	}
	r.ends(c, false)
	// Again is no other change, and no new plan.
	at := r.queue("q").Settings
	again, err := r.op.Add(ctx, "/", "q", "n3")
	if err != nil || r.queue("q").Settings != at {
		t.Errorf("%+v %v", again, err)
	}
	_, err = r.op.Add(ctx, "/", "q", "n4")
	refused(t, err, Busy, "they are to be n1, n2, n3")
	_, err = r.op.Remove(ctx, "/", "q", "n1")
	refused(t, err, Busy, "")
	// What the plan has added can be taken back; from then on n3 is on its way out.
	back, err := r.op.Remove(ctx, "/", "q", "n3")
	if err != nil || strings.Join(back.Members, " ") != "n1 n2" {
		t.Fatalf("%+v %v", back, err)
	}
	if _, err := r.op.Wait(ctx, c); err == nil {
		t.Error("the addition was undone")
	} else {
		refused(t, err, Busy, "has taken the place")
	}
	_, err = r.op.Add(ctx, "/", "q", "n3")
	refused(t, err, Busy, "they are to be n1, n2")
	r.reached("q")
	r.ends(back, true)
	if got := r.where("q"); got != "[n1/a n2/b] by n1/a, wanted [] by " {
		t.Error(got)
	}
	// The one that leads goes: another one is to lead.
	gone, err := r.op.Remove(ctx, "/", "q", "n1")
	if err != nil {
		t.Fatal(err)
	}
	r.reached("q")
	r.ends(gone, true)
	if got := r.where("q"); got != "[n2/b] by n2/b, wanted [] by " {
		t.Error(got)
	}
	if c, err := r.op.Remove(ctx, "/", "q", "n1"); err != nil || strings.Join(c.Members, " ") != "n2" {
		t.Errorf("removed twice: %+v %v", c, err)
	}
	_, err = r.op.Remove(ctx, "/", "q", "n2")
	refused(t, err, LastMember, "the last member of queue 'q' in vhost '/'")
	c, err = r.op.Add(ctx, "/", "q", "n1")
	if err != nil {
		t.Fatal(err)
	}
	r.propose(&catalog.DeleteQueue{Vhost: "/", Name: "q"})
	r.propose(&catalog.QueueGone{ID: c.queue})
	_, err = r.op.Wait(ctx, c)
	refused(t, err, NoQueue, "deleted meanwhile")
}

func TestRefusals(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c", "n4/d", "n5/e")
	ctx := t.Context()
	r.declare("q", "n1/a", "n2/b", "n3/c")
	r.propose(&catalog.DeclareQueue{NodeIncarnation: r.cat.View().Node(local).Incarnation, Queue: catalog.Queue{
		Vhost: "/", Name: "t", Kind: catalog.Transient, Members: []catalog.NodeID{local}, Preferred: local,
	}})
	r.propose(&catalog.SetNodeState{ID: "n5/e", State: catalog.NodeLeaving})
	r.down["n4/d"] = true
	before := r.cat.View().Revision()
	for _, tc := range []struct {
		add                bool
		vhost, queue, node string
		want               Reason
		text               string
	}{
		{true, "/", "none", "n4", NoQueue, "no queue 'none'"},
		{true, "nowhere", "q", "n4", NoQueue, ""},
		{true, "/", "t", "n2", NotReplicated, "queue 't' in vhost '/' is not replicated"},
		{false, "/", "t", "n1", NotReplicated, ""},
		{true, "/", "q", "n9", NoNode, "node 'n9' is not a member of the cluster"},
		{true, "/", "q", "", NoNode, ""},
		{false, "/", "q", "n9", NoNode, ""},
		{true, "/", "q", "n4", NotRunning, "node 'n4' is not running"},
		{true, "/", "q", "n5", GoesAway, "node 'n5' is leaving"},
	} {
		change := r.op.Remove
		if tc.add {
			change = r.op.Add
		}
		_, err := change(ctx, tc.vhost, tc.queue, tc.node)
		refused(t, err, tc.want, tc.text)
	}
	// One of three is down: it can be replaced, but neither of the others can go.
	r.down = map[catalog.NodeID]bool{"n3/c": true}
	_, err := r.op.Remove(ctx, "/", "q", "n1")
	refused(t, err, NoQuorum, "of n2, n3 run 1")
	r.down["n2/b"] = true
	_, err = r.op.Add(ctx, "/", "q", "n4")
	refused(t, err, NoQuorum, "of n1, n2, n3 run 1")
	_, err = r.op.Remove(ctx, "/", "q", "n3")
	refused(t, err, NoQuorum, "of n1, n2, n3 run 1")
	if now := r.cat.View().Revision(); now != before {
		t.Errorf("refusals have changed the catalog from %d to %d", before, now)
	}
	delete(r.down, "n2/b")
	if _, err := r.op.Remove(ctx, "/", "q", "n3"); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.op.Add(ended, "/", "q", "n4"); !errors.Is(err, context.Canceled) {
		t.Errorf("without patience: %v", err)
	}
}

// TestReplacedStorage has a node that came back with an empty disk: its new storage takes the place of the old one.
func TestReplacedStorage(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c")
	ctx := t.Context()
	r.declare("q", "n2/b", "n1/a", "n3/c")
	r.declare("p", "n1/a", "n2/b", "n3/c")
	r.propose(&catalog.RegisterNode{ID: "n2/new"})
	r.down["n2/b"] = true
	if _, err := r.op.Add(ctx, "/", "q", "n2/b"); err == nil {
		t.Error("a storage that was replaced has got a replica")
	}
	c, err := r.op.Add(ctx, "/", "q", "n2")
	if err != nil || strings.Join(c.Members, " ") != "n1 n3 n2" {
		t.Fatalf("%+v %v", c, err)
	}
	if got := r.queue("q"); !slices.Equal(got.Wanted, []catalog.NodeID{"n1/a", "n3/c", "n2/new"}) || got.WantedPreferred != "n2/new" {
		t.Error(r.where("q"))
	}
	if _, err := r.op.Remove(ctx, "/", "p", "n2"); err != nil {
		t.Fatal(err)
	}
	if got := r.queue("p").Wanted; !slices.Equal(got, []catalog.NodeID{"n1/a", "n3/c"}) {
		t.Errorf("p is to be on %v", got)
	}
}

// TestConcurrentChanges has several operators change one queue: each either gets its plan or is told that another one is under way.
func TestConcurrentChanges(t *testing.T) {
	r := newRig(t, "n2/b", "n3/c", "n4/d", "n5/e")
	r.declare("q", "n1/a")
	errs := make(chan error)
	for _, node := range []string{"n2", "n3", "n4", "n5"} {
		go func() {
			_, err := r.op.Add(t.Context(), "/", "q", node)
			errs <- err
		}()
	}
	planned := 0
	for range 4 {
		if err := <-errs; err == nil {
			planned++
		} else {
			refused(t, err, Busy, "is under way")
		}
	}
	if planned != 1 || len(r.queue("q").Wanted) != 2 {
		t.Errorf("%d plans: %s", planned, r.where("q"))
	}
}

// TestOldProgram has a cluster in which a node's program does not know what moves replicas.
func TestOldProgram(t *testing.T) {
	r := newRigAt(t, level.First, "n2/b")
	r.declare("q", "n1/a")
	_, err := r.op.Add(t.Context(), "/", "q", "n2")
	refused(t, err, OldLevel, "all nodes must have a program that knows it")
	_, err = r.op.Forget(t.Context(), "n2")
	refused(t, err, NodeRuns, "")
	results, err := r.op.Grow(t.Context(), "n2", Match{})
	if err != nil || len(results) != 1 {
		t.Fatal(results, err)
	}
	refused(t, results[0].Err, OldLevel, "")
}
