package group

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// Spec says what a group is.
type Spec struct {
	ID transport.GroupID
	// Generation is that of this node's replica, as the catalog has it: 0 if it is one of those that
	// found the group. A trace of an earlier one is wiped at the start, see transport.ReplicaID.
	Generation uint64
	// Members are the first voters, all of generation 0. An existing replica takes its membership from its
	// log instead.
	Members []transport.NodeID
	// Preferred leads first; empty means nobody is preferred. SetHome changes it.
	Preferred transport.NodeID
	// FirstLeader, if not empty, is the member that alone may lead in the first term, foundingTerm + 1. It is the same on all members and
	// never changes, whoever is preferred later: the others are founded as if they had voted for it. See ADR 49.
	FirstLeader transport.NodeID
	// Bootstrap tells that this volume may found its replica: the catalog lists it and
	// it never held one. A replica of a later generation is never founded: it waits to be filled.
	Bootstrap bool
	// From, if not 0, is the group that this one goes on from, with one replica, on this node; the owner has stopped it. See Heir.
	From transport.GroupID
	// Young tells that the group was made while this process was running: if it has no
	// trace here, it most likely has no leader, and the preferred node need not ask.
	Young bool
}

// Observer learns about the leadership of a group. Calls are quick. They run on the
// group's collector, in order with the answers to proposals: what was proposed in a
// tenure is answered before its end is reported.
type Observer interface {
	// Leadership reports a change. leader is empty while nobody is known to lead.
	Leadership(term uint64, leader transport.NodeID, self bool)
}

// Group is one replica of a Raft group on this node.
type Group struct {
	host     *Host
	spec     Spec
	self     transport.ReplicaID
	observer Observer // may be nil
	log      Log
	apply    *applier
	running  atomic.Pointer[instance] // nil until open; replaced only by recycle
	stopped  chan struct{}            // closed when Stop begins
	life     latch                    // serialises stop, recycle, doze and wake
	closed   bool                     // under life: the instance is gone
	transfer chan struct{}            // capacity 1: one planned move at a time
	snapshot sync.Mutex               // one snapshot at a time
	spares   spares
	// lacking is a follower that lacks entries which nothing has raft send, until its pipeline, if it has one, has ended.
	lacking atomic.Pointer[transport.NodeID]
	home    atomic.Pointer[transport.NodeID] // who should lead
	wanted  atomic.Pointer[Membership]       // see Want

	dozing     dozing
	asleep     atomic.Bool // it has no Raft instance and keeps what it told last; see doze
	rousing    atomic.Bool // it is being woken
	asked      atomic.Bool // it was to be woken since it began to wake
	needed     atomic.Bool // somebody waits for that
	tiring     bool        // it is among sleeper.tires; guarded by sleeper.mu
	mayRest    atomic.Pointer[func() bool]
	tiredAt    time.Time // since when there is nothing to do; guarded by sleeper.mu
	leading    atomic.Bool
	damaged    atomic.Bool  // its log is
	learners   atomic.Bool  // the newest committed configuration has a replica without a vote, or one is being added
	awake      atomic.Bool  // the watchdogs look after it
	forgot     atomic.Bool  // this instance has not heard of commits that a former one knew
	settled    atomic.Bool  // the followers that can be reached know what is committed; see spread
	leaseUntil atomic.Int64 // nanoseconds since the host's start; HasLease is true before it
	verified   atomic.Int64 // when raft was last asked to verify the leader, likewise
	verifying  atomic.Bool

	mu sync.Mutex // guards the rest; never held while calling out
	// seen is what the observer was told last.
	seen leadership
	// former is the leader that was known last, and election how this replica became one.
	former   transport.NodeID
	election Election
	// hint is a leader that said so itself when asked, until raft hears of one.
	hint leadership
	// nudge is closed and replaced to make waiting replicators try again.
	nudge chan struct{}
	// doubted is the leader that was seen without leadership: a restarted process.
	doubted   leadership
	spreading spreading
	proposals
	collector
}

// leadership is who leads in which term. self is derived but kept, because a replica
// leads some moments before raft names it.
type leadership struct {
	term   uint64
	leader transport.NodeID
	self   bool
}

// sync compares raft's view of leadership with what was told last. It is called on
// raft's main goroutine at each change, and wherever something else may have changed it.
func (g *Group) sync(r replica) {
	if in := g.running.Load(); in == nil || in.raft != r || g.asleep.Load() {
		return
	}
	var wasUp bool
	if r.State() == raft.Leader && !g.leading.Load() {
		wasUp = g.formerIsUp()
	}
	g.mu.Lock()
	if g.asleep.Load() {
		g.mu.Unlock()
		return
	}
	now := g.view(r)
	g.tell(now)
	g.noteElection(now, wasUp)
	known := now.leader != "" && !g.doubtful(now) && r.State() != raft.Candidate
	g.mu.Unlock()
	if known && g.forgot.Load() && g.forgot.CompareAndSwap(true, false) && !now.self && !g.heardSince(now.term) {
		g.remind(now.leader)
	}
	if known && g.mayLead(now.leader) {
		g.host.elections.settled(g)
	} else {
		g.host.elections.want(g, leaderGrace)
	}
}

// view returns who leads as far as this replica knows. Caller holds mu.
func (g *Group) view(r replica) leadership {
	term, state := r.CurrentTerm(), r.State()
	for now := r.CurrentTerm(); now != term; now = r.CurrentTerm() {
		// A state read across a change of term must not be told under the old one.
		term, state = now, r.State()
	}
	if state == raft.Leader {
		return leadership{term: term, leader: g.host.cfg.Local, self: true}
	}
	if state != raft.Shutdown {
		if at, _ := r.LeaderWithID(); at != "" && at != raft.ServerAddress(g.host.cfg.Local) {
			return leadership{term: term, leader: transport.NodeID(at)}
		}
		if g.hint.leader != "" && g.hint.term >= term {
			return g.hint
		}
	}
	return leadership{term: term}
}

// tell queues the change for the observer and ends or begins the proposer's tenure.
// Caller holds mu.
func (g *Group) tell(now leadership) {
	if now == g.seen {
		return
	}
	lost := g.seen.self && (!now.self || now.term != g.seen.term)
	g.seen = now
	if lost {
		g.leading.Store(false)
		g.leaseUntil.Store(0)
		g.abandon(ErrUnknown, ErrNotLeader)
	}
	g.enqueue(event{kind: eventLeadership, now: now})
	if lost || now.self {
		g.host.balance.leads(g, now.self)
	}
	if now.self {
		g.paused = 0
		g.leading.Store(true)
		g.unsettle()
		g.host.reach.leads(g)
	}
}

// doubtful tells whether a leader has shown that it does not lead. Caller holds mu.
func (g *Group) doubtful(l leadership) bool {
	return !l.self && g.doubted.leader == l.leader && g.doubted.term == l.term
}

// nudged returns a channel that is closed when something has changed for the better
// between this replica and its followers.
func (g *Group) nudged() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.nudge == nil {
		g.nudge = make(chan struct{})
	}
	return g.nudge
}

// tryAgain makes waiting replicators try again.
func (g *Group) tryAgain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.nudge != nil {
		close(g.nudge)
		g.nudge = nil
	}
}

// doubt records that the presumed leader asked who leads.
func (g *Group) doubt(from transport.NodeID) {
	g.mu.Lock()
	doubtful := g.seen.leader == from && !g.seen.self && !g.doubtful(g.seen)
	if doubtful {
		g.doubted = g.seen
		if g.hint.leader == from {
			g.hint = leadership{}
		}
	}
	g.mu.Unlock()
	if doubtful {
		g.host.elections.want(g, 0)
	}
}

// adopt takes note of a leader that answered for itself.
func (g *Group) adopt(l leadership) {
	g.mu.Lock()
	g.hint = l
	if g.doubted.leader == l.leader {
		// Its question was older than its leadership.
		g.doubted = leadership{}
	}
	g.mu.Unlock()
	g.sync(g.replica())
}

// settledLeader returns the leader if one is known that is neither dead nor doubtful.
func (g *Group) settledLeader() (l leadership, ok bool) {
	g.mu.Lock()
	l = g.seen
	doubtful := g.doubtful(l)
	g.mu.Unlock()
	return l, l.leader != "" && !doubtful && g.mayLead(l.leader)
}

// mayLead tells whether a presumed leader is worth waiting for: it is not dead, most of the voters may hear it, and it is a
// voter as far as this replica knows.
func (g *Group) mayLead(n transport.NodeID) bool {
	if !g.host.mayLead(n) || g.unheard(n) {
		return false
	}
	servers := g.configuration().Servers
	return len(servers) == 0 || slices.ContainsFunc(servers, func(s raft.Server) bool {
		return s.Address == raft.ServerAddress(n) && s.Suffrage == raft.Voter
	})
}

// Home returns the node that should lead, empty if nobody is preferred.
func (g *Group) Home() transport.NodeID { return *g.home.Load() }

// SetHome says which node should lead from now on; it gets the leadership when it can take it. Empty: nobody is preferred.
func (g *Group) SetHome(n transport.NodeID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if *g.home.Load() == n {
		return
	}
	g.home.Store(&n)
	if g.seen.self {
		g.host.balance.leads(g, true)
	}
}

// ID returns the group's id.
func (g *Group) ID() transport.GroupID { return g.spec.ID }

// Leader returns who leads the group in which term, as far as this node knows.
func (g *Group) Leader() (transport.NodeID, uint64, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen.leader, g.seen.term, g.seen.leader != ""
}

// IsLeader tells whether this replica leads. Leading alone is no licence to deliver:
// see HasLease.
func (g *Group) IsLeader() bool { return g.leading.Load() }

// Read returns the data of an entry that is in the log or pinned.
func (g *Group) Read(index uint64) ([]byte, error) {
	b, err := g.log.Read(index)
	if err != nil {
		g.hurt(err)
		return nil, fmt.Errorf("read group %d at %d: %w", g.spec.ID, index, err)
	}
	return b, nil
}

// aliveQuorum tells whether a quorum of the voters can vote.
func (g *Group) aliveQuorum(voters []transport.NodeID) bool {
	alive := 0
	for _, v := range voters {
		if v == g.host.cfg.Local || g.host.reachable(v) {
			alive++
		}
	}
	return len(voters) > 0 && alive >= len(voters)/2+1
}
