package group

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// verifyPause is the least time between two questions to the voters whether this
// replica still leads.
const verifyPause = 100 * time.Millisecond

// verifyStall is how old a write of the log is when raft is not asked: its main goroutine may wait for it, and what it does not take fills a channel that its
// replicators need.
const verifyStall = 500 * time.Millisecond

// HasLease tells whether this replica leads and no other can have been elected more than the
// lease (two seconds) ago: a quorum of the voters, itself included, has answered pings
// that this node sent within that time, and each had, when it answered, not turned away from this
// node since it last accepted an append of this replica in this term (see
// transport.Support). A quorum that answers pings is not enough: the voters of a leader that was cut off
// and replaced answer as soon as it is back, long before it hears of its successor.
func (g *Group) HasLease() bool {
	in := g.running.Load()
	if g.asleep.Load() {
		if g.leading.Load() {
			g.rouse(true) // who asks wants to act
		}
		return false
	}
	if !g.leading.Load() || in.raft.State() != raft.Leader {
		return false
	}
	now := time.Since(g.host.began)
	had := time.Duration(g.leaseUntil.Load())
	if now < had-g.host.cfg.Lease/2 {
		return true
	}
	until, doubtful := g.lease(in, now)
	if doubtful && until < now+g.host.cfg.Lease/2 {
		g.verify(in, now)
	}
	if until > had {
		had = until
		g.mu.Lock()
		if g.seen.self {
			g.leaseUntil.Store(int64(until))
		}
		g.mu.Unlock()
	}
	return now < had && g.leading.Load() && in.raft.State() == raft.Leader
}

// lease returns when the lease ends that the newest answers give, on the clock of the
// host's start, 0 for none. doubtful tells that a voter answers which has turned away since it
// followed this leader, or never has.
func (g *Group) lease(in *instance, now time.Duration) (until time.Duration, doubtful bool) {
	term := in.raft.CurrentTerm()
	voters := 0
	servers := g.configuration().Servers
	sent := make([]time.Duration, 0, len(servers))
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		v := transport.NodeID(s.Address)
		if v == g.host.cfg.Local {
			sent = append(sent, now)
			continue
		}
		peer := g.host.cfg.Mesh.Peer(v)
		at := peer.LastAnswered.Sub(g.host.began)
		if peer.LastAnswered.IsZero() || now >= at+g.host.cfg.Lease {
			continue
		}
		if had, ok := in.wire.SupportFrom(transport.ReplicaID(s.ID), term); !ok || had != peer.Support {
			doubtful = true
			continue
		}
		sent = append(sent, at)
	}
	quorum := voters/2 + 1
	if voters == 0 || len(sent) < quorum {
		return 0, doubtful
	}
	// The lease ends when the oldest ping of the freshest quorum grows too old.
	slices.Sort(sent)
	return sent[len(sent)-quorum] + g.host.cfg.Lease, doubtful
}

// verify has raft send heartbeats at once. Voters that accept them support this leader again.
func (g *Group) verify(in *instance, now time.Duration) {
	if now-time.Duration(g.verified.Load()) < verifyPause || g.host.cfg.SyncOutstanding() >= verifyStall || !g.verifying.CompareAndSwap(false, true) {
		return
	}
	g.verified.Store(int64(now))
	ok := g.host.spawn(func() {
		defer g.verifying.Store(false)
		g.tryAgain() // a heartbeat that is held back
		// It may wait for raft's main goroutine, which may be writing. The answer is not needed.
		in.raft.VerifyLeader()
	})
	if !ok {
		g.verifying.Store(false)
	}
}
