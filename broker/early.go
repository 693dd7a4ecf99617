package broker

import (
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/queue/wire"
)

// A declaration asks its queue's leader as soon as the declaring node has the queue in its copy of the
// catalog. The node that is to lead it may not have it yet, or be about to elect itself. There
// the question waits for that moment, rather than being refused and tried again later.

// Bounds of what waits: messages for one queue, and for all.
const (
	earlyMax    = 16
	earlyMaxAll = 4096
)

// earlyMessage is for a leader that is about to begin here.
type earlyMessage struct {
	from string
	m    wire.Message
}

// wait keeps a question for a queue that was made a moment ago and that this node should lead. It reports
// false if the question is to be refused. The caller has found no leader.
func (qs *queues) wait(from string, m wire.Message) bool {
	switch m.(type) {
	case *wire.Resync, *wire.Query:
	default:
		return false // larger, or nothing that a declaration says
	}
	id := m.QueueID()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	h := qs.hosted[id]
	if qs.closed || qs.view == nil || h == nil && id <= qs.view.Revision() || len(qs.early[id]) >= earlyMax || qs.waiting >= earlyMaxAll {
		return false
	}
	if h != nil && !h.begins() {
		return false
	}
	qs.early[id] = append(qs.early[id], earlyMessage{from, m})
	qs.waiting++
	return true
}

// begins tells whether a queue is new, this node should lead it and nobody else is known to do so.
func (h *hosted) begins() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.removed && (h.leaderID == "" || h.leadsEarly) && h.q.ID > h.qs.b.origin().Incarnation && h.q.Founders == nil &&
		h.q.Kind == catalog.Replicated && string(h.q.Preferred) == h.qs.b.cfg.Node
}

// takeEarly returns what has waited for a queue, to be passed on by passEarly.
func (qs *queues) takeEarly(id uint64) []earlyMessage {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	list := qs.early[id]
	delete(qs.early, id)
	qs.waiting -= len(list)
	return list
}

// passEarly hands what has waited to the leader if it is here, and else has it asked for elsewhere.
func (qs *queues) passEarly(id uint64) {
	for _, e := range qs.takeEarly(id) {
		if l := qs.leader(id); l != nil {
			l.Receive(e.from, e.m)
		} else {
			qs.b.notLeader(e.from, id)
		}
	}
}

// dropEarly refuses what waits for queues that are not hosted here although this node knows what there is: they
// were deleted, or belong to others.
func (qs *queues) dropEarly(view *catalog.View) {
	var gone []uint64
	qs.mu.RLock()
	for id := range qs.early {
		if id <= view.Revision() && qs.hosted[id] == nil {
			gone = append(gone, id)
		}
	}
	qs.mu.RUnlock()
	for _, id := range gone {
		qs.passEarly(id)
	}
}
