package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/warrenmq/warren/jepsen/db"
	"github.com/warrenmq/warren/jepsen/history"
	"github.com/warrenmq/warren/jepsen/network"
)

// reach returns which nodes each can exchange messages with both ways, itself included.
func reach(nodes []string, cut []network.Pair) map[string]int {
	n := map[string]int{}
	for _, a := range nodes {
		for _, b := range nodes {
			if !slices.Contains(cut, network.Pair{From: a, To: b}) && !slices.Contains(cut, network.Pair{From: b, To: a}) {
				n[a]++
			}
		}
	}
	return n
}

func TestShapes(t *testing.T) {
	for _, size := range []int{3, 5} {
		nodes := db.NodeNames(size)
		for name, tc := range map[string]struct {
			cut    []network.Pair
			pairs  int
			victim int // how many it reaches, itself included
			others int // how many any other reaches, at least
		}{
			"halves":   {halves(nodes), 2 * (size / 2) * (size - size/2), size / 2, size / 2},
			"isolated": {isolated(nodes), 2 * (size - 1), 1, size - 1},
			"deaf":     {deaf(nodes), size - 1, 1, size - 1},
			"mute":     {mute(nodes), size - 1, 1, size - 1},
			"ring":     {ring(nodes), map[int]int{3: 2, 5: 10}[size], size/2 + 1, size/2 + 1},
		} {
			n := reach(nodes, tc.cut)
			if len(tc.cut) != tc.pairs || n[nodes[0]] != tc.victim {
				t.Errorf("%s of %d: %d pairs, want %d; the victim reaches %d, want %d", name, size, len(tc.cut), tc.pairs, n[nodes[0]], tc.victim)
			}
			for _, other := range nodes[1:] {
				if n[other] < tc.others {
					t.Errorf("%s of %d: %s reaches %d, want %d", name, size, other, n[other], tc.others)
				}
			}
		}
	}
}

// TestPlan: a seed fixes the plan, another seed makes another, and no plan is longer than
// asked.
func TestPlan(t *testing.T) {
	text := func(seed uint64) string {
		s := ""
		total := time.Duration(0)
		for _, step := range Plan(seed, All(), time.Minute, HoldDefault) {
			for _, f := range step.Faults {
				s += f.Name + " "
			}
			s += fmt.Sprintln(step.Calm, step.Gap, step.Hold, step.AtLeader, step.Seed)
			total += step.Calm + step.Gap + step.Hold
		}
		if total > time.Minute {
			t.Errorf("seed %d: the plan takes %v", seed, total)
		}
		return s
	}
	first, again, other := text(1), text(1), text(2)
	if first != again || first == other || first == "" {
		t.Errorf("plans:\n%s\n%s", first, other)
	}
	if Plan(1, nil, time.Minute, HoldDefault) != nil {
		t.Error("there is a plan without nemeses")
	}
}

func TestSelect(t *testing.T) {
	names := func(list []Nemesis) (s []string) {
		for _, n := range list {
			s = append(s, n.Name)
		}
		return s
	}
	list, err := Select([]string{"kill", "partition", "kill"}, true, true)
	if got := names(list); err != nil || len(got) != 7 || got[0] != "kill" {
		t.Errorf("%v, %v", got, err)
	}
	if list, err = Select([]string{"all"}, false, false); err != nil || slices.ContainsFunc(list, func(n Nemesis) bool { return n.Links || n.Within }) {
		t.Errorf("%v, %v", names(list), err)
	}
	if list, err = Select([]string{"none"}, true, true); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", names(list), err)
	}
	if _, err = Select([]string{"thunder"}, true, true); err == nil {
		t.Error("no error")
	}
}

// TestRunHeals: whatever was begun is healed and recorded, also when the run is over in the
// middle of a fault, and a fault that cannot begin is no error.
func TestRunHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "history")
		rec, err := history.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		open := 0
		good := Nemesis{Name: "good", Begin: func(context.Context, *Env) (Fault, error) {
			open++
			return Fault{Node: "node1", What: "harm", Heal: func(context.Context) error { open--; return nil }}, nil
		}}
		bad := Nemesis{Name: "bad", Begin: func(context.Context, *Env) (Fault, error) { return Fault{}, fmt.Errorf("it is gone") }}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		steps := []Step{
			{Calm: time.Second, Faults: []Nemesis{good, bad}, Gap: time.Second, Hold: time.Second},
			{Calm: time.Second, Faults: []Nemesis{good}, Hold: time.Hour},
			{Calm: time.Second, Faults: []Nemesis{good}, Hold: time.Hour},
		}
		if err := Run(ctx, &Env{Rand: rand.New(rand.NewPCG(1, 1))}, steps, rec); err != nil {
			t.Fatal(err)
		}
		if err := rec.Close(); err != nil {
			t.Fatal(err)
		}
		ops, err := history.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, o := range ops {
			kinds = append(kinds, o.Value+" "+string(o.Type))
		}
		if want := []string{"good invoke", "bad fail", "good ok", "good invoke", "good ok"}; !slices.Equal(kinds, want) {
			t.Errorf("history %v, want %v", kinds, want)
		}
		if open != 0 {
			t.Errorf("%d faults are not healed", open)
		}
	})
}
