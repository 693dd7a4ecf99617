package nemesis

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/network"
)

// memberDB knows where the replicas of its one queue are.
type memberDB struct {
	*fakeDB
	nodes   []string
	members []string
	// busy requests are refused.
	busy int
}

func (f *memberDB) Nodes() []string { return f.nodes }

func (f *memberDB) Members(context.Context, string) ([]string, error) {
	return slices.Clone(f.members), nil
}

func (f *memberDB) SetMember(_ context.Context, _, node string, member bool) error {
	if f.busy > 0 {
		f.busy--
		return errors.New("a change is under way")
	}
	f.members = slices.DeleteFunc(f.members, func(n string) bool { return n == node })
	if member {
		f.members = append(f.members, node)
	}
	return nil
}

// TestMembers: a queue has three replicas after each fault that was healed, whatever it had before and although requests are refused
// for a while, and never fewer than two.
func TestMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct{ nodes, have, during int }{{3, 3, 2}, {5, 3, 4}, {5, 4, 3}, {5, 2, 3}} {
			f := &memberDB{fakeDB: newFakeDB(), nodes: db.NodeNames(tc.nodes), members: db.NodeNames(tc.nodes)[:tc.have]}
			e := &Env{DB: f, Queues: []string{"q"}, Rand: rand.New(rand.NewPCG(1, 2))}
			fault, err := members(t.Context(), e)
			if err != nil || len(f.members) != tc.during {
				t.Fatalf("%+v: %v, %d replicas", tc, err, len(f.members))
			}
			f.busy = 10
			if err := fault.Heal(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tc.have >= replicas && len(f.members) != replicas || len(f.members) < 2 {
				t.Errorf("%+v: %d replicas afterwards", tc, len(f.members))
			}
		}
		// What is never taken on does not end the run.
		f := &memberDB{fakeDB: newFakeDB(), nodes: db.NodeNames(3), members: db.NodeNames(3)}
		fault, err := members(t.Context(), &Env{DB: f, Queues: []string{"q"}, Rand: rand.New(rand.NewPCG(1, 2))})
		if err != nil {
			t.Fatal(err)
		}
		f.busy = 1 << 30
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := fault.Heal(ctx); err != nil {
			t.Error(err)
		}
	})
}

// movable counts how often hosts get other addresses.
type movable struct {
	network.Network
	times map[string]int
}

func (m movable) Readdress(node string) error { m.times[node]++; return nil }

func (f *fakeDB) Stop(_ context.Context, node string) error { return f.Kill(node) }
func (f *fakeDB) Move(node string) error {
	if !f.down[node] {
		return errors.New("it runs")
	}
	return nil
}

func TestMove(t *testing.T) {
	f, m := newFakeDB(), movable{times: map[string]int{}}
	e := &Env{DB: f, Net: m, Rand: rand.New(rand.NewPCG(1, 2))}
	for range 10 {
		fault, err := move(t.Context(), e)
		if err != nil || !f.down[fault.Node] {
			t.Fatalf("%v: %+v is not down", err, fault)
		}
		if err := fault.Heal(t.Context()); err != nil || f.down[fault.Node] {
			t.Fatalf("%v: %s is down", err, fault.Node)
		}
	}
	if n := m.times["node1"] + m.times["node2"] + m.times["node3"]; n != 10 {
		t.Errorf("%d addresses were given", n)
	}
	for _, n := range f.Nodes() {
		f.down[n] = true
	}
	if _, err := move(t.Context(), e); err == nil {
		t.Error("a node that was down already was moved")
	}
	if _, err := move(t.Context(), &Env{DB: newFakeDB(), Rand: e.Rand}); err == nil {
		t.Error("moved without a network for it")
	}
}
