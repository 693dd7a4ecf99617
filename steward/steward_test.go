package steward

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/repair"
	"github.com/warrenmq/warren/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a real catalog of one voter, in which other nodes are only registered. The test says who is alive, and reaches plans.
type rig struct {
	t   *testing.T
	cat *catalog.Catalog
	ids map[string]catalog.NodeID

	mu   sync.Mutex
	dead map[catalog.NodeID]bool
}

func newRig(t *testing.T, names ...string) *rig {
	t.Helper()
	const cluster = "00000000-0000-4000-8000-000000000001"
	r := &rig{t: t, ids: map[string]catalog.NodeID{}, dead: map[catalog.NodeID]bool{}}
	self := catalog.NodeID("self/1")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mesh, err := transport.New(transport.Config{
		Local: self, Listener: l, Level: 2, ClusterID: func() string { return cluster },
		Resolve: func(transport.NodeID) (string, bool) { return "", false },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mesh.Close() })
	r.cat, err = catalog.Open(catalog.Config{
		Local: self, Dir: filepath.Join(t.TempDir(), "catalog"), Mesh: mesh, DownAfter: time.Hour,
		HeartbeatTimeout: 500 * time.Millisecond,
		Founding: &catalog.Founding{ClusterID: cluster, Members: []catalog.NodeID{self}, Admin: func() (auth.User, error) {
			return auth.User{Name: "guest", PasswordHash: auth.HashPassword("guest"), Tags: []string{auth.TagAdministrator}}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cat.Close() })
	r.until("the newest level", func() bool { return r.cat.View().Level() == 2 })
	for _, name := range names {
		r.register(name, "")
	}
	return r
}

// register enters a node, by "name" or "name/storage", in a zone.
func (r *rig) register(name, zone string) {
	r.t.Helper()
	id := catalog.NodeID(name)
	if !strings.Contains(name, "/") {
		id += "/1"
	}
	name, _, _ = strings.Cut(name, "/")
	r.ids[name] = id
	r.propose(&catalog.RegisterNode{ID: id})
	r.propose(&catalog.NodeAbout{ID: id, Incarnation: r.node(name).Incarnation, Zone: zone, Version: "1", Level: 2})
}

func (r *rig) node(name string) *catalog.Node { return r.cat.View().NodeByName(name) }

func (r *rig) propose(c catalog.Command) catalog.Result {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	res, err := r.cat.Propose(ctx, c)
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("gave up waiting until %s", what)
		}
	}
}

func (r *rig) declare(name string, on ...string) uint64 {
	r.t.Helper()
	var members []catalog.NodeID
	for _, m := range on {
		members = append(members, r.ids[m])
	}
	return r.propose(&catalog.DeclareQueue{Queue: catalog.Queue{
		Vhost: "/", Name: name, Durable: true, Kind: catalog.Replicated, Members: members, Preferred: members[0],
	}}).ID
}

// die kills a node: the catalog notes that it is down.
func (r *rig) die(name string) {
	r.t.Helper()
	id := r.ids[name]
	r.mu.Lock()
	r.dead[id] = true
	r.mu.Unlock()
	r.propose(&catalog.NodeDown{ID: id, Incarnation: r.node(name).Incarnation, AtMillis: time.Now().UnixMilli()})
}

func (r *rig) alive(id catalog.NodeID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.dead[id]
}

func (r *rig) steward(p repair.Policy, catalog Catalog) *Steward {
	s := New(Config{
		Catalog: catalog, Alive: r.alive, Clock: func() int64 { return time.Now().UnixMilli() }, Policy: p, Every: 10 * time.Millisecond,
	})
	r.t.Cleanup(s.Close)
	return s
}

// planned are the queues whose members are being changed.
func (r *rig) planned() (list []*catalog.Queue) {
	for q := range r.cat.View().AllQueues() {
		if q.Wanted != nil {
			list = append(list, q)
		}
	}
	return list
}

// reach ends the plans that are under way.
func (r *rig) reach() {
	r.t.Helper()
	for _, q := range r.planned() {
		r.propose(&catalog.MembersReached{ID: q.ID, IfSettings: q.Settings})
	}
}

func (r *rig) names(list []catalog.NodeID) string {
	var names []string
	for _, id := range list {
		name, _, _ := strings.Cut(string(id), "/")
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestDeadNodesReplicasMove: those of a node that has been down for too long go to the others, so many at a time, and evenly.
func TestDeadNodesReplicasMove(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d", "e")
	const queues, groups = 20, 3
	for i := range queues {
		r.declare(fmt.Sprint("q", i), "a", "b", "c")
	}
	s := r.steward(repair.Policy{After: 200 * time.Millisecond, Groups: groups}, r.cat)
	died := time.Now()
	r.die("c")
	r.until("plans are made", func() bool { return len(r.planned()) > 0 })
	if early := time.Since(died); early < 199*time.Millisecond {
		t.Errorf("the first plan came after %v", early) // in whole milliseconds
	}
	for r.cat.View().Replicas(r.ids["c"]) > 0 {
		r.until("as many plans as there may be", func() bool {
			n := len(r.planned())
			if n > groups {
				t.Fatalf("%d plans under way", n)
			}
			return n == min(groups, r.cat.View().Replicas(r.ids["c"]))
		})
		r.reach()
	}
	if d, e := r.cat.View().Replicas(r.ids["d"]), r.cat.View().Replicas(r.ids["e"]); d != queues/2 || e != queues/2 {
		t.Errorf("d got %d replicas, e %d", d, e)
	}
	if st := s.Stats(); st.Plans[repair.Down] != queues || st.Refused != 0 {
		t.Errorf("%+v", st)
	}
	r.until("it rests", func() bool { st := s.Stats(); return st.Underway == 0 && st.Waiting == 0 })
}

// TestLeavingNodeIsEmptied: a node that leaves has nothing in the end, who should lead in its place is one of the others, and it is forgotten then and
// not before. Nothing goes to a node that drains.
func TestLeavingNodeIsEmptied(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d", "e")
	for i := range 6 {
		r.declare(fmt.Sprint("q", i), "c", "a", "b")
	}
	s := r.steward(repair.Policy{Groups: 4}, r.cat)
	r.propose(&catalog.SetNodeState{ID: r.ids["d"], State: catalog.NodeDraining})
	r.propose(&catalog.SetNodeState{ID: r.ids["c"], State: catalog.NodeLeaving})
	if _, err := r.cat.Propose(t.Context(), &catalog.ForgetNode{ID: r.ids["c"]}); err == nil {
		t.Error("a node with replicas was forgotten")
	}
	r.until("c has nothing", func() bool { r.reach(); return r.cat.View().Replicas(r.ids["c"]) == 0 })
	leads := map[string]int{}
	for q := range r.cat.View().AllQueues() {
		if got := r.names(q.Members); got != "a b e" {
			t.Errorf("%s is on %s", q.Name, got)
		}
		leads[r.names([]catalog.NodeID{q.Preferred})]++
	}
	if want := map[string]int{"a": 2, "b": 2, "e": 2}; !maps.Equal(leads, want) {
		t.Errorf("nodes should lead %v, want %v", leads, want)
	}
	if st := s.Stats(); st.Plans[repair.Leaving] != 6 {
		t.Errorf("%+v", st)
	}
	r.propose(&catalog.ForgetNode{ID: r.ids["c"]})
}

// TestLostDiskIsReplaced: the new storage of a name gets all that the old one had, at once, and the old one is forgotten.
func TestLostDiskIsReplaced(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	var all []uint64
	for i := range 6 {
		all = append(all, r.declare(fmt.Sprint("q", i), "c", "a", "b"))
	}
	s := r.steward(repair.Policy{After: time.Hour, Groups: 4}, r.cat)
	old := r.ids["c"]
	r.register("c/2", "")
	r.until("the old storage has nothing", func() bool { r.reach(); return r.cat.View().Replicas(old) == 0 })
	for _, id := range all {
		q := r.cat.View().QueueByID(id)
		if !slices.Contains(q.Members, r.ids["c"]) || q.Generation(r.ids["c"]) == 0 {
			t.Errorf("%s is on %v, generations %v", q.Name, q.Members, q.Generations)
		}
	}
	if st := s.Stats(); st.Plans[repair.Gone] != 6 {
		t.Errorf("%+v", st)
	}
	r.until("the old storage is forgotten", func() bool { return r.cat.View().Node(old) == nil && r.cat.View().Forgotten(old) })
	if _, err := r.cat.Propose(t.Context(), &catalog.RegisterNode{ID: old}); err == nil {
		t.Error("the old storage is let in again")
	}
}

// TestDeletedQueueWithoutReplicas: a queue that is deleted while no replica of it is left goes, and the storages that had it are forgotten. One whose node is down
// waits for it, and one that nobody has deleted stays.
func TestDeletedQueueWithoutReplicas(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	kept, gone, down := r.declare("kept", "c"), r.declare("gone", "c", "b"), r.declare("down", "a", "c")
	r.steward(repair.Policy{After: time.Hour, Groups: 4}, r.cat)
	there := func(id uint64) bool { return r.cat.View().QueueByID(id) != nil }
	old := []catalog.NodeID{r.ids["b"], r.ids["c"]}
	r.propose(&catalog.DeleteQueue{Vhost: "/", Name: "gone"})
	r.propose(&catalog.DeleteQueue{Vhost: "/", Name: "down"})
	r.die("a")
	r.register("c/2", "")
	time.Sleep(50 * time.Millisecond) // five looks
	if !there(gone) {
		t.Error("one of its nodes may come back")
	}
	r.register("b/2", "")
	r.until("it is gone", func() bool { return !there(gone) })
	r.until("a storage that had nothing else is forgotten", func() bool { return r.cat.View().Forgotten(old[0]) })
	if !there(kept) || !there(down) || r.cat.View().Replicas(old[1]) != 2 {
		t.Error("others went too")
	}
	r.propose(&catalog.DeleteQueue{Vhost: "/", Name: "kept"})
	r.until("that is gone, too", func() bool { return !there(kept) })
	time.Sleep(50 * time.Millisecond)
	if !there(down) {
		t.Error("its node is only down")
	}
	r.register("a/2", "")
	r.until("all are forgotten", func() bool { return !there(down) && r.cat.View().Forgotten(old[1]) })
}

// TestMissingMembersCome: a queue that was declared with too few nodes gets its members when there are nodes, and who takes one away by hand has the last word.
func TestMissingMembersCome(t *testing.T) {
	r := newRig(t, "a")
	id := r.propose(&catalog.DeclareQueue{Queue: catalog.Queue{
		Vhost: "/", Name: "q", Durable: true, Kind: catalog.Replicated, Members: []catalog.NodeID{r.ids["a"]}, Preferred: r.ids["a"], Size: 3,
	}}).ID
	q := func() *catalog.Queue { return r.cat.View().QueueByID(id) }
	s := r.steward(repair.Policy{Groups: 1}, r.cat)
	// The rig's own node has not told its zone and gets nothing.
	r.until("the steward knows", func() bool { return s.Stats().Short == 1 })
	for i, name := range []string{"b", "c"} {
		r.register(name, "")
		r.until(name+" is planned", func() bool { return len(q().Wanted) == i+2 })
		r.reach()
	}
	r.until("it rests", func() bool { st := s.Stats(); return st.Short == 0 && st.Underway == 0 })
	if got := r.names(q().Members); got != "a b c" || s.Stats().Plans[repair.Missing] != 2 {
		t.Errorf("the queue is on %s; %+v", got, s.Stats())
	}
	r.register("d", "")
	r.propose(&catalog.PlanMembers{ID: id, Wanted: []catalog.NodeID{r.ids["a"], r.ids["b"]}, Preferred: r.ids["a"], IfSettings: q().Settings})
	r.reach()
	time.Sleep(50 * time.Millisecond) // five looks
	if got := r.names(q().Members); got != "a b" || q().Wanted != nil {
		t.Errorf("what was taken away by hand is back: %s, %v", got, q().Wanted)
	}
}

// TestNothingToBeDone: what nobody can take stays and is counted; so is what has no majority. A queue of its own is not touched by it.
func TestNothingToBeDone(t *testing.T) {
	r := newRig(t, "a", "b", "c")
	r.declare("whole", "a", "b", "c")
	r.declare("one", "c")
	s := r.steward(repair.Policy{After: 50 * time.Millisecond, Groups: 4}, r.cat)
	r.die("c")
	r.until("it is seen", func() bool { st := s.Stats(); return st.Nowhere == 1 && st.NoMajority == 1 })
	if len(r.planned()) > 0 {
		t.Errorf("planned %+v", r.planned())
	}
	// Somebody comes who can.
	r.register("d", "")
	r.until("it is planned", func() bool { return len(r.planned()) == 1 })
	r.reach()
	if got := r.names(r.cat.View().Queue("/", "whole").Members); got != "a b d" {
		t.Errorf("it is on %s", got)
	}
}

// follower is a catalog that another node leads.
type follower struct{ *catalog.Catalog }

func (follower) Leading() bool { return false }

// TestOnlyTheLeaderActs: a steward at another node counts, and plans nothing.
func TestOnlyTheLeaderActs(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	r.declare("q", "a", "b", "c")
	s := r.steward(repair.Policy{After: 20 * time.Millisecond, Groups: 4}, follower{r.cat})
	r.die("c")
	time.Sleep(300 * time.Millisecond)
	if st := s.Stats(); len(r.planned()) > 0 || st != (Stats{}) {
		t.Errorf("planned %v, %+v", r.planned(), st)
	}
}

// silent is a catalog whose leader has not been heard of.
type silent struct{ *catalog.Catalog }

func (silent) Unheard() time.Duration { return time.Hour }

// TestTimeWithoutLeaderDoesNotCount: while the catalog has no leader nobody knows who is down.
func TestTimeWithoutLeaderDoesNotCount(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	r.declare("q", "a", "b", "c")
	s := r.steward(repair.Policy{After: 20 * time.Millisecond, Groups: 4}, silent{r.cat})
	r.die("c")
	time.Sleep(300 * time.Millisecond)
	if len(r.planned()) > 0 {
		t.Errorf("planned %v, %+v", r.planned(), s.Stats())
	}
}

// fickle is a catalog that refuses.
type fickle struct {
	*catalog.Catalog
	mu    sync.Mutex
	tries int
}

func (f *fickle) Propose(ctx context.Context, c catalog.Command) (catalog.Result, error) {
	p, ok := c.(*catalog.PlanMembers)
	if !ok {
		return f.Catalog.Propose(ctx, c)
	}
	f.mu.Lock()
	f.tries++
	f.mu.Unlock()
	late := *p
	late.IfSettings = 1
	return f.Catalog.Propose(ctx, &late)
}

// TestRefusedPlansWait: a plan that is refused is not made again at once.
func TestRefusedPlansWait(t *testing.T) {
	r := newRig(t, "a", "b", "c", "d")
	r.declare("q", "a", "b", "c")
	f := &fickle{Catalog: r.cat}
	s := r.steward(repair.Policy{After: 20 * time.Millisecond, Groups: 4}, f)
	r.die("c")
	r.until("it was refused", func() bool { return s.Stats().Refused > 0 })
	time.Sleep(300 * time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	if st := s.Stats(); f.tries != 1 || st.Refused != 1 || st.Waiting != 1 {
		t.Errorf("%d tries, %+v", f.tries, st)
	}
}
