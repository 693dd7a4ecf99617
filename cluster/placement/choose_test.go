package placement

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestChoose(t *testing.T) {
	plain := []Node{{ID: "a"}, {ID: "b"}, {ID: "c"}}
	zones := []Node{{ID: "a", Zone: "1"}, {ID: "b", Zone: "1"}, {ID: "c", Zone: "2", Holds: 100}, {ID: "d", Zone: "3", Holds: 100}}
	cases := []struct {
		name    string
		nodes   []Node
		local   string
		size    int
		local1  bool // LeadLocal
		members []string
		lead    string
	}{
		{"all", plain, "b", 3, false, []string{"a", "b", "c"}, "b"},
		{"more than there are", plain, "b", 9, false, []string{"a", "b", "c"}, "b"},
		{"one", plain, "c", 1, false, []string{"c"}, "c"},
		{"none", plain, "c", 0, false, []string{"c"}, "c"},
		{"no nodes known", nil, "x", 3, false, []string{"x"}, "x"},
		{"local not known yet", plain, "x", 4, false, []string{"a", "b", "c", "x"}, "x"},
		{"fewest led", []Node{{ID: "a", Leads: 2}, {ID: "b", Leads: 1}, {ID: "c", Leads: 3}}, "c", 3, false, []string{"a", "b", "c"}, "b"},
		{"local among equals", []Node{{ID: "a", Leads: 2}, {ID: "b", Leads: 2}, {ID: "c", Leads: 2}}, "c", 3, false, []string{"a", "b", "c"}, "c"},
		{"client-local", []Node{{ID: "a"}, {ID: "b"}, {ID: "c", Leads: 9}}, "c", 3, true, []string{"a", "b", "c"}, "c"},
		{"away if it must be", []Node{{ID: "a", Away: true}, {ID: "b", Leads: 5}, {ID: "c", Leads: 4}}, "b", 3, false, []string{"a", "b", "c"}, "c"},
		{"not away", []Node{{ID: "a", Away: true}, {ID: "b"}, {ID: "c", Holds: 100}}, "b", 2, false, []string{"b", "c"}, "b"},
		{"fewest held of two", []Node{{ID: "a", Holds: 2}, {ID: "b"}, {ID: "c", Holds: 1}}, "b", 2, false, []string{"b", "c"}, "b"},
		{"not those that go", []Node{{ID: "a", LastRank: true}, {ID: "b"}, {ID: "c", Holds: 100}}, "b", 2, false, []string{"b", "c"}, "b"},
		{"before those away", []Node{{ID: "a", LastRank: true}, {ID: "b"}, {ID: "c", Away: true}}, "b", 2, false, []string{"a", "b"}, "b"},
		{"not at one that goes", []Node{{ID: "a", LastRank: true}, {ID: "b"}, {ID: "c", Leads: 1}}, "a", 2, true, []string{"b", "c"}, "b"},
		{"one that goes does not lead", []Node{{ID: "a", LastRank: true}, {ID: "b", Leads: 9}, {ID: "c", Leads: 10}}, "a", 3, true, []string{"a", "b", "c"}, "b"},
		{"all go", []Node{{ID: "a", LastRank: true}, {ID: "b", LastRank: true, Leads: 1}}, "a", 2, true, []string{"a", "b"}, "a"},
		{"none at one that leaves", []Node{{ID: "a", LastRank: true, Leaves: true}, {ID: "b"}, {ID: "c", Leads: 1}}, "a", 3, false, []string{"b", "c"}, "b"},
		{"none at a dead one that leaves", []Node{{ID: "a", Away: true, LastRank: true, Leaves: true}, {ID: "b"}, {ID: "c", Away: true}}, "b", 3, false, []string{"b", "c"}, "b"},
		{"all leave that live", []Node{{ID: "a", LastRank: true, Leaves: true}, {ID: "b", LastRank: true, Leaves: true, Leads: 1}, {ID: "c", Away: true}}, "a", 2, false, []string{"a", "b"}, "a"},
		{"other zones", zones, "a", 3, false, []string{"a", "c", "d"}, "a"},
		{"zones once more", zones, "a", 4, false, []string{"a", "b", "c", "d"}, "a"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := Choose(Request{Nodes: c.nodes, Local: c.local, Size: c.size, LeadLocal: c.local1, Seed: 1})
			if got.Preferred != c.lead || got.Members[0] != c.lead {
				t.Errorf("%+v, want %s to lead", got, c.lead)
			}
			slices.Sort(got.Members)
			if !slices.Equal(got.Members, c.members) {
				t.Errorf("members %v, want %v", got.Members, c.members)
			}
		})
	}
}

// TestChooseRules: whatever the nodes are, a choice has the right number of members, each once, the local one among
// them; live ones and other zones go first; it depends on nothing but the request.
func TestChooseRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Request{
			Local: "n0", Size: rapid.IntRange(0, 7).Draw(t, "size"),
			LeadLocal: rapid.Bool().Draw(t, "lead local"), Seed: rapid.Uint64().Draw(t, "seed"),
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			r.Nodes = append(r.Nodes, Node{
				ID: fmt.Sprint("n", i), Zone: fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "zone")),
				Leads: rapid.IntRange(0, 5).Draw(t, "leads"), Holds: rapid.IntRange(0, 9).Draw(t, "holds"),
				Away: i > 0 && rapid.IntRange(0, 3).Draw(t, "away") == 0, LastRank: rapid.IntRange(0, 5).Draw(t, "goes") == 0,
			})
			r.Nodes[i].Leaves = r.Nodes[i].LastRank && rapid.Bool().Draw(t, "leaves")
		}
		got := Choose(r)
		may := r.Nodes
		if slices.ContainsFunc(may, func(n Node) bool { return !n.Leaves && !n.Away }) {
			may = slices.DeleteFunc(slices.Clone(may), func(n Node) bool { return n.Leaves })
		}
		if want := max(1, min(r.Size, len(may))); len(got.Members) != want {
			t.Fatalf("%d members, want %d", len(got.Members), want)
		}
		byID, zones, liveZones, live, taken, localGoes := map[string]Node{}, map[string]int{}, map[string]bool{}, [3]int{}, [3]int{}, true
		for _, n := range may {
			byID[n.ID] = n
			if n.rank() == 0 {
				liveZones[n.Zone] = true
			}
			if live[n.rank()]++; n.ID == r.Local {
				localGoes = n.LastRank
			}
		}
		for i, m := range got.Members {
			if _, may := byID[m]; !may {
				t.Fatalf("%s is a member and leaves", m)
			}
			if slices.Contains(got.Members[:i], m) {
				t.Fatalf("twice in %v", got.Members)
			}
			zones[byID[m].Zone]++
			taken[byID[m].rank()]++
		}
		if !localGoes && !slices.Contains(got.Members, r.Local) || !slices.Contains(got.Members, got.Preferred) {
			t.Fatalf("%+v", got)
		}
		left := len(got.Members)
		for rank, n := range taken {
			if want := min(left, live[rank]); n != want {
				t.Fatalf("%v members of each rank, of %v", taken, live)
			}
			left -= n
		}
		if taken[0] == len(got.Members) && len(zones) != min(len(got.Members), len(liveZones)) {
			t.Fatalf("members in %d zones of %d: %v", len(zones), len(liveZones), got.Members)
		}
		lead := byID[got.Preferred]
		if lead.rank() > 0 && taken[0] > 0 || r.LeadLocal && !localGoes && got.Preferred != r.Local {
			t.Fatalf("%s is to lead", got.Preferred)
		}
		for _, m := range got.Members {
			if !r.LeadLocal && byID[m].rank() == lead.rank() && byID[m].Leads < lead.Leads {
				t.Fatalf("%s leads fewer than %s", m, got.Preferred)
			}
		}
		slices.Reverse(r.Nodes)
		if again := Choose(r); !slices.Equal(again.Members, got.Members) {
			t.Fatalf("%v, and %v with the nodes in another order", got.Members, again.Members)
		}
	})
}

// TestEvenness: queues that are declared at all nodes in turn are spread evenly, also by callers
// who know counts of some time ago.
func TestEvenness(t *testing.T) {
	for _, nodes := range []int{3, 5, 20, 100} {
		for _, late := range []int{1, 100} {
			t.Run(fmt.Sprintf("%d nodes, counts renewed after %d", nodes, late), func(t *testing.T) {
				now := make([]Node, nodes)
				for i := range now {
					now[i] = Node{ID: fmt.Sprintf("n%03d", i), Zone: fmt.Sprint(i % 3)}
				}
				index := map[string]int{}
				for i, n := range now {
					index[n.ID] = i
				}
				known := slices.Clone(now)
				const queues = 20_000
				for q := range queues {
					if q%late == 0 {
						copy(known, now)
					}
					c := Choose(Request{Nodes: known, Local: now[q*7%nodes].ID, Size: 3, Seed: uint64(q)})
					for _, m := range c.Members {
						now[index[m]].Holds++
					}
					now[index[c.Preferred]].Leads++
				}
				// A handful and, with old counts, a share of what is declared meanwhile.
				bound := 8 + late
				zone := map[string]int{}
				for _, n := range now {
					zone[n.Zone]++
				}
				for _, n := range now {
					// Each zone has a replica of each queue, and some zones have a node more.
					if mean := queues / zone[n.Zone]; n.Holds-mean > bound || mean-n.Holds > bound {
						t.Errorf("%s holds %d of %d, mean %d", n.ID, n.Holds, queues, mean)
					}
					if d := n.Leads - queues/nodes; d > bound || -d > bound {
						t.Errorf("%s leads %d of %d, mean %d", n.ID, n.Leads, queues, queues/nodes)
					}
				}
			})
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, nodes := range []int{3, 100} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			r := Request{Local: "n0", Size: 3}
			for i := range nodes {
				r.Nodes = append(r.Nodes, Node{ID: fmt.Sprint("n", i), Holds: i})
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Seed++
				Choose(r)
			}
		})
	}
}
