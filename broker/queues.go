package broker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/queue/leader"
)

// Groups hosts the Raft groups of this node.
type Groups interface {
	// Start starts, or finds, the local replica of a queue. lead is called at
	// every change of leadership; it is quick and calls nothing of the group. The error is ErrDamaged if the
	// trace of the replica cannot be used.
	Start(q *catalog.Queue, r *leader.Replica, lead func(term uint64, node string, self bool)) (Group, error)
	// Heat tells how much the replica was written to lately, in bytes, also before this process
	// was started. It is asked before Start.
	Heat(id uint64) int64
	// Stop stops the replica and keeps its durable trace.
	Stop(id uint64) error
	// Delete stops the replica, if it runs, and wipes its durable trace.
	Delete(id uint64) error
	// Yield moves the leadership to another replica if the one here has it. It ends with ctx.
	Yield(ctx context.Context, id uint64)
	// Survives tells whether the queue has a leader that most members follow, without the replica of this node.
	Survives(ctx context.Context, q *catalog.Queue) bool
}

// Group is the log of one replicated queue.
type Group interface {
	leader.Log
	IsLeader() bool
	// Follow tells the group what the catalog says of the queue now: where its replicas are to be and who should lead. It is quick.
	Follow(q *catalog.Queue)
	// RestIf has the group do without a leader at work, once it has been idle for long and as long as may says so, until it is used again. may is quick.
	RestIf(may func() bool)
	// Beginning returns index and term of what a queue's new life began from, when it was taken over.
	Beginning() (index, term uint64)
}

// leaderHandle is what the broker says to leaders.
type leaderHandle = *leader.Leader

// queues hosts the replicas of this node: one machine for each queue that the
// catalog places here, with a leader where this node leads.
type queues struct {
	b     *Broker
	dirty chan struct{}

	mu     sync.RWMutex
	hosted map[uint64]*hosted
	// toOpen and opened count the queues that the start goes through.
	toOpen, opened atomic.Int64
	view           *catalog.View // the last one followed
	closed         bool
	// loads counts the queues of each node; counted are those in it, as they were counted.
	loads   map[catalog.NodeID]load
	counted map[uint64]*catalog.Queue
	// early is what waits for leaders that begin here, waiting how much that is.
	early   map[uint64][]earlyMessage
	waiting int
	// leaving are the queues whose replica here is being ended, left those for which that is over and the catalog is to be
	// followed again.
	leaving map[uint64]bool
	left    []uint64
	// damaged are replicas that have to begin anew.
	damaged map[uint64]*hosted
	// former are lives of queues from which a new one may begin: this node keeps what it has of them.
	former map[uint64]struct{}

	movingMu sync.Mutex
	// movers are the queues whose leader here has, or had, dead letters on their way out.
	movers map[*hosted]struct{}

	// ends has a place for each replica that is being deleted.
	ends chan struct{}
	// retired leaders whose goroutines have not ended yet.
	retired sync.WaitGroup
}

func newQueues(b *Broker) *queues {
	return &queues{b: b, dirty: make(chan struct{}, 1), hosted: map[uint64]*hosted{}, loads: map[catalog.NodeID]load{}, counted: map[uint64]*catalog.Queue{}, early: map[uint64][]earlyMessage{}, movers: map[*hosted]struct{}{}, leaving: map[uint64]bool{}, damaged: map[uint64]*hosted{}, former: map[uint64]struct{}{}, ends: make(chan struct{}, openAtOnce)}
}

// changed tells that the catalog has a new view.
func (qs *queues) changed() {
	select {
	case qs.dirty <- struct{}{}:
	default:
	}
}

// topologyQuiet is how long changes of topology are gathered before leaders
// with parked dead letters look again.
const topologyQuiet = 20 * time.Millisecond

// follow brings the hosted replicas in line with the catalog until the broker
// is closed.
func (qs *queues) follow() {
	quiet := time.NewTimer(topologyQuiet)
	defer quiet.Stop()
	gathering := true
	for {
		select {
		case <-qs.b.ctx.Done():
			return
		case <-qs.dirty:
			qs.reconcile()
			if !gathering {
				gathering = true
				quiet.Reset(topologyQuiet)
			}
		case <-quiet.C:
			gathering = false
			qs.wakeParked()
		}
	}
}

func (qs *queues) reconcile() {
	view := qs.b.cat.View()
	qs.dismissFormer(view)
	if qs.view == nil {
		qs.openAll(view)
	} else {
		for id := range view.QueuesChangedSince(qs.view) {
			qs.follows(view, id)
		}
		for _, id := range qs.takeLeft() {
			qs.follows(view, id)
		}
		if !view.ChangesKnownSince(qs.view) {
			qs.dropUnseen(view)
		}
	}
	qs.endFormer(view)
	qs.policiesChanged(view)
	qs.mu.Lock()
	qs.view = view
	qs.mu.Unlock()
	qs.dropEarly(view)
}

// dropUnseen ends the streams of queues that have come and gone since the catalog was followed last, and of which it does not tell any more.
func (qs *queues) dropUnseen(view *catalog.View) {
	for _, s := range qs.b.allStreams() {
		if s.id <= view.Revision() && view.QueueByID(s.id) == nil {
			qs.follows(view, s.id)
		}
	}
}

// openAtOnce bounds how many replicas are opened at a time when a node starts, and how many are
// deleted.
const openAtOnce = 16

// openAll hosts what a node finds in the catalog when it starts, the queues that were in use first.
func (qs *queues) openAll(view *catalog.View) {
	var g sync.WaitGroup
	places := make(chan struct{}, openAtOnce)
	ids := qs.hotFirst(view)
	qs.toOpen.Store(int64(len(ids)))
	for _, id := range ids {
		if qs.b.ctx.Err() != nil {
			break
		}
		places <- struct{}{}
		g.Go(func() {
			defer func() { <-places }()
			qs.follows(view, id)
			qs.opened.Add(1)
		})
	}
	g.Wait()
}

// hotFirst returns all queues, those with replicas here that were written to most at the head.
func (qs *queues) hotFirst(view *catalog.View) []uint64 {
	type heat struct {
		id    uint64
		bytes int64
	}
	var all []heat
	for q := range view.AllQueues() {
		h := heat{id: q.ID}
		if q.Kind == catalog.Replicated && qs.belongsHere(q) {
			h.bytes = qs.b.cfg.Groups.Heat(q.ID)
		}
		all = append(all, h)
	}
	slices.SortStableFunc(all, func(a, b heat) int { return cmp.Compare(b.bytes, a.bytes) })
	ids := make([]uint64, len(all))
	for i, h := range all {
		ids[i] = h.id
	}
	return ids
}

// follows brings one queue in line with the catalog.
func (qs *queues) follows(view *catalog.View, id uint64) {
	q := view.QueueByID(id)
	qs.count(id, q)
	if q == nil {
		qs.remove(id, view)
		return
	}
	if len(q.Former) > 0 {
		qs.b.succeed(q)
		qs.keepFormer(q)
	}
	if q.State == catalog.Closing {
		qs.b.closeStreamOf(q)
	}
	qs.place(q, effectOf(q, view.Policies(q.Vhost)))
}

// dismissFormer tells the leaders of nodes that registered anew: what their
// former incarnations held goes back.
func (qs *queues) dismissFormer(view *catalog.View) {
	if qs.view == nil {
		return
	}
	for n := range view.Nodes() {
		old := qs.view.Node(n.ID)
		if old != nil && old.Incarnation < n.Incarnation {
			qs.eachLeader(func(l leaderHandle) { l.NodeGone(n.Number, n.Incarnation-1) })
		}
	}
}

// Hosting tells whether every queue that belongs here has its replica open.
func (b *Broker) Hosting() bool {
	b.queues.mu.RLock()
	defer b.queues.mu.RUnlock()
	return b.queues.view != nil
}

// Opening tells how many of the queues of a starting node have been gone through.
func (b *Broker) Opening() (done, all int) {
	return int(b.queues.opened.Load()), int(b.queues.toOpen.Load())
}

// load is how many replicated queues a node should lead and of how many it holds replicas.
type load struct{ leads, holds int }

// count keeps track of who should lead and hold how much.
func (qs *queues) count(id uint64, q *catalog.Queue) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if old := qs.counted[id]; old != nil {
		qs.weigh(old, -1)
		delete(qs.counted, id)
	}
	if q != nil && q.Kind == catalog.Replicated && q.State == catalog.Running {
		qs.weigh(q, 1)
		qs.counted[id] = q
	}
}

// weigh adds a queue n times; qs.mu is held.
func (qs *queues) weigh(q *catalog.Queue, n int) {
	for _, m := range q.Members {
		l := qs.loads[m]
		l.holds += n
		if m == q.Preferred {
			l.leads += n
		}
		qs.loads[m] = l
	}
}

// place hosts a queue that belongs here, tells its host of a change, or ends it.
func (qs *queues) place(q *catalog.Queue, e *effect) {
	here := qs.belongsHere(q)
	qs.mu.Lock()
	h, leaving := qs.hosted[q.ID], qs.leaving[q.ID]
	begins := h == nil && here && !leaving && !qs.closed
	ends := h != nil && !leaving && q.Kind == catalog.Replicated && (!here || qs.generation(q) > h.generation)
	switch {
	case begins:
		h = &hosted{qs: qs, id: q.ID, generation: qs.generation(q), q: q, effect: e, replica: leader.NewReplica()}
		qs.hosted[q.ID] = h
	case ends:
		qs.leaving[q.ID] = true
	}
	qs.mu.Unlock()
	switch {
	case begins:
		h.start()
		if q.Exclusive && q.State == catalog.Running {
			qs.b.adopt(q)
		}
	case ends:
		qs.leave(h)
	case h != nil && !leaving:
		h.update(q, e)
	}
}

func (qs *queues) belongsHere(q *catalog.Queue) bool {
	if q.Kind == catalog.Transient {
		return string(q.Members[0]) == qs.b.cfg.Node && q.Incarnation == qs.b.origin().Incarnation
	}
	for _, m := range q.Members {
		if string(m) == qs.b.cfg.Node {
			return true
		}
	}
	return false
}

// remove ends a queue that left the catalog, or the former life of one.
func (qs *queues) remove(id uint64, view *catalog.View) {
	next, _ := view.Successor(id)
	if next != nil {
		qs.b.succeed(next)
	} else {
		qs.b.closeStream(id)
	}
	h := qs.get(id)
	if h == nil || !qs.dismiss(h) {
		return
	}
	if view.Needs(catalog.NodeID(qs.b.cfg.Node), id) {
		qs.end(id, qs.b.cfg.Groups.Stop) // it may be all that is left
		return
	}
	qs.end(id, qs.b.cfg.Groups.Delete)
}

// end ends a replica. Other queues need not wait for it, unless there are many.
func (qs *queues) end(id uint64, how func(uint64) error) {
	qs.ends <- struct{}{}
	if !qs.b.tasks.start(func() {
		defer func() { <-qs.ends }()
		if err := how(id); err != nil {
			qs.b.cfg.Logger.Error("group not ended", "queue", id, "err", err)
		}
	}) {
		<-qs.ends
	}
}

// keepFormer notes a queue's former life from which the new one may yet begin here.
func (qs *queues) keepFormer(q *catalog.Queue) {
	if !slices.Contains(q.Survivors, catalog.NodeID(qs.b.cfg.Node)) {
		return
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.former[q.Former[len(q.Former)-1]] = struct{}{}
}

// endFormer wipes what this node has of queues' former lives from which nothing begins any more: the new one has its first leader, or began elsewhere, or is
// gone, perhaps since the catalog was followed last.
func (qs *queues) endFormer(view *catalog.View) {
	qs.mu.Lock()
	var over []uint64
	for id := range qs.former {
		if !view.Needs(catalog.NodeID(qs.b.cfg.Node), id) {
			over = append(over, id)
			delete(qs.former, id)
		}
	}
	qs.mu.Unlock()
	for _, id := range over {
		qs.end(id, qs.b.cfg.Groups.Delete)
	}
}

func (qs *queues) close() {
	qs.mu.Lock()
	qs.closed = true
	list := make([]*hosted, 0, len(qs.hosted))
	for _, h := range qs.hosted {
		list = append(list, h)
	}
	qs.mu.Unlock()
	for _, h := range list {
		h.mu.Lock()
		h.removed = true
		h.retire()
		h.mu.Unlock()
	}
	qs.retired.Wait()
}

func (qs *queues) get(id uint64) *hosted {
	qs.mu.RLock()
	defer qs.mu.RUnlock()
	return qs.hosted[id]
}

// leader returns the leader of a queue if it runs on this node.
func (qs *queues) leader(id uint64) *leader.Leader {
	h := qs.get(id)
	if h == nil {
		return nil
	}
	return h.replica.Leader()
}

// leaderOf names the node that leads, as far as the local replica knows.
func (qs *queues) leaderOf(id uint64) string {
	h := qs.get(id)
	if h == nil {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leaderID
}

// all lists the hosted queues.
func (qs *queues) all() []*hosted {
	qs.mu.RLock()
	defer qs.mu.RUnlock()
	list := make([]*hosted, 0, len(qs.hosted))
	for _, h := range qs.hosted {
		list = append(list, h)
	}
	return list
}

func (qs *queues) eachLeader(f func(leaderHandle)) {
	for _, h := range qs.all() {
		if l := h.replica.Leader(); l != nil {
			f(l)
		}
	}
}

// moves notes that a queue's leader here has dead letters on their way out.
func (qs *queues) moves(h *hosted) {
	qs.movingMu.Lock()
	defer qs.movingMu.Unlock()
	qs.movers[h] = struct{}{}
}

// wakeParked lets leaders with dead letters that had no route try again. Only one that has begun
// to move some can have such.
func (qs *queues) wakeParked() {
	qs.movingMu.Lock()
	defer qs.movingMu.Unlock()
	for h := range qs.movers {
		m, l := h.moving.Load(), h.replica.Leader()
		switch {
		case m == nil || m.leader != l: // it has ended; the next one says so itself
			delete(qs.movers, h)
		case l.HasParked():
			l.CatalogChanged()
		}
	}
}
