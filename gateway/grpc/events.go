package grpc

import (
	"maps"
	"slices"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
	"github.com/warrenmq/warren/broker"
)

// What is different between two looks, as events. What was is nil at the first look.

// nodesChanged tells which nodes have come or gone.
func nodesChanged(was map[string]bool, list []*warrenv1.Node) (events []*warrenv1.Event, now map[string]bool) {
	now = map[string]bool{}
	event := func(name string, running, forgotten bool) {
		if was != nil {
			events = append(events, &warrenv1.Event{
				Kind: warrenv1.EventKind_EVENT_KIND_NODE, Name: name, Node: &warrenv1.NodeEvent{Running: running, Forgotten: forgotten},
			})
		}
	}
	for _, n := range list {
		now[n.GetName()] = n.GetRunning()
		if before, known := was[n.GetName()]; !known || before != n.GetRunning() {
			event(n.GetName(), n.GetRunning(), false)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, known := now[name]; !known {
			event(name, false, true)
		}
	}
	return events, now
}

// leadersMoved tells which queues have another leader; all is false if there are more than are told. A queue is known if it was there at the
// first look, with a leader or without, or else once it has had a leader: the first one of a queue that has been made since is no news.
func leadersMoved(
	was map[uint64]string, names []broker.QueueName, of func(id uint64) string, sees func(vhost string) bool,
) (events []*warrenv1.Event, now map[uint64]string, all bool) {
	now, all = make(map[uint64]string, len(names)), true
	for _, q := range names {
		from, known := was[q.ID]
		to := of(q.ID)
		if known || to != "" || was == nil {
			now[q.ID] = to
		}
		switch {
		case !known || from == to || !sees(q.VHost):
		case len(events) == changesMax:
			all = false
		default:
			events = append(events, &warrenv1.Event{
				Kind: warrenv1.EventKind_EVENT_KIND_LEADER, Vhost: q.VHost, Name: q.Name, Leader: &warrenv1.LeaderEvent{From: from, To: to},
			})
		}
	}
	return events, now, all
}

// warnings are a node's alarms.
type warnings struct{ memory, disk bool }

// alarmsChanged tells which nodes have other alarms. To begin with there are none, and a node that is down or forgotten has none: publishers wait
// for those that run. Of one that runs and does not answer nothing is known, and it stays as it was.
func alarmsChanged(was map[string]warnings, list []*warrenv1.Node) (events []*warrenv1.Event, now map[string]warnings) {
	now = map[string]warnings{}
	note := func(name string, a warnings) {
		if a != was[name] {
			events = append(events, &warrenv1.Event{
				Kind: warrenv1.EventKind_EVENT_KIND_ALARM, Name: name, Alarm: &warrenv1.AlarmEvent{Memory: a.memory, Disk: a.disk},
			})
		}
	}
	for _, n := range list {
		a := was[n.GetName()]
		if use := n.GetUse(); use != nil {
			a = warnings{use.GetMemoryAlarm(), use.GetDiskAlarm()}
		} else if !n.GetRunning() {
			a = warnings{}
		}
		now[n.GetName()] = a
		note(n.GetName(), a)
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, known := now[name]; !known {
			note(name, warnings{})
		}
	}
	return events, now
}

// stuckLetters are a queue's that do not get on.
type stuckLetters struct{ vhost, name, why string }

// lettersStuck tells of which queues dead letters have begun to wait, wait for another reason, or get on again, which is known only if every
// node has told. What there is no room to tell of stays as it was, and is told by the next look.
func lettersStuck(
	was map[uint64]stuckLetters, list []broker.OutboxStatus, every bool, sees func(vhost string) bool,
) (events []*warrenv1.Event, now map[uint64]stuckLetters) {
	now = map[uint64]stuckLetters{}
	event := func(q stuckLetters, e *warrenv1.DeadLettersEvent) {
		events = append(events, &warrenv1.Event{Kind: warrenv1.EventKind_EVENT_KIND_DEAD_LETTERS, Vhost: q.vhost, Name: q.name, DeadLetters: e})
	}
	for i := range list {
		o := &list[i]
		if o.Queue == "" || !sees(o.VHost) { // those of delayed exchanges are in queues without a name
			continue
		}
		q, before := stuckLetters{o.VHost, o.Queue, o.Stuck()}, was[o.ID]
		switch {
		case before == q:
			now[o.ID] = q
		case len(events) == changesMax:
			if before.name != "" {
				now[o.ID] = before
			}
		default:
			now[o.ID] = q
			event(q, &warrenv1.DeadLettersEvent{Stuck: true, Messages: uint64(max(0, o.Messages)), OldestAgeMillis: millis(o.OldestAge), Why: text(q.why)})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(was)) {
		switch _, still := now[id]; {
		case still:
		case !every || len(events) == changesMax:
			now[id] = was[id]
		default:
			event(was[id], &warrenv1.DeadLettersEvent{})
		}
	}
	return events, now
}
