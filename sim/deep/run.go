package deep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/sim/links"
	"github.com/warrenmq/warren/store/crashfs"
	"github.com/warrenmq/warren/transport"
)

// Limits in virtual time.
const (
	// leaderLimit is how long after healing a group may take to confirm something.
	leaderLimit = 30 * time.Second
	// equalLimit is how long after that its replicas may differ.
	equalLimit = 60 * time.Second
)

// Config describes a run.
type Config struct {
	Seed uint64
	// Nodes is the number of nodes, default 3; each of Groups (default 4) has three replicas on them.
	Nodes, Groups int
	// Load is how much virtual time passes under faults, in rounds that each end with healing and a check.
	Load time.Duration
	// Calm makes clients slow and faults rare, some six a virtual minute, so that a virtual minute costs a quarter.
	Calm bool
	// Logger gets what the nodes log. If it is nil, the newest warnings are kept for a run that stands still.
	Logger *slog.Logger
	// Trace gets each event as it happens, for what ends in a panic; may be nil.
	Trace io.Writer
	// OverlapMax is how long two nodes may have the lease of one group; more fails the run. With 0 it is only reported.
	OverlapMax time.Duration
	// Moves has members of groups change, too, groups come and go, and nodes lose their disks for good.
	Moves bool
	// Sleepy has groups sleep that are idle for a second, and clients leave them alone for longer.
	Sleepy bool
	// Lie makes one part break its word, to see that the run is not valid then.
	Lie Lie
}

// gap is the most time between two strikes of the nemesis.
func (c Config) gap() time.Duration {
	if c.Calm {
		return 15 * time.Second
	}
	return 1500 * time.Millisecond
}

// Lie is a fault that is put in.
type Lie string

// The lies of a run.
const (
	LieSync    Lie = "a sync says done and is not"
	LieTail    Lie = "a crash takes the last moments of synced writes"
	LieTerm    Lie = "terms are not stored"
	LieConfirm Lie = "a proposal is confirmed when it is proposed"
	LieAnswer  Lie = "appends are answered, and answers counted, before entries are durable"
)

// counters are what happened in a run.
type counters struct {
	proposed, acked, refused, unknown            atomic.Int64
	boots, crashes, brokenSyncs, cuts            atomic.Int64
	installs, snapshots, refills, volumes, moves atomic.Int64
	rounds, strikes, planned, moved, wiped       atomic.Int64
	dozed, woken, kills, born, deleted           atomic.Int64
	recovered                                    atomic.Int64
}

// Report says what happened in a run.
type Report struct {
	Virtual                           time.Duration
	Rounds                            int64
	Strikes                           int64 // of the nemesis: faults and what ends them
	Proposed, Acked, Refused, Unknown int64
	Boots, Crashes, BrokenSyncs, Cuts int64
	Snapshots, Installs, Terms        int64
	Refills, Volumes, Moves           int64 // Moves: leaders that went home
	// Planned and Reached count changes of members: those that were planned and those that came to their end.
	Planned, Reached int64
	// Wiped is how many disks were lost for good.
	Wiped int64
	// Kills are those of the crashes after which the machine went on.
	Kills int64
	// Born and Deleted count groups that came and went.
	Born, Deleted int64
	// Recovered is how many went on from one member, as most were lost.
	Recovered int64
	// Dozed and Woken count replicas that fell asleep and woke.
	Dozed, Woken int64
	// Recovery is the longest time from healing to a confirmed entry, of any group.
	Recovery time.Duration
	// Overlap is the longest time in which two nodes had the lease of one group.
	Overlap time.Duration
}

// Add adds another run's report, or keeps the longer time where that is what counts.
func (r *Report) Add(o Report) {
	r.Virtual += o.Virtual
	r.Rounds += o.Rounds
	r.Strikes += o.Strikes
	r.Proposed, r.Acked, r.Refused, r.Unknown = r.Proposed+o.Proposed, r.Acked+o.Acked, r.Refused+o.Refused, r.Unknown+o.Unknown
	r.Boots, r.Crashes, r.BrokenSyncs, r.Cuts = r.Boots+o.Boots, r.Crashes+o.Crashes, r.BrokenSyncs+o.BrokenSyncs, r.Cuts+o.Cuts
	r.Snapshots, r.Installs, r.Terms = r.Snapshots+o.Snapshots, r.Installs+o.Installs, r.Terms+o.Terms
	r.Planned, r.Reached, r.Wiped = r.Planned+o.Planned, r.Reached+o.Reached, r.Wiped+o.Wiped
	r.Refills, r.Volumes, r.Moves = r.Refills+o.Refills, r.Volumes+o.Volumes, r.Moves+o.Moves
	r.Born, r.Deleted, r.Recovered = r.Born+o.Born, r.Deleted+o.Deleted, r.Recovered+o.Recovered
	r.Dozed, r.Woken, r.Kills = r.Dozed+o.Dozed, r.Woken+o.Woken, r.Kills+o.Kills
	r.Recovery, r.Overlap = max(r.Recovery, o.Recovery), max(r.Overlap, o.Overlap)
}

func (r Report) String() string {
	return fmt.Sprintf("%.1f virtual minutes, %d rounds, %d strikes: %d proposed, %d confirmed, %d refused, %d unknown; %d crashes, %d of them of the process alone, %d failed disks, %d cuts, %d terms, "+
		"%d snapshots, %d installed; %d replicas refilled, %d volumes given up; %d plans of members, %d reached, %d disks lost for good; %d groups born, %d deleted, %d recovered; %d leaders went home; %d fell asleep, %d woke; recovery within %v, leases overlap by %v",
		r.Virtual.Minutes(), r.Rounds, r.Strikes, r.Proposed, r.Acked, r.Refused, r.Unknown, r.Crashes, r.Kills, r.BrokenSyncs, r.Cuts, r.Terms,
		r.Snapshots, r.Installs, r.Refills, r.Volumes, r.Planned, r.Reached, r.Wiped, r.Born, r.Deleted, r.Recovered, r.Moves, r.Dozed, r.Woken, r.Recovery.Round(time.Millisecond), r.Overlap.Round(time.Millisecond))
}

// world is one cluster. Its maps do not change once it runs.
type world struct {
	cfg    Config
	log    *slog.Logger
	words  lastWords
	net    *links.Network
	oracle *oracle
	ids    []transport.NodeID // replaced, not changed, by the goroutine of Run
	nodes  map[transport.NodeID]*node
	groups []transport.GroupID // the first ones
	place  map[transport.GroupID][]transport.NodeID
	plans  *plans // nil if members do not change: then they are those of place
	disks  storages
	report counters
	wg     sync.WaitGroup // goroutines that end by themselves
	moving atomic.Bool    // a planned move is under way
	// damaging: bytes of a disk have decayed; otherwise nothing may be damaged.
	damaging atomic.Bool

	// Used by the goroutine of Run only.
	r        *rand.Rand
	paces    *rand.Rand
	marks    int
	recovery time.Duration
	overlap  atomic.Int64
}

func (w *world) random() uint64 { return w.r.Uint64() }

// groupsOf lists the groups with a replica on a node.
func (w *world) groupsOf(id transport.NodeID) []transport.GroupID {
	var out []transport.GroupID
	for _, g := range w.groups {
		if slices.Contains(w.place[g], id) {
			out = append(out, g)
		}
	}
	return out
}

func newWorld(cfg Config) *world {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	if cfg.Groups == 0 {
		cfg.Groups = 4
	}
	w := &world{
		cfg: cfg, log: cfg.Logger, net: links.New(cfg.Seed), oracle: newOracle(cfg.Trace),
		nodes: make(map[transport.NodeID]*node), place: make(map[transport.GroupID][]transport.NodeID),
		r: rand.New(rand.NewPCG(cfg.Seed, 1)), paces: rand.New(rand.NewPCG(cfg.Seed, 6)),
	}
	if w.log == nil {
		w.words.began = time.Now()
		w.log = w.words.logger()
	}
	for i := range cfg.Nodes {
		id := transport.NodeID(fmt.Sprintf("n%d/v", i+1))
		w.ids = append(w.ids, id)
		w.nodes[id] = &node{w: w, id: id, fs: crashfs.New(), rnd: rand.New(rand.NewPCG(cfg.Seed, 100+uint64(i))), lost: make(map[transport.GroupID]bool)}
	}
	for i := range cfg.Groups {
		id := transport.GroupID(10 + i)
		w.groups = append(w.groups, id)
		for k := range 3 {
			w.place[id] = append(w.place[id], w.ids[(i+k)%cfg.Nodes])
		}
	}
	if cfg.Moves {
		w.disks = storages{next: make(map[transport.NodeID]transport.NodeID), spare: make(map[transport.NodeID]transport.NodeID)}
		for i, id := range w.ids {
			w.addSpares(w.nodes[id], 1000+uint64(i))
		}
		w.plans = &plans{index: 1000, groups: make(map[transport.GroupID]placing), next: make(map[transport.GroupID]transport.GroupID)}
		for id, members := range w.place {
			w.plans.groups[id] = placing{founders: members, members: members, generations: make(map[transport.NodeID]uint64), settings: uint64(id)}
		}
	}
	return w
}

// members are the nodes that have a part in a group now.
func (w *world) members(id transport.GroupID) []transport.NodeID {
	if w.plans == nil {
		return w.place[id]
	}
	return w.plans.get(id).members
}

// Run lives through a seed. The error has what went wrong and the trace of events.
func Run(cfg Config) (Report, error) {
	w := newWorld(cfg)
	began := time.Now()
	err := w.bootAll()
	stop := make(chan struct{})
	var leases sync.WaitGroup
	leases.Go(func() { w.watchLeases(stop) })
	x := &nemesis{w: w, r: rand.New(rand.NewPCG(cfg.Seed, 5)), moves: rand.New(rand.NewPCG(cfg.Seed, 8)), births: rand.New(rand.NewPCG(cfg.Seed, 9))}
	if err == nil {
		err = w.settle() // founded without faults
	}
	for founded := time.Now(); err == nil && w.oracle.OK() && time.Since(founded) < cfg.Load; {
		err = w.round(x)
	}
	close(stop)
	leases.Wait()
	for _, id := range w.ids {
		w.nodes[id].crash(false)
	}
	w.wg.Wait()
	time.Sleep(time.Minute) // gRPC ends its dials a moment later
	r := w.result(began)
	r.Virtual -= time.Minute
	return r, w.oracle.Verdict(w.cfg.Seed, err)
}

// round is a time of faults, healing, and the check of everything.
func (w *world) round(x *nemesis) error {
	w.report.rounds.Add(1)
	stop := make(chan struct{})
	var clients sync.WaitGroup
	p := w.pace()
	for i := range 3 {
		r := rand.New(rand.NewPCG(w.random(), 4))
		number := int(w.report.rounds.Load())*10 + i
		clients.Go(func() { w.client(number, r, p, stop) })
	}
	err := x.run(10*time.Second + time.Duration(w.r.Int64N(int64(30*time.Second))))
	close(stop)
	clients.Wait()
	if err == nil && w.oracle.OK() {
		err = w.settle()
	}
	if err == nil && w.oracle.OK() && x.r.IntN(3) == 0 {
		if err = x.damage(); err == nil {
			err = w.settle()
		}
	}
	return err
}

// reap buries processes that ended by themselves.
func (w *world) reap() {
	for _, id := range w.ids {
		n := w.nodes[id]
		n.mu.Lock()
		over := n.life != nil && n.life.dead.Load()
		n.mu.Unlock()
		if over {
			w.report.crashes.Add(1)
			n.bury()
		}
	}
}

// bootAll starts every node that is down.
func (w *world) bootAll() error {
	for _, id := range w.ids {
		if n := w.nodes[id]; n.running() == nil {
			w.reap()
			if err := n.boot(); err != nil {
				return err
			}
		}
	}
	if w.plans != nil {
		w.introduce()
	}
	return nil
}

func (w *world) healDisks() {
	for _, id := range w.ids {
		if l := w.nodes[id].running(); l != nil {
			l.disk.slow.Store(0)
			l.disk.Fail(nil)
		}
	}
}

// settle heals everything and checks that every group works in time and all its replicas become equal.
func (w *world) settle() error {
	w.oracle.Note("everything is healed")
	w.net.Change(func(l map[links.Link]links.State) { clear(l) })
	w.healDisks()
	// A sync that has failed at this instant has yet to end its node.
	time.Sleep(time.Millisecond)
	if err := w.bootAll(); err != nil {
		return err
	}
	w.healDisks()
	if w.plans != nil {
		w.started()
	}
	healed := time.Now()
	for _, id := range w.all() {
		if !w.mark(id, leaderLimit-time.Since(healed)) {
			w.stuck(id, "confirms nothing within %v of healing", leaderLimit)
			return nil
		}
		w.recovery = max(w.recovery, time.Since(healed))
	}
	w.reap()
	if w.plans != nil {
		w.reached()
		w.buried()
	}
	for _, id := range w.all() {
		if w.oracle.OK() {
			w.equal(id)
		}
	}
	return nil
}

// equal waits until all replicas of a group have everything, and checks that they do, with the bytes they refer to.
func (w *world) equal(id transport.GroupID) {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		same, newest := true, w.oracle.newest(id)
		for _, n := range w.members(id) {
			l := w.nodes[n].running()
			if l == nil || l.machine(id) == nil {
				w.oracle.Fail("group %d: %s is not running", id, n)
				return
			}
			s, _ := l.machine(id).state()
			same = same && s.last == newest
		}
		if same {
			break
		}
		if time.Since(began) > equalLimit {
			w.stuck(id, "has replicas that differ %v after healing", equalLimit)
			return
		}
	}
	for _, n := range w.members(id) {
		l := w.nodes[n].running()
		s, live := l.machine(id).state()
		w.oracle.verify(l, id, s)
		g, ok := l.host.Group(id)
		if !ok {
			continue
		}
		for _, at := range live {
			b, err := g.Read(at)
			if want, known := w.oracle.bytesAt(id, at); err != nil || known && string(b) != string(want) {
				w.oracle.Fail("group %d: %s reads entry %d as %s, %v; it was %s", id, n, at, name(b), err, name(want))
			}
		}
	}
}

// describe tells what each replica of a group thinks.
func (w *world) describe(id transport.GroupID) string {
	var b strings.Builder
	for _, n := range w.members(id) {
		l := w.nodes[n].running()
		if l == nil {
			fmt.Fprintf(&b, "%s is down; ", n)
			continue
		}
		if g, ok := l.host.Group(id); ok {
			s := g.Stats()
			fmt.Fprintf(&b, "%s is %s in term %d, leader %q, log %d, committed %d, applied %d, members %v; ", n, s.State, s.Term, s.Leader, s.Last, s.Commit, s.Applied, s.Members)
		}
	}
	return b.String()
}

// refill replaces a damaged replica: it loses its vote before it is wiped, and has it back when it is full.
func (w *world) refill(n *node, id transport.GroupID) error {
	l := n.running()
	if l == nil {
		return errors.New("the node to be refilled is not running")
	}
	began := time.Now()
	step := func(what string, fn func(context.Context, *life) error) error {
		for {
			if lead := w.leader(id); lead != nil {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				err := fn(ctx, lead)
				cancel()
				if err == nil {
					return nil
				}
				w.oracle.Note("refill group %d on %s, %s: %v", id, n.id, what, err)
			}
			if time.Since(began) > 2*leaderLimit {
				return fmt.Errorf("group %d on %s is not refilled (%s): %s", id, n.id, what, w.describe(id))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	err := step("demote", func(ctx context.Context, lead *life) error {
		g, _ := lead.host.Group(id)
		return g.DemoteVoter(ctx, transport.Replica(n.id, 0), 0)
	})
	if err == nil {
		err = l.host.Delete(id)
	}
	if err == nil {
		err = l.start(id, false)
	}
	if err != nil {
		return err
	}
	err = step("fill", func(ctx context.Context, lead *life) error {
		g, _ := lead.host.Group(id)
		if err := g.AddNonvoter(ctx, transport.Replica(n.id, 0), 0); err != nil {
			return err
		}
		if s, _ := l.machine(id).state(); s.last < w.oracle.newest(id) {
			return errors.New("not filled yet")
		}
		return g.AddVoter(ctx, transport.Replica(n.id, 0), 0)
	})
	if err != nil {
		return err
	}
	delete(n.lost, id)
	w.report.refills.Add(1)
	w.oracle.Note("group %d on %s is refilled", id, n.id)
	return nil
}

// leader returns the node that leads a group in the newest term, nil if none does.
func (w *world) leader(id transport.GroupID) *life {
	for _, n := range w.members(id) {
		if l := w.nodes[n].running(); l != nil {
			if g, ok := l.host.Group(id); ok && g.IsLeader() {
				return l
			}
		}
	}
	return nil
}

func (w *world) result(began time.Time) Report {
	c := &w.report
	r := Report{
		Virtual: time.Since(began), Rounds: c.rounds.Load(), Strikes: c.strikes.Load(), Proposed: c.proposed.Load(), Acked: c.acked.Load(),
		Refused: c.refused.Load(), Unknown: c.unknown.Load(), Boots: c.boots.Load(), Crashes: c.crashes.Load(),
		BrokenSyncs: c.brokenSyncs.Load(), Cuts: c.cuts.Load(), Installs: c.installs.Load(), Snapshots: c.snapshots.Load(),
		Refills: c.refills.Load(), Volumes: c.volumes.Load(), Moves: c.moves.Load(), Planned: c.planned.Load(), Reached: c.moved.Load(), Wiped: c.wiped.Load(), Dozed: c.dozed.Load(), Woken: c.woken.Load(), Kills: c.kills.Load(), Born: c.born.Load(), Deleted: c.deleted.Load(), Recovered: c.recovered.Load(), Recovery: w.recovery, Overlap: time.Duration(w.overlap.Load()),
	}
	w.oracle.mu.Lock()
	defer w.oracle.mu.Unlock()
	for _, h := range w.oracle.groups {
		r.Terms += int64(len(h.leaders))
	}
	return r
}
