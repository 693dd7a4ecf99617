package recovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warrenmq/warren/catalog"
)

func text(q *Queue) string {
	var s []string
	for _, r := range q.Survivors {
		s = append(s, fmt.Sprintf("%s:%d/%d", r.Node, r.Term, r.Index))
	}
	return strings.TrimSpace(fmt.Sprintf("%s keep=%s [%s] %s", q.State, q.Keep, strings.Join(s, " "), q.Why))
}

// TestDecide chooses the replica with the newest log, and none that others may be ahead of.
func TestDecide(t *testing.T) {
	q := &catalog.Queue{ID: 5, Members: []catalog.NodeID{"a", "b", "c", "d", "e"}, Preferred: "b"}
	moving := *q
	moving.Wanted = []catalog.NodeID{"a", "b"}
	at := func(term, index uint64) Position {
		return Position{Known: true, LastTerm: term, LastIndex: index, Voter: true}
	}
	learner, led, follows := at(3, 9), at(3, 9), at(3, 9)
	learner.Voter = false
	led.Leader, follows.Leader = "a", "d"
	for _, tc := range []struct {
		name string
		a    affected
		want string
	}{
		{"the higher term", affected{q: q, survivors: []catalog.NodeID{"a", "b"}, positions: []Position{at(2, 90), at(3, 9)}}, "possible keep=b [b:3/9 a:2/90]"},
		{"the longer log", affected{q: q, survivors: []catalog.NodeID{"a", "b"}, positions: []Position{at(3, 10), at(3, 9)}}, "possible keep=a [a:3/10 b:3/9]"},
		{"a voter before a learner", affected{q: q, survivors: []catalog.NodeID{"a", "b"}, positions: []Position{learner, at(3, 9)}}, "possible keep=b [b:3/9 a:3/9]"},
		{"nothing but a learner", affected{q: q, survivors: []catalog.NodeID{"a"}, positions: []Position{learner}}, "possible keep=a [a:3/9]"},
		{
			"one does not answer",
			affected{q: q, survivors: []catalog.NodeID{"a", "b"}, positions: []Position{at(3, 9), {}}, silent: []catalog.NodeID{"b"}},
			"refused keep= [a:3/9] no answer about it from b, which may have the newest replica: bring the node back, or stop it and name it as lost",
		},
		{
			"one is damaged",
			affected{q: q, survivors: []catalog.NodeID{"a", "b"}, positions: []Position{at(3, 9), {}}, damaged: []catalog.NodeID{"b"}},
			"refused keep= [a:3/9] the replica on b, which may be the newest, is damaged: restart the node if its disk can be read again; otherwise stop it and name it as lost",
		},
		{
			"the only one is damaged",
			affected{q: q, survivors: []catalog.NodeID{"b"}, positions: []Position{{}}, damaged: []catalog.NodeID{"b"}},
			"refused keep= [] the replica on b, which may be the newest, is damaged: if its disk can be read again restart the node; otherwise nothing of the queue is left to go on from, and it can only be deleted (delete_queue --force)",
		},
		{
			"one is not open, another one does not answer",
			affected{q: q, survivors: []catalog.NodeID{"a", "b"}, positions: []Position{{}, {}}, silent: []catalog.NodeID{"a"}, idle: []catalog.NodeID{"b"}},
			"refused keep= [] no answer about it from a, which may have the newest replica: bring the node back, or stop it and name it as lost; " +
				"b runs without its replica, which may be the newest: wait until the node is ready; if it is, the node's log says why, and it can be stopped and named as lost",
		},
		{"who has led does not know yet", affected{q: q, lost: []catalog.NodeID{"c", "d", "e"}, survivors: []catalog.NodeID{"a"}, positions: []Position{led}}, "possible keep=a [a:3/9]"},
		{
			"members change, and it is led",
			affected{q: &moving, lost: []catalog.NodeID{"c"}, survivors: []catalog.NodeID{"a"}, positions: []Position{led}},
			"refused keep= [a:3/9] node 'a' says that 'a' leads it",
		},
		{"members change, and its leader is lost", affected{q: &moving, lost: []catalog.NodeID{"d"}, survivors: []catalog.NodeID{"a"}, positions: []Position{follows}}, "possible keep=a [a:3/9]"},
		{
			"ranked before",
			affected{q: &catalog.Queue{Survivors: []catalog.NodeID{"a", "b"}, Former: []uint64{4}}, survivors: []catalog.NodeID{"b", "c"}, positions: []Position{{}, at(1, 1)}},
			"possible keep=b [b:0/0 c:1/1]",
		},
	} {
		if tc.a.state == "" {
			tc.a.state = Possible
		}
		got := tc.a.decide()
		if text(&got) != tc.want {
			t.Errorf("%s: %s\nwant %s", tc.name, text(&got), tc.want)
		}
	}
}

// silentCluster has no node that answers.
type silentCluster struct{ Cluster }

func (silentCluster) Positions(context.Context, catalog.NodeID, []uint64) ([]Position, error) {
	return nil, errors.New("no link")
}

// openingCluster has nodes that answer and run nothing: b's replica is damaged.
type openingCluster struct{ Cluster }

func (openingCluster) Positions(_ context.Context, n catalog.NodeID, ids []uint64) ([]Position, error) {
	return []Position{{Damaged: n == "b"}}, nil
}

func TestAskNotesWhoRunsNothing(t *testing.T) {
	a := &affected{q: &catalog.Queue{ID: 1}, former: 1, survivors: []catalog.NodeID{"a", "b"}, state: Possible}
	ask(t.Context(), openingCluster{}, []*affected{a})
	if got := fmt.Sprint(a.silent, a.idle, a.damaged); got != "[] [a] [b]" {
		t.Errorf("silent, without it, and damaged are %s", got)
	}
}

func TestAskNotesWhoIsSilent(t *testing.T) {
	a := &affected{q: &catalog.Queue{ID: 1}, former: 1, survivors: []catalog.NodeID{"a", "b"}, state: Possible}
	ask(t.Context(), silentCluster{}, []*affected{a})
	if len(a.silent) != 2 {
		t.Errorf("silent are %v", a.silent)
	}
}
