package group

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// A follower hears with each append what was committed before it, and of the last entries only when
// raft's commit timer has it sent an append of nothing. That timer is long, because it
// wakes two processes for each follower of each group for ever. So the leader's host says it once, when
// nothing was appended for a moment, to all followers together with what it has to say about other
// groups. It goes on until the follower has accepted it: one that lacks entries is found
// by its refusal.

// spreadEvery is the time between two looks at the groups that have done something. What has not changed from
// one to the next is told to the followers.
const spreadEvery = time.Second

// spreadRestart is how long a node that has started again is left alone, unless its replica asks who leads, as it does when it runs.
const spreadRestart = 5 * time.Second

// spreading is what a leader knows of its followers' knowledge. It is guarded by Group.mu.
type spreading struct {
	term      uint64 // of the leadership that the rest belongs to
	seen      uint64 // commit index at the last look
	followers []listener
}

// listener is a follower that is told what is committed.
type listener struct {
	node transport.NodeID
	// index is committed as far as this process of the node knows.
	index, process uint64
	asked          bool // it was told and has not answered
	tries          int  // since it last accepted
	refusals       int  // among them
	next           time.Time
}

// listenerOf returns what is known of a follower in a term. Caller holds mu.
func (s *spreading) listenerOf(n transport.NodeID, term uint64) *listener {
	if s.term != term {
		*s = spreading{term: term}
	}
	for i := range s.followers {
		if s.followers[i].node == n {
			return &s.followers[i]
		}
	}
	s.followers = append(s.followers, listener{node: n})
	return &s.followers[len(s.followers)-1]
}

// spread tells followers that lack it how far the log is committed, when nothing was committed since the last look. It reports
// whether there is more to do: not all that can be reached are known to know it.
func (g *Group) spread(now time.Time) (more bool) {
	if !g.leading.Load() || g.settled.Swap(true) { // first, so that whoever finds something from here on is not missed
		return false
	}
	in := g.running.Load()
	term, commit, ok := settledLog(in.raft)
	if !ok {
		g.settled.Store(false)
		return true
	}
	g.mu.Lock()
	quiet := g.spreading.term == term && g.spreading.seen == commit
	if g.spreading.term != term {
		g.spreading = spreading{term: term}
	}
	g.spreading.seen = commit
	g.mu.Unlock()
	if quiet {
		for _, s := range g.configuration().Servers {
			more = g.spreadTo(in, transport.NodeID(s.Address), term, commit, now) || more
		}
	} else {
		more = true
	}
	if more {
		g.settled.Store(false)
	}
	return more
}

// settledLog returns the term in which r leads and its last index, if all is committed. The last entry of a leader is
// of its term.
func settledLog(r replica) (term, commit uint64, ok bool) {
	term, commit = r.CurrentTerm(), r.CommitIndex()
	ok = r.State() == raft.Leader && commit == r.LastIndex() && commit > 0 && r.CurrentTerm() == term
	return term, commit, ok
}

// spreadTo tells one node. It reports whether it has to be told again, or has not answered.
func (g *Group) spreadTo(in *instance, n transport.NodeID, term, commit uint64, now time.Time) (more bool) {
	peer := g.host.cfg.Mesh.Peer(n)
	if n == g.host.cfg.Local || !peer.Up {
		return false // its return is noticed
	}
	g.mu.Lock()
	l := g.spreading.listenerOf(n, term)
	if l.process != peer.Process {
		if l.process != 0 {
			l.next = now.Add(spreadRestart)
		}
		l.process, l.index, l.tries, l.refusals = peer.Process, 0, 0, 0
	}
	if l.index >= commit {
		g.mu.Unlock()
		return false
	}
	wait := l.asked || now.Before(l.next)
	refused := l.refusals > 1
	if !wait {
		l.asked = true
		l.next = now.Add(min(barrierPauseMin<<l.tries, barrierPauseMax))
		l.tries = min(l.tries+1, triesMax)
	}
	g.mu.Unlock()
	if wait {
		return true
	}
	if refused {
		// Raft has no reason of its own to look what the follower lacks, and would send one request of it if a pipeline is
		// open: the first barrier ends that, the next one has all sent.
		g.lacking.Store(&n)
		g.host.counters.barriers.Add(1)
		in.raft.Barrier(barrierWait)
	}
	g.host.counters.spread.Add(1)
	err := in.wire.SpreadCommit(g.replicaAt(n), term, commit, term, func(accepted, refused bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		l := g.spreading.listenerOf(n, term)
		l.asked = false
		switch {
		case accepted && l.process == peer.Process:
			l.index, l.tries, l.refusals = commit, 0, 0
		case refused:
			l.refusals++
		}
	})
	if err != nil {
		g.mu.Lock()
		g.spreading.listenerOf(n, term).asked = false
		g.mu.Unlock()
	}
	return true
}

// triesMax bounds the doubling of the pause.
const triesMax = 6

// told notes that a follower has accepted an append of nothing, or a heartbeat. last is where its log ends. anew tells that its node did not
// run the group a moment ago: the replica has forgotten what is committed, and if this is how it finds its leader it does not ask who leads.
func (g *Group) told(n transport.NodeID, term, commit, last uint64, heartbeat, anew bool) {
	process := g.host.cfg.Mesh.Peer(n).Process
	g.mu.Lock()
	if !g.seen.self || g.seen.term != term {
		g.mu.Unlock()
		return
	}
	l := g.spreading.listenerOf(n, term)
	if !heartbeat {
		l.process, l.index, l.tries, l.refusals = process, max(l.index, commit), 0, 0
	}
	lacks := l.process != process || last < l.index || heartbeat && anew
	if lacks {
		l.process, l.index, l.next = process, 0, time.Time{}
	}
	g.mu.Unlock()
	if lacks {
		g.unsettle()
	}
}

// ignorant notes that a follower has said that it knows no leader, and tells it.
func (g *Group) ignorant(n transport.NodeID) {
	if !g.leading.Load() || g.asleep.Load() {
		return
	}
	in := g.running.Load()
	term, commit, ok := settledLog(in.raft)
	process := g.host.cfg.Mesh.Peer(n).Process
	g.mu.Lock()
	l := g.spreading.listenerOf(n, term)
	l.process, l.index, l.next = process, 0, time.Time{}
	g.mu.Unlock()
	g.unsettle()
	if ok {
		g.spreadTo(in, n, term, commit, time.Now())
	}
}

// remind asks the leader to say what is committed.
func (g *Group) remind(leader transport.NodeID) {
	g.host.spawn(func() {
		for !g.askCommit(leader) {
			// Its link may just be coming back.
			select {
			case <-time.After(quorumRetry):
			case <-g.stopped:
				return
			case <-g.host.ctx.Done():
				return
			}
			if l, _, ok := g.Leader(); !ok || l != leader {
				g.forgot.Store(true) // the next one is asked
				g.sync(g.replica())
				return
			}
		}
	})
}

// askCommit asks a leader once; false if it did not answer.
func (g *Group) askCommit(leader transport.NodeID) bool {
	ctx, cancel := context.WithTimeout(g.host.ctx, pollTimeout)
	defer cancel()
	all, err := g.host.askStatus(ctx, leader, askLeaderless|askSleeps, []transport.GroupID{g.spec.ID})
	if err != nil {
		g.host.log.Debug("leader cannot be asked what is committed", "group", uint64(g.spec.ID), "err", err)
		return false
	}
	if s := all[0]; s.sleeps() && s.leads() {
		g.host.elections.sleepToo(g, leadership{term: s.term, leader: leader}, g.status(), s)
	}
	return true
}

// unsettle has the watchdogs find out which followers lack something.
func (g *Group) unsettle() {
	if g.leading.Load() && !g.asleep.Load() {
		g.settled.Store(false)
		g.host.watch.rouse(g)
	}
}
