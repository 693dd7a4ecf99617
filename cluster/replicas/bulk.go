package replicas

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
)

const (
	// bulkAtOnce bounds the queues of one request that change at a time.
	bulkAtOnce = 8
	// bulkEach is how long one of them may take, and bulkBusy, before, a change that is under way already.
	bulkEach, bulkBusy = time.Minute, 10 * time.Second
)

// Match says which queues are meant.
type Match struct {
	VHosts, Queues *regexp.Regexp // of names; nil: all
	// Even: only those with an even number of members.
	Even bool
}

// Has tells whether a queue is meant.
func (m Match) Has(q *catalog.Queue) bool {
	return (m.VHosts == nil || m.VHosts.MatchString(q.Vhost)) && (m.Queues == nil || m.Queues.MatchString(nameOf(q))) &&
		(!m.Even || len(target(q))%2 == 0)
}

// Result is what came of one queue's change.
type Result struct {
	VHost, Name string
	// Size is how many members the queue has then.
	Size int
	// Err is nil, an *Error, or why it is not known what came of it. An *Error with the reason Timeout: it may still be done.
	Err error
}

// Grow gives a replica on a node to each queue that is meant and has none there. It returns when all have theirs, or could not get it in
// time, or ctx ends. The error is an *Error: nothing was done.
func (o *Operator) Grow(ctx context.Context, node string, which Match) ([]Result, error) {
	view, n, err := o.node(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case !o.Running(n.ID):
		return nil, errorf(NotRunning, "node '%s' is not running", n.Name)
	case n.State != catalog.NodeRegular:
		return nil, errorf(GoesAway, "node '%s' is %s", n.Name, n.State)
	}
	return bulk(view, func(q *catalog.Queue) bool {
		return q.State == catalog.Running && !slices.Contains(target(q), n.ID) && which.Has(q)
	}, func(q *catalog.Queue) Result { return o.one(ctx, q, n, true) }), nil
}

// Shrink takes a node's replicas of all queues away, those of deleted ones that still have dead letters too. It returns as Grow does.
func (o *Operator) Shrink(ctx context.Context, node string) ([]Result, error) {
	view, n, err := o.node(ctx, node)
	if err != nil {
		return nil, err
	}
	return bulk(view, func(q *catalog.Queue) bool { return slices.Contains(target(q), n.ID) },
		func(q *catalog.Queue) Result { return o.one(ctx, q, n, false) }), nil
}

// node finds a node in a view that is not older than the call.
func (o *Operator) node(ctx context.Context, name string) (*catalog.View, *catalog.Node, error) {
	if err := cmp.Or(o.Catalog.ReadIndex(ctx), ctx.Err()); err != nil {
		return nil, nil, err
	}
	view := o.Catalog.View()
	if n := view.NodeByName(name); n != nil {
		return view, n, nil
	}
	if n := view.Node(catalog.NodeID(name)); n != nil {
		return view, n, nil
	}
	return nil, nil, errorf(NoNode, "node '%s' is not a member of the cluster", name)
}

// bulk changes the replicated queues that are meant, some at a time, in the order of their names. One that is deleted meanwhile needs no change, and is not in the results:
// with queues that come and go there is nearly always one.
func bulk(view *catalog.View, meant func(*catalog.Queue) bool, change func(*catalog.Queue) Result) []Result {
	var queues []*catalog.Queue
	for q := range view.AllQueues() {
		if q.Kind == catalog.Replicated && meant(q) {
			queues = append(queues, q)
		}
	}
	slices.SortFunc(queues, func(a, b *catalog.Queue) int {
		return cmp.Or(cmp.Compare(a.Vhost, b.Vhost), cmp.Compare(nameOf(a), nameOf(b)), cmp.Compare(a.ID, b.ID))
	})
	results := make([]Result, len(queues))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(bulkAtOnce, len(queues)) {
		wg.Go(func() {
			for i := range next {
				results[i] = change(queues[i])
			}
		})
	}
	for i := range queues {
		next <- i
	}
	close(next)
	wg.Wait()
	return slices.DeleteFunc(results, func(r Result) bool {
		e, ok := errors.AsType[*Error](r.Err)
		return ok && e.Reason == NoQueue
	})
}

var errLate = errorf(Timeout, "the operation timed out and may not have been completed")

// one changes one queue, after a change that is under way.
func (o *Operator) one(ctx context.Context, q *catalog.Queue, n *catalog.Node, member bool) Result {
	r := Result{VHost: q.Vhost, Name: nameOf(q), Size: len(target(q))}
	if ctx.Err() != nil {
		r.Err = errLate
		return r
	}
	var c Change
	for begun := time.Now(); ; {
		c, r.Err = o.change(ctx, byID(q, member), string(n.ID), member)
		if e, ok := errors.AsType[*Error](r.Err); !ok || e.Reason != Busy || time.Since(begun) > bulkBusy || !pause(ctx, 5*waitEvery) {
			break
		}
	}
	if r.Err != nil {
		if ctx.Err() != nil {
			r.Err = errLate
		}
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, bulkEach)
	defer cancel()
	done, err := o.Wait(ctx, c)
	switch {
	case err != nil:
		r.Err = err
	case !done:
		r.Err = errLate
	}
	r.Size = len(c.Members)
	return r
}

// pause waits; false means that ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// byID finds a queue that was found before. One that is being deleted gets no replica more, and loses those that it has.
func byID(q *catalog.Queue, member bool) finder {
	return func(v *catalog.View) (*catalog.Queue, error) {
		if now := v.QueueByID(q.ID); now != nil && (now.State == catalog.Running || !member) {
			return now, nil
		}
		return nil, errorf(NoQueue, "the queue was deleted meanwhile")
	}
}

// nameOf is the name of a queue for people: that of a delayed exchange has none of its own.
func nameOf(q *catalog.Queue) string {
	if q.DelayOf != "" {
		return "exchange " + q.DelayOf
	}
	return q.Name
}

// list names queues, the first few of many.
func list(queues []*catalog.Queue) string {
	const most = 10
	var b strings.Builder
	for i, q := range queues {
		if i == most {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("'" + nameOf(q) + "' in vhost '" + q.Vhost + "'")
	}
	return b.String()
}
