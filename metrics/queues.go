package metrics

import (
	"slices"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/fsm"
)

// figures are those of one queue, or the sum of several.
type figures struct {
	ready, unacked, delayed, consumers float64
	bytes, unackedBytes                float64
	published, held                    float64
	duplicates, dedupIDs, forgotten    float64
	outbox                             broker.OutboxStates
	outboxBytes, age                   float64
	full, unreachable                  int
}

func (f *figures) add(q *broker.QueueFigures) {
	f.ready += float64(q.Ready)
	f.unacked += float64(q.Unacked)
	f.delayed += float64(q.Delayed)
	f.bytes += float64(q.Bytes)
	f.unackedBytes += float64(q.UnackedBytes)
	f.consumers += float64(q.Consumers)
	if q.Held {
		f.held++
	}
	f.published += float64(q.Counters.Published + q.Counters.Transferred)
	f.duplicates += float64(q.Counters.Duplicates)
	f.dedupIDs += float64(q.DedupIDs)
	f.forgotten += float64(q.Counters.Forgotten)
	f.outbox.Unrouted += q.Outbox.Unrouted
	f.outbox.Routed += q.Outbox.Routed
	f.outbox.ParkedUnrouted += q.Outbox.ParkedUnrouted
	f.outbox.ParkedCycle += q.Outbox.ParkedCycle
	f.outboxBytes += float64(q.OutboxBytes)
	f.age = max(f.age, float64(q.OutboxAgeMillis)/1e3)
	f.full += q.Full
	f.unreachable += q.Unreachable
}

// queues puts the figures of queues, each for itself or all together.
func (s *scrape) queues(list []broker.QueueFigures) {
	if s.mode == aggregated {
		var sum figures
		for i := range list {
			sum.add(&list[i])
		}
		// What the queues led here have counted is no counter of the node: it falls when one is deleted or led elsewhere.
		came := s.cfg.Broker.Arrivals()
		sum.published, sum.duplicates, sum.forgotten = float64(came.Taken), float64(came.Duplicates), float64(came.Forgotten)
		s.queue(&sum)
		return
	}
	seen := map[[2]string]bool{}
	for i := range list {
		q := &list[i]
		name := ObjectName(q.Name, q.DelayOf)
		key := [2]string{q.VHost, name}
		if !s.shows(q.VHost) || q.Closing || seen[key] {
			continue
		}
		seen[key] = true
		var one figures
		one.add(q)
		s.queue(&one, q.VHost, name)
		s.deaths(q, q.VHost, name)
	}
}

// ObjectName is the label of a queue. That of a delayed exchange has no name of its own.
func ObjectName(queue, delayOf string) string {
	if delayOf != "" {
		return "exchange " + delayOf
	}
	return queue
}

func (s *scrape) shows(vhost string) bool {
	return len(s.vhosts) == 0 || slices.Contains(s.vhosts, vhost)
}

func (s *scrape) queue(f *figures, object ...string) {
	s.put(queueMessages, f.ready+f.unacked+f.delayed, object...)
	s.put(queueReady, f.ready, object...)
	s.put(queueUnacked, f.unacked, object...)
	s.put(queueBytes, f.bytes, object...)
	s.put(queueReadyBytes, f.bytes-f.unackedBytes, object...)
	s.put(queueUnackedBytes, f.unackedBytes, object...)
	s.put(queuePublished, f.published, object...)
	s.put(queueConsumers, f.consumers, object...)
	if len(object) == 0 || f.held > 0 {
		s.put(queueHeld, f.held, object...)
	}
	if len(object) == 0 || f.duplicates+f.dedupIDs+f.forgotten > 0 {
		s.put(queueDuplicates, f.duplicates, object...)
		s.put(queueDedupIDs, f.dedupIDs, object...)
		s.put(queueForgotten, f.forgotten, object...)
	}
	if len(object) > 0 && f.outbox == (broker.OutboxStates{}) {
		return // ten thousand queues without dead letters need no ten series more each
	}
	for _, x := range []struct {
		state string
		n     int
	}{
		{"unrouted", f.outbox.Unrouted},
		{"routed", f.outbox.Routed},
		{"parked_unrouted", f.outbox.ParkedUnrouted},
		{"parked_cycle", f.outbox.ParkedCycle},
	} {
		s.put(outboxMessages, float64(x.n), append(slices.Clip(object), x.state)...)
	}
	s.put(outboxBytes, f.outboxBytes, object...)
	s.put(outboxAge, f.age, object...)
	s.put(outboxTargets, float64(f.full), append(slices.Clip(object), "full")...)
	s.put(outboxTargets, float64(f.unreachable), append(slices.Clip(object), "unreachable")...)
}

// deaths puts what a queue has counted since it was declared.
func (s *scrape) deaths(q *broker.QueueFigures, object ...string) {
	if n := q.Counters.Stayed; n > 0 {
		s.count(queueStayed, n, object...)
	}
	if q.Counters.Redriven > 0 {
		s.count(queueRedriven, q.Counters.Redriven, object...)
	}
	if q.Counters.Died == (fsm.Counters{}).Died {
		return
	}
	for _, r := range broker.DeadReasons() {
		s.count(queueDead, q.Counters.Died[r], append(slices.Clip(object), r.String())...)
	}
	sums := map[string]uint64{"no_exchange": 0, "unroutable": 0, "cycle": 0}
	for _, causes := range q.Counters.Dropped {
		sums["no_exchange"] += causes[fsm.DropDisabled]
		sums["unroutable"] += causes[fsm.DropUnrouted]
		sums["cycle"] += causes[fsm.DropCycle]
	}
	for cause, n := range sums {
		s.count(queueDropped, n, append(slices.Clip(object), cause)...)
	}
}

// raft puts the figures of this node's replicas.
func (s *scrape) raft() {
	if !s.wants(raftTerm) {
		return
	}
	var sum Raft
	seen := map[[2]string]bool{}
	for _, r := range s.cfg.Raft() {
		if s.mode == aggregated {
			sum.Term, sum.Commit, sum.Applied, sum.Last = sum.Term+r.Term, sum.Commit+r.Commit, sum.Applied+r.Applied, sum.Last+r.Last
			continue
		}
		vhost, name, ok := s.cfg.QueueName(r.Queue)
		if key := [2]string{vhost, name}; ok && s.shows(vhost) && !seen[key] {
			seen[key] = true
			s.replica(r, vhost, name)
		}
	}
	if s.mode == aggregated {
		s.replica(sum)
	}
}

func (s *scrape) replica(r Raft, object ...string) {
	s.count(raftTerm, r.Term, object...)
	s.count(raftCommit, r.Commit, object...)
	s.count(raftApplied, r.Applied, object...)
	s.count(raftWritten, r.Last, object...)
}
