package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/transport"
)

// Methods of the mesh this package handles.
const (
	MethodPropose     uint8 = 0x10
	MethodReadIndex   uint8 = 0x11
	MethodWaitApplied uint8 = 0x12
	MethodJoin        uint8 = 0x13
	MethodPosition    uint8 = 0x14
	MethodLevel       uint8 = 0x28
)

// Bounds of waiting and of work in progress.
const (
	openTimeout     = 3 * time.Second        // for another process to let go of the file
	proposeMax      = 30 * time.Second       // a proposal without an earlier deadline
	retryMin        = 10 * time.Millisecond  // first pause between attempts
	retryMax        = 200 * time.Millisecond // longest one
	attemptMax      = 5 * time.Second        // one attempt at a leader
	readMax         = 5 * time.Second        // one read index, retries included
	everyoneMax     = time.Second            // WaitEveryone
	closeWait       = time.Second            // beyond the lease, for waits to end at Close
	applying        = 1024                   // proposals in progress at a leader
	logCacheEntries = 512
	snapshotsKept   = 2
)

// logFile holds log and votes.
const logFile = "log.db"

// Errors that callers decide by.
var (
	// ErrUnknownOutcome reports that a proposal was given up; it may have been or may
	// still be applied.
	ErrUnknownOutcome = errors.New("outcome of the catalog command is unknown")
	// ErrNoLeader reports that the catalog has no reachable leader.
	ErrNoLeader = errors.New("catalog has no leader")
	// ErrClosed reports that the catalog was closed.
	ErrClosed = errors.New("catalog closed")
	// ErrForgotten reports that this storage was taken out of the cluster, or replaced by a newer one of its name. It never comes
	// back: the node needs an empty data folder.
	ErrForgotten = errors.New("this storage does not belong to the cluster any more")
	// ErrLagging reports that some live nodes have not applied in time.
	ErrLagging = errors.New("not every live node has applied")
)

// Founding makes the catalog of a new cluster. Every founding member passes the same
// ClusterID and Members.
type Founding struct {
	ClusterID string
	Members   []NodeID
	// Admin tells the user that the cluster begins with. The first leader asks, again and again while it is an error; members
	// may differ in it.
	Admin func() (auth.User, error)
}

// Config describes a Catalog.
type Config struct {
	// Local is this node; required.
	Local NodeID
	// Dir is the catalog's own directory; required. It is created.
	Dir string
	// Mesh carries the group and the calls; required.
	Mesh *transport.Mesh
	// Founding is nil unless this node is a founding member. It is used while the
	// log is empty and ignored afterwards.
	Founding *Founding
	// Frozen: the replica takes no part in its group, see Catalog.Freeze.
	Frozen bool
	// Logger may be nil.
	Logger *slog.Logger
	// OnFatal is called when log or votes could not be written, or not be read while raft runs: the process must end. It runs on any goroutine and
	// must not return. Default panics.
	OnFatal func(error)
	// Dead tells whether the failure detector counts a node as dead at this moment. One that was named by NodeDead counts as dead here, too, for at
	// least as long: a single answer may be its last. Nil: for no longer than until it answers.
	Dead func(NodeID) bool
	// BeforeWrite is called before each write of log and votes, on the goroutine that writes: what it takes is as what the disk takes. Nil: nothing is called.
	BeforeWrite func()
	// Disk stands between this replica and its files, so that a simulation may break them. Nil: nothing does.
	Disk Disk

	// Stamp marks the node's folder, durably, as one that may hold what a level brought, so that no older program
	// opens it. It is called before the cluster takes the level. Nil does nothing.
	Stamp func(level int) error
	// Starting notes in the node's folder, durably, that process registers; last is the process that registered before, 0 if none is known. Its error ends
	// the registration. Nil does nothing.
	Starting func(process, last uint64) error
	// Settle is how long all nodes must have known a level before the cluster takes it; 0 at once. Negative: not before
	// an operator asks for it ([Catalog.RaiseLevel]). A cluster that was just founded waits for nothing.
	Settle time.Duration

	// DownAfter is how long a node must have been dead, by NodeDead, before the catalog notes it; 10 s. VoterReplaceAfter is how
	// long until another node votes in its place; 5 min: a node that is started again should not lose its vote.
	DownAfter, VoterReplaceAfter time.Duration

	// HeartbeatTimeout, ElectionTimeout and LeaderLease are raft's; 5 s, 5 s, 2.5 s. The
	// speed of failover comes from NodeDead, not from these: too small and a starved
	// leader is deposed, too large and an unnoticed hang lasts longer.
	HeartbeatTimeout, ElectionTimeout, LeaderLease time.Duration
	// CommitTimeout is how long a follower may be without news of commits if the leader's
	// attempt to spread them at once fails; 500 ms. An idle leader asks each follower that often.
	CommitTimeout time.Duration
	// SnapshotEntries is how many entries make a snapshot worthwhile; 8192.
	SnapshotEntries uint64
	// TrailingEntries is how many entries stay in the log below a snapshot; 10240. Too
	// few and a node that was away for a moment needs the snapshot.
	TrailingEntries uint64
}

func (c Config) withDefaults() Config {
	c.HeartbeatTimeout = orDefault(c.HeartbeatTimeout, 5*time.Second)
	c.ElectionTimeout = orDefault(c.ElectionTimeout, c.HeartbeatTimeout)
	c.LeaderLease = orDefault(c.LeaderLease, c.HeartbeatTimeout/2)
	c.DownAfter = orDefault(c.DownAfter, 10*time.Second)
	c.VoterReplaceAfter = orDefault(c.VoterReplaceAfter, 5*time.Minute)
	c.CommitTimeout = orDefault(c.CommitTimeout, 500*time.Millisecond)
	c.SnapshotEntries = orDefault(c.SnapshotEntries, 8192)
	c.TrailingEntries = orDefault(c.TrailingEntries, 10240)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Stamp == nil {
		c.Stamp = func(int) error { return nil }
	}
	if c.Starting == nil {
		c.Starting = func(uint64, uint64) error { return nil }
	}
	return c
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Validate reports every problem of a configuration at once.
func (c Config) Validate() error {
	var problems []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("catalog: "+format, args...))
		}
	}
	if err := checkNodeID(c.Local); err != nil {
		problems = append(problems, fmt.Errorf("catalog: Local: %s", err.Text))
	}
	need(c.Dir != "", "Dir is empty")
	need(c.Mesh != nil, "Mesh is missing")
	d := c.withDefaults()
	// A heartbeat goes out at least every fifth of HeartbeatTimeout.
	need(d.LeaderLease > d.HeartbeatTimeout/5, "LeaderLease %v is not more than a fifth of HeartbeatTimeout %v", d.LeaderLease, d.HeartbeatTimeout)
	need(d.LeaderLease <= d.HeartbeatTimeout && d.HeartbeatTimeout <= d.ElectionTimeout,
		"want LeaderLease %v <= HeartbeatTimeout %v <= ElectionTimeout %v", d.LeaderLease, d.HeartbeatTimeout, d.ElectionTimeout)
	need(d.CommitTimeout >= time.Millisecond, "CommitTimeout %v is less than 1 ms", d.CommitTimeout)
	if f := c.Founding; f != nil {
		need(f.ClusterID != "", "Founding.ClusterID is empty")
		need(slices.Contains(f.Members, c.Local), "Founding.Members does not have Local")
		need(f.Admin != nil, "Founding.Admin is missing")
	}
	return errors.Join(problems...)
}

// Catalog is a node's replica of the catalog. All methods are safe for concurrent
// use. It owns the Raft instance and goroutines that end at Close.
type Catalog struct {
	cfg       Config
	log       *slog.Logger
	machine   *machine
	bolt      *raftboltdb.BoltStore
	logs      raft.LogStore
	transport *transport.RaftTransport // nil if it was opened frozen
	wire      *wire                    // over transport
	raft      *raft.Raft

	waits    waits
	reads    reads
	leader   leaderNews
	spreader spreader
	slots    chan struct{} // one per proposal in progress here as leader
	spreadTo atomic.Uint64 // the highest commit that followers were told of
	caughtUp atomic.Bool   // a read index succeeded since the start

	held      atomic.Pointer[chan struct{}] // closed when proposals may go on; nil: they may
	reluctant atomic.Bool                   // this replica wants no leadership
	leaves    atomic.Bool                   // because its node leaves the cluster

	oneTerm   latch  // held during the barrier of a term
	termReady uint64 // the term whose first entry this leader has applied

	levels levels

	frozen   atomic.Bool
	stopping sync.Once // of transport and raft
	stopErr  error

	// configuring is held by who decides about a change of the group's configuration and makes it. raft would check that nothing came in
	// between, but does not tell the index that it wants for it (GetConfiguration answers 0, which is "any").
	configuring latch
	deadMu      sync.Mutex
	dead        map[NodeID]time.Time // named by NodeDead then, and not back since

	everyoneMu sync.Mutex
	everyone   map[NodeID]progress
	asking     map[NodeID]*asking // nodes that are being asked

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	writes *writes       // of the store
	wake   chan struct{} // the steward should look; capacity 1
	workMu sync.Mutex    // guards the entry to work against Close
	work   sync.WaitGroup
	closed sync.Once
}

// Open starts the node's replica. The mesh must not have peers yet. The Catalog must be
// closed before the mesh.
func Open(cfg Config) (*Catalog, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the catalog's directory: %w", err)
	}
	bolt, err := openBolt(filepath.Join(cfg.Dir, logFile))
	if err != nil {
		return nil, err
	}
	c := &Catalog{
		cfg: cfg, log: cfg.Logger.With("group", "catalog"), bolt: bolt,
		slots: make(chan struct{}, applying), wake: make(chan struct{}, 1),
		oneTerm: newLatch(), configuring: newLatch(), levels: levels{latch: newLatch()},
		dead: make(map[NodeID]time.Time), everyone: make(map[NodeID]progress), asking: make(map[NodeID]*asking),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.machine = newMachine(c.onApplied)
	c.waits.init()
	if err := c.startRaft(); err != nil {
		c.cancel()
		return nil, errors.Join(err, bolt.Close())
	}
	cfg.Mesh.HandleCall(MethodPropose, c.handlePropose)
	cfg.Mesh.HandleCall(MethodReadIndex, c.handleReadIndex)
	cfg.Mesh.HandleCall(MethodWaitApplied, c.handleWaitApplied)
	cfg.Mesh.HandleCall(MethodJoin, c.handleJoin)
	cfg.Mesh.HandleCall(MethodPosition, c.handlePosition)
	cfg.Mesh.HandleCall(MethodLevel, c.handleLevel)
	cfg.Mesh.OnPeerChange(func(p transport.PeerStatus) {
		if p.Up {
			c.spreadAgain()
		}
		c.poke()
	})
	c.spawn(c.watchLeader)
	c.spawn(c.steward)
	c.spawn(c.watchDisk)
	c.spawn(c.tellSubscribers)
	c.spawn(c.catchUp)
	return c, nil
}

func (c *Catalog) startRaft() error {
	logger := raftLogger(c.log)
	bolt, snapshots, err := c.openDisk(logger)
	if err != nil {
		return err
	}
	store := &guardedStore{durable: diskStore{bolt}, snapshots: snapshots, onFatal: c.cfg.OnFatal, writes: writes{before: c.cfg.BeforeWrite}}
	c.writes = &store.writes
	hole, err := store.checkHistory(c.cfg.Dir)
	if err != nil {
		return err
	}
	if err := c.found(store, snapshots); err != nil {
		return err
	}
	if err := store.cutAtStart(c.cfg.Dir, hole); err != nil {
		return err
	}
	if c.logs, err = raft.NewLogCache(logCacheEntries, store); err != nil {
		return fmt.Errorf("cache the catalog's log: %w", err)
	}
	cutting := &cuttingSnapshots{snapshots, store, c.logs, filepath.Join(c.cfg.Dir, snapshotsDir)}
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(c.cfg.Local)
	rc.HeartbeatTimeout, rc.ElectionTimeout = c.cfg.HeartbeatTimeout, c.cfg.ElectionTimeout
	rc.LeaderLeaseTimeout, rc.CommitTimeout = c.cfg.LeaderLease, c.cfg.CommitTimeout
	rc.SnapshotInterval, rc.SnapshotThreshold, rc.TrailingLogs = 30*time.Second, c.cfg.SnapshotEntries, c.cfg.TrailingEntries
	rc.NoLegacyTelemetry = true
	rc.ShutdownOnRemove = false
	rc.Logger = logger
	if c.cfg.Frozen {
		return c.startFrozen(rc, store, cutting)
	}
	c.transport = c.cfg.Mesh.Raft(transport.CatalogGroup, 0)
	c.transport.BeforeAppend(store.amend)
	w := &wire{RaftTransport: c.transport, up: func(n NodeID) bool { return c.cfg.Mesh.Peer(n).Up }, stop: c.ctx.Done()}
	if c.raft, err = raft.NewRaft(rc, fsm{c.machine}, c.logs, store, cutting, w); err != nil {
		return errors.Join(fmt.Errorf("start the catalog's raft: %w", err), c.transport.Close())
	}
	w.raft.Store(c.raft)
	c.wire = w
	c.transport.OnAppendFailed(func(transport.NodeID) { c.spreadAgain() })
	return nil
}

// found writes the first configuration if this node is a founding member and has
// nothing yet.
func (c *Catalog) found(store *guardedStore, snapshots raft.SnapshotStore) error {
	if c.cfg.Founding == nil {
		return nil
	}
	last, err := store.LastIndex()
	if err != nil {
		return fmt.Errorf("read the catalog's log: %w", err)
	}
	kept, err := snapshots.List()
	if err != nil {
		return fmt.Errorf("list the catalog's snapshots: %w", err)
	}
	if last > 0 || len(kept) > 0 {
		return nil
	}
	c.levels.fresh = true
	return writeFounding(store, foundingServers(c.cfg.Founding.Members))
}

const (
	// votersMany is how many voters a group of many nodes has, votersFew how many one of three nodes and more.
	votersMany, votersFew = 5, 3
	// foundersMany is how many founding members are many.
	foundersMany = 7
)

// votersWanted is how many voters a group of n nodes that can vote should have: of five any two may die at once (docs/adr/0056-five-voters.md).
func votersWanted(n int) int {
	switch {
	case n >= votersMany:
		return votersMany
	case n >= votersFew:
		return votersFew
	}
	return n
}

// foundingServers is the first configuration. It depends on the set of members only, and must never change: members of different versions write it, each
// into its own log, and two that differed could each have a majority. The first leader gives five and six members the votes that are missing.
func foundingServers(members []NodeID) []raft.Server {
	members = slices.Clone(members)
	slices.Sort(members)
	voters := min(len(members), votersFew)
	if len(members) >= foundersMany {
		voters = votersMany
	}
	var servers []raft.Server
	for i, m := range members {
		s := raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(m), Address: raft.ServerAddress(m)}
		if i >= voters {
			s.Suffrage = raft.Nonvoter
		}
		servers = append(servers, s)
	}
	return servers
}

// Close stops the replica. It is safe twice.
//
// Raft never answers futures that lie in its buffers when it shuts down, so the waits
// for them end first: while raft runs, each is answered, at the latest when a leader
// without a quorum gives up after its lease.
func (c *Catalog) Close() error {
	var err error
	c.closed.Do(func() {
		c.workMu.Lock()
		c.cancel()
		c.workMu.Unlock()
		c.waits.close()
		ended := make(chan struct{})
		go func() { // ends with the waits
			c.work.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(c.cfg.LeaderLease + closeWait):
			c.log.Warn("the catalog closes with waits in progress")
		}
		err = errors.Join(c.stopRaft(), c.bolt.Close())
	})
	return err
}

// View returns the newest applied state. It never waits.
func (c *Catalog) View() *View { return c.machine.view.Load() }

// LeaderID returns the leader this replica knows, "" if none.
func (c *Catalog) LeaderID() NodeID {
	_, id := c.raft.LeaderWithID()
	return NodeID(id)
}

// Leading reports whether this replica believes to be the leader.
func (c *Catalog) Leading() bool { return c.raft.State() == raft.Leader }

// Ready reports whether the catalog can serve: it is founded, has a leader, and
// this replica has caught up with a leader since its start.
func (c *Catalog) Ready() bool {
	return c.caughtUp.Load() && c.LeaderID() != "" && c.View().ClusterID() != ""
}

// Unheard returns for how long this replica has heard nothing of the catalog's leader: 0 if it leads itself, which
// it does no longer than its lease without a majority.
func (c *Catalog) Unheard() time.Duration {
	if c.Leading() {
		return 0
	}
	return time.Since(c.raft.LastContact())
}

// Stats returns raft's own figures for tools.
func (c *Catalog) Stats() map[string]string { return c.raft.Stats() }

// spawn runs f on a goroutine that Close waits for; false means closed already.
func (c *Catalog) spawn(f func()) bool {
	c.workMu.Lock()
	defer c.workMu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.work.Go(f)
	return true
}

// Compact takes a snapshot now and keeps only trailing entries of the log below it. It is for
// operators and tests; snapshots are otherwise taken by themselves.
func (c *Catalog) Compact(trailing uint64) error {
	rc := c.raft.ReloadableConfig()
	kept := rc.TrailingLogs
	rc.TrailingLogs = trailing
	if err := c.raft.ReloadConfig(rc); err != nil {
		return fmt.Errorf("compact the catalog: %w", err)
	}
	err := c.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		err = nil
	}
	rc.TrailingLogs = kept
	if err = errors.Join(err, c.raft.ReloadConfig(rc)); err != nil {
		return fmt.Errorf("compact the catalog: %w", err)
	}
	return nil
}

func (c *Catalog) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// pause waits; false means that ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
