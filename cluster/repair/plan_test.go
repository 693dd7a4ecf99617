package repair

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const after = 10 * time.Minute

// nodesOf makes nodes of words such as "a", "b@east", "c-" (down for long), "c~" (down, not for long), "d>" (leaving), "e!" (unwilling), "g?" (young),
// "f/1=f/2" (replaced by that storage); the zone comes last.
func nodesOf(words string) (list []Node) {
	for w := range strings.FieldsSeq(words) {
		n := Node{Alive: true, Willing: true}
		w, n.Zone, _ = strings.Cut(w, "@")
		if old, by, ok := strings.Cut(w, "="); ok {
			n.ID, n.Superseded, n.Successor, n.Alive = NodeID(old), true, NodeID(by), false
			list = append(list, n)
			continue
		}
		for _, mark := range "-~>!?" {
			rest, ok := strings.CutSuffix(w, string(mark))
			if !ok {
				continue
			}
			w = rest
			switch mark {
			case '-':
				n.Alive, n.Down = false, after
			case '~':
				n.Alive, n.Down = false, after-time.Second
			case '>':
				n.Leaving, n.Willing = true, false
			case '!':
				n.Willing = false
			case '?':
				n.Willing, n.Young = false, true
			}
		}
		n.ID = NodeID(w)
		list = append(list, n)
	}
	return list
}

func ids(words string) (list []NodeID) {
	for w := range strings.FieldsSeq(words) {
		list = append(list, NodeID(w))
	}
	return list
}

func show(list []NodeID) string { return strings.Trim(fmt.Sprint(list), "[]") }

func TestNextForOneQueue(t *testing.T) {
	for _, tc := range []struct {
		name    string
		nodes   string
		members string // the first should lead
		wanted  string // of a plan under way; who is not in members before is added by it
		plan    string // the first should lead; "" if none
		counts  string // waiting nowhere majority underway stalled
		missing int
	}{
		{"all well", "a b c d", "a b c", "", "", "0 0 0 0 0", 0},
		{"down for long", "a b c- d", "a b c", "", "a b d", "0 0 0 1 0", 0},
		{"not for long enough", "a b c~ d", "a b c", "", "", "0 0 0 0 0", 0},
		{"the one that should lead is down", "a- b c d", "a b c", "", "b d c", "0 0 0 1 0", 0},
		{"nobody can take it", "a b c-", "a b c", "", "", "0 1 0 0 0", 0},
		{"not one that is unwilling", "a b c- d!", "a b c", "", "", "0 1 0 0 0", 0},
		{"not one that is down", "a b c- d~", "a b c", "", "", "0 1 0 0 0", 0},
		{"no majority", "a b- c- d", "a b c", "", "", "0 0 1 0 0", 0},
		{"no majority, one of them for a moment", "a b~ c- d", "a b c", "", "", "0 0 1 0 0", 0},
		{"one of two", "a b- c", "a b", "", "", "0 0 1 0 0", 0},
		{"the only one", "a- b", "a", "", "", "0 0 1 0 0", 0},
		{"the only one leaves", "a> b", "a", "", "b", "0 0 0 1 0", 0},
		{"two of five", "a b c d- e- f g", "a b c d e", "", "a b c f g", "0 0 0 1 0", 0},
		{"two of five, one place", "a b c d- e- f", "a b c d e", "", "a b c f e", "0 0 0 1 0", 0},
		{"leaving", "a b c> d", "a b c", "", "a b d", "0 0 0 1 0", 0},
		{"leaving and dead", "a b c>- d", "a b c", "", "a b d", "0 0 0 1 0", 0},
		{"all leave", "a> b> c> d e f", "a b c", "", "d e f", "0 0 0 1 0", 0},
		{"one leaves, one is down, one place: the dead first", "a b- c> d", "a b c", "", "a d c", "0 0 0 1 0", 0},
		{"a lost disk, the new one is there", "a b c/1=c/2 c/2 d", "a b c/1", "", "a b c/2", "0 0 0 1 0", 0},
		{"the new one leads, as the old one did", "a/1=a/2 a/2 b c", "a/1 b c", "", "a/2 b c", "0 0 0 1 0", 0},
		{"the new one died", "a b c/1=c/2 c/2~ d", "a b c/1", "", "a b d", "0 0 0 1 0", 0},
		{"the new one is drained", "a b c/1=c/2 c/2! d", "a b c/1", "", "a b d", "0 0 0 1 0", 0},
		{"the new one has not told its zone", "a b c/1=c/2 c/2? d", "a b c/1", "", "", "0 1 0 0 0", 0},
		{"a node that was forgotten", "a b d", "a b c", "", "a b d", "0 0 0 1 0", 0},

		{"another zone first", "a@1 b@2 c-@3 d@1 e@3", "a b c", "", "a b e", "0 0 0 1 0", 0},
		{"not into fewer zones", "a@1 b@2 c-@3 d@1 e@2", "a b c", "", "", "0 1 0 0 0", 0},
		{"into more zones", "a@1 b@2 c-@2 d@2 e@3", "a b c", "", "a b e", "0 0 0 1 0", 0},
		{"as many zones", "a@1 b@2 c-@2 d@2", "a b c", "", "a b d", "0 0 0 1 0", 0},
		{"who leaves goes, into fewer zones too", "a@1 b@2 c>@3 d@1", "a b c", "", "a b d", "0 0 0 1 0", 0},
		{"a lost disk, into fewer zones too", "a@1 b@2 c/1=c/2@3 d@1", "a b c/1", "", "a b d", "0 0 0 1 0", 0},
		{"the new disk is elsewhere and a zone would be lost", "a@1 b@2 c/1=c/2@3 c/2@1 d@3", "a b c/1", "", "a b d", "0 0 0 1 0", 0},

		{"under way", "a b c- d e", "a b c", "a b d", "", "0 0 0 1 0", 0},
		{"under way, another one is lost", "a b- c- d e", "a b c", "a b d", "", "0 0 1 1 1", 0},
		{"under way, the new one does not answer", "a b c- d~ e", "a b c", "a b d", "", "0 0 0 1 1", 0},
		{"under way, the new one is lost", "a b c- d- e", "a b c", "a b d", "a b e", "0 0 0 1 1", 0},
		{"under way, the new one leaves", "a b c- d> e", "a b c", "a b d", "a b e", "0 0 0 1 0", 0},
		{"under way, the new one is lost, and the old one is back", "a b c d- e", "a b c", "a b d", "a b c", "0 0 0 1 1", 0},
		{"under way, the new one is lost, and nobody else is there", "a b c- d-", "a b c", "a b d", "", "0 1 0 1 1", 0},
		{"under way, one that stays leaves: its turn comes", "a b> c d e", "a b c", "a b d", "", "0 0 0 1 0", 0},
		{"under way, growing", "a b c d e", "a b c", "a b c d e", "", "0 0 0 1 0", 0},

		{"one is missing", "a b c", "a b", "", "a b c", "0 0 0 1 0", 1},
		{"two are missing: the zones first", "a@1 b@1 c@2 d@3 e@1", "a", "", "a c d", "0 0 0 1 0", 2},
		{"two are missing, there is one node", "a b", "a", "", "a b", "0 0 0 1 0", 2},
		{"missing, and nobody is there", "a b- c! d>", "a", "", "", "0 0 0 0 0", 2},
		{"missing, and the only one is away", "a~ b c", "a", "", "", "0 0 0 0 0", 2},
		{"missing, and one is down for a moment", "a b c~ d e", "a b c", "", "a b c d e", "0 0 0 1 0", 2},
		{"missing, and one is down for long", "a b c- d e", "a b c", "", "a b d e", "0 0 0 1 0", 1},
		{"missing, and one that is down cannot be replaced", "a b c- d!", "a b c", "", "", "0 1 0 0 0", 1},
		{"missing, and a change is under way", "a b c- d e", "a b c", "a b d", "", "0 0 0 1 0", 1},
		{"under way from one to three, a new one is lost", "a b c- d", "a", "a b c", "a b d", "0 0 0 1 1", 0},
		{"under way from one to three, the new ones are lost", "a b- c- d e", "a", "a b c", "a d e", "0 0 0 1 1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := Queue{ID: 7, Settings: 9, Members: ids(tc.members), Wanted: ids(tc.wanted)}
			q.Preferred, q.Missing = q.Members[0], tc.missing
			if q.Wanted != nil {
				q.Settled, q.Stood = q.Settings-1, len(q.Members)
			}
			for _, w := range q.Wanted {
				if !slices.Contains(q.Members, w) {
					if q.Generations == nil {
						q.Generations = make([]uint64, len(q.Members))
					}
					q.Members, q.Generations = append(q.Members, w), append(q.Generations, q.Settings)
				}
			}
			o := Next(Policy{After: after, Groups: 4}, nodesOf(tc.nodes), slices.Values([]Queue{q}), nil)
			if got := fmt.Sprint(o.Waiting, o.Nowhere, o.NoMajority, o.Underway, o.Stalled); got != tc.counts {
				t.Errorf("waiting nowhere majority underway stalled: %s, want %s", got, tc.counts)
			}
			got := ""
			if len(o.Plans) > 0 {
				p := o.Plans[0]
				rest := slices.DeleteFunc(slices.Clone(p.Wanted), func(n NodeID) bool { return n == p.Preferred })
				got = show(append([]NodeID{p.Preferred}, rest...))
				if p.Queue != 7 || p.IfSettings != 9 || p.Reason == None || p.Why == "" || len(p.Why) > whyBytesMax {
					t.Errorf("plan %+v", p)
				}
			}
			if got != tc.plan {
				t.Errorf("plan %q, want %q", got, tc.plan)
			}
		})
	}
}

// TestNextOfMany: the queues that are worst off come first, so many at a time, and those that are to be let be are passed over.
func TestNextOfMany(t *testing.T) {
	nodes := nodesOf("a b c d- e f g")
	queues := []Queue{
		{ID: 1, Settings: 1, Members: ids("a b d e f"), Preferred: "a"},
		{ID: 2, Settings: 2, Members: ids("a b d"), Preferred: "a"},
		{ID: 3, Settings: 3, Members: ids("a b d"), Preferred: "a"},
		{ID: 4, Settings: 4, Members: ids("a b d"), Preferred: "d"},
		{ID: 5, Settings: 9, Members: ids("a b c g"), Generations: []uint64{0, 0, 0, 9}, Wanted: ids("a b g"), Preferred: "a", Settled: 5, Stood: 3},
		{ID: 6, Settings: 6, Members: ids("a b c"), Preferred: "a"},
	}
	o := Next(Policy{After: after, Groups: 3}, nodes, slices.Values(queues), func(id uint64) bool { return id == 2 })
	var got []string
	for _, p := range o.Plans {
		got = append(got, fmt.Sprintf("%d: %s, %s leads", p.Queue, show(p.Wanted), p.Preferred))
	}
	// c holds two before, e, f and g one each.
	want := []string{"3: a b e, a leads", "4: a b f, b leads"}
	if !slices.Equal(got, want) || o.Waiting != 2 || o.Underway != 3 {
		t.Errorf("plans %q, want %q; %+v", got, want, o)
	}
	slices.Reverse(queues)
	slices.Reverse(nodes)
	again := Next(Policy{After: after, Groups: 3}, nodes, slices.Values(queues), func(id uint64) bool { return id == 2 })
	if fmt.Sprint(again) != fmt.Sprint(o) {
		t.Errorf("another order gives %+v, not %+v", again, o)
	}
}

// TestNeverRepaired: with After 0 a dead node's replicas stay, those of one that leaves go.
func TestNeverRepaired(t *testing.T) {
	queues := []Queue{{ID: 1, Settings: 1, Members: ids("a b c"), Preferred: "a"}}
	for nodes, plans := range map[string]int{"a b c- d": 0, "a b c>- d": 1} {
		if o := Next(Policy{Groups: 4}, nodesOf(nodes), slices.Values(queues), nil); len(o.Plans) != plans {
			t.Errorf("%s: %+v", nodes, o)
		}
	}
}
