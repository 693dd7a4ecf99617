package group

import (
	"context"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// Log is the durable part of one replica; *store.Group has it.
type Log interface {
	raft.LogStore
	raft.StableStore
	// Snapshots returns the group's snapshot store. Sinks that also have
	// WriteManifest receive manifest and pins, others the bare manifest.
	// A snapshot that is opened should tell its index (Index() uint64), so that the machine
	// never goes back to an older one.
	Snapshots() raft.SnapshotStore
	// Read returns the data of an entry that is in the log or pinned.
	Read(index uint64) ([]byte, error)
}

// Storage keeps the replicas of a node; see OverStore.
type Storage interface {
	Group(transport.GroupID) Log
	// DeleteGroup wipes every durable trace of a group that is not running.
	DeleteGroup(transport.GroupID) error
	// ReadManifest takes the manifest out of an opened snapshot.
	ReadManifest(io.Reader) ([]byte, error)
}

// manifestSink is the sink of a store that keeps entries as messages.
type manifestSink interface {
	raft.SnapshotSink
	WriteManifest(manifest []byte, pins []store.Range) error
}

// RaftTransport is the wire of one replica; *transport.RaftTransport has it.
type RaftTransport interface {
	raft.Transport
	raft.WithPreVote
	raft.WithClose
	// InjectTimeoutNow makes the local replica start an election at once.
	InjectTimeoutNow() error
	// FreeCandidate answers one open vote request of the local candidate in term
	// with a refusal of the next term, which makes it a follower. It reports
	// whether such a request was open.
	FreeCandidate(term uint64) bool
	// SupportFrom returns what a voter said of its support when it last accepted an append
	// of this replica as the leader of term.
	SupportFrom(voter transport.ReplicaID, term uint64) (transport.Support, bool)
	// SpreadCommit tells a replica that what ends with the entry at index, of entryTerm, is committed. It does not
	// wait; done is called once if and only if the error is nil.
	SpreadCommit(to transport.ReplicaID, term, index, entryTerm uint64, done func(accepted, refused bool)) error
	// Leave tells that the replica is being removed for good.
	Leave()
	// Rest closes the wire of a replica that falls asleep: unlike Close that is no turning away from a leader. Following returns whom the
	// replica has followed, once raft has stopped, and Resume gives it to the wire that the replica wakes with, before raft runs.
	Rest()
	Following() transport.Following
	Resume(transport.Following)
}

// Network connects the nodes; see OverMesh.
type Network interface {
	detector.Network
	// Raft opens the wire of this node's replica of a group, of the generation that it has.
	Raft(g transport.GroupID, generation uint64) RaftTransport
	// InjectAt makes another replica start an election at once.
	InjectAt(ctx context.Context, to transport.ReplicaID, g transport.GroupID) error
	// Ping has a node answer a ping that was sent after since, without a wait for the next one that is due.
	Ping(n transport.NodeID, since time.Time)
	// OnUnknownGroup registers a callback for frames of a group that does not run here.
	OnUnknownGroup(func(g transport.GroupID, from transport.NodeID, catalogIndex uint64))
}

// Liveness is the verdict about nodes; *detector.Detector has it.
type Liveness interface {
	State(transport.NodeID) detector.State
	// UnheardBy are the nodes that do not hear a suspect, this one included; nil if it is none.
	UnheardBy(transport.NodeID) []transport.NodeID
	Subscribe(func(detector.Event)) (cancel func())
}
