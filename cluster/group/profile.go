package group

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// Profile holds the timers of a group's Raft instance. They are the safety net under
// the detector: long, so that thousands of idle groups cost little.
type Profile struct {
	// Heartbeat is raft's HeartbeatTimeout; heartbeats go out every tenth to fifth of it.
	Heartbeat time.Duration
	// Election is raft's ElectionTimeout, at least Heartbeat.
	Election time.Duration
	// Lease is raft's LeaderLeaseTimeout: more than Heartbeat/5 plus stalls, at most
	// Heartbeat.
	Lease time.Duration
	// Commit is raft's CommitTimeout: an idle leader sends an empty append after one to two of it. Followers do not wait
	// for that, see Group.spread.
	Commit time.Duration
	// AppendEntriesMax is how many entries one append carries at most, 1 to 1024.
	AppendEntriesMax int
}

// QueueProfile returns the timers of a queue group on a node with many groups.
func QueueProfile() Profile {
	return Profile{
		Heartbeat: time.Minute, Election: time.Minute, Lease: 30 * time.Second,
		Commit: 10 * time.Minute, AppendEntriesMax: 64,
	}
}

// Validate reports every problem of the profile at once.
func (p Profile) Validate() error {
	var errs []error
	if p.Lease <= p.Heartbeat/5 {
		errs = append(errs, fmt.Errorf("group: lease %s must exceed a fifth of heartbeat %s", p.Lease, p.Heartbeat))
	}
	c := p.raftConfig("check", nil)
	if err := raft.ValidateConfig(c); err != nil {
		errs = append(errs, fmt.Errorf("group: profile: %w", err))
	}
	return errors.Join(errs...)
}

// snapshotNever is raft's own snapshot period; snapshots are the host's affair.
const snapshotNever = 24 * time.Hour

func (p Profile) raftConfig(self transport.ReplicaID, log *raftLog) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(self)
	c.HeartbeatTimeout = p.Heartbeat
	c.ElectionTimeout = p.Election
	c.LeaderLeaseTimeout = p.Lease
	c.CommitTimeout = p.Commit
	c.MaxAppendEntries = p.AppendEntriesMax
	// A buffered apply channel groups better; the deadline is the proposer's.
	c.BatchApplyCh = true
	// A removed replica is stopped by its owner, who knows why.
	c.ShutdownOnRemove = false
	c.SnapshotInterval = snapshotNever
	c.SnapshotThreshold = math.MaxUint64
	c.TrailingLogs = trailingEntriesMax
	c.PreVoteDisabled = false
	c.NoLegacyTelemetry = true
	// The library's replay at start loses the membership (MULTIRAFT 0.4).
	c.RestoreCommittedLogs = false
	if log != nil {
		c.Logger = log
	}
	return c
}
