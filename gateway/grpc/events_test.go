package grpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
)

// told are events in short.
func told(events []*warrenv1.Event) []string {
	list := []string{}
	for _, e := range events {
		s := e.GetVhost() + e.GetName()
		switch {
		case e.GetNode() != nil:
			s += fmt.Sprintf(" running %v forgotten %v", e.GetNode().GetRunning(), e.GetNode().GetForgotten())
		case e.GetLeader() != nil:
			s += " " + e.GetLeader().GetFrom() + "->" + e.GetLeader().GetTo()
		case e.GetAlarm() != nil:
			s += fmt.Sprintf(" memory %v disk %v", e.GetAlarm().GetMemory(), e.GetAlarm().GetDisk())
		case e.GetDeadLetters() != nil:
			s += fmt.Sprintf(" stuck %v %d %s", e.GetDeadLetters().GetStuck(), e.GetDeadLetters().GetMessages(), e.GetDeadLetters().GetWhy())
		}
		list = append(list, strings.TrimSpace(s))
	}
	return list
}

func wantTold(t *testing.T, what string, events []*warrenv1.Event, want ...string) {
	t.Helper()
	if got := told(events); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestNodesChanged(t *testing.T) {
	node := func(name string, running bool) *warrenv1.Node { return &warrenv1.Node{Name: name, Running: running} }
	events, now := nodesChanged(nil, []*warrenv1.Node{node("a", true), node("b", false)})
	wantTold(t, "at first", events)
	events, now = nodesChanged(now, []*warrenv1.Node{node("a", true), node("b", true), node("c", false)})
	wantTold(t, "came", events, "b running true forgotten false", "c running false forgotten false")
	events, _ = nodesChanged(now, []*warrenv1.Node{node("a", false), node("c", false)})
	wantTold(t, "went", events, "a running false forgotten false", "b running false forgotten true")
}

func TestLeadersMoved(t *testing.T) {
	names := []broker.QueueName{{ID: 1, VHost: "/", Name: "q"}, {ID: 2, VHost: "hidden", Name: "h"}, {ID: 4, VHost: "/", Name: "lost"}}
	leaders := map[uint64]string{1: "a", 2: "a"} // there is an election of the other one
	of := func(id uint64) string { return leaders[id] }
	sees := func(vhost string) bool { return vhost == "/" }
	step := func(was map[uint64]string, want ...string) map[uint64]string {
		t.Helper()
		events, now, all := leadersMoved(was, names, of, sees)
		if wantTold(t, "leaders", events, want...); !all {
			t.Error("not all")
		}
		return now
	}
	now := step(nil)
	names = append(names, broker.QueueName{ID: 3, VHost: "/", Name: "new"})
	now = step(now)
	leaders = map[uint64]string{1: "b", 2: "b", 3: "b", 4: "c"}
	now = step(now, "/q a->b", "/lost ->c") // the new one has its first leader, the one that is hidden is not seen
	leaders = map[uint64]string{1: "b", 2: "b", 4: "c"}
	now = step(now, "/new b->")
	leaders = map[uint64]string{1: "b", 2: "b", 3: "c", 4: "c"}
	step(now, "/new ->c")

	many := make([]broker.QueueName, changesMax+1)
	was := map[uint64]string{}
	for i := range many {
		many[i] = broker.QueueName{ID: uint64(i + 1), VHost: "/", Name: fmt.Sprint(i)}
		was[uint64(i+1)] = "a"
	}
	events, now, all := leadersMoved(was, many, func(uint64) string { return "b" }, sees)
	if len(events) != changesMax || all || len(now) != len(many) {
		t.Errorf("%d events of %d, all: %v", len(events), len(many), all)
	}
}

func TestAlarmsChanged(t *testing.T) {
	node := func(name string, use *warrenv1.NodeUse) *warrenv1.Node {
		return &warrenv1.Node{Name: name, Running: true, Use: use}
	}
	events, now := alarmsChanged(nil, []*warrenv1.Node{node("a", &warrenv1.NodeUse{MemoryAlarm: true}), node("b", &warrenv1.NodeUse{})})
	wantTold(t, "at first", events, "a memory true disk false")
	events, now = alarmsChanged(now, []*warrenv1.Node{node("a", nil), node("b", &warrenv1.NodeUse{DiskAlarm: true})})
	wantTold(t, "a does not answer", events, "b memory false disk true")
	events, now = alarmsChanged(now, []*warrenv1.Node{node("a", &warrenv1.NodeUse{}), node("b", &warrenv1.NodeUse{DiskAlarm: true})})
	wantTold(t, "over", events, "a memory false disk false")
	events, now = alarmsChanged(now, []*warrenv1.Node{node("a", &warrenv1.NodeUse{DiskAlarm: true}), {Name: "b"}})
	wantTold(t, "b is down", events, "a memory false disk true", "b memory false disk false")
	events, _ = alarmsChanged(now, []*warrenv1.Node{{Name: "b"}})
	wantTold(t, "a is forgotten", events, "a memory false disk false")
}

func TestLettersStuck(t *testing.T) {
	sees := func(vhost string) bool { return vhost == "/" }
	parked := func(id uint64, vhost, name string) broker.OutboxStatus {
		return broker.OutboxStatus{ID: id, VHost: vhost, Queue: name, Messages: 2, States: broker.OutboxStates{ParkedUnrouted: 2}}
	}
	events, now := lettersStuck(nil, []broker.OutboxStatus{parked(1, "/", "q"), parked(2, "hidden", "h"), parked(3, "/", "")}, true, sees)
	wantTold(t, "at first", events, "/q stuck true 2 no route")
	events, now = lettersStuck(now, []broker.OutboxStatus{parked(1, "/", "q")}, true, sees)
	wantTold(t, "as before", events)
	events, now = lettersStuck(now, nil, false, sees)
	wantTold(t, "nodes do not answer", events)
	events, now = lettersStuck(now, []broker.OutboxStatus{{ID: 1, VHost: "/", Queue: "q", Messages: 1, States: broker.OutboxStates{ParkedCycle: 1}}}, true, sees)
	wantTold(t, "another reason", events, "/q stuck true 1 the only route is a cycle")
	events, now = lettersStuck(now, nil, true, sees)
	wantTold(t, "over", events, "/q stuck false 0")
	if len(now) != 0 {
		t.Errorf("%v", now)
	}

	many := make([]broker.OutboxStatus, changesMax+3)
	for i := range many {
		many[i] = parked(uint64(i+1), "/", fmt.Sprint(i))
	}
	now, count := nil, 0
	for _, want := range []int{changesMax, 3, 0} { // the rest comes with the next look
		if events, now = lettersStuck(now, many, true, sees); len(events) != want {
			t.Errorf("%d events, want %d", len(events), want)
		}
		count += len(events)
	}
	for _, want := range []int{changesMax, 3, 0} {
		if events, now = lettersStuck(now, nil, true, sees); len(events) != want {
			t.Errorf("%d events, want %d", len(events), want)
		}
	}
	if count != len(many) {
		t.Errorf("told of %d of %d", count, len(many))
	}
}

func TestKindsOfEvents(t *testing.T) {
	for _, bad := range []warrenv1.EventKind{0, -1, 11} {
		_, err := kindsOf([]warrenv1.EventKind{bad})
		wantInvalid(t, fmt.Sprint(bad), err)
	}
	if kinds, err := kindsOf(nil); kinds != nil || err != nil {
		t.Error(kinds, err)
	}
}
