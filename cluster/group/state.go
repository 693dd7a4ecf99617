package group

import (
	"fmt"
	"time"

	"github.com/warrenmq/warren/transport"
)

// KeepLog keeps the replica from taking snapshots until release is called, so that whatever the log or the newest snapshot
// has stays readable. It waits for one that is under way. release is called once.
func (g *Group) KeepLog() (release func()) {
	g.snapshot.Lock()
	return g.snapshot.Unlock
}

// ConfirmLeader waits, at most until then, for a proof that this replica has led the group in term at some moment after since: a quorum
// of the voters has answered pings that were sent later, and none of them had turned away from it (see HasLease). Nobody else
// has led in a later term up to that moment.
func (g *Group) ConfirmLeader(term uint64, since, until time.Time, wait func(time.Duration) bool) error {
	after := since.Sub(g.host.began)
	for _, s := range g.configuration().Servers {
		g.host.cfg.Mesh.Ping(transport.NodeID(s.Address), since)
	}
	for {
		in := g.running.Load()
		if !g.leading.Load() || in.raft.CurrentTerm() != term {
			return fmt.Errorf("confirm the leader of group %d in term %d: %w", g.spec.ID, term, ErrNotLeader)
		}
		now := time.Since(g.host.began)
		lease, doubtful := g.lease(in, now)
		if lease-g.host.cfg.Lease > after && g.leading.Load() && in.raft.CurrentTerm() == term {
			return nil
		}
		if doubtful {
			g.rouse(true) // a voter has turned away from this node, perhaps in another group; asleep it cannot be asked
			g.verify(in, now)
		}
		if !time.Now().Before(until) || !wait(confirmPause) {
			return fmt.Errorf("confirm the leader of group %d in term %d: no quorum has answered", g.spec.ID, term)
		}
	}
}

// confirmPause is the wait between two looks at the pings.
const confirmPause = 2 * time.Millisecond
