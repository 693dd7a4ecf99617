package catalog

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// level2 is a cluster of three nodes at level 2 with a queue on n1 and n2.
func level2(t *testing.T) (s *script, q func() *Queue) {
	t.Helper()
	s = newScript(t)
	for _, id := range []NodeID{n1, n2, n3} {
		s.ok(&RegisterNode{ID: id})
	}
	s.ok(&ActivateLevel{2})
	s.ok(declare("q"))
	return s, func() *Queue { return s.view().Queue("/", "q") }
}

// restored is the same state behind a snapshot.
func restored(t *testing.T, s *script) *View {
	t.Helper()
	v, _, err := readSnapshot(bytes.NewReader(snapshotBytes(t, s.m)))
	if err != nil {
		t.Fatal(err)
	}
	check(t, v)
	return v
}

// where describes a queue's replicas.
func where(q *Queue) string {
	return fmt.Sprintf("%v %v by %s, wanted %v by %q", q.Members, q.generations(), q.Preferred, q.Wanted, q.WantedPreferred)
}

func (s *script) wantWhere(t *testing.T, want string) {
	t.Helper()
	for _, v := range []*View{s.view(), restored(t, s)} {
		if got := where(v.Queue("/", "q")); got != want {
			t.Errorf("the queue is on %s\nwant %s", got, want)
		}
	}
}

func TestPlanMembers(t *testing.T) {
	s, q := level2(t)
	first := q().Settings
	s.wantWhere(t, `[n1/a n2/b] [0 0] by n1/a, wanted [] by ""`)
	plan := s.ok(&PlanMembers{q().ID, []NodeID{n1, n3}, nil, n3, first, "n2 is leaving"})
	s.wantWhere(t, fmt.Sprintf(`[n1/a n2/b n3/c] [0 0 %d] by n1/a, wanted [n1/a n3/c] by "n3/c"`, plan.Index))
	if q().Settings != plan.Index || s.view().Replicas(n2) != 1 || s.view().Replicas(n3) != 1 {
		t.Errorf("settings %d, replicas %d and %d", q().Settings, s.view().Replicas(n2), s.view().Replicas(n3))
	}
	s.refused(&PlanMembers{q().ID, []NodeID{n1}, nil, n1, first, ""}, "PRECONDITION_FAILED - queue 'q' in vhost '/' has changed meanwhile")
	s.refused(&MembersReached{q().ID, first}, "PRECONDITION_FAILED - queue 'q' in vhost '/' has changed meanwhile")
	s.refused(&SetPreferred{q().ID, n2, 0}, "PRECONDITION_FAILED - node 'n2/b' is no member of queue 'q' in vhost '/'")
	// The plan is given up: n3 has to go again, and is a member until it has.
	back := s.ok(&PlanMembers{q().ID, []NodeID{n2, n1}, nil, n2, q().Settings, ""})
	s.wantWhere(t, fmt.Sprintf(`[n1/a n2/b n3/c] [0 0 %d] by n1/a, wanted [n2/b n1/a] by "n2/b"`, plan.Index))
	s.ok(&MembersReached{q().ID, back.Index})
	s.wantWhere(t, `[n2/b n1/a] [0 0] by n2/b, wanted [] by ""`)
	s.refused(&MembersReached{q().ID, q().Settings}, "PRECONDITION_FAILED - no change of members of queue 'q' in vhost '/' is under way")
	// n3 once more has another generation, and n2 begins anew where it is.
	third := s.ok(&PlanMembers{q().ID, []NodeID{n2, n1, n3}, nil, n2, q().Settings, ""})
	s.ok(&MembersReached{q().ID, third.Index})
	again := s.ok(&PlanMembers{q().ID, []NodeID{n3, n2}, []NodeID{n2}, n2, q().Settings, ""})
	s.wantWhere(t, fmt.Sprintf(`[n2/b n1/a n3/c] [%d 0 %d] by n2/b, wanted [n3/c n2/b] by "n2/b"`, again.Index, third.Index))
	s.ok(&MembersReached{q().ID, again.Index})
	s.wantWhere(t, fmt.Sprintf(`[n3/c n2/b] [%d %d] by n2/b, wanted [] by ""`, third.Index, again.Index))
	if g := q().Generation(n1); g != 0 {
		t.Errorf("who is no member has generation %d", g)
	}
	for _, v := range []*View{s.view(), restored(t, s)} { // whoever was declared with it and begins late writes the first configuration
		if got := v.Queue("/", "q").FirstMembers(); !slices.Equal(got, []NodeID{n1, n2}) {
			t.Errorf("it was founded by %v", got)
		}
	}
	if again.Index == plan.Index || s.view().Replicas(n1) != 0 {
		t.Errorf("n1 has %d replicas", s.view().Replicas(n1))
	}
	// A closing queue can be moved too: its outbox has to be emptied.
	s.ok(&DeleteQueue{Vhost: "/", Name: "q"})
	closing := s.view().QueueByID(again.ID)
	s.ok(&PlanMembers{closing.ID, []NodeID{n1}, nil, n1, closing.Settings, ""})
	s.ok(&MembersReached{closing.ID, s.view().QueueByID(closing.ID).Settings})
	s.ok(&QueueGone{closing.ID})
}

// TestRenewSparesAQuorum: replicas begin anew only while the others, as they were before all that is under way, are a majority of what
// there was then, and none of those is known to be dead.
func TestRenewSparesAQuorum(t *testing.T) {
	const n4, n5 = NodeID("n4/d"), NodeID("n5/e")
	type plan struct {
		wanted, renew []NodeID
		left          int // -1: it is taken; else how many would be left
	}
	abc, all := []NodeID{n1, n2, n3}, []NodeID{n1, n2, n3, n4, n5}
	for _, tc := range []struct {
		name    string
		members []NodeID
		dead    []NodeID
		plans   []plan
		of      int
	}{
		{"the only one", []NodeID{n1}, nil, []plan{{[]NodeID{n1}, []NodeID{n1}, 0}}, 1},
		{"one of two", []NodeID{n1, n2}, nil, []plan{{[]NodeID{n1, n2}, []NodeID{n1}, 1}}, 2},
		{"one of three", abc, nil, []plan{{abc, []NodeID{n1}, -1}}, 3},
		{"two of three", abc, nil, []plan{{abc, []NodeID{n1, n2}, 1}}, 3},
		{"one after the other, too soon", abc, nil, []plan{{abc, []NodeID{n1}, -1}, {abc, []NodeID{n2}, 1}}, 3},
		{"the same again, while it is filled", abc, nil, []plan{{abc, []NodeID{n1}, -1}, {abc, []NodeID{n1}, -1}}, 3},
		{"one of three, another is dead", abc, []NodeID{n3}, []plan{{abc, []NodeID{n1}, 1}}, 3},
		{"the dead one itself", abc, []NodeID{n3}, []plan{{abc, []NodeID{n3}, -1}}, 3},
		{"two of five", all, nil, []plan{{all, []NodeID{n1}, -1}, {all, []NodeID{n5}, -1}, {all, []NodeID{n3}, 2}}, 5},
		{"who is new does not count", abc, nil, []plan{{all, nil, -1}, {all, []NodeID{n1}, -1}, {all, []NodeID{n2}, 1}}, 3},
		{"who is new and begins anew does no harm", abc, nil, []plan{{all, nil, -1}, {all, []NodeID{n4, n5}, -1}, {all, []NodeID{n3}, -1}}, 3},
		{"who was to go counts", abc, nil, []plan{{[]NodeID{n3, n4}, nil, -1}, {[]NodeID{n3, n4}, []NodeID{n3}, -1}}, 3},
		{"no member yet", abc, nil, []plan{{[]NodeID{n1, n2, n4}, []NodeID{n4}, -1}}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScript(t)
			for _, id := range all {
				s.ok(&RegisterNode{ID: id})
			}
			s.ok(&ActivateLevel{2})
			s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: "q", Durable: true, Kind: Replicated, Members: tc.members, Preferred: tc.members[0]}})
			for _, id := range tc.dead {
				s.ok(&NodeDown{id, s.view().Node(id).Incarnation, 1000})
			}
			for _, p := range tc.plans {
				q := s.view().Queue("/", "q")
				c := &PlanMembers{q.ID, p.wanted, p.renew, p.wanted[0], q.Settings, ""}
				if p.left < 0 {
					s.ok(c)
					restored(t, s)
					continue
				}
				s.refused(c, fmt.Sprintf("PRECONDITION_FAILED - of %d replicas of queue 'q' in vhost '/' only %d would be left while others begin anew", tc.of, p.left))
			}
		})
	}
}

// TestMissingMembers: a queue remembers how many members it shall have while it has fewer, until it has them or an operator takes one away.
func TestMissingMembers(t *testing.T) {
	s, q := level2(t)
	want := func(missing, short int) {
		t.Helper()
		for _, v := range []*View{s.view(), restored(t, s)} {
			if got := v.Queue("/", "q").Missing(); got != missing || v.Short() != short {
				t.Errorf("%d members are missing, %d queues are short, want %d and %d", got, v.Short(), missing, short)
			}
		}
	}
	plan := func(wanted ...NodeID) {
		t.Helper()
		s.ok(&PlanMembers{q().ID, wanted, nil, wanted[0], q().Settings, ""})
	}
	reach := func() { t.Helper(); s.ok(&MembersReached{q().ID, q().Settings}) }
	again := func(size uint64, members ...NodeID) {
		t.Helper()
		s.ok(&DeleteQueue{Vhost: "/", Name: "q"})
		s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: "q", Durable: true, Kind: Replicated, Members: members, Preferred: members[0], Size: size}})
	}
	want(0, 0)
	again(2, n1, n2)
	want(0, 0)
	again(3, n1)
	want(2, 1)
	// They come, one after the other; who takes the place of another one changes nothing.
	plan(n1, n2)
	want(1, 1)
	reach()
	plan(n1, n3)
	want(1, 1)
	reach()
	plan(n1, n2, n3)
	want(0, 0)
	reach()
	want(0, 0)
	plan(n1)
	reach()
	want(0, 0)
	// A person takes one away that had just been added.
	again(3, n1)
	plan(n1, n2, n3)
	plan(n1, n2)
	want(0, 0)
	reach()
	again(3, n1, n2)
	want(1, 1)
	plan(n2)
	want(0, 0)
	again(1<<40, n1)
	want(membersMax-1, 1)
	// It is deleted, and still has letters to send.
	closing := q().ID
	s.ok(&DeleteQueue{Vhost: "/", Name: "q"})
	if left := s.view().QueueByID(closing).Missing(); left != 0 || s.view().Short() != 0 {
		t.Errorf("a deleted queue misses %d members", left)
	}
	s.ok(&QueueGone{closing})
	restored(t, s)
	// A recovery keeps in mind how many there were.
	s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: "q", Durable: true, Kind: Replicated, Members: []NodeID{n1, n2, n3}, Preferred: n1}})
	for _, id := range []NodeID{n2, n3} {
		s.ok(&NodeDown{id, s.view().Node(id).Incarnation, 1000})
	}
	r := s.ok(&RecoverQueue{q().ID, []NodeID{n1}, []NodeID{n2, n3}, q().Settings})
	want(2, 1)
	s.ok(&QueueRecovered{r.ID, r.Index, Kept{}})
	want(2, 1)
	// So does the queue of a delayed exchange that was declared with too few nodes.
	late := declareX("late", exchange.Delayed, amqp.Field{Name: "x-delayed-type", Value: "fanout"})
	late.Members, late.Preferred, late.Size = []NodeID{n1}, n1, 3
	s.ok(late)
	want(2, 2)
	s.ok(&DeleteExchange{"/", "late", false})
	want(2, 1)
	// A cluster that is made of a backup has one node, and keeps it in mind.
	var raw bytes.Buffer
	if err := s.view().WriteSnapshot(&raw); err != nil {
		t.Fatal(err)
	}
	v, err := Rehome(&raw, Rehoming{ClusterID: "other", Nodes: []Rehomed{{"m1/x", ""}}, Place: func(*Queue) ([]NodeID, NodeID) { return []NodeID{"m1/x"}, "m1/x" }})
	if err != nil {
		t.Fatal(err)
	}
	check(t, v)
	if got := v.Queue("/", "q").Missing(); got != 2 || v.Short() != 1 {
		t.Errorf("a restored queue misses %d members, %d are short", got, v.Short())
	}
	// A program of level 1 does not know of it.
	for _, c := range []Command{late, &DeclareQueue{Queue: Queue{Size: 3}}} {
		if gate(c, 1) == nil || gate(c, 2) != nil {
			t.Errorf("%T at level 1: %v, at level 2: %v", c, gate(c, 1), gate(c, 2))
		}
	}
}

func TestPlanRefusals(t *testing.T) {
	s, q := level2(t)
	at := q().Settings
	for want, c := range map[string]Command{
		"NOT_FOUND - no queue with id 999":                                                          &PlanMembers{999, []NodeID{n1}, nil, n1, 1, ""},
		"NOT_FOUND - no node 'n9/z'":                                                                &PlanMembers{q().ID, []NodeID{"n9/z"}, nil, "n9/z", at, ""},
		"PRECONDITION_FAILED - a plan says what it was made for":                                    &PlanMembers{q().ID, []NodeID{n1}, nil, n1, 0, ""},
		"PRECONDITION_FAILED - 0 members, want 1 to 15":                                             &PlanMembers{q().ID, nil, nil, "", at, ""},
		"PRECONDITION_FAILED - preferred leader 'n2/b' is no member":                                &PlanMembers{q().ID, []NodeID{n1}, nil, n2, at, ""},
		"PRECONDITION_FAILED - member 'n2/b' is to begin anew and is not wanted, or is named twice": &PlanMembers{q().ID, []NodeID{n1}, []NodeID{n2}, n1, at, ""},
		"PRECONDITION_FAILED - members of queue 'q' in vhost '/' are changed by a plan":             &UpdateMembers{ID: q().ID, Members: []NodeID{n3}, Preferred: n3},
		"PRECONDITION_FAILED - the end of a plan says which one it was":                             &MembersReached{q().ID, 0},
		"PRECONDITION_FAILED - the reason has 256 bytes, the maximum is 255":                        &PlanMembers{q().ID, []NodeID{n1}, nil, n1, at, string(make([]byte, 256))},
		"PRECONDITION_FAILED - queue 'q' in vhost '/' has changed meanwhile":                        &SetPreferred{q().ID, n2, at + 1},
		"PRECONDITION_FAILED - node 'n3/c' is no member of queue 'q' in vhost '/'":                  &SetPreferred{q().ID, n3, 0},
		"PRECONDITION_FAILED - 'n1' is no node id with a storage uuid":                              &SetPreferred{q().ID, "n1", 0},
		"PRECONDITION_FAILED - unknown state 4 of a node":                                           &SetNodeState{ID: n1, State: 4},
		"NOT_FOUND - no node 'n8/z'":                                                                &SetNodeState{ID: "n8/z", State: NodeLeaving},
		"PRECONDITION_FAILED - node 'n1/a' still has replicas of queues":                            &ForgetNode{n1, 0},
		"NOT_FOUND - no node 'n7/z'":                                                                &ForgetNode{"n7/z", 0},
		"PRECONDITION_FAILED - node 'n3/c' has registered anew since it was to be forgotten":        &ForgetNode{n3, 1},
		"PRECONDITION_FAILED - time -1 is before 1970":                                              &NodeDown{n1, 1, -1},
		"PRECONDITION_FAILED - 17 listeners, the maximum is 16":                                     &NodeAbout{ID: n1, Listeners: make([]string, 17)},
		"PRECONDITION_FAILED - zone has 256 bytes, the maximum is 255":                              &NodeAbout{ID: n1, Zone: string(make([]byte, 256))},
	} {
		s.refused(c, want)
	}
	s.ok(&PutVhost{Vhost: Vhost{Name: "t"}})
	r := s.ok(&DeclareQueue{Queue{Vhost: "t", Name: "t", Kind: Transient, Members: []NodeID{n1}, Preferred: n1}, s.view().Node(n1).Incarnation})
	s.refused(&PlanMembers{r.ID, []NodeID{n2}, nil, n2, r.Index, ""}, "PRECONDITION_FAILED - queue 't' in vhost 't' is not replicated")
	if r := s.ok(&SetPreferred{q().ID, n2, at}); !r.Changed || q().Preferred != n2 || q().Settings != at {
		t.Errorf("preferred is %s, settings %d, were %d", q().Preferred, q().Settings, at)
	}
	if r := s.ok(&SetPreferred{q().ID, n2, at}); r.Changed {
		t.Error("the same again changed something")
	}
}

func TestNodeStates(t *testing.T) {
	s, _ := level2(t)
	about := func(id NodeID) string {
		var all []string
		for _, v := range []*View{s.view(), restored(t, s)} {
			n := v.Node(id)
			all = append(all, fmt.Sprintf("%v %q %q %d %q down %d", v.NodeState(id), n.Zone, n.Version, n.Level, n.Listeners, n.Down))
		}
		if all[0] != all[1] {
			t.Errorf("%s is restored as %s", all[0], all[1])
		}
		return all[0]
	}
	want := func(id NodeID, want string) {
		t.Helper()
		if got := about(id); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	want(n1, `regular "" "" 0 [] down 0`)
	incarnation := s.view().Node(n1).Incarnation
	s.ok(&NodeAbout{n1, incarnation, "east", "1.0", 2, []string{"amqp h:1"}})
	s.ok(&SetNodeState{ID: n1, State: NodeDraining})
	if s.ok(&SetNodeState{ID: n1, State: NodeDraining}).Changed {
		t.Error("the same state again changed something")
	}
	s.ok(&NodeDown{n1, incarnation, 7})
	if s.ok(&NodeDown{n1, incarnation, 9}).Changed {
		t.Error("a later death of the dead")
	}
	want(n1, `draining "east" "1.0" 2 ["amqp h:1"] down 7`)
	s.ok(&NodeDown{n1, incarnation, 0})
	want(n1, `draining "east" "1.0" 2 ["amqp h:1"] down 0`)
	s.ok(&NodeDown{n1, incarnation, 9})
	s.ok(&RegisterNode{ID: n1})
	want(n1, `regular "east" "1.0" 2 ["amqp h:1"] down 0`)
	for _, late := range []Command{&NodeDown{n1, incarnation, 11}, &NodeAbout{n1, incarnation, "west", "", 0, nil}, &NodeDown{"n9/z", 1, 1}} {
		if s.ok(late).Changed {
			t.Errorf("%T of a former process counts", late)
		}
	}
	want(n1, `regular "east" "1.0" 2 ["amqp h:1"] down 0`)
	s.ok(&SetNodeState{ID: n2, State: NodeLeaving})
	s.ok(&RegisterNode{ID: n2})
	want(n2, `leaving "" "" 0 [] down 0`)
	if s.view().NodeState("n9/z") != NodeRegular {
		t.Error("a node that nobody knows has a state")
	}
}

func TestForgetNode(t *testing.T) {
	s, _ := level2(t)
	transient := &DeclareQueue{Queue{Vhost: "/", Name: "t", Kind: Transient, Members: []NodeID{n3}, Preferred: n3}, s.view().Node(n3).Incarnation}
	s.ok(transient)
	// A newer storage takes the name over: forgetting the former one takes nothing of it.
	newer := NodeID("n3/d")
	s.ok(&RegisterNode{ID: newer})
	transient.Queue.Members, transient.Queue.Preferred = []NodeID{newer}, newer
	transient.NodeIncarnation = s.view().Node(newer).Incarnation
	s.ok(transient)
	s.refused(&SetNodeState{ID: n3, State: NodeLeaving}, "NOT_FOUND - no node 'n3/c'")
	if r := s.ok(&ForgetNode{n3, 0}); !r.Changed || s.view().Node(n3) != nil || !s.view().Forgotten(n3) || s.view().Queue("/", "t") == nil {
		t.Errorf("%+v, forgotten %t, queue %v", r, s.view().Forgotten(n3), s.view().Queue("/", "t"))
	}
	if s.ok(&ForgetNode{n3, 0}).Changed {
		t.Error("forgotten twice")
	}
	s.refused(&RegisterNode{ID: n3}, "PRECONDITION_FAILED - node 'n3/c' was forgotten")
	if s.ok(&ForgetNode{newer, s.view().Node(newer).Incarnation}); s.view().Queue("/", "t") != nil {
		t.Error("its queue is left")
	}
	var ids []NodeID
	for v := range slices.Values([]*View{s.view(), restored(t, s)}) {
		if !v.Forgotten(n3) || !v.Forgotten(newer) || v.Forgotten(n1) {
			t.Error("tombstones are missing, or wrong")
		}
	}
	for i := range forgottenMax {
		ids = append(ids, NodeID(fmt.Sprintf("x%d/s", i)))
		s.ok(&RegisterNode{ID: ids[i]})
		s.ok(&ForgetNode{ids[i], 0})
	}
	v := s.view()
	if v.forgotten.len() != forgottenMax || v.Forgotten(n3) || v.Forgotten(newer) || !v.Forgotten(ids[0]) || !v.Forgotten(ids[forgottenMax-1]) {
		t.Errorf("%d tombstones, the oldest not gone", v.forgotten.len())
	}
}

// TestOneNodeStays: the last node that is not leaving is not let go, which is decided in the log; one that was replaced does not count.
func TestOneNodeStays(t *testing.T) {
	s, _ := level2(t)
	s.ok(&SetNodeState{ID: n3, State: NodeLeaving, NotLast: true})
	leave := func(id NodeID) *SetNodeState { return &SetNodeState{ID: id, State: NodeLeaving, NotLast: true} }
	s.ok(leave(n1))
	s.refused(leave(n2), "PRECONDITION_FAILED - node 'n2' is the last one that stays")
	s.ok(&SetNodeState{ID: n1, State: NodeDraining, NotLast: true})
	s.ok(leave(n2))
	s.ok(&SetNodeState{ID: n1, State: NodeLeaving}) // an entry of an older program
}
