package replicas

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
)

const (
	// proposals bounds how often a change is planned anew because the queue has changed meanwhile.
	proposals = 4
	// waitEvery is the time between two looks at the end of a change.
	waitEvery = 50 * time.Millisecond
)

// Catalog is what is needed of the node's [catalog.Catalog].
type Catalog interface {
	View() *catalog.View
	ReadIndex(ctx context.Context) error
	Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error)
	HasServer(id catalog.NodeID) bool
}

// Operator changes queues' replicas. It keeps nothing and is safe for concurrent use.
type Operator struct {
	Catalog Catalog
	// Running tells whether a node runs, as far as this one knows.
	Running func(catalog.NodeID) bool
}

// Change is one that is under way, or at its end.
type Change struct {
	queue  uint64
	node   catalog.NodeID
	member bool
	// Members are the names of the nodes that shall have a replica.
	Members []string
}

// Add gives a queue a replica on a node. It returns when that is planned, or had been before; see Wait. The error is an *Error, or the
// catalog's if the outcome is unknown.
func (o *Operator) Add(ctx context.Context, vhost, queue, node string) (Change, error) {
	return o.change(ctx, byName(vhost, queue), node, true)
}

// Remove takes a queue's replica from a node, likewise.
func (o *Operator) Remove(ctx context.Context, vhost, queue, node string) (Change, error) {
	return o.change(ctx, byName(vhost, queue), node, false)
}

// Wait waits until a change is made; done is false if ctx ended before, and the change goes on. The error is an *Error: the queue is
// gone, or another change has undone this one.
func (o *Operator) Wait(ctx context.Context, c Change) (done bool, err error) {
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for ended := false; ; {
		q := o.Catalog.View().QueueByID(c.queue)
		switch {
		case q == nil:
			return false, errorf(NoQueue, "the queue was deleted meanwhile")
		case slices.Contains(target(q), c.node) != c.member:
			return false, errorf(Busy, "another change of the members of queue '%s' in vhost '%s' has taken the place of this one", q.Name, q.Vhost)
		case q.Wanted == nil:
			return true, nil
		case ended:
			return false, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			ended = true // what was reached since the last look is told
		}
	}
}

// finder finds a queue.
type finder func(*catalog.View) (*catalog.Queue, error)

func byName(vhost, name string) finder {
	return func(v *catalog.View) (*catalog.Queue, error) {
		q := v.Queue(vhost, name)
		switch {
		case q == nil:
			return nil, errorf(NoQueue, "no queue '%s' in vhost '%s'", name, vhost)
		case q.Kind != catalog.Replicated:
			return nil, errorf(NotReplicated, "queue '%s' in vhost '%s' is not replicated: it is not durable", name, vhost)
		}
		return q, nil
	}
}

// change plans until the catalog takes a plan.
func (o *Operator) change(ctx context.Context, find finder, node string, member bool) (Change, error) {
	if err := ctx.Err(); err != nil {
		return Change{}, err // ReadIndex may be done before it looks
	}
	if err := o.Catalog.ReadIndex(ctx); err != nil {
		return Change{}, err
	}
	for attempt := 1; ; attempt++ {
		view := o.Catalog.View()
		q, err := find(view)
		if err != nil {
			return Change{}, err
		}
		n := nodeOf(view, q, node, member)
		if n == nil {
			return Change{}, errorf(NoNode, "node '%s' is not a member of the cluster", node)
		}
		plan := o.removal
		if member {
			plan = o.addition
		}
		p, err := plan(view, q, n)
		if err != nil {
			return Change{}, err
		}
		c := Change{queue: q.ID, node: n.ID, member: member}
		if p == nil {
			c.Members = names(target(q))
			return c, nil
		}
		_, err = o.Catalog.Propose(ctx, p)
		if err == nil {
			c.Members = names(p.Wanted)
			return c, nil
		}
		if _, refused := errors.AsType[*amqp.Error](err); !refused || attempt == proposals || o.same(q) {
			return Change{}, ofCatalog(err)
		}
	}
}

// same tells whether a queue is as it was.
func (o *Operator) same(q *catalog.Queue) bool {
	now := o.Catalog.View().QueueByID(q.ID)
	return now != nil && now.Settings == q.Settings
}

// nodeOf finds a node by its name, or by its id. A storage that was replaced can only lose replicas, and does so before its successor.
func nodeOf(v *catalog.View, q *catalog.Queue, name string, member bool) *catalog.Node {
	if !member {
		for _, m := range target(q) {
			if n := v.Node(m); n != nil && n.Superseded && (n.Name == name || string(n.ID) == name) {
				return n
			}
		}
	}
	if n := v.NodeByName(name); n != nil {
		return n
	}
	return v.Node(catalog.NodeID(name))
}

// target is where a queue's replicas shall be.
func target(q *catalog.Queue) []catalog.NodeID {
	if q.Wanted != nil {
		return q.Wanted
	}
	return q.Members
}

func names(ids []catalog.NodeID) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i], _, _ = strings.Cut(string(id), "/")
	}
	return list
}

// addition is the plan that gives a queue a replica on a node; nil: it has one, or is to get it. It takes the place of one in a storage
// that the node had before.
func (o *Operator) addition(v *catalog.View, q *catalog.Queue, n *catalog.Node) (*catalog.PlanMembers, error) {
	switch {
	case n.Superseded:
		return nil, errorf(NoNode, "storage '%s' was replaced by a newer one of node '%s'", n.ID, n.Name)
	case slices.Contains(target(q), n.ID):
		return nil, nil
	case !o.Running(n.ID):
		return nil, errorf(NotRunning, "node '%s' is not running", n.Name)
	case n.State != catalog.NodeRegular:
		return nil, errorf(GoesAway, "node '%s' is %s", n.Name, n.State)
	case q.Wanted != nil:
		return nil, underWay(q)
	}
	if err := o.quorate(q, q.Members); err != nil {
		return nil, err
	}
	// A storage of that node that was lost and replaced has nothing to give any more.
	wanted := slices.DeleteFunc(slices.Clone(q.Members), func(id catalog.NodeID) bool {
		old := v.Node(id)
		return old != nil && old.Superseded && old.Name == n.Name
	})
	preferred := q.Preferred
	if !slices.Contains(wanted, preferred) {
		preferred = n.ID
	}
	return &catalog.PlanMembers{
		ID: q.ID, Wanted: append(wanted, n.ID), Preferred: preferred, IfSettings: q.Settings, Why: "add_member",
	}, nil
}

// removal is the plan that takes a queue's replica from a node; nil: it has none, or is about to lose it. What a plan
// under way has added can be taken back: it may never come up.
func (o *Operator) removal(v *catalog.View, q *catalog.Queue, n *catalog.Node) (*catalog.PlanMembers, error) {
	if !slices.Contains(target(q), n.ID) {
		return nil, nil
	}
	rest := slices.DeleteFunc(slices.Clone(target(q)), func(id catalog.NodeID) bool { return id == n.ID })
	preferred := q.Preferred
	switch {
	case len(rest) == 0:
		return nil, errorf(LastMember, "the last member of queue '%s' in vhost '%s' cannot be removed", q.Name, q.Vhost)
	case q.Wanted != nil && q.Generation(n.ID) != q.Settings:
		return nil, underWay(q)
	case q.Wanted != nil:
		preferred = q.WantedPreferred
	default:
		if err := o.quorate(q, q.Members); err != nil {
			return nil, err
		}
	}
	if err := o.quorate(q, rest); err != nil {
		return nil, err
	}
	if preferred == n.ID {
		preferred = o.heir(v, q, rest)
	}
	return &catalog.PlanMembers{ID: q.ID, Wanted: rest, Preferred: preferred, IfSettings: q.Settings, Why: "delete_member"}, nil
}

func underWay(q *catalog.Queue) *Error {
	return errorf(Busy, "a change of the members of queue '%s' in vhost '%s' is under way: they are to be %s", q.Name, q.Vhost,
		strings.Join(names(q.Wanted), ", "))
}

// quorate refuses members of which too few run: a change of them could not be committed, or the queue would stand still after it.
func (o *Operator) quorate(q *catalog.Queue, members []catalog.NodeID) error {
	run := 0
	for _, m := range members {
		if o.Running(m) {
			run++
		}
	}
	if run > len(members)/2 {
		return nil
	}
	return errorf(NoQuorum, "queue '%s' in vhost '%s' would have no majority: of %s run %d", q.Name, q.Vhost, strings.Join(names(members), ", "), run)
}

// heir is who is to lead in place of a member that goes: one that runs and stays, another one for each of many queues.
func (o *Operator) heir(v *catalog.View, q *catalog.Queue, rest []catalog.NodeID) catalog.NodeID {
	fit := slices.DeleteFunc(slices.Clone(rest), func(id catalog.NodeID) bool {
		return !o.Running(id) || v.NodeState(id) != catalog.NodeRegular
	})
	if len(fit) == 0 {
		fit = rest
	}
	return fit[q.ID%uint64(len(fit))]
}
