package deep

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/store/crashfs"
	"github.com/warrenmq/warren/transport"
)

// Thresholds of the store and of snapshots, small so that a minute has segments, compactions and snapshots from
// leaders.
const (
	segmentBytes  = 64 << 10
	snapshotBytes = 12 << 10
	trailingBytes = 2 << 10
	cacheBytes    = 64 << 10
	stuckSync     = 5 * time.Second
)

// Leaders go home soon, so that it happens between faults.
const (
	movesPerSecond = 20
	moveSettle     = time.Second
)

// node is a place in the cluster: an identity and a disk, which outlive processes.
type node struct {
	w    *world
	id   transport.NodeID
	lost map[transport.GroupID]bool // replicas found damaged, not refilled yet
	// rnd is the node's own chance: how often it is asked depends on disks and processes, and the schedule must not.
	rnd *rand.Rand

	mu   sync.Mutex // guards the rest
	fs   *crashfs.FS
	life *life // nil while the node is down
}

// running returns the node's process, nil if there is none or it has died.
func (n *node) running() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.life == nil || n.life.dead.Load() {
		return nil
	}
	return n.life
}

// life is one process of a node.
type life struct {
	w    *world
	id   transport.NodeID
	dead atomic.Bool
	disk *disk
	mesh *transport.Mesh
	det  *detector.Detector
	st   *store.Store
	host *group.Host

	over chan struct{} // closed when the process is taken down

	since uint64 // of plans: what is newer is born while it runs
	// former are groups whose traces it keeps, as others may begin from them. One goroutine at a time uses it.
	former map[transport.GroupID]bool

	mu       sync.Mutex
	machines map[transport.GroupID]*machine
	// hosted are its replicas if members change.
	hosted map[transport.GroupID]*hostedReplica
}

func (l *life) machine(id transport.GroupID) *machine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.machines[id]
}

// boot starts a process over the node's disk, with the groups that are placed on it.
func (n *node) boot() error {
	w := n.w
	w.report.boots.Add(1)
	l := &life{w: w, id: n.id, machines: make(map[transport.GroupID]*machine), over: make(chan struct{}), disk: newDisk(n.fs, n.rnd.Uint64())}
	l.hosted, l.former = make(map[transport.GroupID]*hostedReplica), make(map[transport.GroupID]bool)
	l.disk.lies = w.cfg.Lie == LieSync
	if w.cfg.Lie == LieAnswer {
		l.disk.slow.Store(int64(lieSlow)) // so that there is much to lose
	}
	log := w.log.With("on", string(n.id))
	var err error
	l.st, err = store.Open(store.Options{
		Dir: "/data", FS: l.disk, SegmentBytes: segmentBytes, TailCacheBytes: cacheBytes, Logger: log,
		OnFatal: func(err error) {
			w.oracle.Note("%s ends: %v", n.id, err)
			l.die(false)
		},
	})
	if err != nil {
		return fmt.Errorf("open the store of %s: %w", n.id, err)
	}
	if err := l.connect(log); err != nil {
		return err
	}
	n.mu.Lock()
	n.life = l
	n.mu.Unlock()
	if w.plans != nil {
		return n.register(l)
	}
	for _, id := range w.groupsOf(n.id) {
		if n.lost[id] {
			continue
		}
		if err := damaged(l.st, id); err != nil {
			if !w.damaging.Load() {
				return fmt.Errorf("replica of group %d on %s after a crash: %w", id, n.id, err)
			}
			w.oracle.Note("%s: group %d is damaged: %v", n.id, id, err)
			n.lost[id] = true
			continue
		}
		if err := l.start(id, true); err != nil {
			return err
		}
	}
	w.oracle.Note("%s is up", n.id)
	return nil
}

func (l *life) connect(log *slog.Logger) error {
	w := l.w
	var err error
	l.mesh, err = transport.New(transport.Config{
		Local: l.id, Listener: w.net.Listen(l.id), Logger: log, ClusterID: func() string { return "deep" },
		Resolve: func(o transport.NodeID) (string, bool) { return string(o), true },
		Healthy: func() bool { return l.st.SyncOutstanding() < stuckSync }, // as in cmd/node
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			if l.dead.Load() {
				return nil, net.ErrClosed
			}
			return w.net.Dial(ctx, l.id, transport.NodeID(addr))
		},
	})
	if err != nil {
		return err
	}
	if l.det, err = detector.New(detector.Config{Local: l.id, Net: l.mesh, Logger: log}); err != nil {
		return err
	}
	cfg := group.HostConfig{
		Local: l.id, Store: afterlife{group.OverStore(l.st), l}, Mesh: group.OverMesh(l.mesh), Detector: l.det, Logger: log,
		SyncOutstanding: l.st.SyncOutstanding, SnapshotBytes: snapshotBytes, TrailingBytes: trailingBytes,
		MovesPerSecond: movesPerSecond, MoveSettle: moveSettle,
		OnUnknown: func(transport.GroupID, transport.NodeID, uint64) {},
	}
	if w.cfg.Sleepy {
		cfg.SleepAfter = sleepAfter
	}
	if w.plans != nil {
		w.planning(&cfg, l, rand.New(rand.NewPCG(w.cfg.Seed, uint64(len(l.id))+uint64(w.report.boots.Load())<<8)))
	}
	l.host = group.NewHost(cfg)
	l.mesh.SetPeers(w.ids)
	l.det.SetPeers(w.ids)
	l.det.Gone(w.disks.lost)
	return nil
}

// register starts a process that follows plans: it has heard of all that was planned so far, and wipes what it has of groups in which it has
// no part any more.
func (n *node) register(l *life) error {
	w := n.w
	k := w.plans.view()
	l.since = k.index
	for _, id := range l.st.Groups() {
		if !k.needs(n.id, transport.GroupID(id)) {
			if err := l.host.Delete(transport.GroupID(id)); err != nil && !l.dead.Load() {
				return err
			}
		}
	}
	if err := l.bring(k); err != nil && !l.dead.Load() {
		return err
	}
	r := rand.New(rand.NewPCG(n.rnd.Uint64(), 7))
	w.wg.Go(func() { l.follow(r) })
	w.oracle.Note("%s is up", n.id)
	return nil
}

func storeID(id transport.GroupID) store.GroupID { return store.GroupID(id) }

// firstLeader is the one that leads a group first without an election, "" for every third group.
func firstLeader(id transport.GroupID, founders []transport.NodeID) transport.NodeID {
	if id%3 == 0 {
		return ""
	}
	return founders[0]
}

// start runs a replica; founder tells that it may be the first of its group.
func (l *life) start(id transport.GroupID, founder bool) error {
	m := &machine{n: l, id: id}
	l.mu.Lock()
	l.machines[id] = m
	l.mu.Unlock()
	members := l.w.place[id]
	_, err := l.host.Start(group.Spec{
		ID: id, Members: members, Preferred: members[0], FirstLeader: firstLeader(id, members), Bootstrap: founder,
	}, m, watcher{n: l, id: id})
	if err != nil && !l.dead.Load() {
		return fmt.Errorf("start group %d on %s: %w", id, l.id, err)
	}
	return nil
}

// die takes the process off the network and out of the history, at once. It may be called from anywhere, again too.
func (l *life) die(silent bool) {
	// Under the oracle's lock: an answer counts if it is given before this, and not after.
	l.w.oracle.mu.Lock()
	first := l.dead.CompareAndSwap(false, true)
	l.w.oracle.mu.Unlock()
	if !first {
		return
	}
	l.w.net.Crash(l.id, silent)
}

// LieTail takes as many operations of the disk, but not the first, which make the store.
const (
	lieTakes = 30
	lieKeeps = 40
	lieSlow  = 400 * time.Millisecond // most that a sync takes with LieAnswer
)

// bury leaves a disk as the end of the process may have left it and frees what that held. Every other time the machine goes on, so that the next process
// sees all that was written, and the power may fail before that one has synced it.
func (n *node) bury() {
	n.mu.Lock()
	l := n.life
	n.life = nil
	n.mu.Unlock()
	if l == nil {
		return
	}
	if l.host != nil {
		s := l.host.Stats()
		n.w.report.dozed.Add(int64(s.Dozed))
		n.w.report.woken.Add(int64(s.Woken))
	}
	steps := l.disk.Len()
	switch {
	case n.w.cfg.Lie == LieTail:
		n.fs = l.disk.Image(max(min(steps, lieKeeps), steps-lieTakes), n.rnd)
	case n.w.cfg.Lie == "" && n.rnd.IntN(2) == 0:
		n.w.report.kills.Add(1)
		n.fs = l.disk.Killed(steps)
	default:
		n.fs = l.disk.Image(steps, n.rnd)
	}
	n.w.wg.Go(l.close)
}

// crash kills the node's process, if it has one.
func (n *node) crash(silent bool) {
	n.mu.Lock()
	l := n.life
	n.mu.Unlock()
	if l == nil {
		return
	}
	n.w.report.crashes.Add(1)
	l.die(silent)
	n.bury()
}

func (l *life) close() {
	l.disk.slow.Store(0)
	close(l.over)
	s := l.host.Stats()
	l.w.report.snapshots.Add(int64(s.Snapshots))
	l.w.report.moves.Add(int64(s.MovedHome))
	_ = l.host.Close()
	_ = l.det.Close()
	_ = l.mesh.Close()
	_ = l.st.Close()
}
