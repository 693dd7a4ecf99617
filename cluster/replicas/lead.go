package replicas

import (
	"context"
	"slices"

	"github.com/warrenmq/warren/catalog"
)

// Member is a node that has a replica of a queue, or is to have one.
type Member struct {
	ID   string // with the storage
	Name string
	// Running: the node runs, as far as this one knows.
	Running bool
	// Stays: it shall have a replica when the change that is under way is done.
	Stays bool
}

// Queue is where a queue's replicas are.
type Queue struct {
	ID      uint64
	Members []Member
	// Preferred is the id of the node that should lead.
	Preferred string
}

// Find describes a queue. The error is an *Error, or tells that the catalog cannot be asked.
func (o *Operator) Find(ctx context.Context, vhost, queue string) (Queue, error) {
	find := byName(vhost, queue)
	q, err := find(o.Catalog.View())
	if err != nil {
		if err := o.Catalog.ReadIndex(ctx); err != nil {
			return Queue{}, err
		}
		if q, err = find(o.Catalog.View()); err != nil {
			return Queue{}, err
		}
	}
	return o.describe(q), nil
}

func (o *Operator) describe(q *catalog.Queue) Queue {
	d := Queue{ID: q.ID, Preferred: string(q.Preferred)}
	if q.Wanted != nil {
		d.Preferred = string(q.WantedPreferred)
	}
	for i, name := range names(q.Members) {
		id := q.Members[i]
		d.Members = append(d.Members, Member{ID: string(id), Name: name, Running: o.Running(id), Stays: slices.Contains(target(q), id)})
	}
	return d
}

// Prefer has a queue at home on a node, by its name, from now on: that leads whenever it can. to is the node's id; changed is false if it
// was so before. The error is an *Error, or the catalog's.
func (o *Operator) Prefer(ctx context.Context, vhost, queue, node string) (q Queue, to string, changed bool, err error) {
	if err := o.Catalog.ReadIndex(ctx); err != nil {
		return q, "", false, err
	}
	view := o.Catalog.View()
	found, err := byName(vhost, queue)(view)
	if err != nil {
		return q, "", false, err
	}
	n := view.NodeByName(node)
	switch {
	case n == nil:
		return q, "", false, errorf(NoNode, "node '%s' is not a member of the cluster", node)
	case !slices.Contains(found.Members, n.ID) || !slices.Contains(target(found), n.ID):
		return q, "", false, errorf(NotMember, "node '%s' has no replica of queue '%s' in vhost '%s'", node, queue, vhost)
	case !o.Running(n.ID):
		return q, "", false, errorf(NotRunning, "node '%s' is not running", node)
	case n.State != catalog.NodeRegular:
		return q, "", false, errorf(GoesAway, "node '%s' is %s", node, n.State)
	}
	if err := o.quorate(found, found.Members); err != nil {
		return q, "", false, err
	}
	q = o.describe(found)
	if changed = q.Preferred != string(n.ID); !changed {
		return q, string(n.ID), false, nil
	}
	if _, err := o.Catalog.Propose(ctx, &catalog.SetPreferred{ID: q.ID, Node: n.ID, IfSettings: found.Settings}); err != nil {
		return q, "", false, ofCatalog(err)
	}
	return q, string(n.ID), true, nil
}
