package broker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/leader"
	"github.com/warrenmq/warren/queue/wire"
)

// hosted is one queue on this node.
type hosted struct {
	qs *queues
	id uint64
	// generation is that of the replica here, see catalog.Queue.
	generation uint64
	replica    *leader.Replica
	log        leader.Log
	group      Group // nil for transient queues, and if it could not be started

	mu       sync.Mutex
	q        *catalog.Queue // as of the newest view
	effect   *effect        // on q, as of the newest view
	leads    *leader.Leader
	leaderID string
	term     uint64
	since    int64 // ms since 1970: when the newest session of this node began
	sessions uint64
	ended    <-chan struct{} // closed when the session before has ended
	removed  bool
	// leadsEarly: leadership came before the log was known.
	leadsEarly bool
	// recovering: this replica leads a new life of the queue that the catalog has not noted yet.
	recovering bool
	observer   *observer              // of the leaders here, made with the first
	moving     atomic.Pointer[moving] // the newest mover
	head       headStamp
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
		h.qs.passEarly(h.id)
		h.notStarted(err)
		return
	}
	h.mu.Lock()
	h.group, h.log = g, g
	g.Follow(h.q)
	g.RestIf(h.mayRest)
	begins := h.leadsEarly && !h.removed
	if begins {
		h.leadsEarly = false
		h.activate()
	}
	h.mu.Unlock()
	if begins {
		h.qs.passEarly(h.id)
	}
}

// notStarted does what can be done about a replica that does not start. One that is damaged begins anew, unless there is nobody to begin it from: of a
// queue that is recovered it is the only one that may have anything, and another survivor's takes its place only if an operator says so (ADR 29).
// What else keeps a replica from starting would do so again: a trace of a later generation or of a newer program. There is no passing fault to
// wait for, because the store's files are open all the time: what it cannot read is damaged, and what it cannot write ends the process.
func (h *hosted) notStarted(err error) {
	switch {
	case !errors.Is(err, ErrDamaged):
	case h.q.Survivors != nil:
		h.qs.b.cfg.Logger.Error("a recovered queue cannot go on from the damaged replica here; if another node has one, stop this node, and repeat recover_queues with this node named as lost, too",
			"queue", h.q.Name, "vhost", h.q.Vhost, "id", h.id, "former", h.q.Former[len(h.q.Former)-1], "survivors", h.q.Survivors)
	default:
		h.qs.renew(h)
	}
}

// update tells the leader of a new entry in the catalog.
func (h *hosted) update(q *catalog.Queue, e *effect) {
	h.mu.Lock()
	h.q = q
	h.setEffect(e)
	if h.group != nil {
		h.group.Follow(q)
	}
	l := h.leads
	if h.recovering && q.Survivors == nil && !h.removed {
		h.activate()
	}
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
	if h.removed {
		h.mu.Unlock()
		return
	}
	h.leaderID, h.term, h.recovering = node, term, false
	h.retire()
	h.leadsEarly = self && h.log == nil
	if self && h.log != nil {
		h.activate()
	}
	settled := node != "" && !h.leadsEarly
	h.mu.Unlock()
	if settled {
		h.qs.passEarly(h.id)
	}
}

// activate begins a session; h.mu is held. As long as another survivor may take this one's place under the same id nobody may have heard
// anything from a leader: a new life begins when the catalog has noted it (ADR 29).
func (h *hosted) activate() {
	b := h.qs.b
	if h.recovering = h.q.Survivors != nil; h.recovering {
		h.recovered()
		return
	}
	h.sessions++
	h.since = time.Now().UnixMilli()
	session := h.term<<20 | h.sessions&(1<<20-1)
	if h.observer == nil {
		h.observer = newObserver(b, h.q)
	}
	h.leads = leader.Lead(h.replica, leader.Config{
		Queue: h.id, Log: h.log, Session: session, After: h.ended,
		New:             h.sessions == 1 && h.term <= firstTerm,
		Flight:          &b.flight,
		Send:            func(node string, m wire.Message) { h.send(session, node, m) },
		Room:            b.room,
		LiveNodes:       b.liveNodes,
		Now:             b.cfg.Now,
		ClockError:      b.clockError,
		Settings:        h.settings,
		CatalogRevision: func() uint64 { return b.cat.View().Revision() },
		SourceExists:    func(id uint64) bool { return b.cat.View().QueueByID(id) != nil },
		Succeeded: func(id uint64) bool {
			_, _, ok := b.successor(id)
			return ok
		},
		Former:        formerIDs(h.q.Former),
		Way:           h.wayOfDead,
		Bursts:        func() bool { return b.cat.View().Level() >= levelBursts },
		Expires:       h.expires,
		Expired:       h.expired,
		HeldIsUse:     isQuorum(h.q.Arguments), // as in RabbitMQ, whose classic queues expire and take it along
		AutoDelete:    h.q.AutoDelete,
		Unused:        h.unused,
		Single:        singleActive(h.q.Arguments),
		Lease:         nodeLease,
		ProcessGone:   b.processGone,
		Pass:          b.cfg.Gate.Pass,
		Closed:        h.closedUp,
		Ended:         func() { b.tasks.start(func() { h.relead(session) }) },
		StartMover:    h.startMover,
		StartRedriver: h.startRedriver,
		Observe:       h.observer.observe,
		Arrived:       b.arrived.add,
		Logger:        b.cfg.Logger,
	})
	h.warnDeadLetter()
	if h.q.State == catalog.Closing {
		h.leads.BeginClose()
	}
}

// firstTerm is the highest term in which a queue's log can have its first leader: that of a Raft group that was founded in the
// one before.
const firstTerm = 2

// nodeLease is the node lease of the groups that hold queues (package group).
const nodeLease = 2 * time.Second

// mayRest tells whether the session here has nothing to do.
func (h *hosted) mayRest() bool {
	h.mu.Lock()
	l, settled := h.leads, !h.removed && !h.recovering && h.q.State == catalog.Running
	h.mu.Unlock()
	return settled && l != nil && l.MayRest()
}

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

// unused takes a queue out of the catalog that has ended by itself in its log. However late that is done, nobody can
// be using it.
func (h *hosted) unused() {
	h.mu.Lock()
	q := h.q
	h.mu.Unlock()
	if q.State != catalog.Running {
		return
	}
	h.propose(&catalog.DeleteQueue{Vhost: q.Vhost, Name: q.Name, ID: q.ID}, "unused queue")
}

// expires is the queue's own time to live in effect.
func (h *hosted) expires() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(intArg(h.effect.arguments, "x-expires", 0)) * time.Millisecond
}

// expired tells whether a queue that nobody has used for its x-expires may go: not if it is to keep its messages.
func (h *hosted) expired() (goes bool) {
	h.mu.Lock()
	q := h.q
	h.mu.Unlock()
	if q.State != catalog.Running {
		return true
	}
	messages := 0
	h.replica.View(func(m *fsm.Machine) { messages = m.Queue().Len() })
	return messages == 0 || !h.qs.b.keepsMessages(q)
}

// closedUp takes a queue that has ended out of the catalog.
func (h *hosted) closedUp() {
	h.qs.b.churn.deleted.Add(1)
	h.propose(&catalog.QueueGone{ID: h.id}, "queue gone")
}

func (h *hosted) propose(c catalog.Command, what string) {
	b := h.qs.b
	if b.ctx.Err() != nil {
		return
	}
	b.tasks.start(func() { b.insist(c, h.id, what) })
}

func (h *hosted) startMover(l *leader.Leader) leader.Mover {
	b := h.qs.b
	tries := map[uint64]int{} // used by the mover's goroutine only
	m := mover.Start(mover.Config{
		Queue: h.id,
		View:  h.replica.View,
		Read:  h.log.Read,
		Route: h.routeDead,
		Fresh: func(ctx context.Context) error {
			_, err := b.freshForRoute(ctx)
			return err
		},
		Revision:  func() uint64 { return b.cat.View().Revision() },
		LookAgain: l.CatalogChanged,
		Exists:    func(id uint64) bool { return b.cat.View().QueueByID(id) != nil },
		Successor: b.successor,
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
		Gate:    b.cfg.Gate,
		Kept:    &b.kept,
		Totals:  &b.moves,
		Review:  b.cfg.MoveReview,
		Trace:   b.cfg.Trace,
		Name:    b.queueName,
		Logger:  b.cfg.Logger,
	})
	h.moving.Store(&moving{l, m})
	h.qs.moves(h)
	return m
}

// leadsHere tells whether a queue is led on this node.
func (b *Broker) leadsHere(id uint64) bool { return b.queues.leader(id) != nil }

// routeDead routes a dead letter. Nobody's permission is asked. A local random exchange does not look at who leads: that may be another
// node when the letter is decided on again, and it would go to a second queue then.
func (b *Broker) routeDead(vhost, name string, l *mover.Letter) (targets []mover.Target, found bool) {
	m := catalog.Message{Message: exchange.Message{Keys: l.Keys, Headers: l.Headers, Properties: l.Properties, Random: l.Random}}
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

// wayOfDead tells where all dead letters of a queue go if that does not depend on the letter.
func (b *Broker) wayOfDead(vhost, name string, set *queue.Settings) (w leader.Way) {
	list, ok := b.cat.View().FixedRoute(vhost, set.DeadLetterExchange, set.DeadLetterRoutingKey, !set.DeadLetterKeySet)
	if !ok {
		return w
	}
	for _, q := range list {
		w.Targets = append(w.Targets, q.ID)
		w.Back = w.Back || q.Name == name
	}
	slices.Sort(w.Targets)
	return w
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
