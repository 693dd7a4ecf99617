package broker

import (
	"cmp"
	"slices"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
)

// RedriveTarget is a queue that messages of a redrive are under way to: sent, and it is not known
// yet whether it has them.
type RedriveTarget struct {
	VHost    string `json:"vhost,omitempty"` // "" if the catalog does not know it any more
	Queue    string `json:"queue,omitempty"`
	Messages int    `json:"messages"`
	// State is moving, full, unreachable or gone, as in OutboxTarget; Since is when that began, in
	// ms since 1970, 0 if it is not known.
	State string `json:"state"`
	Since int64  `json:"since"`
}

// redriveTargets lists where what is under way goes, by the queues' names. legs counts by queue id.
func (h *hosted) redriveTargets(l *leader.Leader, legs map[uint64]int) (list []RedriveTarget) {
	var st mover.Status
	if m := h.moving.Load(); m != nil && m.leader == l {
		st = m.mover.Status()
	}
	view := h.qs.b.cat.View()
	for id, n := range legs {
		list = append(list, redriveTarget(view, id, n, st.Targets[id]))
	}
	slices.SortFunc(list, func(x, y RedriveTarget) int {
		return cmp.Or(cmp.Compare(x.VHost, y.VHost), cmp.Compare(x.Queue, y.Queue))
	})
	return list
}

func redriveTarget(view *catalog.View, id uint64, n int, st mover.TargetStatus) RedriveTarget {
	o := outboxTarget(view, dlx.Target{Queue: id, Pending: n}, st)
	return RedriveTarget{VHost: o.VHost, Queue: o.Queue, Messages: n, State: o.State, Since: o.Since}
}

// redriveLegs counts, by target, what a redrive has under way.
func redriveLegs(m *fsm.Machine) map[uint64]int {
	legs := map[uint64]int{}
	for it := range m.Redriven() {
		for _, g := range it.Legs {
			legs[g.Target]++
		}
	}
	return legs
}
