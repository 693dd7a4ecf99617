package meta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/transport"
)

// Thresholds and times, small so that a minute has snapshots, compactions and changes of who votes.
const (
	snapshotEntries = 24
	trailingEntries = 12
	downAfter       = time.Second
	replaceAfter    = 5 * time.Second
	clusterID       = "00000000-0000-4000-8000-00000000000d"
)

// node is a place in the cluster: an identity and a disk, which outlive processes.
type node struct {
	w       *world
	id      transport.NodeID
	founder bool
	rnd     *rand.Rand

	mu    sync.Mutex // guards the rest
	lives int
	dir   string // of the next process
	life  *life  // nil while the node is down
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
	dir  string
	dead atomic.Bool
	disk *disk
	mesh *transport.Mesh
	det  *detector.Detector
	cat  *catalog.Catalog
	open atomic.Pointer[catalog.Catalog] // cat, for the detector, which runs before
	ctx  context.Context                 // ends when the process is taken down
	end  context.CancelFunc
	// compacting: a snapshot is being taken for the nemesis.
	compacting atomic.Bool

	// The oracle's mu guards the rest.
	log   map[uint64]entry // as it stands
	seen  uint64           // the newest revision that it was told of
	again int              // views in a row of the same one
}

// nextDir makes a folder's name for a process.
func (n *node) nextDir() string {
	n.lives++
	return filepath.Join(n.w.dir, fmt.Sprintf("%s-%d", filepath.Base(filepath.Dir(string(n.id)))+"-"+filepath.Base(string(n.id)), n.lives))
}

// boot starts a process over the node's disk.
func (n *node) boot() error {
	w := n.w
	n.mu.Lock()
	if n.dir == "" {
		n.dir = n.nextDir()
	}
	dir := n.dir
	n.mu.Unlock()
	if _, err := os.Stat(filepath.Join(dir, logFile)); err == nil {
		if _, err := catalog.Inspect(dir); err != nil {
			return fmt.Errorf("inspect what %s has on its disk: %w", n.id, err)
		}
	}
	l := &life{w: w, id: n.id, dir: dir, log: make(map[uint64]entry)}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.disk = &disk{dir: dir, turn: make(chan struct{}, 1), rnd: rand.New(rand.NewPCG(n.rnd.Uint64(), 3)), lies: w.cfg.Lie == LieSync}
	l.disk.tell = func(logs []*raft.Log, from, to uint64) { w.oracle.stored(l, logs, from, to) }
	l.disk.die = func(why error) {
		w.oracle.Note("%s ends: %v", l.id, why)
		l.die(false)
	}
	if err := l.start(n.founder); err != nil {
		return fmt.Errorf("start %s: %w", n.id, err)
	}
	n.mu.Lock()
	n.life = l
	n.mu.Unlock()
	w.introduce()
	w.oracle.Note("%s is up", n.id)
	w.wg.Go(func() { l.enter(n.founder) })
	return nil
}

func (l *life) start(founder bool) error {
	w := l.w
	log := w.log.With("on", string(l.id))
	var err error
	l.mesh, err = transport.New(transport.Config{
		Local: l.id, Listener: w.net.Listen(l.id), Logger: log, ClusterID: func() string { return clusterID }, Level: level.Now,
		Resolve: func(o transport.NodeID) (string, bool) { return string(o), true },
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
	if l.det, err = detector.New(detector.Config{Local: l.id, Net: l.mesh, Logger: log, Voters: func() []transport.NodeID { return l.voters() }}); err != nil {
		return err
	}
	cfg := catalog.Config{
		Local: l.id, Dir: l.dir, Mesh: l.mesh, Logger: log, Disk: mirrored{l},
		Dead:            func(id catalog.NodeID) bool { return l.det.State(id) == detector.Dead },
		SnapshotEntries: snapshotEntries, TrailingEntries: trailingEntries, DownAfter: downAfter, VoterReplaceAfter: replaceAfter,
		OnFatal: func(err error) {
			if !l.dead.Load() {
				w.oracle.Fail("%s ends because of its catalog's log: %v", l.id, err)
			}
			runtime.Goexit()
		},
	}
	if founder {
		cfg.Founding = &catalog.Founding{ClusterID: clusterID, Members: w.founders, Admin: func() (auth.User, error) {
			return auth.User{Name: "guest", PasswordHash: auth.HashPassword("guest"), Tags: []string{auth.TagAdministrator}}, nil
		}}
	}
	cat, err := catalog.Open(cfg)
	if err != nil {
		return err
	}
	l.cat = cat
	l.open.Store(cat)
	cat.Subscribe(func(old, now *catalog.View) { w.oracle.viewed(l, old, now) })
	l.det.Subscribe(func(e detector.Event) {
		if e.State == detector.Dead {
			cat.NodeDead(e.Node)
		}
	})
	return nil
}

// mirrored is the disk, of whose log the oracle knows what it began with.
type mirrored struct{ l *life }

func (m mirrored) Log(file *raftboltdb.BoltStore) interface {
	raft.LogStore
	raft.StableStore
} {
	first, _ := file.FirstIndex()
	last, _ := file.LastIndex()
	var all []*raft.Log
	for i := max(first, 1); i <= last && last > 0; i++ {
		e := new(raft.Log)
		if file.GetLog(i, e) == nil {
			all = append(all, e)
		}
	}
	m.l.w.oracle.stored(m.l, all, 0, 0)
	return m.l.disk.Log(file)
}

func (m mirrored) Snapshots(folder raft.SnapshotStore) raft.SnapshotStore {
	return m.l.disk.Snapshots(folder)
}

// voters are asked for before the catalog is there, too.
func (l *life) voters() []transport.NodeID {
	if cat := l.open.Load(); cat != nil {
		return cat.Voters()
	}
	return nil
}

// enter makes the process a member and registers it, as cmd/node does.
func (l *life) enter(founder bool) {
	through := func() []transport.NodeID { return l.w.present() }
	for l.ctx.Err() == nil && !founder {
		ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
		err := l.cat.Join(ctx, through)
		cancel()
		if errors.Is(err, catalog.ErrForgotten) {
			return
		}
		if err == nil {
			break
		}
	}
	for l.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(l.ctx, 10*time.Second)
		_, err := l.cat.Register(ctx, &catalog.RegisterNode{ID: l.id, ClusterAddr: "127.0.0.1:1", AMQPAddr: "127.0.0.1:2"})
		cancel()
		if err == nil {
			return
		}
		select {
		case <-l.ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// die takes the process off the network and out of the history, at once. It may be called from anywhere, again too.
func (l *life) die(silent bool) {
	l.disk.mu.Lock()
	l.w.oracle.mu.Lock()
	first := l.dead.CompareAndSwap(false, true)
	l.disk.over = true
	l.w.oracle.mu.Unlock()
	l.disk.mu.Unlock()
	if first {
		l.w.net.Crash(l.id, silent)
	}
}

// bury leaves a disk as the end of the process may have left it and frees what that held.
func (n *node) bury() {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.life
	n.life = nil
	if l == nil {
		return
	}
	killed := n.rnd.IntN(2) == 0 && n.w.cfg.Lie != LieSync
	n.dir = n.nextDir()
	if err := l.disk.image(n.dir, killed, n.rnd); err != nil {
		n.w.oracle.Fail("the disk of %s: %v", n.id, err)
	}
	n.w.wg.Go(l.close)
}

// crash ends the node's process, if it has one.
func (n *node) crash(silent bool) {
	n.mu.Lock()
	l := n.life
	n.mu.Unlock()
	if l == nil {
		return
	}
	n.w.oracle.counted(func(c *counters) { c.crashes++ })
	l.die(silent)
	n.bury()
}

func (l *life) close() {
	l.disk.end()
	l.end()
	_ = l.cat.Close()
	_ = l.det.Close()
	_ = l.mesh.Close()
	_ = os.RemoveAll(l.dir)
}

// present are the nodes that are in the cluster now.
func (w *world) present() []transport.NodeID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.ids)
}

// introduce tells all processes of each other.
func (w *world) introduce() {
	ids := w.present()
	for _, id := range ids {
		if l := w.node(id).running(); l != nil {
			l.mesh.SetPeers(ids)
			l.det.SetPeers(ids)
		}
	}
}
