package steward

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/repair"
)

// alone is a catalog that leads and has no log.
type alone struct {
	mu    sync.Mutex
	index uint64
	copy  *catalog.Copy
}

func (*alone) ReadIndex(context.Context) error { return nil }

func (a *alone) View() *catalog.View                { return a.copy.View() }
func (a *alone) Leading() bool                      { return true }
func (a *alone) LeaderID() catalog.NodeID           { return "a/1" }
func (a *alone) Unheard() time.Duration             { return 0 }
func (a *alone) Voters() []catalog.NodeID           { return nil }
func (a *alone) Subscribe(func(_, _ *catalog.View)) {}

func (a *alone) Propose(_ context.Context, c catalog.Command) (catalog.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.index++
	return a.copy.Apply(a.index, c)
}

// TestStrangersAreReplaced: a queue has a member that was taken out of the cluster while the declaration was on its way, below level 2. It gets another one
// though every node that the catalog has is well.
func TestStrangersAreReplaced(t *testing.T) {
	a := &alone{copy: catalog.NewCopy()}
	do := func(c catalog.Command) catalog.Result {
		t.Helper()
		res, err := a.Propose(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	do(&catalog.Found{ClusterID: "c", Admin: auth.User{Name: "guest"}})
	declare := func(name string, members ...catalog.NodeID) uint64 {
		t.Helper()
		return do(&catalog.DeclareQueue{Queue: catalog.Queue{
			Vhost: "/", Name: name, Durable: true, Kind: catalog.Replicated, Members: members, Preferred: members[0],
		}}).ID
	}
	incarnations := map[catalog.NodeID]uint64{}
	for _, id := range []catalog.NodeID{"a/1", "b/1", "d/1"} {
		incarnations[id] = do(&catalog.RegisterNode{ID: id}).ID
	}
	well, ill := declare("well", "a/1", "b/1"), declare("ill", "a/1", "b/1", "c/1")
	do(&catalog.ActivateLevel{Level: 2})
	for id, i := range incarnations {
		do(&catalog.NodeAbout{ID: id, Incarnation: i, Version: "1", Level: 2})
	}
	s := New(Config{
		Catalog: a, Alive: func(id catalog.NodeID) bool { return id != "c/1" }, Clock: func() int64 { return time.Now().UnixMilli() },
		Policy: repair.Policy{After: time.Hour, Groups: 4}, Every: 10 * time.Millisecond,
	})
	t.Cleanup(s.Close)
	for end := time.Now().Add(5 * time.Second); a.View().QueueByID(ill).Wanted == nil; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nobody replaces the member that is no node: %+v", s.Stats())
		}
	}
	if got := a.View().QueueByID(ill).Wanted; !slices.Equal(got, []catalog.NodeID{"a/1", "b/1", "d/1"}) {
		t.Errorf("it goes to %s", got)
	}
	if a.View().QueueByID(well).Wanted != nil {
		t.Error("the other queue moves too")
	}
}
