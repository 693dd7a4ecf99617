package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Times of elections. An election is started by this package, not by raft's timers.
const (
	stewardIdle     = time.Second            // between looks while all is well
	stewardBusy     = 100 * time.Millisecond // between looks without a leader
	positionWait    = 300 * time.Millisecond // for the other voters' positions
	rankStagger     = 150 * time.Millisecond // a worse candidate waits so much longer
	electionWait    = 500 * time.Millisecond // for the outcome of a started election
	membershipWait  = 5 * time.Second        // one change of the configuration
	promotionLagMax = 64                     // entries a non-voter may be behind to become a voter
)

// NodeDead tells that the cluster's failure detector has agreed on a node's death. If it led
// the catalog, the best of the others is elected at once. The word counts until the node
// answers a ping that was sent later, and as long as Config.Dead agrees.
func (c *Catalog) NodeDead(id NodeID) {
	c.deadMu.Lock()
	c.dead[id] = time.Now()
	c.deadMu.Unlock()
	c.leader.moved()
	c.poke()
}

// isDead reports whether NodeDead named id and it has not come back since. Its link may
// still look alive: a silent peer is noticed late.
func (c *Catalog) isDead(id NodeID) bool {
	c.deadMu.Lock()
	defer c.deadMu.Unlock()
	at, ok := c.dead[id]
	if !ok || !c.cfg.Mesh.Peer(id).LastAnswered.After(at) || c.cfg.Dead != nil && c.cfg.Dead(id) {
		return ok
	}
	delete(c.dead, id)
	return false
}

// livingLeader returns the leader this replica knows, "" if none or if it is dead.
func (c *Catalog) livingLeader() NodeID {
	id := c.LeaderID()
	if id != "" && c.isDead(id) {
		return ""
	}
	return id
}

func (c *Catalog) leaderless() bool { return c.livingLeader() == "" }

// leaderNews tells those who wait for an answer of a leader that there may be another one.
type leaderNews struct {
	mu sync.Mutex
	ch chan struct{} // closed at the next news
}

// next returns a channel that is closed at the next news.
func (l *leaderNews) next() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ch == nil {
		l.ch = make(chan struct{})
	}
	return l.ch
}

func (l *leaderNews) moved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ch != nil {
		close(l.ch)
		l.ch = nil
	}
}

// askLeader calls ask with the living leader. Its ctx ends when leadership has moved, so that
// an old leader that has fallen silent holds nobody up.
func (c *Catalog) askLeader(ctx context.Context, ask func(ctx context.Context, leader NodeID) error) error {
	ctx, cancel := context.WithTimeout(ctx, attemptMax)
	defer cancel()
	news := c.leader.next()
	leader := c.livingLeader()
	if leader == "" {
		return ErrNoLeader
	}
	if !c.spawn(func() {
		select {
		case <-news:
			cancel()
		case <-ctx.Done():
		}
	}) {
		return ErrClosed
	}
	return ask(ctx, leader)
}

// watchLeader spreads the news of raft's leader until Close.
func (c *Catalog) watchLeader() {
	observed := make(chan raft.Observation, 16)
	observer := raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			return true
		}
		return false
	})
	c.raft.RegisterObserver(observer)
	defer c.raft.DeregisterObserver(observer)
	for {
		select {
		case <-c.ctx.Done():
			return
		case o := <-observed:
			if _, ok := o.Data.(raft.LeaderObservation); ok {
				c.leader.moved()
			}
			c.poke()
		}
	}
}

// steward looks after the group until Close: it starts elections when there is no leader, and
// keeps founding and configuration in order while this replica leads.
func (c *Catalog) steward() {
	for {
		wait := stewardIdle
		if c.leaves.Load() && c.View().NodeState(c.cfg.Local) == NodeRegular {
			c.leaves.Store(false) // it was called back
			c.Willing()
		}
		switch {
		case c.Leading():
			if err := c.lead(); err != nil && c.ctx.Err() == nil {
				c.log.Debug("the catalog's leader could not do its chores", "err", err)
				wait = stewardBusy
			}
		case c.leaderless():
			wait = stewardBusy
			c.elect()
		}
		t := time.NewTimer(wait)
		select {
		case <-c.ctx.Done():
			t.Stop()
			return
		case <-c.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// position is how far a voter's log goes.
type position struct {
	id         NodeID
	leader     NodeID
	term, last uint64 // of the newest entry
}

// byLog orders voters by how well they would lead: the longest log first.
func byLog(a, b position) int {
	return cmp.Or(cmp.Compare(b.term, a.term), cmp.Compare(b.last, a.last), cmp.Compare(a.id, b.id))
}

func (p *position) fields(f *fields) {
	f.version(1)
	str(f, &p.id)
	str(f, &p.leader)
	f.u64(&p.term)
	f.u64(&p.last)
}

func (c *Catalog) position() position {
	p := position{id: c.cfg.Local, leader: c.livingLeader(), last: c.raft.LastIndex()}
	var l raft.Log
	if err := c.logs.GetLog(p.last, &l); err == nil {
		p.term = l.Term
	} else if p.last > 0 {
		// The log ends with a snapshot, whose term raft knows but does not tell; the
		// last index decides between such replicas.
		p.term = c.raft.CurrentTerm()
	}
	return p
}

func (c *Catalog) handlePosition(context.Context, NodeID, []byte) ([]byte, error) {
	if c.writes.outstanding() >= hungWarning {
		return nil, errHung // it can neither vote nor lead
	}
	var f fields
	p := c.position()
	p.fields(&f)
	return f.buf, nil
}

// positions asks the voters that can be reached, this one included.
func (c *Catalog) positions(voters []NodeID) []position {
	ctx, cancel := context.WithTimeout(c.ctx, positionWait)
	defer cancel()
	answers := make(chan *position, len(voters))
	asked := 0
	for _, id := range voters {
		if id == c.cfg.Local || c.isDead(id) || !c.cfg.Mesh.Peer(id).Up {
			continue
		}
		if c.spawn(func() { answers <- c.askPosition(ctx, id) }) {
			asked++
		}
	}
	all := []position{c.position()}
	for range asked {
		if p := <-answers; p != nil {
			all = append(all, *p)
		}
	}
	return all
}

func (c *Catalog) askPosition(ctx context.Context, id NodeID) *position {
	b, err := c.cfg.Mesh.Call(ctx, id, MethodPosition, nil)
	if err != nil {
		return nil
	}
	p := new(position)
	f := fields{buf: b, reading: true}
	p.fields(&f)
	if f.end() != nil || p.id != id {
		return nil
	}
	return p
}

// Voters returns the nodes whose word counts in the catalog's group, in the newest configuration.
func (c *Catalog) Voters() []NodeID { return c.voters() }

// voters returns the voters of the newest configuration.
func (c *Catalog) voters() []NodeID {
	future := c.raft.GetConfiguration()
	if future.Error() != nil {
		return nil
	}
	var ids []NodeID
	for _, s := range future.Configuration().Servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, NodeID(s.ID))
		}
	}
	return ids
}

// elect starts an election here if a quorum of voters can be reached, none of them knows a
// living leader, and this is the best of them or the better ones did nothing. Two
// candidates at the same moment would split the vote, hence the stagger by rank.
func (c *Catalog) elect() {
	if c.frozen.Load() || c.writes.outstanding() >= hungWarning {
		return
	}
	voters := c.voters()
	if !slices.Contains(voters, c.cfg.Local) {
		return
	}
	all := c.positions(voters)
	if len(all) <= len(voters)/2 {
		return
	}
	if led(all, c.isDead) {
		return // it will make itself known, or the detector will name it
	}
	slices.SortFunc(all, byLog)
	rank := slices.IndexFunc(all, func(p position) bool { return p.id == c.cfg.Local })
	// Logs may have grown between two voters' looks, so that both find themselves of the same
	// rank. The place in the configuration, which all see alike, tells them apart.
	slices.Sort(voters)
	place := time.Duration(slices.Index(voters, c.cfg.Local))
	wait := time.Duration(rank)*rankStagger + place*rankStagger/time.Duration(2*len(voters))
	if c.reluctant.Load() {
		wait += reluctance
	}
	if !c.whileLeaderless(wait) {
		return
	}
	c.log.Info("starting an election of the catalog's leader", "rank", rank, "voters", len(voters), "reachable", len(all))
	if err := c.transport.InjectTimeoutNow(); err != nil {
		c.log.Warn("an election could not be started", "err", err)
		return
	}
	if c.whileLeaderless(electionWait) && c.raft.State() == raft.Candidate {
		// A split vote: a candidate ignores a second injection until it is a follower.
		c.transport.FreeCandidate(c.raft.CurrentTerm())
	}
}

// led tells whether a voter knows a living leader. One that is said to lead and says itself that it
// does not has lost its quorum: a follower that was started again and got a late heartbeat of it would
// believe in it until its own timeout.
func led(all []position, dead func(NodeID) bool) bool {
	return slices.ContainsFunc(all, func(p position) bool {
		return p.leader != "" && !dead(p.leader) && !slices.ContainsFunc(all, func(q position) bool {
			return q.id == p.leader && q.leader != q.id
		})
	})
}

// whileLeaderless waits for d and reports whether there was no leader all the time.
func (c *Catalog) whileLeaderless(d time.Duration) bool {
	const step = 10 * time.Millisecond
	for ; d > 0 && c.leaderless(); d -= step {
		if !pause(c.ctx, min(d, step)) {
			return false
		}
	}
	return c.leaderless()
}

// lead does the leader's chores.
func (c *Catalog) lead() error {
	ctx, cancel := context.WithTimeout(c.ctx, membershipWait)
	defer cancel()
	if c.held.Load() != nil {
		return nil // the next leader will
	}
	if err := c.readyForTerm(ctx); err != nil {
		return err
	}
	if f := c.cfg.Founding; f != nil && c.View().ClusterID() == "" {
		if err := c.firstLevel(ctx); err != nil {
			return fmt.Errorf("level of a cluster to be founded: %w", err)
		}
		admin, err := f.Admin()
		if err == nil {
			_, err = c.Propose(ctx, &Found{ClusterID: f.ClusterID, Admin: admin})
		}
		if err != nil {
			return fmt.Errorf("found the cluster: %w", err)
		}
		c.log.Info("the cluster is founded", "cluster", f.ClusterID, "user", admin.Name)
	}
	return errors.Join(c.tend(ctx), c.tendLevel(ctx), c.tendDown(ctx))
}

// tend makes one change of the configuration if one is due: a storage that was replaced goes
// once its successor has caught up; see also tendVoters.
func (c *Catalog) tend(ctx context.Context) error {
	if err := c.configuring.lock(ctx); err != nil {
		return err
	}
	defer c.configuring.unlock()
	future := c.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	servers := future.Configuration().Servers
	view := c.View()
	for _, s := range servers {
		if view.Forgotten(NodeID(s.ID)) {
			c.log.Info("removing a forgotten node from the catalog's group", "node", s.ID)
			return c.spreadAfter(c.await(ctx, c.raft.RemoveServer(s.ID, 0, membershipWait).Error, nothing))
		}
		if n := view.Node(NodeID(s.ID)); n != nil && n.Superseded && c.successorReady(ctx, servers, n) {
			c.log.Info("removing a replaced storage from the catalog's group", "node", s.ID)
			return c.spreadAfter(c.await(ctx, c.raft.RemoveServer(s.ID, 0, membershipWait).Error, nothing))
		}
	}
	return c.tendVoters(ctx, future.Configuration())
}

// spreadAfter spreads a change of the configuration that was committed, and returns its error.
func (c *Catalog) spreadAfter(err error) error {
	if err == nil {
		c.spread()
	}
	return err
}

// successorReady reports whether the newest storage under the name of n is a member that has
// caught up.
func (c *Catalog) successorReady(ctx context.Context, servers []raft.Server, n *Node) bool {
	next := c.View().NodeByName(n.Name)
	return next != nil && slices.ContainsFunc(servers, func(s raft.Server) bool { return NodeID(s.ID) == next.ID }) &&
		c.keepsUp(ctx, next.ID)
}

// keepsUp reports whether a node's log is about as long as this one.
func (c *Catalog) keepsUp(ctx context.Context, id NodeID) bool {
	if !c.cfg.Mesh.Peer(id).Up {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, positionWait)
	defer cancel()
	p := c.askPosition(ctx, id)
	return p != nil && p.last+promotionLagMax >= c.raft.LastIndex()
}
