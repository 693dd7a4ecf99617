package group

import (
	"sync/atomic"

	"github.com/warrenmq/warren/transport"
)

// counters are the totals behind HostStats.
type counters struct {
	injected, injectedAway, freed, recycled, barriers, expired atomic.Uint64
	snapshots, snapshotsFailed, transfers, transfersFailed     atomic.Uint64
}

// HostStats are totals since the host was created, and gauges where named so.
type HostStats struct {
	Groups    int // gauge: running replicas
	Leading   int // gauge: replicas that lead
	Searching int // gauge: groups whose leader is being looked for
	// ElectionsInjected counts elections started here, ElectionsInjectedAway those
	// started on a better replica that did not act.
	ElectionsInjected, ElectionsInjectedAway uint64
	// CandidatesFreed and InstancesRecycled count replicas that stayed candidate.
	CandidatesFreed, InstancesRecycled uint64
	// Barriers counts barriers after broken replication streams.
	Barriers uint64
	// ProposalsExpired counts proposals that reached their deadline.
	ProposalsExpired           uint64
	Snapshots, SnapshotsFailed uint64
	Transfers, TransfersFailed uint64
}

// Stats returns the host's figures.
func (h *Host) Stats() HostStats {
	c := &h.counters
	s := HostStats{
		ElectionsInjected: c.injected.Load(), ElectionsInjectedAway: c.injectedAway.Load(),
		CandidatesFreed: c.freed.Load(), InstancesRecycled: c.recycled.Load(),
		Barriers: c.barriers.Load(), ProposalsExpired: c.expired.Load(),
		Snapshots: c.snapshots.Load(), SnapshotsFailed: c.snapshotsFailed.Load(),
		Transfers: c.transfers.Load(), TransfersFailed: c.transfersFailed.Load(),
	}
	for _, g := range h.Groups() {
		s.Groups++
		if g.IsLeader() {
			s.Leading++
		}
	}
	h.elections.mu.Lock()
	s.Searching = len(h.elections.campaigns)
	h.elections.mu.Unlock()
	return s
}

// Stats describes a replica at one moment.
type Stats struct {
	State   string // Follower, Candidate, Leader or Shutdown
	Term    uint64
	Leader  transport.NodeID // empty while unknown
	Last    uint64           // newest entry of the log
	Commit  uint64
	Applied uint64 // newest entry the machine has seen
	// ReclaimableBytes is what a snapshot would free.
	ReclaimableBytes int64
	// InFlight are proposals handed to raft, Waiting those still in the backlog.
	InFlight, Waiting int
	Members           []Member
}

// Stats returns the replica's figures.
func (g *Group) Stats() Stats {
	r := g.replica()
	g.mu.Lock()
	inFlight, waiting, leader := len(g.inFlight), len(g.backlog), g.seen.leader
	g.mu.Unlock()
	return Stats{
		State: r.State().String(), Term: r.CurrentTerm(), Leader: leader,
		Last: r.LastIndex(), Commit: r.CommitIndex(), Applied: g.apply.applied.Load(),
		ReclaimableBytes: g.apply.freeable.Load(),
		InFlight:         inFlight, Waiting: waiting, Members: g.Members(),
	}
}
