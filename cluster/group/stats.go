package group

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/transport"
)

// counters are the totals behind HostStats.
type counters struct {
	injected, injectedAway, freed, recycled, barriers, expired, spread atomic.Uint64
	snapshots, snapshotsFailed, transfers, transfersFailed, fled       atomic.Uint64
	homes, homesFailed, dozed, woken                                   atomic.Uint64
	searches                                                           searchTimes
}

// SearchClasses is the number of classes of Searches.
const SearchClasses = 18

// Searches tells how long groups here were without a leader that this node knew of.
type Searches struct {
	// Classes[i] counts those of less than 2^i ms and not less than half of it; the last has no end.
	Classes [SearchClasses]uint64
	Sum     time.Duration
}

// searchTimes is Searches in the making.
type searchTimes struct {
	classes [SearchClasses]atomic.Uint64
	sum     atomic.Int64
}

func (t *searchTimes) note(d time.Duration) {
	t.classes[min(bits.Len64(uint64(max(0, d.Milliseconds()))), SearchClasses-1)].Add(1)
	t.sum.Add(int64(d))
}

func (t *searchTimes) read() (s Searches) {
	for i := range t.classes {
		s.Classes[i] = t.classes[i].Load()
	}
	s.Sum = time.Duration(t.sum.Load())
	return s
}

// HostStats are totals since the host was created, and gauges where named so.
type HostStats struct {
	Groups    int // gauge: running replicas
	Leading   int // gauge: replicas that lead
	Searching int // gauge: groups whose leader is being looked for
	Asleep    int // gauge: replicas that sleep
	// Dozed and Woken count replicas that fell asleep and woke.
	Dozed, Woken uint64
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
	// Fled counts leaderships that other nodes were made to take because the log here did not get on.
	Fled uint64
	// Away (gauge) are groups that are led here and at home on another node; MovedHome and
	// MovesHomeFailed count leaderships given back, and moves that did not succeed.
	Away                       int
	MovedHome, MovesHomeFailed uint64
	// Searches are the times from missing a leader to knowing one.
	Searches Searches
}

// Stats returns the host's figures.
func (h *Host) Stats() HostStats {
	c := &h.counters
	s := HostStats{
		ElectionsInjected: c.injected.Load(), ElectionsInjectedAway: c.injectedAway.Load(),
		CandidatesFreed: c.freed.Load(), InstancesRecycled: c.recycled.Load(),
		Barriers: c.barriers.Load(), ProposalsExpired: c.expired.Load(),
		Snapshots: c.snapshots.Load(), SnapshotsFailed: c.snapshotsFailed.Load(),
		Transfers: c.transfers.Load(), TransfersFailed: c.transfersFailed.Load(), Fled: c.fled.Load(),
		Away: h.balance.away(), MovedHome: c.homes.Load(), MovesHomeFailed: c.homesFailed.Load(),
		Searches: c.searches.read(),
		Dozed:    c.dozed.Load(), Woken: c.woken.Load(),
	}
	for _, g := range h.Groups() {
		s.Groups++
		if g.IsLeader() {
			s.Leading++
		}
		if g.asleep.Load() {
			s.Asleep++
		}
	}
	h.elections.mu.Lock()
	s.Searching = len(h.elections.campaigns)
	h.elections.mu.Unlock()
	return s
}

// Dozed is that of Stats, at no cost.
func (h *Host) Dozed() uint64 { return h.counters.dozed.Load() }

// Stats describes a replica at one moment.
type Stats struct {
	State   string // Follower, Candidate, Leader or Shutdown, which one that sleeps is, too
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

// Positions are where a replica's log stands.
type Positions struct{ Term, Last, Commit, Applied uint64 }

// Positions returns that part of Stats which costs next to nothing, for figures of thousands of groups.
func (g *Group) Positions() Positions {
	r := g.replica()
	return Positions{Term: r.CurrentTerm(), Last: r.LastIndex(), Commit: r.CommitIndex(), Applied: g.apply.applied.Load()}
}
