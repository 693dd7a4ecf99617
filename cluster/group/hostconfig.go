package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/warrenmq/warren/transport"
)

// HostConfig tunes a Host. Zero bounds and durations take their defaults.
type HostConfig struct {
	// Local is this node; required.
	Local transport.NodeID
	// Store keeps the replicas; required. The caller closes it after the host.
	Store Storage
	// Mesh connects the nodes; required. The caller closes it after the host.
	Mesh Network
	// Detector gives the verdicts about nodes; required. The caller closes it after the host.
	Detector Liveness
	// Profile holds raft's timers; default QueueProfile.
	Profile Profile
	// Logger receives state changes; default slog.Default.
	Logger *slog.Logger
	// OnUnknown is called when another node speaks of a group that does not run here;
	// catalogIndex is that node's catalog index, 0 if it did not say. The owner starts the group if its
	// catalog lists it here. It may block; one call per group at a time.
	OnUnknown func(g transport.GroupID, from transport.NodeID, catalogIndex uint64)

	// OnReached is called at the leader when the members of a group are those of Group.Want and this is committed, and so is
	// an entry that it has proposed since; and again every five seconds until something else is wanted. It may block until ctx ends.
	OnReached func(ctx context.Context, g transport.GroupID, revision uint64)
	// OnDamaged is called when a replica has ended because its log is damaged (ErrDamaged).
	OnDamaged func(g transport.GroupID)
	// Current tells whether the newest plan for a group, read up to date, is that of revision. It is asked once in each leadership
	// before the first change for a revision, and may block until ctx ends. Nil: always.
	Current func(ctx context.Context, g transport.GroupID, revision uint64) (bool, error)

	// SyncOutstanding tells for how long the present write of the node's log has been under way, 0 if none is. Nil: 0.
	SyncOutstanding func() time.Duration
	// StuckMax is how long that may be before other nodes are made to lead what is led here; default 2 s.
	StuckMax time.Duration

	// Lease is the node lease; default 2 s. All nodes must agree on it.
	Lease time.Duration
	// SleepAfter is how long a group has to be idle until its replicas end their Raft instances, to begin new ones when the group is needed;
	// default 0, never.
	SleepAfter time.Duration
	// Stagger is the pause between two ranks of survivors in an election; default 150 ms.
	Stagger time.Duration
	// FirstStagger is the same for a group that never had a leader; default 300 ms.
	FirstStagger time.Duration
	// CandidateMax is how long a replica may stay Candidate; default 500 ms.
	CandidateMax time.Duration
	// ProposeDeadline is the age at which a proposal is answered ErrUnknown, or
	// ErrOverloaded if it never reached raft; default 30 s, checked every Check.
	ProposeDeadline time.Duration
	// Check is the period of the watchdogs; default 250 ms.
	Check time.Duration
	// SnapshotBytes is how many reclaimable bytes make a snapshot worth while; default 8 MiB.
	SnapshotBytes int64
	// ReplayBytes is how much log makes a snapshot worth while although it frees nothing: a replica that starts
	// applies what is above its newest snapshot again. Default 256 MiB.
	ReplayBytes int64
	// TrailingBytes is how much log is kept behind a snapshot for slow followers;
	// default 8 MiB.
	TrailingBytes int64

	// ElectionsMax bounds concurrent injected elections; default 256.
	ElectionsMax int
	// MovesPerSecond is how many leaderships this node gives back in a second to the nodes at
	// which the groups are at home (Group.SetHome); default 0, none.
	MovesPerSecond int
	// MoveSettle is how long such a node must have been alive; default 10 s.
	MoveSettle time.Duration
	// Fill bounds what is sent to replicas that have no vote yet, which are being filled; nil: no bound. The transport's bounds snapshots.
	Fill *transport.Pace
	// ReachMax bounds groups whose members are being changed at a time; default 8.
	ReachMax int
	// StartsMax bounds groups being started at a time, and those that wake; default 16.
	StartsMax int
	// SnapshotsMax bounds snapshots being taken at a time; default 2.
	SnapshotsMax int
	// UnknownMax bounds concurrent calls of OnUnknown; default 64.
	UnknownMax int
	// InFlightMax bounds a group's proposals in raft; default and most 48.
	InFlightMax int
	// BacklogMax and BacklogBytesMax bound a group's waiting proposals; defaults 1,024
	// and 16 MiB.
	BacklogMax      int
	BacklogBytesMax int
}

// inFlightCeiling leaves room for barriers in raft's apply channel of 64, so that
// handing over a proposal does not wait.
const inFlightCeiling = 48

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

func (c HostConfig) withDefaults() HostConfig {
	if c.Profile == (Profile{}) {
		c.Profile = QueueProfile()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.SyncOutstanding == nil {
		c.SyncOutstanding = func() time.Duration { return 0 }
	}
	orDefault(&c.StuckMax, 2*time.Second)
	orDefault(&c.Lease, 2*time.Second)
	orDefault(&c.Stagger, 150*time.Millisecond)
	orDefault(&c.FirstStagger, 300*time.Millisecond)
	orDefault(&c.CandidateMax, 500*time.Millisecond)
	orDefault(&c.ProposeDeadline, 30*time.Second)
	orDefault(&c.Check, 250*time.Millisecond)
	orDefault(&c.SnapshotBytes, 8<<20)
	orDefault(&c.ReplayBytes, 256<<20)
	orDefault(&c.TrailingBytes, 8<<20)
	orDefault(&c.ElectionsMax, 256)
	orDefault(&c.MoveSettle, 10*time.Second)
	orDefault(&c.ReachMax, 8)
	orDefault(&c.StartsMax, 16)
	orDefault(&c.SnapshotsMax, 2)
	orDefault(&c.UnknownMax, 64)
	orDefault(&c.InFlightMax, inFlightCeiling)
	c.InFlightMax = min(c.InFlightMax, inFlightCeiling)
	orDefault(&c.BacklogMax, 1024)
	orDefault(&c.BacklogBytesMax, 16<<20)
	return c
}

// Validate reports every problem of the configuration at once.
func (c HostConfig) Validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, fmt.Errorf("group: %s is missing", what))
		}
	}
	need(c.Local != "", "local node id")
	need(c.Store != nil, "store")
	need(c.Mesh != nil, "mesh")
	need(c.Detector != nil, "detector")
	return errors.Join(append(errs, c.withDefaults().Profile.Validate())...)
}
