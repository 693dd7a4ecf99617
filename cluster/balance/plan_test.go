package balance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestPlan(t *testing.T) {
	p := Policy{Settle: 10 * time.Second, Lag: 64, Pause: 5 * time.Second, PauseMax: time.Minute}
	long := Node{Since: noon.Add(-time.Hour), Linked: true}
	nodes := map[string]Node{
		"well":    long,
		"new":     {Since: noon.Add(-4 * time.Second), Linked: true},
		"stopped": {Since: long.Since, Linked: true, Unwilling: true},
		"cut":     {Since: long.Since},
	}
	cases := []struct {
		name   string
		strays []Stray
		room   int
		want   []uint64
		again  time.Duration
	}{
		{"none", nil, 9, nil, 0},
		{"one", []Stray{{Group: 1, Home: "well"}}, 9, []uint64{1}, 0},
		{"coldest first", []Stray{{Group: 1, Home: "well", Heat: 7}, {Group: 3, Home: "well"}, {Group: 2, Home: "well"}}, 9, []uint64{2, 3, 1}, 0},
		{"room", []Stray{{Group: 1, Home: "well"}, {Group: 2, Home: "well"}}, 1, []uint64{1}, 1},
		{"no room", []Stray{{Group: 1, Home: "well"}}, 0, nil, 1},
		{"home is dead", []Stray{{Group: 1, Home: "dead"}}, 9, nil, 0},
		{"home has just come", []Stray{{Group: 1, Home: "new"}}, 9, nil, 6 * time.Second},
		{"home is being stopped", []Stray{{Group: 1, Home: "stopped"}}, 9, nil, 5 * time.Second},
		{"no link", []Stray{{Group: 1, Home: "cut"}}, 9, nil, 5 * time.Second},
		{"failed before", []Stray{{Group: 1, Home: "well", NotBefore: noon.Add(time.Second)}}, 9, nil, time.Second},
		{"some", []Stray{{Group: 1, Home: "new"}, {Group: 2, Home: "well"}, {Group: 3, Home: "dead"}}, 9, []uint64{2}, 6 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			moves, again := p.Plan(noon, c.strays, func(id string) Node { return nodes[id] }, c.room)
			var got []uint64
			for _, m := range moves {
				got = append(got, m.Group)
			}
			if !slices.Equal(got, c.want) || again != c.again {
				t.Errorf("moves %v, again after %v; want %v, %v", got, again, c.want, c.again)
			}
		})
	}
}

func TestAfter(t *testing.T) {
	p := Policy{Pause: 5 * time.Second, PauseMax: 30 * time.Second}
	for failures, want := range map[int]time.Duration{1: 5, 2: 10, 3: 20, 4: 30, 1000: 30} {
		if got := p.After(noon, failures).Sub(noon); got != want*time.Second {
			t.Errorf("after %d failures: %v, want %v s", failures, got, int(want))
		}
	}
}

func TestReady(t *testing.T) {
	leader := Replica{Runs: true, Voter: true, LastTerm: 4, LastIndex: 1000}
	cases := []struct {
		name string
		home Replica
		want bool
	}{
		{"the same", leader, true},
		{"a little behind", Replica{true, true, 4, 936}, true},
		{"too far behind", Replica{true, true, 4, 935}, false},
		{"of an older term", Replica{true, true, 3, 1000}, false},
		{"no voter", Replica{true, false, 4, 1000}, false},
		{"not there", Replica{}, false},
	}
	for _, c := range cases {
		if got := Default().Ready(leader, c.home); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestPlanRules: whatever is asked, nobody is given leaders who cannot take them, the order of
// the strays does not matter, and a plan without moves says when to ask again unless only
// news can help.
func TestPlanRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Default()
		nodes := map[string]Node{}
		for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
			var n Node
			if rapid.Bool().Draw(t, "alive") {
				n.Since = noon.Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "age")) * time.Second)
			}
			n.Linked, n.Unwilling = rapid.Bool().Draw(t, "linked"), rapid.Bool().Draw(t, "unwilling")
			nodes[fmt.Sprint(i)] = n
		}
		var strays []Stray
		for i := range rapid.IntRange(0, 30).Draw(t, "strays") {
			strays = append(strays, Stray{
				Group: uint64(i), Home: fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "home")), Heat: rapid.Int64Range(0, 3).Draw(t, "heat"),
				NotBefore: noon.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "not before")) * time.Second),
			})
		}
		room := rapid.IntRange(-1, 20).Draw(t, "room")
		of := func(id string) Node { return nodes[id] }
		moves, again := p.Plan(noon, strays, of, room)
		if len(moves) > max(0, room) {
			t.Fatalf("%d moves into room for %d", len(moves), room)
		}
		seen := map[uint64]bool{}
		for _, m := range moves {
			n := nodes[m.Home]
			if seen[m.Group] || n.Since.IsZero() || noon.Before(n.Since.Add(p.Settle)) || !n.Linked || n.Unwilling || noon.Before(m.NotBefore) {
				t.Fatalf("group %d goes to %+v", m.Group, n)
			}
			seen[m.Group] = true
		}
		for _, s := range strays {
			if !nodes[s.Home].Since.IsZero() && !seen[s.Group] && again <= 0 {
				t.Fatalf("group %d can go home some time, but nobody asks again", s.Group)
			}
		}
		mixed := slices.Clone(strays)
		rand.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if others, _ := p.Plan(noon, mixed, of, room); !slices.Equal(others, moves) {
			t.Fatalf("another order gives %v, not %v", others, moves)
		}
	})
}

// TestEverybodyComesHome: in a cluster in which nodes die, return and lose their leaders at random, each
// group is at home once its home has been up for long enough; it gets there by one
// move for each time it was taken away, at no more than the rate.
func TestEverybodyComesHome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const perRound = 3
		p := Default()
		size := rapid.IntRange(3, 7).Draw(t, "nodes")
		groups := rapid.IntRange(1, 60).Draw(t, "groups")
		since := make([]time.Time, size)
		for i := range since {
			since[i] = noon.Add(-time.Hour)
		}
		home, leader := make([]int, groups), make([]int, groups)
		for g := range groups {
			home[g] = g % size
			leader[g] = home[g]
		}
		now, lost, moved := noon, 0, 0
		round := func() {
			now = now.Add(time.Second)
			for n := range size {
				if since[n].IsZero() {
					continue
				}
				var strays []Stray
				for g := range groups {
					if leader[g] == n && home[g] != n {
						strays = append(strays, Stray{Group: uint64(g), Home: fmt.Sprint(home[g])})
					}
				}
				moves, _ := p.Plan(now, strays, func(id string) Node {
					var i int
					_, _ = fmt.Sscan(id, &i)
					return Node{Since: since[i], Linked: !since[i].IsZero()}
				}, perRound)
				for _, m := range moves {
					leader[m.Group] = home[m.Group]
					moved++
				}
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			n := rapid.IntRange(0, size-1).Draw(t, "node")
			if since[n].IsZero() {
				since[n] = now
			} else if alive(since) > size/2+1 {
				since[n] = time.Time{}
				for g := range groups {
					if leader[g] != n {
						continue
					}
					if home[g] == n {
						lost++ // away from now on
					}
					for leader[g] = (n + 1) % size; since[leader[g]].IsZero(); leader[g] = (leader[g] + 1) % size {
					}
					if leader[g] == home[g] {
						moved++ // an election brought it home
					}
				}
			}
			for range rapid.IntRange(0, 30).Draw(t, "seconds") {
				round()
			}
		}
		for n := range size {
			if since[n].IsZero() {
				since[n] = now
			}
		}
		for range int(p.Settle/time.Second) + groups/perRound + 2 {
			round()
		}
		for g := range groups {
			if leader[g] != home[g] {
				t.Fatalf("group %d is led by %d, not at home on %d", g, leader[g], home[g])
			}
		}
		if moved != lost {
			t.Fatalf("%d moves for %d groups that were taken away", moved, lost)
		}
	})
}

func alive(since []time.Time) (n int) {
	for _, s := range since {
		if !s.IsZero() {
			n++
		}
	}
	return n
}
