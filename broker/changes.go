package broker

import (
	"slices"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/policy"
)

// Mark is a state of the node's copy of the catalog.
type Mark struct{ view *catalog.View }

// Revision is that of the copy.
func (m Mark) Revision() uint64 {
	if m.view == nil {
		return 0
	}
	return m.view.Revision()
}

// MayEnter is [Broker.MayEnter] as it was then: what was deleted with a virtual host is news to those who could see it.
func (m Mark) MayEnter(u User, vhost string) bool {
	return m.view != nil && u.rights(m.view).enters(vhost)
}

// Change is something that is different in a later state.
type Change struct {
	Kind   string `json:"kind"`   // "queue", "policy", "operator_policy" or "vhost"
	Action string `json:"action"` // "created", "changed" or "deleted"; of a queue also "paused" and "resumed"
	VHost  string `json:"vhost"`
	Name   string `json:"name"`
}

// Mark is the state of now.
func (b *Broker) Mark() Mark { return Mark{b.cat.View()} }

// ChangesSince tells up to limit changes since a state, and the state of now; all is false if there were more. What came and went in between
// is not told. A queue that is being deleted is.
func (b *Broker) ChangesSince(m Mark, limit int) (list []Change, now Mark, all bool) {
	now = b.Mark()
	if now.view.Revision() == m.view.Revision() {
		return nil, now, true
	}
	old := m.view
	note := func(kind, vhost, name string, was, is, same bool) {
		switch {
		case was && !is:
			list = append(list, Change{kind, "deleted", vhost, name})
		case is && !was:
			list = append(list, Change{kind, "created", vhost, name})
		case was && !same:
			list = append(list, Change{kind, "changed", vhost, name})
		}
	}
	// In the order in which they were made: of two of one name the one that is there is told last.
	for _, id := range slices.Sorted(now.view.QueuesChangedSince(old)) {
		if len(list) >= limit {
			return list, now, false
		}
		was, is := shownQueue(old, id), shownQueue(now.view, id)
		if was != nil && is != nil && was.Paused != is.Paused {
			list = append(list, Change{"queue", map[bool]string{true: "paused", false: "resumed"}[is.Paused], is.Vhost, is.Name})
			continue
		}
		if q := either(was, is); q != nil {
			note("queue", q.Vhost, q.Name, was != nil, is != nil, was == is)
		}
	}
	for h := range old.Vhosts() {
		if now.view.Vhost(h.Name) == nil {
			note("vhost", h.Name, h.Name, true, false, false)
		}
	}
	for h := range now.view.Vhosts() {
		was := old.Vhost(h.Name)
		note("vhost", h.Name, h.Name, was != nil, true, was == h)
		if was == nil || old.Policies(h.Name) != now.view.Policies(h.Name) {
			policyChanges(h.Name, old.Policies(h.Name), now.view.Policies(h.Name), note)
		}
		if len(list) >= limit {
			return list[:limit], now, false
		}
	}
	return list, now, true
}

func shownQueue(v *catalog.View, id uint64) *catalog.Queue {
	q := v.QueueByID(id)
	if q == nil || q.DelayOf != "" || q.State == catalog.Closing {
		return nil
	}
	return q
}

func either(a, b *catalog.Queue) *catalog.Queue {
	if b != nil {
		return b
	}
	return a
}

func policyChanges(vhost string, old, now *policy.Set, note func(kind, vhost, name string, was, is, same bool)) {
	for _, operator := range []bool{false, true} {
		kind := "policy"
		if operator {
			kind = "operator_policy"
		}
		for _, p := range old.List(operator) {
			if now.Find(operator, p.Name) == nil {
				note(kind, vhost, p.Name, true, false, false)
			}
		}
		for _, p := range now.List(operator) {
			was := old.Find(operator, p.Name)
			note(kind, vhost, p.Name, was != nil, true, was == p)
		}
	}
}
