package group

import (
	"context"
	"time"

	"github.com/warrenmq/warren/transport"
)

// decide takes the next step of a campaign from what the other voters said.
func (e *elections) decide(c *campaign, answers map[transport.NodeID]replicaStatus) {
	g := c.g
	own := g.status()
	if own.flags&statusCandidate != 0 {
		e.judge(c, own, answers)
		return
	}
	if l, ok := leaderAmong(answers, own.term); ok {
		if s := answers[l.leader]; s.sleeps() {
			e.wait(c, quorumRetry)
			e.h.spawn(func() { e.sleepToo(g, l, own, s) })
			return
		}
		e.wait(c, 2*time.Second)
		g.adopt(l)
		return
	}
	if hasWon(own, answers) || e.hearsay(g, own, answers) || e.electedSince(c, own, answers) {
		e.wait(c, leaderGrace)
		return
	}
	if e.awaitMembers(c, answers) {
		return
	}
	e.mu.Lock()
	patient := c.yields <= yieldsMax
	e.mu.Unlock()
	best := bestReplica(g, own, answers, patient)
	if s := answers[best]; s.sleeps() {
		e.wait(c, e.h.cfg.Stagger)
		e.h.spawn(func() { e.wakeAt(g, best) })
		return
	}
	rivals := e.electorate(g, own, answers).rivals()
	if !patient {
		// One that does not know of a change of members may be candidate again and again and never win.
		rivals = withoutRivalsBehind(own, answers)
	}
	rival := hasRival(own, rivals) || e.hasVoted(c, own, answers)
	if best == e.h.cfg.Local && !rival {
		e.inject(c)
		return
	}
	e.mu.Lock()
	c.yields++
	yields := c.yields
	e.mu.Unlock()
	if rival || yields <= yieldsMax {
		e.wait(c, e.h.cfg.Stagger<<min(yields-1, backoffMax))
		return
	}
	// The better replica does not act; perhaps it does not know that it should.
	e.wait(c, e.pause(c))
	ctx, cancel := context.WithTimeout(e.h.ctx, injectTimeout)
	defer cancel()
	e.h.counters.injectedAway.Add(1)
	if err := e.h.cfg.Mesh.InjectAt(ctx, g.replicaAt(best), g.spec.ID); err != nil {
		e.h.log.Debug("election cannot be injected", "node", best, "group", uint64(g.spec.ID), "err", err)
	}
}

// judge frees a replica that cannot win any more, and re-creates it if that fails. While
// votes are still under way, on an overloaded cluster, it must not: freeing costs a new
// election, and thousands of them would never end.
func (e *elections) judge(c *campaign, own replicaStatus, answers map[transport.NodeID]replicaStatus) {
	hopeless := !e.electorate(c.g, own, answers).canWin(e.h.cfg.Local, own)
	e.mu.Lock()
	if c.candidate.IsZero() {
		c.candidate = time.Now() // it was none when the voters were asked
	}
	since := time.Since(c.candidate)
	if since < 0 {
		// The first look. It may have to write its vote yet, so that it is not re-created.
		c.polling = false
		c.due = c.candidate.Add(e.h.cfg.CandidateMax)
		e.mu.Unlock()
		if hopeless && c.g.running.Load().wire.FreeCandidate(own.term) {
			e.h.counters.freed.Add(1)
			e.wait(c, e.h.cfg.Stagger)
		}
		return
	}
	again := c.freed
	longest := e.h.cfg.CandidateMax * candidateFactor
	lost := hopeless || hasRival(own, answers) || since >= longest
	if !lost && lostElection(own, answers) {
		// Where a voter has no time to answer, votes may be on their way too. What they said has arrived by the next
		// look, or will not.
		lost = c.reached == own.term || len(answers)+1 >= len(c.g.voters())
		c.reached = own.term
	}
	_, led := leaderAmong(answers, own.term)
	if led {
		// An injected candidate stays one under the leader that has won its term, and
		// would be no candidate for the next election. To raise its term would depose
		// that leader, so it is re-created.
		lost, again, since = true, true, longest
	}
	if !lost || again && since < longest {
		c.polling = false
		c.due = time.Now().Add(e.h.cfg.CandidateMax)
		e.mu.Unlock()
		return
	}
	if c.injected && !hopeless && !hasRival(own, answers) && !led {
		e.atOnce.ended(c.started, false, e.underWay)
	}
	c.freed, c.candidate = true, time.Now()
	e.mu.Unlock()
	e.wait(c, e.h.cfg.Stagger)
	if !again && c.g.running.Load().wire.FreeCandidate(own.term) {
		e.h.counters.freed.Add(1)
		return
	}
	e.mu.Lock()
	c.candidate, c.freed = time.Time{}, false
	e.mu.Unlock()
	c.g.renew("it stays candidate")
}

// hasWon tells whether this replica follows a leader that was elected after it had answered: it said so in an earlier term. An election of our own would
// depose it.
func hasWon(own replicaStatus, answers map[transport.NodeID]replicaStatus) bool {
	s, answered := answers[own.leader]
	return answered && s.known() && s.term < own.term
}

// awaitMembers tells whether to wait for other voters. Without answers of a majority
// nothing is known, perhaps a leader is at work. And votes of nodes that do not run a group
// that is being created are late or lost: a lost election costs more than a moment. The
// question itself made them start it.
func (e *elections) awaitMembers(c *campaign, answers map[transport.NodeID]replicaStatus) bool {
	running := 1
	for _, s := range answers {
		if s.known() {
			running++
		}
	}
	majority := len(c.g.voters())/2 + 1
	if running >= majority {
		return false
	}
	e.mu.Lock()
	c.lonely++
	lonely := c.lonely
	e.mu.Unlock()
	if lonely > lonelyMax && len(answers)+1 >= majority {
		return false
	}
	e.waitTogether(c, electionTick<<min(lonely, lonelyBackoffMax)/2)
	return true
}

func (e *elections) electorate(g *Group, own replicaStatus, answers map[transport.NodeID]replicaStatus) electorate {
	return electorate{
		voters: g.voters(), local: e.h.cfg.Local, own: own, others: answers,
		dead: func(n transport.NodeID) bool { return !e.h.mayLead(n) },
	}
}

// hasVoted tells whether this replica has voted in its term for a node that did not answer now: it may count the votes at this moment, or
// lead already. An election of our own would depose it.
func (e *elections) hasVoted(c *campaign, own replicaStatus, answers map[transport.NodeID]replicaStatus) bool {
	term, err := c.g.log.GetUint64([]byte("LastVoteTerm"))
	if err != nil || term != own.term {
		return false
	}
	b, err := c.g.log.Get([]byte("LastVoteCand"))
	n := transport.ReplicaID(b).Node()
	if _, answered := answers[n]; err != nil || answered || n == e.h.cfg.Local || !e.h.reachable(n) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.yields <= yieldsMax
}

// electedSince tells whether a voter, or this replica, follows a leader that was elected since the campaign began and could not be asked, as its
// node does not pass for living here: a process that was started again may lead sooner than it is found alive. An election of our own would depose
// it. What it leads is not known for certain, and for how long, so that it is waited for a few times only, and only while it has a link.
func (e *elections) electedSince(c *campaign, own replicaStatus, answers map[transport.NodeID]replicaStatus) bool {
	elected := func(s replicaStatus) bool {
		if s.leader == "" || s.leader == e.h.cfg.Local || s.term <= c.term || s.term < own.term {
			return false
		}
		_, answered := answers[s.leader]
		return !answered && e.h.cfg.Mesh.Peer(s.leader).Up
	}
	found := elected(own)
	for _, s := range answers {
		found = found || elected(s)
	}
	if !found {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c.heard++
	return c.heard <= heardMax
}

// hinted tells whether the leader is known by its own word only: raft has not heard of
// it, so the campaign goes on watching.
func (e *elections) hinted(g *Group, l leadership) bool {
	if l.self {
		return false
	}
	at, _ := g.replica().LeaderWithID()
	return at == ""
}
