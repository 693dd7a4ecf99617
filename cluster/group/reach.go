package group

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// Membership is what the catalog wants a group's replicas to be.
type Membership struct {
	Wanted []transport.ReplicaID // all of them voters in the end
	// Revision is given to HostConfig.OnReached.
	Revision uint64
	// Settled: they were reached before and nobody has to be told. What a change that was under way then has left is put right.
	Settled bool
}

const (
	reachEvery = 250 * time.Millisecond // between two looks while something is to be done
	reachRetry = time.Second            // after a change that failed
	reachAgain = 5 * time.Second        // between two calls of OnReached for one membership
	reachAsk   = 500 * time.Millisecond // for a replica's answer how far it is
	reachRound = time.Second            // within which one that is to vote gets what the leader had
	reachPause = 10 * time.Millisecond  // between two looks whether it has, at first
)

var (
	errNotCurrent = errors.New("the plan is not the newest one, or this node does not know it yet")
	errSilent     = errors.New("a node of the group does not answer")
)

// reacher brings groups that are led here to the membership that is wanted, one change of raft's configuration at a
// time. It keeps nothing: each look compares what is with what is wanted, so that any leader goes on where
// another one ended.
type reacher struct {
	h    *Host
	wake chan struct{} // capacity 1

	mu   sync.Mutex // guards the rest
	work map[*Group]*reaching
}

// reaching is a group with a membership to reach.
type reaching struct {
	wanted  *Membership
	busy    bool      // a goroutine works on it
	next    time.Time // not to be looked at before
	current uint64    // the term in which it was found to be the newest plan
}

func newReacher(h *Host) *reacher {
	return &reacher{h: h, wake: make(chan struct{}, 1), work: make(map[*Group]*reaching)}
}

// Want sets the membership that the group is to have; nil leaves it as it is. Only the leader acts. The replicas that are
// wanted must be started on their nodes by their owners, and those that are not wanted any more may be wiped only after
// OnReached has led to that being recorded. An owner that ends a replica which leads, because another generation is wanted
// on its node, moves the leadership before: the node is alive, so that nobody would take it for dead.
func (g *Group) Want(m *Membership) {
	r := g.host.reach
	r.mu.Lock()
	defer r.mu.Unlock()
	if m == nil || isClosed(g.stopped) {
		g.wanted.Store(nil)
		delete(r.work, g)
		return
	}
	m = &Membership{slices.Clone(m.Wanted), m.Revision, m.Settled}
	g.wanted.Store(m)
	r.begin(g, m)
}

// leads looks at a group that is led here from now on. It is called under the group's mutex.
func (r *reacher) leads(g *Group) {
	m := g.wanted.Load()
	if m == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begin(g, m)
}

// begin puts a group to work. Caller holds mu.
func (r *reacher) begin(g *Group, m *Membership) {
	w := &reaching{wanted: m}
	if old := r.work[g]; old != nil {
		w.busy = old.busy
		if old.wanted.Revision == m.Revision {
			w.next, w.current = old.next, old.current
		}
	}
	r.work[g] = w
	r.poke()
}

func (r *reacher) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run looks until the host is closed.
func (r *reacher) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-r.h.ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		if r.round() {
			timer.Reset(reachEvery)
		}
	}
}

// round begins work on the groups that are led here; more tells that there are groups to look at again.
func (r *reacher) round() (more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	busy := 0
	for _, w := range r.work {
		if w.busy {
			busy++
		}
	}
	for g, w := range r.work {
		switch {
		case isClosed(g.stopped), w.wanted.Settled && !g.leading.Load(): // leads begins it again
			delete(r.work, g)
			continue
		case w.busy || busy >= r.h.cfg.ReachMax || !g.leading.Load() || time.Now().Before(w.next):
			continue
		}
		wanted := w.wanted
		if r.h.spawn(func() { r.step(g, wanted) }) {
			w.busy = true
			busy++
		}
	}
	return len(r.work) > 0
}

// step makes one change, or tells that there is none to make.
func (r *reacher) step(g *Group, wanted *Membership) {
	ctx, cancel := context.WithTimeout(r.h.ctx, changeDeadline)
	defer cancel()
	done, err := g.approach(ctx, wanted.Wanted, func() error { return r.current(ctx, g, wanted) })
	if done && !wanted.Settled && r.h.cfg.OnReached != nil {
		if err = g.commitBarrier(ctx); err == nil {
			r.h.cfg.OnReached(ctx, g.spec.ID, wanted.Revision)
		}
	}
	if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrStopped) {
		r.h.log.Info("a change of the members of a group waits", "group", uint64(g.spec.ID), "err", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.work[g]
	if w == nil {
		return
	}
	w.busy = false
	switch {
	case w.wanted != wanted:
	case err != nil:
		w.next = time.Now().Add(reachRetry)
	case done && wanted.Settled:
		delete(r.work, g)
	case done:
		w.next = time.Now().Add(reachAgain)
	}
}

// current returns nil if the membership is the newest plan: else a leader that has not heard of a newer one would undo what
// another leader has reached, after which the replicas that are not wanted are wiped. That other leader led before this one, so that it
// is enough to have asked once since this leadership began. See ADR 31.
func (r *reacher) current(ctx context.Context, g *Group, wanted *Membership) error {
	_, term, ok := g.Leader()
	if !ok || !g.leading.Load() {
		return ErrNotLeader
	}
	r.mu.Lock()
	w := r.work[g]
	known := w != nil && w.wanted == wanted && w.current == term
	r.mu.Unlock()
	if known || r.h.cfg.Current == nil {
		return nil
	}
	newest, err := r.h.cfg.Current(ctx, g.spec.ID, wanted.Revision)
	switch {
	case err != nil:
		return err
	case !newest:
		return errNotCurrent
	}
	r.mu.Lock()
	if w := r.work[g]; w != nil && w.wanted == wanted {
		w.current = term
	}
	r.mu.Unlock()
	if _, now, _ := g.Leader(); now != term || !g.leading.Load() {
		return ErrNotLeader
	}
	return nil
}

// approach makes at most one change towards the wanted replicas, if may returns nil. done tells that they are reached and that this is
// committed.
func (g *Group) approach(ctx context.Context, wanted []transport.ReplicaID, may func() error) (done bool, err error) {
	members, index, err := g.Configuration()
	if err != nil || len(members) == 0 || !g.leading.Load() {
		return false, err
	}
	if g.replica().CommitIndex() < index {
		return false, nil // the change before this one
	}
	if areVoters(members, wanted) {
		return true, nil
	}
	if err := g.lead(ctx); err != nil {
		return false, err
	}
	s, err := g.situation(ctx, members, wanted)
	if err != nil {
		return false, err
	}
	c := plan(members, wanted, g.host.cfg.Local, s)
	if c.kind == changeNone {
		return c.reached, nil
	}
	if err := may(); err != nil {
		return false, err
	}
	g.host.log.Info("changing the members of a group", "group", uint64(g.spec.ID), "change", c.kind.String(), "replica", string(c.replica))
	switch c.kind {
	case changeAdd:
		err = g.AddNonvoter(ctx, c.replica, index)
	case changePromote:
		err = g.AddVoter(ctx, c.replica, index)
	case changeRemove:
		err = g.RemoveServer(ctx, c.replica, index)
	case changeLeave:
		err = g.TransferTo(ctx, c.replica.Node())
	}
	return false, err
}

// areVoters tells whether the members are the wanted replicas and all vote.
func areVoters(members []Member, wanted []transport.ReplicaID) bool {
	return len(members) == len(wanted) && !slices.ContainsFunc(members, func(m Member) bool { return !m.Voter || !slices.Contains(wanted, m.Replica) })
}

// situation asks the other nodes of a group what runs there. A node is not taken for dead because it does not answer.
func (g *Group) situation(ctx context.Context, members []Member, wanted []transport.ReplicaID) (situation, error) {
	ctx, cancel := context.WithTimeout(ctx, reachAsk)
	defer cancel()
	nodes := make(map[transport.NodeID]bool)
	for _, m := range members {
		nodes[m.Node] = true
	}
	for _, w := range wanted {
		nodes[w.Node()] = true
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	said := make(map[transport.NodeID]replicaStatus)
	for n := range nodes {
		if n == g.host.cfg.Local || !g.host.reachable(n) {
			continue
		}
		wg.Go(func() {
			all, err := g.host.askStatus(ctx, n, 0, []transport.GroupID{g.spec.ID})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = fmt.Errorf("%w: %w", errSilent, err)
				return
			}
			said[n] = all[0]
		})
	}
	wg.Wait()
	own := g.replica()
	term, last := own.CurrentTerm(), own.LastIndex()
	return situation{
		alive:   func(r transport.ReplicaID) bool { return r == g.self || said[r.Node()].runs(r) },
		keepsUp: func(r transport.ReplicaID) bool { return g.keepsUp(r, said[r.Node()], term, last) },
	}, failed
}

// runs tells whether the status is one of this replica.
func (s replicaStatus) runs(r transport.ReplicaID) bool {
	generation, ok := r.Generation()
	return ok && s.known() && s.generation == generation
}

// keepsUp tells whether a replica gets all that the leader has now, up to an entry of a term, within a round: so it has the log but for what
// came in the meantime. How many entries it lacks would not tell, for an entry may be a hundred bytes or a hundred megabytes. It is the rule of
// Ongaro's dissertation, "Consensus: Bridging Theory and Practice", 4.2.1.
func (g *Group) keepsUp(r transport.ReplicaID, said replicaStatus, term, last uint64) bool {
	ctx, cancel := context.WithTimeout(g.host.ctx, reachRound)
	defer cancel()
	for pause := reachPause; said.runs(r) && said.term == term; pause *= 2 {
		if said.lastIndex >= last {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
		all, err := g.host.askStatus(ctx, r.Node(), 0, []transport.GroupID{g.spec.ID})
		if err != nil {
			return false
		}
		said = all[0]
	}
	return false
}

// commitBarrier returns nil if an entry was committed that this replica proposed as the leader after the call: no leader before it can have
// one at work that is not known here.
func (g *Group) commitBarrier(ctx context.Context) error {
	if err := g.lead(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	limit, _ := ctx.Deadline()
	wait := func() {
		in := g.running.Load()
		done <- g.waitFuture(in, in.raft.Barrier(time.Until(limit)))
	}
	if !g.host.spawn(wait) {
		return ErrStopped
	}
	select {
	case err := <-done:
		if errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipLost) {
			return ErrNotLeader
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// change is one step of a membership.
type change struct {
	kind    changeKind
	replica transport.ReplicaID // of changeLeave: who is to lead
	reached bool                // of changeNone: everything is as it is wanted
}

type changeKind uint8

const (
	changeNone    changeKind = iota
	changeAdd                // as a non-voter
	changePromote            // to a voter
	changeRemove
	changeLeave // the leadership goes to another replica, which goes on
)

func (k changeKind) String() string {
	return [...]string{"none", "add", "promote", "remove", "leave"}[k]
}

// situation is what plan asks about replicas: whether they run, and have what the leader has. keepsUp may take a round.
type situation struct {
	alive, keepsUp func(transport.ReplicaID) bool
}

// plan returns the next change from members to wanted. Additions come first and removals last, but a dead voter goes before
// another one is made, so that the quorum is two of two and not three of four with one dead. No change leaves a
// group without a quorum of living voters.
func plan(members []Member, wanted []transport.ReplicaID, local transport.NodeID, s situation) change {
	var surplus []Member
	for _, m := range members {
		if !slices.Contains(wanted, m.Replica) {
			surplus = append(surplus, m)
		}
	}
	remove := func(m Member) change {
		switch {
		case m.Node == local:
			return leave(members, wanted, local, s)
		case m.Voter && !quorumAlive(members, m.Replica, "", s):
			return change{}
		}
		return change{kind: changeRemove, replica: m.Replica}
	}
	for _, m := range surplus {
		if !m.Voter || slices.ContainsFunc(wanted, func(w transport.ReplicaID) bool { return w.Node() == m.Node }) {
			// A learner of a plan that was dropped, or the former life of a replica: raft takes no two servers of one address.
			if c := remove(m); c.kind != changeNone {
				return c
			}
		}
	}
	voting := true
	for _, w := range wanted {
		at := slices.IndexFunc(members, func(m Member) bool { return m.Replica == w })
		switch {
		case at < 0 && slices.ContainsFunc(members, func(m Member) bool { return m.Node == w.Node() }):
			voting = false // its former life is still to go
		case at < 0:
			return change{kind: changeAdd, replica: w}
		case !members[at].Voter:
			voting = false
			if !s.alive(w) || !s.keepsUp(w) {
				continue
			}
			for _, m := range surplus {
				if m.Voter && !s.alive(m.Replica) {
					return remove(m)
				}
			}
			if quorumAlive(members, "", w, s) {
				return change{kind: changePromote, replica: w}
			}
		}
	}
	if !voting {
		return change{}
	}
	for _, m := range surplus {
		if c := remove(m); c.kind != changeNone {
			return c
		}
	}
	return change{reached: len(surplus) == 0}
}

// leave names who is to lead instead of this node: a wanted voter that is alive, or else any other.
func leave(members []Member, wanted []transport.ReplicaID, local transport.NodeID, s situation) change {
	var any transport.ReplicaID
	for _, m := range members {
		if !m.Voter || m.Node == local || !s.alive(m.Replica) {
			continue
		}
		if slices.Contains(wanted, m.Replica) {
			return change{kind: changeLeave, replica: m.Replica}
		}
		any = m.Replica
	}
	if any == "" {
		return change{}
	}
	return change{kind: changeLeave, replica: any}
}

// quorumAlive tells whether most voters are alive when one is gone and another one votes.
func quorumAlive(members []Member, gone, promoted transport.ReplicaID, s situation) bool {
	voters, alive := 0, 0
	for _, m := range members {
		if m.Replica == gone || !m.Voter && m.Replica != promoted {
			continue
		}
		voters++
		if s.alive(m.Replica) {
			alive++
		}
	}
	return voters > 0 && alive >= voters/2+1
}
