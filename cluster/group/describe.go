package group

import (
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// Description is what a replica knows of itself, for people.
type Description struct {
	State      string           // follower, candidate, leader or shutdown; of one that sleeps what it was
	Leader     transport.NodeID // that it follows, or itself; "" if it knows none. It may have died
	Term       uint64
	Last       uint64 // newest entry of the log
	Commit     uint64
	Applied    uint64
	Snapshot   uint64 // the newest entry that is in a snapshot
	Generation uint64
	// Member: it is in the newest configuration that it has, and Voter, with a vote.
	Member, Voter bool
	// Election is how it became leader; zero if it does not lead.
	Election Election
}

// Describe tells how the replica is.
func (g *Group) Describe() Description {
	r := g.replica()
	d := Description{
		State: strings.ToLower(r.State().String()), Term: r.CurrentTerm(), Last: r.LastIndex(), Commit: r.CommitIndex(),
		Applied: g.apply.applied.Load(), Generation: g.spec.Generation,
	}
	if l, _, ok := g.Leader(); ok {
		d.Leader = l
	}
	if g.asleep.Load() {
		d.State = "follower"
		if d.Leader == g.host.cfg.Local {
			d.State = "leader"
		}
	}
	g.mu.Lock()
	if g.seen.self && g.election.Term == g.seen.term {
		d.Election = g.election
	}
	g.mu.Unlock()
	if metas, err := g.log.Snapshots().List(); err == nil && len(metas) > 0 {
		d.Snapshot = metas[0].Index
	}
	servers := g.configuration().Servers
	if i := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == raft.ServerID(g.self) }); i >= 0 {
		d.Member, d.Voter = true, servers[i].Suffrage == raft.Voter
	}
	return d
}
