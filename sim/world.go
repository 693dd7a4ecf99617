package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/fsm"
)

// Config describes a run.
type Config struct {
	Seed  uint64
	Nodes int // 3 or more
	// Load is how long clients publish and the nemesis works, in virtual time.
	Load time.Duration
	// Calm leaves out all faults.
	Calm bool
	// Storm makes faults several times as frequent.
	Storm bool
	// Logger may be nil.
	Logger *slog.Logger
}

// World is one run.
type World struct {
	cfg Config
	log *slog.Logger
	ctx context.Context

	rndMu sync.Mutex
	rnd   *rand.Rand

	cat   *sharedCatalog
	net   *network
	nodes []*node
	admin broker.User

	// mu guards the groups and the oracle: one lock, so that the oracle sees all
	// commits in one order.
	mu     sync.Mutex
	groups map[uint64]*group
	oracle *oracle

	state runState
	led   *ledger
	work  sync.WaitGroup
	stop  context.CancelFunc

	problemMu sync.Mutex
	problems  []error
}

// problem records a broken promise.
func (w *World) problem(format string, args ...any) {
	w.problemMu.Lock()
	defer w.problemMu.Unlock()
	if len(w.problems) < 20 {
		w.problems = append(w.problems, fmt.Errorf(format, args...))
	}
}

func (w *World) failed() error {
	w.problemMu.Lock()
	defer w.problemMu.Unlock()
	return errors.Join(w.problems...)
}

// rand returns a number in [0, n).
func (w *World) rand(n int) int {
	w.rndMu.Lock()
	defer w.rndMu.Unlock()
	return w.rnd.IntN(n)
}

// between returns a duration in [low, high).
func (w *World) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rand(int(high-low)))
}

// fails is true once in n times, more often in a storm, and never when all is calm.
func (w *World) fails(n int) bool {
	if w.cfg.Calm {
		return false
	}
	if w.cfg.Storm {
		n = 1 + n/8
	}
	return w.oneIn(n)
}

// oneIn is true once in n times.
func (w *World) oneIn(n int) bool { return w.rand(n) == 0 }

// sleep waits, unless the world ends.
func (w *World) sleep(d time.Duration) bool { return pause(w.ctx, d) }

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

func newWorld(cfg Config) *World {
	w := &World{
		cfg: cfg, log: cfg.Logger, rnd: rand.New(rand.NewPCG(cfg.Seed, 0x5eed)),
		groups: map[uint64]*group{}, led: newLedger(),
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.oracle = newOracle(w)
	w.cat = newSharedCatalog(w)
	w.net = newNetwork(w)
	admin := auth.User{Name: "sim", Tags: []string{"administrator"}}
	w.admin = broker.User{Name: "sim", Tags: admin.Tags}
	w.cat.append(&catalog.Found{ClusterID: "sim", Admin: admin})
	for i := range cfg.Nodes {
		w.nodes = append(w.nodes, newNode(w, fmt.Sprintf("n%d/uuid", i+1)))
	}
	for _, n := range w.nodes {
		w.cat.append(&catalog.RegisterNode{ID: catalog.NodeID(n.id)})
		w.net.addNode(n.id)
	}
	if cfg.Seed/4%4 == 0 || cfg.Seed/4%4 == 2 {
		w.raiseLevel()
	}
	for _, n := range w.nodes {
		n.start()
	}
	w.work.Go(w.elector)
	if cfg.Seed/4%4 == 1 {
		w.work.Go(func() {
			if w.sleep(w.between(0, cfg.Load)) {
				w.raiseLevel()
			}
		})
	}
	return w
}

// raiseLevel takes the cluster to the newest level: from the start in half of the worlds, under load in a quarter, never in the
// others, as while some nodes are of an older program.
func (w *World) raiseLevel() { w.cat.append(&catalog.ActivateLevel{Level: level.Now}) }

// close ends everything; goroutines that are left make synctest report a deadlock.
func (w *World) close() {
	for _, n := range w.nodes {
		n.shutdown()
	}
	w.stop()
	w.work.Wait()
}

// node is one node of the cluster, through all its incarnations.
type node struct {
	w  *World
	id string

	mu     sync.Mutex
	up     bool
	b      *broker.Broker
	groups *nodeGroups
	copy   *nodeCatalog
	number uint32
	skew   time.Duration   // of the incarnation's clock
	life   context.Context // ends with the incarnation
	end    context.CancelFunc
	dead   map[string]bool // nodes this one takes for dead
	work   *sync.WaitGroup // clients of this incarnation
}

func newNode(w *World, id string) *node {
	n := &node{w: w, id: id, dead: map[string]bool{}}
	n.copy = newNodeCatalog(w, n)
	return n
}

// start begins an incarnation. The first registration is made by the world.
func (n *node) start() {
	w := n.w
	n.copy.catchUp()
	inc := n.copy.View().Node(catalog.NodeID(n.id))
	n.mu.Lock()
	n.life, n.end = context.WithCancel(w.ctx)
	n.work = &sync.WaitGroup{}
	n.groups = &nodeGroups{n: n, members: map[uint64]*member{}}
	n.number = inc.Number
	n.skew = 0
	if w.cfg.Seed%3 == 0 && n == w.nodes[len(w.nodes)-1] && !w.cfg.Calm {
		n.skew = w.between(-2*time.Hour, 2*time.Hour)
	}
	skew := n.skew
	groups := n.groups
	b := broker.New(broker.Config{
		Node: n.id, Groups: groups, Replicas: 3, QueueTimeout: 5 * time.Second, MoveReview: 50 * time.Millisecond, Logger: w.log.With("node", n.id),
		Send:  func(to string, payload []byte) error { return w.net.send(n.id, to, payload) },
		Call:  n.call,
		Alive: n.alive,
		Now:   func() int64 { return time.Now().Add(skew).UnixMilli() }, ClockOffsets: n.clockOffsets,
	}, n.copy)
	n.b, n.up = b, true
	clear(n.dead)
	n.mu.Unlock()
	b.Start(fsm.Origin{Node: inc.Number, Incarnation: inc.Incarnation})
	w.net.nodeUp(n.id)
}

// crash ends the incarnation at once; false if the node was down.
func (n *node) crash() bool {
	n.mu.Lock()
	if !n.up {
		n.mu.Unlock()
		return false
	}
	n.up = false
	b, groups, end, work := n.b, n.groups, n.end, n.work
	n.mu.Unlock()
	n.w.net.nodeDown(n.id)
	groups.crash()
	n.w.led.crashed(n.id)
	end()
	n.copy.detach()
	b.Close()
	work.Wait()
	n.w.led.crashed(n.id) // what a client began at that very moment
	return true
}

// restart begins a new incarnation.
func (n *node) restart() {
	n.w.cat.append(&catalog.RegisterNode{ID: catalog.NodeID(n.id)})
	n.start()
}

func (n *node) shutdown() {
	n.crash()
	n.copy.close()
}

// clockOffsets implements broker.Config: the last known clocks of all others. At most one
// node of a world is wrong.
func (n *node) clockOffsets() (list []time.Duration) {
	n.mu.Lock()
	own := n.skew
	n.mu.Unlock()
	for _, o := range n.w.nodes {
		if o == n {
			continue
		}
		o.mu.Lock()
		list = append(list, o.skew-own+n.w.between(-time.Millisecond, time.Millisecond))
		o.mu.Unlock()
	}
	return list
}

func (n *node) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up
}

// broker returns the running broker, nil while the node is down.
func (n *node) broker() *broker.Broker {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return nil
	}
	return n.b
}

func (n *node) alive(other string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.dead[other]
}

// judge records a verdict about another node and tells the broker.
func (n *node) judge(other string, dead bool) {
	n.mu.Lock()
	was := n.dead[other]
	n.dead[other] = dead
	b := n.b
	up := n.up
	n.mu.Unlock()
	if up && dead && !was {
		b.NodeDead(other, false, false)
	}
}

func (w *World) node(id string) *node {
	for _, n := range w.nodes {
		if n.id == id {
			return n
		}
	}
	return nil
}
