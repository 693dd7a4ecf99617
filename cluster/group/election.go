package group

import (
	"time"

	"github.com/warrenmq/warren/transport"
)

// Election is how a replica became leader.
type Election struct {
	Term uint64
	At   time.Time
	// From is the leader before that this replica knew last, which may be itself; "" if it has known none since it runs.
	From transport.NodeID
	// FromUp: that could be reached then, so that it was relieved, or stood down. Else it is why there was an election.
	FromUp bool
}

// formerIsUp tells whether the leader that was known last can be reached.
func (g *Group) formerIsUp() bool {
	g.mu.Lock()
	former := g.former
	g.mu.Unlock()
	return former == g.host.cfg.Local || former != "" && g.host.reachable(former)
}

// noteElection remembers the first moment of a leadership. Caller holds mu.
func (g *Group) noteElection(now leadership, wasUp bool) {
	if now.self && g.election.Term != now.term {
		g.election = Election{Term: now.term, At: time.Now(), From: g.former, FromUp: wasUp}
	}
	if now.leader != "" {
		g.former = now.leader
	}
}
