package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// NodeID names one incarnation of a node: "node-id/storage-uuid". It equals the
// raft.ServerID and the raft.ServerAddress of the node's replicas as a string.
type NodeID string

// GroupID names a Raft group. 1 is the catalog's group; queue groups are larger.
type GroupID uint64

// CatalogGroup is the group of the metadata catalog.
const CatalogGroup GroupID = 1

// Config describes a Mesh. Zero values of the bounds take the defaults given with
// each field.
type Config struct {
	// Local is this node's identity; required.
	Local NodeID
	// Listener accepts the other nodes' connections; required. The mesh owns and
	// closes it.
	Listener net.Listener
	// ClusterID returns the id of the cluster this node belongs to, "" while it is
	// virgin; required. Asked at every handshake.
	ClusterID func() string
	// Resolve returns the socket address of a node; required. Asked at every dial,
	// so that addresses may change at any time.
	Resolve func(NodeID) (addr string, ok bool)
	// Level is the newest level of clusters that this program knows, which links tell; 1. See package cluster/level.
	Level int
	// LevelMin returns the level of the cluster: a node whose program knows less is refused. Nil means 1. Asked at every
	// handshake.
	LevelMin func() int
	// Logger receives state changes of links; nothing is logged if nil.
	Logger *slog.Logger

	// Dial opens a connection; a plain TCP dialler if nil.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Secure secures the connections; nil means no encryption, which is meant for
	// loopback and closed networks.
	Secure *Secure

	// Began is the wall time of the node's start, on which its clock goes on; zero means now.
	Began time.Time
	// Healthy reports whether the local log makes progress. While it returns false no
	// AppendEntries leaves this node, so that followers of a leader with a hanging
	// disk elect another. Nil means always healthy. Asked per request: must be quick.
	Healthy func() bool
	// CatalogIndex is stamped on vote and append requests so that a receiver that does
	// not run the group yet knows how far its catalog has to be. Nil means 0.
	CatalogIndex func() uint64
	// Fill bounds the snapshots of all groups but the catalog's; nil: no bound.
	Fill *Pace
	// OpenCall tells whether a method may be called by address by a node that
	// is in no cluster, or while this node is in none. Nil opens every method
	// to such callers; a node of another cluster is refused in any case unless
	// OpenCall is set and admits the method.
	OpenCall func(method uint8) bool
	// Handlers are set as by [Mesh.Handle], but before any node can send: for what is said once, when a link is made.
	Handlers map[uint8]func(from NodeID, payload []byte)

	// PingInterval is the time between two pings of a link; 250 ms.
	PingInterval time.Duration
	// SilenceMax is the age of the newest answered ping at which a link is torn down
	// and dialled again; 3 s, and three times as much while the peer itself is heard. Too small tears links of a starved node, too large
	// delays the return after a partition.
	SilenceMax time.Duration
	// DialTimeout bounds one connection attempt with its handshake; 3 s.
	DialTimeout time.Duration
	// RedialMin and RedialMax bound the pause between attempts; 50 ms and 500 ms.
	RedialMin, RedialMax time.Duration
	// IdleMax is the time after which a link to a node not named by SetPeers is dropped when
	// nothing used it; 60 s.
	IdleMax time.Duration

	// StreamWait is how long a Raft request waits for a lost link to return; 5 s.
	StreamWait time.Duration
	// AnswerWait is how long a Raft request waits for its answer; 10 s.
	AnswerWait time.Duration
	// VoteHold is how long a vote is waited for, and a refused or unanswerable one is kept open for
	// RaftTransport.FreeCandidate; 10 s, and 3 s in the group of the catalog.
	VoteHold time.Duration
	// GroupHold is how long a frame for a group that does not run here waits for the
	// host to start it; 1 s.
	GroupHold time.Duration
	// SnapshotStall is the longest pause between two chunks of a snapshot; 15 s.
	SnapshotStall time.Duration
	// SnapshotAnswerWait is how long the sender waits after the last chunk while the
	// receiver restores; 5 min.
	SnapshotAnswerWait time.Duration
	// CallTimeout bounds calls whose context has no deadline; 30 s.
	CallTimeout time.Duration

	// AppendBytesMax is the size to which AppendEntries requests are shortened; 4 MiB.
	// A single larger entry is sent alone.
	AppendBytesMax int
	// PipelineDepth is the number of append frames in flight for each group and
	// follower; 2. 1 turns pipelining off.
	PipelineDepth int
	// InboxDepth is the number of Raft requests waiting for each group; 8.
	InboxDepth int
	// InboxBytesMax bounds the bytes of all waiting Raft requests of the node, held ones among them, which are half of it at most; 256 MiB.
	InboxBytesMax int64
	// HeldFramesMax bounds the frames held for groups that do not run here yet; 4096.
	HeldFramesMax int
	// QueueBytesMax bounds the bytes queued to one peer, for application
	// messages and for everything else separately; 16 MiB each.
	QueueBytesMax int
	// WindowBytes is how many bytes of application messages a peer may have
	// undelivered here; 8 MiB.
	WindowBytes int
	// FrameBytesMax bounds one frame, hence one entry or payload; 160 MiB.
	FrameBytesMax int
	// Workers bounds the goroutines running call handlers; 128. WorkerQueueMax bounds
	// the calls waiting for one; 4096.
	Workers, WorkerQueueMax int
	// Snapshots bounds the snapshots sent and, separately, received at a time, those of queues and those of the catalog
	// each; 2.
	Snapshots int
	// GuestsMax bounds the open connections to Listener on which no node of the cluster has shown itself; 256. Beyond it the oldest is closed.
	GuestsMax int
}

// withDefaults returns c with every unset bound filled in.
func (c Config) withDefaults() Config {
	duration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	number := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	duration(&c.PingInterval, 250*time.Millisecond)
	duration(&c.SilenceMax, 3*time.Second)
	duration(&c.DialTimeout, 3*time.Second)
	duration(&c.RedialMin, 50*time.Millisecond)
	duration(&c.RedialMax, 500*time.Millisecond)
	duration(&c.IdleMax, time.Minute)
	duration(&c.StreamWait, 5*time.Second)
	duration(&c.AnswerWait, 10*time.Second)
	duration(&c.VoteHold, 10*time.Second)
	duration(&c.GroupHold, time.Second)
	duration(&c.SnapshotStall, 15*time.Second)
	duration(&c.SnapshotAnswerWait, 5*time.Minute)
	duration(&c.CallTimeout, 30*time.Second)
	number(&c.AppendBytesMax, 4<<20)
	number(&c.PipelineDepth, 2)
	number(&c.InboxDepth, 8)
	number(&c.HeldFramesMax, 4096)
	number(&c.QueueBytesMax, 16<<20)
	number(&c.WindowBytes, 8<<20)
	number(&c.FrameBytesMax, 160<<20)
	number(&c.Workers, 128)
	number(&c.WorkerQueueMax, 4096)
	number(&c.Snapshots, 2)
	number(&c.GuestsMax, guestsMax)
	number(&c.Level, protocolVersionMin)
	if c.LevelMin == nil {
		c.LevelMin = func() int { return protocolVersionMin }
	}
	if c.InboxBytesMax == 0 {
		c.InboxBytesMax = 256 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Healthy == nil {
		c.Healthy = func() bool { return true }
	}
	if c.CatalogIndex == nil {
		c.CatalogIndex = func() uint64 { return 0 }
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	return c
}

// Validate reports every problem of a configuration at once.
func (c Config) Validate() error {
	var problems []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	need(c.Local != "", "transport: Local is empty")
	need(len(c.Local) <= nodeIDBytesMax, "transport: Local is longer than %d bytes", nodeIDBytesMax)
	need(c.Listener != nil, "transport: Listener is missing")
	need(c.ClusterID != nil, "transport: ClusterID is missing")
	need(c.Resolve != nil, "transport: Resolve is missing")
	d := c.withDefaults()
	for name, v := range map[string]time.Duration{
		"PingInterval": d.PingInterval, "SilenceMax": d.SilenceMax, "DialTimeout": d.DialTimeout,
		"RedialMin": d.RedialMin, "RedialMax": d.RedialMax, "IdleMax": d.IdleMax,
		"StreamWait": d.StreamWait, "AnswerWait": d.AnswerWait, "VoteHold": d.VoteHold, "GroupHold": d.GroupHold,
		"SnapshotStall": d.SnapshotStall, "SnapshotAnswerWait": d.SnapshotAnswerWait, "CallTimeout": d.CallTimeout,
	} {
		need(v > 0, "transport: %s is %v, want more than 0", name, v)
	}
	need(d.SilenceMax >= 2*d.PingInterval, "transport: SilenceMax %v is shorter than two PingInterval %v", d.SilenceMax, d.PingInterval)
	need(d.RedialMax >= d.RedialMin, "transport: RedialMax %v is shorter than RedialMin %v", d.RedialMax, d.RedialMin)
	for name, v := range map[string]int{
		"AppendBytesMax": d.AppendBytesMax, "PipelineDepth": d.PipelineDepth, "InboxDepth": d.InboxDepth,
		"HeldFramesMax": d.HeldFramesMax, "QueueBytesMax": d.QueueBytesMax, "WindowBytes": d.WindowBytes,
		"FrameBytesMax": d.FrameBytesMax, "Workers": d.Workers, "WorkerQueueMax": d.WorkerQueueMax, "Snapshots": d.Snapshots, "GuestsMax": d.GuestsMax,
	} {
		need(v > 0, "transport: %s is %d, want more than 0", name, v)
	}
	need(d.InboxBytesMax > 0, "transport: InboxBytesMax is %d, want more than 0", d.InboxBytesMax)
	need(d.Level > 0 && d.Level < 1<<16, "transport: Level is %d, want 1 to %d", d.Level, 1<<16-1)
	need(d.FrameBytesMax <= 1<<30, "transport: FrameBytesMax %d is more than 1 GiB", d.FrameBytesMax)
	return errors.Join(problems...)
}
