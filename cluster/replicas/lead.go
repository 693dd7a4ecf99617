package replicas

import (
	"context"
	"errors"
	"slices"

	"github.com/warrenmq/warren/amqp"
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
	for attempt := 1; ; attempt++ {
		var found *catalog.Queue
		q, found, to, err = o.member(vhost, queue, node)
		if err != nil {
			return Queue{}, "", false, err
		}
		if changed = q.Preferred != to; !changed {
			return q, to, false, nil
		}
		_, err = o.Catalog.Propose(ctx, &catalog.SetPreferred{ID: q.ID, Node: catalog.NodeID(to), IfSettings: found.Settings})
		if err == nil {
			return q, to, true, nil
		}
		if _, refused := errors.AsType[*amqp.Error](err); !refused || attempt == proposals || o.same(found) {
			return Queue{}, "", false, ofCatalog(err)
		}
	}
}

// member finds a queue and the id of a node that can lead it.
func (o *Operator) member(vhost, queue, node string) (q Queue, found *catalog.Queue, to string, err error) {
	view := o.Catalog.View()
	found, err = byName(vhost, queue)(view)
	if err != nil {
		return q, nil, "", err
	}
	n := view.NodeByName(node)
	switch {
	case n == nil:
		return q, nil, "", errorf(NoNode, "node '%s' is not a member of the cluster", node)
	case !slices.Contains(found.Members, n.ID) || !slices.Contains(target(found), n.ID):
		return q, nil, "", errorf(NotMember, "node '%s' has no replica of queue '%s' in vhost '%s'", node, queue, vhost)
	case !o.Running(n.ID):
		return q, nil, "", errorf(NotRunning, "node '%s' is not running", node)
	case n.State != catalog.NodeRegular:
		return q, nil, "", errorf(GoesAway, "node '%s' is %s", node, n.State)
	}
	return o.describe(found), found, string(n.ID), o.quorate(found, found.Members)
}
