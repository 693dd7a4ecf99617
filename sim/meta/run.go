package meta

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/sim/links"
	"github.com/warrenmq/warren/transport"
)

// Limits in virtual time.
const (
	// answerLimit is how long after healing each node may take to have something confirmed.
	answerLimit = 40 * time.Second
	// equalLimit is how long after that nodes may differ, and other nodes vote than should.
	equalLimit = 90 * time.Second
)

// Config describes a run.
type Config struct {
	Seed uint64
	// Nodes is the number of nodes that found the cluster, default 3.
	Nodes int
	// Load is how much virtual time passes under faults, in rounds that each end with healing and a check.
	Load time.Duration
	// Dir is where the nodes' folders are made, each run in one of its own.
	Dir string
	// Logger gets what the nodes log; may be nil.
	Logger *slog.Logger
	// Trace gets each event as it happens, for what ends in a panic; may be nil.
	Trace io.Writer
	// Lie makes one part break its word, to see that the run is not valid then.
	Lie Lie
}

// Lie is a fault that is put in.
type Lie string

// The lies of a run.
const (
	LieSync   Lie = "a sync of the log says done and is not"
	LieAnswer Lie = "a proposal is answered when it is proposed"
)

// counters are what happened in a run.
type counters struct {
	proposed, acked, unknown, reads, linear int64
	crashes, disks, snapshots, strikes      int64
	replaced, added, removed, rounds        int64
}

func (c *counters) add(o counters) {
	c.proposed, c.acked, c.unknown, c.reads, c.linear = c.proposed+o.proposed, c.acked+o.acked, c.unknown+o.unknown, c.reads+o.reads, c.linear+o.linear
	c.crashes, c.disks, c.snapshots, c.strikes = c.crashes+o.crashes, c.disks+o.disks, c.snapshots+o.snapshots, c.strikes+o.strikes
	c.replaced, c.added, c.removed, c.rounds = c.replaced+o.replaced, c.added+o.added, c.removed+o.removed, c.rounds+o.rounds
}

// Report says what happened in a run.
type Report struct {
	counters
	Virtual time.Duration
	Entries uint64
	// Recovery is the longest time from healing until each node had something confirmed.
	Recovery time.Duration
}

// Add adds another run's report.
func (r *Report) Add(o Report) {
	r.add(o.counters)
	r.Virtual += o.Virtual
	r.Entries += o.Entries
	r.Recovery = max(r.Recovery, o.Recovery)
}

func (r Report) String() string {
	return fmt.Sprintf("%.1f virtual minutes, %d rounds, %d strikes: %d proposed, %d answered, %d unknown, %d entries; %d reads, %d of them linear; %d crashes, %d broken disks, %d logs compacted; "+
		"%d disks lost for good, %d nodes added, %d removed; recovery within %v",
		r.Virtual.Minutes(), r.rounds, r.strikes, r.proposed, r.acked, r.unknown, r.Entries, r.reads, r.linear, r.crashes, r.disks, r.snapshots, r.replaced, r.added, r.removed, r.Recovery.Round(time.Millisecond))
}

// world is one cluster.
type world struct {
	cfg      Config
	dir      string
	log      *slog.Logger
	net      *links.Network
	oracle   *oracle
	founders []transport.NodeID
	wg       sync.WaitGroup // goroutines that end by themselves
	races    atomic.Int64   // the newest thing that clients race for

	mu    sync.Mutex // guards the rest
	ids   []transport.NodeID
	nodes map[transport.NodeID]*node

	// Used by the goroutine of Run only.
	r        *rand.Rand
	recovery time.Duration
	names    int
	storages uint64
	shaping  chan struct{} // closed when the change of who is in the cluster is over; nil: none is under way
}

func (w *world) node(id transport.NodeID) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[id]
}

func newWorld(cfg Config) (*world, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	w := &world{cfg: cfg, log: cfg.Logger, net: links.New(cfg.Seed), oracle: newOracle(cfg.Trace), nodes: make(map[transport.NodeID]*node), r: rand.New(rand.NewPCG(cfg.Seed, 1))}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	for range cfg.Nodes {
		w.names++
		n := w.add(fmt.Sprintf("n%d", w.names))
		n.founder = true
		w.founders = append(w.founders, n.id)
	}
	var err error
	w.dir, err = os.MkdirTemp(cfg.Dir, "meta")
	return w, err
}

// add makes a node with an empty disk.
func (w *world) add(name string) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.storages++
	id := transport.NodeID(fmt.Sprintf("%s/v%d", name, w.storages))
	n := &node{w: w, id: id, rnd: rand.New(rand.NewPCG(w.cfg.Seed, 100+w.storages))}
	w.nodes[id] = n
	w.ids = append(slices.Clone(w.ids), id)
	return n
}

// Run lives through a seed. The error has what went wrong and the trace of events.
func Run(cfg Config) (Report, error) {
	w, err := newWorld(cfg)
	if err != nil {
		return Report{}, err
	}
	defer os.RemoveAll(w.dir)
	began := time.Now()
	err = w.bootAll()
	x := &nemesis{w: w, r: rand.New(rand.NewPCG(cfg.Seed, 5))}
	if err == nil {
		err = w.settle() // founded without faults
	}
	for founded := time.Now(); err == nil && w.oracle.OK() && time.Since(founded) < cfg.Load; {
		err = w.round(x)
	}
	r := Report{counters: w.oracle.count, Virtual: time.Since(began), Entries: w.oracle.floor(), Recovery: w.recovery}
	for _, n := range w.nodes {
		n.crash(false)
	}
	w.wg.Wait()
	time.Sleep(time.Minute) // gRPC ends its dials a moment later
	return r, w.oracle.Verdict(w.cfg.Seed, err)
}

// counted changes the counters.
func (o *oracle) counted(f func(*counters)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(&o.count)
}

// round is a time of faults, healing, and the check of everything.
func (w *world) round(x *nemesis) error {
	w.oracle.counted(func(c *counters) { c.rounds++ })
	stop := make(chan struct{})
	var working sync.WaitGroup
	for i := range clients {
		r := rand.New(rand.NewPCG(w.r.Uint64(), 4))
		working.Go(func() { w.client(i, r, stop) })
	}
	err := x.run(10*time.Second + time.Duration(w.r.Int64N(int64(30*time.Second))))
	close(stop)
	if err == nil && w.oracle.OK() {
		err = w.settle()
	}
	w.heal()
	working.Wait()
	return err
}

// reap buries processes that ended by themselves.
func (w *world) reap() {
	for _, id := range w.present() {
		n := w.node(id)
		n.mu.Lock()
		over := n.life != nil && n.life.dead.Load()
		n.mu.Unlock()
		if over {
			n.bury()
		}
	}
}

// bootAll starts every node that is down.
func (w *world) bootAll() error {
	w.reap()
	for _, id := range w.present() {
		if n := w.node(id); n.running() == nil {
			if err := n.boot(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) heal() {
	w.net.Change(func(l map[links.Link]links.State) { clear(l) })
	for _, id := range w.present() {
		if l := w.node(id).running(); l != nil {
			l.disk.heal()
		}
	}
}

// settle heals everything and checks that each node works in time and all of them become equal.
func (w *world) settle() error {
	w.oracle.Note("everything is healed")
	w.heal()
	time.Sleep(time.Millisecond) // a write that has failed at this instant has yet to end its process
	if err := w.bootAll(); err != nil {
		return err
	}
	w.heal()
	healed := time.Now()
	if w.shaping != nil {
		select {
		case <-w.shaping:
			w.shaping = nil
		case <-time.After(equalLimit):
			w.oracle.Fail("a node is not forgotten within %v of healing: %s", equalLimit, w.describe())
			return nil
		}
	}
	if w.answers(); !w.oracle.OK() {
		return nil
	}
	w.recovery = max(w.recovery, time.Since(healed))
	w.equal()
	return nil
}

// answers checks that each node has something confirmed.
func (w *world) answers() {
	var all sync.WaitGroup
	for _, id := range w.present() {
		l := w.node(id).running()
		if l == nil {
			w.oracle.Fail("%s is not running", id)
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(l.ctx, answerLimit)
			defer cancel()
			for ctx.Err() == nil {
				p := w.oracle.start(put, "register-0", string(id))
				if w.do(ctx, l, p, putUser(p)); p.acked {
					w.look(ctx, l, "register-0")
					return
				}
			}
			w.oracle.Fail("%s has nothing confirmed within %v of healing: %s", id, answerLimit, w.describe())
		})
	}
	all.Wait()
}

// equal waits until all nodes have everything and vote as they should, and checks that they do.
func (w *world) equal() {
	for began := time.Now(); !w.same(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > equalLimit || !w.oracle.OK() {
			w.oracle.Fail("nodes differ %v after healing: %s", equalLimit, w.describe())
			return
		}
	}
	w.oracle.check()
	for _, id := range w.present() {
		l := w.node(id).running()
		w.oracle.verify(l, l.cat.View())
	}
}

// same tells whether all nodes have all that was committed, and are those that have a part in it, and so many vote as should.
func (w *world) same() bool {
	ids, newest := w.present(), w.oracle.floor()
	votes := min(len(ids), 5)
	if len(ids) == 4 {
		votes = 3
	}
	for _, id := range ids {
		l := w.node(id).running()
		if l == nil || l.cat.View().Revision() != newest {
			return false
		}
		voters := l.cat.Voters()
		if len(voters) != votes || slices.ContainsFunc(voters, func(v transport.NodeID) bool { return !slices.Contains(ids, v) }) {
			return false
		}
	}
	return true
}

// describe tells what each node thinks.
func (w *world) describe() string {
	var b strings.Builder
	for _, id := range w.present() {
		l := w.node(id).running()
		if l == nil {
			fmt.Fprintf(&b, "%s is down; ", id)
			continue
		}
		s := l.cat.Stats()
		fmt.Fprintf(&b, "%s is %s in term %s, leader %q, log %s, committed %s, snapshot %s, view %d, voters %v; ", id, s["state"], s["term"], l.cat.LeaderID(), s["last_log_index"], s["commit_index"],
			s["last_snapshot_index"], l.cat.View().Revision(), l.cat.Voters())
	}
	return b.String()
}
