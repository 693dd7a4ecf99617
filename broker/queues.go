package broker

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/leader"
	"github.com/warrenmq/warren/queue/wire"
)

// Groups hosts the Raft groups of this node.
type Groups interface {
	// Start starts, or finds, the local replica of a queue. lead is called at
	// every change of leadership; it is quick and calls nothing of the group.
	Start(q *catalog.Queue, r *leader.Replica, lead func(term uint64, node string, self bool)) (Group, error)
	// Delete stops the replica and wipes its durable trace.
	Delete(id uint64) error
}

// Group is the log of one replicated queue.
type Group interface {
	leader.Log
	IsLeader() bool
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
	view   *catalog.View // the last one followed
	closed bool
	// preferred counts the queues each node should lead.
	preferred map[string]int
	prefers   map[uint64]string
	// retired leaders whose goroutines have not ended yet.
	retired sync.WaitGroup
}

// hosted is one queue on this node.
type hosted struct {
	qs      *queues
	id      uint64
	replica *leader.Replica
	log     leader.Log
	group   Group // nil for transient queues

	mu       sync.Mutex
	q        *catalog.Queue // as of the newest view
	leads    *leader.Leader
	leaderID string
	term     uint64
	sessions uint64
	ended    <-chan struct{} // closed when the session before has ended
	removed  bool
	// leadsEarly: leadership came before the log was known.
	leadsEarly bool
}

func newQueues(b *Broker) *queues {
	return &queues{b: b, dirty: make(chan struct{}, 1), hosted: map[uint64]*hosted{}, preferred: map[string]int{}, prefers: map[uint64]string{}}
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
	for {
		select {
		case <-qs.b.ctx.Done():
			return
		case <-qs.dirty:
		}
		qs.reconcile()
		select {
		case <-qs.b.ctx.Done():
			return
		case <-time.After(topologyQuiet):
			qs.wakeParked()
		}
	}
}

func (qs *queues) reconcile() {
	view := qs.b.cat.View()
	qs.dismissFormer(view)
	for id := range changedSince(view, qs.view) {
		q := view.QueueByID(id)
		qs.count(id, q)
		if q == nil {
			qs.remove(id)
			continue
		}
		if q.State == catalog.Closing {
			qs.b.closeStreamOf(q)
		}
		qs.place(q)
	}
	qs.mu.Lock()
	qs.view = view
	qs.mu.Unlock()
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

func changedSince(view, old *catalog.View) iter.Seq[uint64] {
	if old != nil {
		return view.QueuesChangedSince(old)
	}
	return func(yield func(uint64) bool) {
		for q := range view.AllQueues() {
			if !yield(q.ID) {
				return
			}
		}
	}
}

// count keeps track of who should lead how much.
func (qs *queues) count(id uint64, q *catalog.Queue) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if old := qs.prefers[id]; old != "" {
		qs.preferred[old]--
		delete(qs.prefers, id)
	}
	if q != nil && q.Kind == catalog.Replicated && q.State == catalog.Running {
		qs.prefers[id] = string(q.Preferred)
		qs.preferred[string(q.Preferred)]++
	}
}

// place hosts a queue that belongs here, or tells its host of a change.
func (qs *queues) place(q *catalog.Queue) {
	qs.mu.Lock()
	h := qs.hosted[q.ID]
	if h == nil && !qs.closed && qs.belongsHere(q) {
		h = &hosted{qs: qs, id: q.ID, q: q, replica: leader.NewReplica()}
		qs.hosted[q.ID] = h
		qs.mu.Unlock()
		h.start()
		return
	}
	qs.mu.Unlock()
	if h != nil {
		h.update(q)
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

// remove ends a queue that left the catalog.
func (qs *queues) remove(id uint64) {
	qs.b.closeStream(id)
	qs.mu.Lock()
	h := qs.hosted[id]
	delete(qs.hosted, id)
	qs.mu.Unlock()
	if h == nil {
		return
	}
	h.mu.Lock()
	h.removed = true
	h.retire()
	h.mu.Unlock()
	if h.group != nil {
		if err := qs.b.cfg.Groups.Delete(id); err != nil {
			qs.b.cfg.Logger.Error("group not deleted", "queue", id, "err", err)
		}
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

func (qs *queues) eachLeader(f func(leaderHandle)) {
	qs.mu.RLock()
	list := make([]*hosted, 0, len(qs.hosted))
	for _, h := range qs.hosted {
		list = append(list, h)
	}
	qs.mu.RUnlock()
	for _, h := range list {
		if l := h.replica.Leader(); l != nil {
			f(l)
		}
	}
}

// wakeParked lets leaders with dead letters that had no route try again.
func (qs *queues) wakeParked() {
	qs.eachLeader(func(l leaderHandle) {
		if l.HasParked() {
			l.CatalogChanged()
		}
	})
}

// start runs the queue's log.
func (h *hosted) start() {
	b := h.qs.b
	if h.q.Kind == catalog.Transient {
		h.log = leader.NewMemLog(h.replica)
		h.lead(1, b.cfg.Node, true)
		return
	}
	g, err := b.cfg.Groups.Start(h.q, h.replica, h.lead)
	if err != nil {
		b.cfg.Logger.Error("replica not started", "queue", h.id, "name", h.q.Name, "err", err)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.group, h.log = g, g
	if h.leadsEarly && !h.removed {
		h.activate()
	}
}

// update tells the leader of a new entry in the catalog.
func (h *hosted) update(q *catalog.Queue) {
	h.mu.Lock()
	h.q = q
	l := h.leads
	h.mu.Unlock()
	if l == nil {
		return
	}
	if q.State == catalog.Closing {
		l.BeginClose()
	}
	l.CatalogChanged()
}

// lead follows a change of leadership.
func (h *hosted) lead(term uint64, node string, self bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removed {
		return
	}
	h.leaderID, h.term = node, term
	h.retire()
	h.leadsEarly = self && h.log == nil
	if self && h.log != nil {
		h.activate()
	}
}

// activate begins a session; h.mu is held.
func (h *hosted) activate() {
	b := h.qs.b
	h.sessions++
	session := h.term<<20 | h.sessions&(1<<20-1)
	h.leads = leader.Lead(h.replica, leader.Config{
		Queue: h.id, Log: h.log, Session: session, After: h.ended,
		Send:            func(node string, m wire.Message) { h.send(session, node, m) },
		LiveNodes:       b.liveNodes,
		Now:             b.cfg.Now,
		ClockError:      b.clockError,
		Settings:        h.settings,
		CatalogRevision: func() uint64 { return b.cat.View().Revision() },
		SourceExists:    func(id uint64) bool { return b.cat.View().QueueByID(id) != nil },
		Expires:         h.expires,
		Expired:         h.expired,
		AutoDelete:      h.q.AutoDelete,
		Unused:          h.unused,
		Single:          singleActive(h.q.Arguments),
		Lease:           nodeLease,
		ProcessGone:     b.processGone,
		Closed:          h.closedUp,
		Ended:           func() { b.wg.Go(func() { h.relead(session) }) },
		StartMover:      h.startMover,
		Logger:          b.cfg.Logger,
	})
	if h.q.State == catalog.Closing {
		h.leads.BeginClose()
	}
}

// nodeLease is the node lease of the groups that hold queues (package group).
const nodeLease = 2 * time.Second

// retire ends the current session; h.mu is held. The goroutine ends by itself.
func (h *hosted) retire() {
	l := h.leads
	if l == nil {
		return
	}
	h.leads, h.ended = nil, l.Done()
	l.Retire()
	h.qs.retired.Go(l.Stop)
}

// relead begins a new session after one that failed, if this node still leads.
func (h *hosted) relead(failed uint64) {
	select {
	case <-h.qs.b.ctx.Done():
		return
	case <-time.After(sessionPause):
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removed || h.leads == nil || h.leads.Session() != failed || h.group == nil || !h.group.IsLeader() {
		return
	}
	h.retire()
	h.activate()
}

// sessionPause is the wait before a failed session is followed by another.
const sessionPause = 50 * time.Millisecond

func (h *hosted) settings() (s queue.Settings, revision uint64, vhost, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return settingsOf(h.q), h.q.Settings, h.q.Vhost, h.q.Name
}

// send passes a leader's message on. An empty node means the leader of the
// queue that the message is for.
func (h *hosted) send(session uint64, node string, m wire.Message) {
	b := h.qs.b
	if node == "" {
		// It is said again until it is answered, to other members too.
		attempt := 0
		if rand.IntN(3) == 0 {
			attempt = 1 + rand.IntN(8)
		}
		if node = b.locate(m.QueueID(), attempt); node == "" {
			return
		}
	}
	b.fromLeader(session, node, m)
}

// unused deletes an auto-delete queue whose last consumer has gone.
func (h *hosted) unused() {
	h.mu.Lock()
	q := h.q
	h.mu.Unlock()
	if q.State != catalog.Running {
		return
	}
	h.propose(&catalog.DeleteQueue{Vhost: q.Vhost, Name: q.Name, ID: q.ID}, "auto-delete")
}

// expires is the queue's x-expires.
func (h *hosted) expires() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(intArg(h.q.Arguments, "x-expires", 0)) * time.Millisecond
}

// expired deletes a queue that nobody has used for its x-expires.
func (h *hosted) expired() {
	h.mu.Lock()
	q := h.q
	h.mu.Unlock()
	if q.State == catalog.Running {
		h.propose(&catalog.DeleteQueue{Vhost: q.Vhost, Name: q.Name, ID: q.ID}, "expired queue")
	}
}

// closedUp takes a queue that has ended out of the catalog.
func (h *hosted) closedUp() { h.propose(&catalog.QueueGone{ID: h.id}, "queue gone") }

func (h *hosted) propose(c catalog.Command, what string) {
	b := h.qs.b
	if b.ctx.Err() != nil {
		return
	}
	b.wg.Go(func() {
		for b.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(b.ctx, b.cfg.QueueTimeout)
			_, err := b.cat.Propose(ctx, c)
			cancel()
			if err == nil || isRefusal(err) {
				return
			}
			b.cfg.Logger.Warn("catalog change will be tried again", "queue", h.id, "change", what, "err", err)
		}
	})
}

func (h *hosted) startMover(l *leader.Leader) leader.Mover {
	b := h.qs.b
	tries := map[uint64]int{} // used by the mover's goroutine only
	return mover.Start(mover.Config{
		Queue: h.id,
		View:  h.replica.View,
		Read:  h.log.Read,
		Route: b.routeDead,
		Fresh: func(ctx context.Context) error {
			_, err := b.freshForRoute(ctx)
			return err
		},
		Revision:  func() uint64 { return b.cat.View().Revision() },
		LookAgain: l.CatalogChanged,
		Exists:    func(id uint64) bool { return b.cat.View().QueueByID(id) != nil },
		Send: func(m *wire.Transfer) {
			if node := b.locate(m.Target, tries[m.Target]); node != "" {
				b.send(node, m)
			}
		},
		Relocate: func(target uint64) {
			b.forgetLeader(target)
			tries[target]++
		},
		Propose: l.Propose,
		Logger:  b.cfg.Logger,
	})
}

// leadsHere tells whether a queue is led on this node.
func (b *Broker) leadsHere(id uint64) bool { return b.queues.leader(id) != nil }

// routeDead routes a dead letter. Nobody's permission is asked.
func (b *Broker) routeDead(vhost, name string, l *mover.Letter) (targets []mover.Target, found bool) {
	m := catalog.Message{Message: exchange.Message{Keys: l.Keys, Headers: l.Headers, Properties: l.Properties, Random: rand.Uint64()}, Leads: b.leadsHere}
	list, err := b.cat.View().RouteMessage(vhost, name, &m, nil)
	for _, q := range list {
		t := mover.Target{ID: q.ID}
		if q.DelayOf == "" { // else no message has died there
			t.Name = q.Name
		}
		targets = append(targets, t)
	}
	return targets, err == nil
}

// liveNodes lists the nodes that are not confirmed dead.
func (b *Broker) liveNodes() (list []leader.Node) {
	for n := range b.cat.View().Nodes() {
		if !n.Superseded && b.cfg.Alive(string(n.ID)) {
			list = append(list, leader.Node{ID: string(n.ID), Origin: fsm.Origin{Node: n.Number, Incarnation: n.Incarnation}})
		}
	}
	return list
}
