package catalog

import (
	"fmt"
	"testing"
)

// lives describes what a queue was and is.
func lives(q *Queue) string {
	return fmt.Sprintf("%d after %v on %v %v, of %v, kept %v", q.ID, q.Former, q.Members, q.generations(), q.Survivors, q.Kept)
}

func (s *script) wantLives(t *testing.T, want string) {
	t.Helper()
	for _, v := range []*View{s.view(), restored(t, s)} {
		if got := lives(v.Queue("/", "q")); got != want {
			t.Errorf("the queue is %s\nwant %s", got, want)
		}
	}
}

// TestRecoverQueue gives a queue two more lives.
func TestRecoverQueue(t *testing.T) {
	s, q := level2(t)
	s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: "wide", Durable: true, Kind: Replicated, Members: []NodeID{n1, n2, n3}, Preferred: n1}})
	s.ok(bind("amq.fanout", "q", ""))
	first, wide := q().ID, s.view().Queue("/", "wide")
	down := func(n NodeID) { s.ok(&NodeDown{n, s.view().Node(n).Incarnation, 1000}) }
	s.refused(&RecoverQueue{first, []NodeID{n1}, []NodeID{n2}, first}, "PRECONDITION_FAILED - node 'n2/b' is not known to be down")
	down(n2)
	for want, c := range map[string]*RecoverQueue{
		"PRECONDITION_FAILED - a recovery says what it was decided for":                                  {first, []NodeID{n1}, []NodeID{n2}, 0},
		"PRECONDITION_FAILED - 0 members are lost and 1 are not":                                         {first, []NodeID{n1}, nil, first},
		"PRECONDITION_FAILED - member 'n2/b' is named twice":                                             {first, []NodeID{n2, n1}, []NodeID{n2}, first},
		"PRECONDITION_FAILED - queue 'q' in vhost '/' has changed meanwhile":                             {first, []NodeID{n1}, []NodeID{n2}, 2},
		"PRECONDITION_FAILED - queue 'q' in vhost '/' has other members":                                 {first, []NodeID{n1, n3}, []NodeID{n2}, first},
		"NOT_FOUND - no queue with id 3":                                                                 {3, []NodeID{n1}, []NodeID{n2}, 3},
		"PRECONDITION_FAILED - node 'n2/b' is down, and was to be kept":                                  {first, []NodeID{n2}, []NodeID{"n9/x"}, first},
		"PRECONDITION_FAILED - queue 'wide' in vhost '/' has lost 1 of 3 replicas, which is no majority": {wide.ID, []NodeID{n1, n3}, []NodeID{n2}, wide.Settings},
		"PRECONDITION_FAILED - queue 'wide' in vhost '/' has other members":                              {wide.ID, []NodeID{n1}, []NodeID{n2}, wide.Settings},
		"PRECONDITION_FAILED - node 'n3/c' is not known to be down":                                      {wide.ID, []NodeID{n1}, []NodeID{n2, n3}, wide.Settings},
	} {
		s.refused(c, want)
	}
	old := s.view()
	second := s.ok(&RecoverQueue{first, []NodeID{n1}, []NodeID{n2}, first})
	s.wantLives(t, fmt.Sprintf("%d after [%d] on [n1/a] [%d], of [n1/a], kept {0 0 0 0}", second.ID, first, second.ID))
	if now, life := s.view().Successor(first); now != q() || life != 1 || s.view().QueueByID(first) != nil {
		t.Errorf("%v goes on in place of %d as life %d", now, first, life)
	}
	changed := map[uint64]bool{}
	for id := range s.view().QueuesChangedSince(old) {
		changed[id] = true
	}
	if !changed[first] || !changed[second.ID] || s.view().Replicas(n2) != 1 {
		t.Errorf("changed are %v, n2 has %d replicas", changed, s.view().Replicas(n2))
	}
	s.refused(&PlanMembers{second.ID, []NodeID{n3}, nil, n3, second.ID, ""}, "PRECONDITION_FAILED - queue 'q' in vhost '/' is being recovered")
	s.refused(&RecoverQueue{second.ID, []NodeID{n1}, []NodeID{n2}, second.ID}, "PRECONDITION_FAILED - queue 'q' in vhost '/' is being recovered from another replica")
	s.refused(&QueueRecovered{second.ID, first, Kept{}}, "PRECONDITION_FAILED - queue 'q' in vhost '/' has changed meanwhile")
	s.ok(&QueueRecovered{second.ID, second.ID, Kept{9, 2, 3, 1}})
	s.wantLives(t, fmt.Sprintf("%d after [%d] on [n1/a] [%d], of [], kept {9 2 3 1}", second.ID, first, second.ID))
	if s.ok(&QueueRecovered{second.ID, q().Settings, Kept{}}).Changed {
		t.Error("it is recovered twice")
	}
	// It is filled up, and loses its majority again: one of the survivors is lost before it has taken over.
	plan := s.ok(&PlanMembers{second.ID, []NodeID{n1, n3}, nil, n1, q().Settings, ""})
	s.ok(&MembersReached{second.ID, plan.Index})
	down(n3)
	third := s.ok(&RecoverQueue{wide.ID, []NodeID{n1}, []NodeID{n2, n3}, wide.Settings})
	if w := s.view().Queue("/", "wide"); lives(w) != fmt.Sprintf("%d after [%d] on [n1/a] [%d], of [n1/a], kept {0 0 0 0}", third.ID, wide.ID, third.ID) {
		t.Error(lives(w))
	}
	fourth := s.ok(&RecoverQueue{second.ID, []NodeID{n1}, []NodeID{n3}, q().Settings})
	s.wantLives(t, fmt.Sprintf("%d after [%d %d] on [n1/a] [%d], of [n1/a], kept {0 0 0 0}", fourth.ID, first, second.ID, fourth.ID))
	for id, want := range map[uint64]uint32{first: 1, second.ID: 2} {
		if now, life := s.view().Successor(id); now != q() || life != want {
			t.Errorf("life %d of %d", life, id)
		}
	}
	s.ok(&DeleteQueue{"/", "q", 0})
	s.ok(&QueueGone{fourth.ID})
	if now, _ := s.view().Successor(first); now != nil {
		t.Error("a queue that is gone goes on")
	}
	restored(t, s)
}

// TestKeeperIsLostToo names another survivor while a queue is taken over.
func TestKeeperIsLostToo(t *testing.T) {
	s := newScript(t)
	nodes := []NodeID{n1, n2, n3, "n4/d", "n5/e"}
	for _, id := range nodes {
		s.ok(&RegisterNode{ID: id})
	}
	s.ok(&ActivateLevel{2})
	s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: "q", Durable: true, Kind: Replicated, Members: nodes, Preferred: n1}})
	q := func() *Queue { return s.view().Queue("/", "q") }
	for _, id := range nodes[2:] {
		s.ok(&NodeDown{id, s.view().Node(id).Incarnation, 1000})
	}
	began := s.ok(&RecoverQueue{q().ID, []NodeID{n2, n1}, nodes[2:], q().Settings})
	for _, id := range nodes { // what survivors have may still be needed, and what is not known yet may be anybody's
		keeps, leads := id == n1 || id == n2, id == n2
		if v := s.view(); v.Needs(id, began.ID) != leads || v.Needs(id, 8) != keeps || !v.Needs(id, v.Revision()+1) || v.Needs(id, 7) {
			t.Errorf("%s keeps what it need not, or does not keep what it must", id)
		}
	}
	s.ok(&NodeDown{n2, s.view().Node(n2).Incarnation, 1000})
	s.refused(&RecoverQueue{began.ID, []NodeID{n1, n3}, []NodeID{n2}, q().Settings}, "PRECONDITION_FAILED - queue 'q' in vhost '/' is being recovered from another replica")
	again := s.ok(&RecoverQueue{began.ID, []NodeID{n1}, []NodeID{n2}, q().Settings})
	needs := func(want string) {
		t.Helper()
		got := ""
		for _, id := range nodes {
			for _, of := range []uint64{8, q().ID} {
				if s.view().Needs(id, of) {
					got += fmt.Sprintf("%s:%d ", nameOf(id), of)
				}
			}
		}
		if got != want {
			t.Errorf("needed are %s, want %s", got, want)
		}
	}
	needs(fmt.Sprintf("n1:8 n1:%d ", q().ID))
	if want := fmt.Sprintf("%d after [8] on [n1/a] [%d], of [n1/a], kept {0 0 0 0}", began.ID, again.Index); lives(q()) != want {
		t.Errorf("%s, want %s", lives(q()), want)
	}
	s.ok(&QueueRecovered{began.ID, q().Settings, Kept{}})
	needs(fmt.Sprintf("n1:%d ", began.ID))
}

// TestNoneLeft: a queue has no replica left if the storages of all who have one were replaced or forgotten, and of nobody else's word.
func TestNoneLeft(t *testing.T) {
	s, _ := level2(t)
	put := func(name string, members ...NodeID) uint64 {
		return s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: name, Durable: true, Kind: Replicated, Members: members, Preferred: members[0]}}).ID
	}
	wide, alone := put("wide", n2, n3), put("alone", n3)
	want := func(when string, stranded, wideGone, aloneGone bool) {
		t.Helper()
		for _, v := range []*View{s.view(), restored(t, s)} {
			if got := [...]bool{v.Stranded(), v.NoneLeft(v.QueueByID(wide)), v.NoneLeft(v.QueueByID(alone))}; got != [...]bool{stranded, wideGone, aloneGone} {
				t.Errorf("%s: %v", when, got)
			}
		}
	}
	want("all are there", false, false, false)
	for _, n := range []NodeID{n2, n3} {
		s.ok(&NodeDown{n, s.view().Node(n).Incarnation, 1000})
	}
	want("both are down", false, false, false)
	if v := s.view(); v.NoneLeft(v.QueueByID(wide), n2) || !v.NoneLeft(v.QueueByID(wide), n2, n3) {
		t.Error("by an operator's word only both are lost")
	}
	s.ok(&RegisterNode{ID: "n3/new"})
	want("one was replaced", true, false, true)
	s.ok(&RegisterNode{ID: "n2/new"})
	want("both were replaced", true, true, true)
	// A queue that was asked for before its node was taken out, at the first level.
	s = newScript(t)
	s.ok(&RegisterNode{ID: n2})
	wide, alone = put("wide", n2, "n4/d"), put("alone", "n4/d")
	want("one was taken out", true, false, true)
}

// TestNoneLeftToRecoverFrom: while a queue is being recovered another survivor can take the keeper's place.
func TestNoneLeftToRecoverFrom(t *testing.T) {
	s, _ := level2(t)
	s.ok(&RegisterNode{ID: "n4/d"})
	s.ok(&DeclareQueue{Queue: Queue{Vhost: "/", Name: "wide", Durable: true, Kind: Replicated, Members: []NodeID{n1, n2, n3, "n4/d"}, Preferred: n1}})
	q := func() *Queue { return s.view().Queue("/", "wide") }
	s.ok(&RegisterNode{ID: "n1/new"})
	s.ok(&RegisterNode{ID: "n2/new"})
	s.ok(&RecoverQueue{q().ID, []NodeID{n3, "n4/d"}, []NodeID{n1, n2}, q().Settings})
	s.ok(&RegisterNode{ID: "n3/new"})
	if s.view().NoneLeft(q()) {
		t.Error("it can go on from the other survivor")
	}
	s.ok(&RegisterNode{ID: "n4/new"})
	if !s.view().NoneLeft(q()) {
		t.Error("who is left?")
	}
}
