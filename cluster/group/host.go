package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/transport"
)

// Host owns the Raft groups of a node.
type Host struct {
	cfg       HostConfig
	log       *slog.Logger
	raftLog   *raftLog
	began     time.Time
	ctx       context.Context
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	starts    chan struct{} // semaphore of StartsMax
	wakes     chan struct{} // the same for groups that wake
	sleeper   *sleeper
	elections *elections
	watch     *watch
	balance   *balancer
	reach     *reacher
	draining  atomic.Bool
	stuck     stuckLog
	beats     *beats
	unsub     func()
	counters  counters

	mu      sync.Mutex // guards the rest
	groups  map[transport.GroupID]*slot
	unknown map[transport.GroupID]bool // calls of OnUnknown under way
	damaged map[transport.GroupID]bool // groups that do not run here because their logs are damaged
	closed  bool
}

// slot is the place of one group: being started, running or being stopped. Whoever
// put it into the map works on it; the others wait for ready.
type slot struct {
	ready chan struct{}
	g     *Group // nil if the start failed; set before ready is closed
	err   error
	gone  chan struct{} // closed when the group has left the map; nil while it runs
}

// NewHost returns a running host without groups. It panics on a configuration that
// Validate refuses: that is a mistake in the program, not an event.
func NewHost(cfg HostConfig) *Host {
	if err := cfg.Validate(); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &Host{
		cfg: cfg.withDefaults(), began: time.Now(), ctx: ctx, cancel: cancel,
		groups:  make(map[transport.GroupID]*slot),
		unknown: make(map[transport.GroupID]bool),
		damaged: make(map[transport.GroupID]bool),
	}
	h.log = h.cfg.Logger
	h.raftLog = &raftLog{to: h.log, name: "raft"}
	h.starts = make(chan struct{}, h.cfg.StartsMax)
	h.wakes = make(chan struct{}, h.cfg.StartsMax)
	h.sleeper = &sleeper{h: h}
	h.elections = newElections(h)
	h.watch = newWatch(h)
	h.balance = newBalancer(h)
	h.reach = newReacher(h)
	h.beats = newBeats(h.cfg.Profile)
	h.cfg.Mesh.HandleCall(MethodStatus, h.answerStatus)
	h.cfg.Mesh.HandleCall(MethodSleep, h.answerSleep)
	h.cfg.Mesh.OnUnknownGroup(h.unknownGroup)
	h.cfg.Mesh.OnPeerChange(func(s transport.PeerStatus) {
		if s.Up {
			h.watch.returned.Store(true)
			h.watch.poke()
		}
	})
	if s, ok := h.cfg.Store.(interface {
		onDamage(func(transport.GroupID, error))
	}); ok {
		s.onDamage(h.damagedLog)
	}
	h.unsub = h.cfg.Detector.Subscribe(h.verdict)
	h.wg.Go(h.elections.run)
	h.wg.Go(h.watch.run)
	h.wg.Go(h.balance.run)
	h.wg.Go(h.reach.run)
	return h
}

// Local returns the node of the host.
func (h *Host) Local() transport.NodeID { return h.cfg.Local }

// Start runs a group on this node and returns it; a group that runs already is
// returned as it is, with its first machine and observer. It returns before the group
// has a leader.
func (h *Host) Start(s Spec, m Machine, o Observer) (*Group, error) {
	for {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return nil, ErrStopped
		}
		sl, ok := h.groups[s.ID]
		if !ok {
			sl = &slot{ready: make(chan struct{})}
			h.groups[s.ID] = sl
			h.mu.Unlock()
			return h.start(sl, s, m, o)
		}
		gone := sl.gone
		h.mu.Unlock()
		if gone != nil {
			<-gone
			continue
		}
		<-sl.ready
		return sl.g, sl.err
	}
}

func (h *Host) start(sl *slot, s Spec, m Machine, o Observer) (*Group, error) {
	h.starts <- struct{}{}
	defer func() { <-h.starts }()
	s.Bootstrap = s.Bootstrap && s.Generation == 0
	g := &Group{host: h, spec: s, self: transport.Replica(h.cfg.Local, s.Generation), observer: o, life: make(latch, 1), stopped: make(chan struct{}), transfer: make(chan struct{}, 1)}
	g.home.Store(&s.Preferred)
	g.apply = newApplier(g, m)
	fresh, err := g.begin()
	if err != nil {
		h.mu.Lock()
		delete(h.groups, s.ID)
		if errors.Is(err, ErrDamaged) {
			h.damaged[s.ID] = true
		}
		sl.err = err
		h.mu.Unlock()
		close(sl.ready)
		return nil, err
	}
	h.mu.Lock()
	sl.g = g
	if !g.damaged.Load() {
		delete(h.damaged, s.ID)
	}
	h.mu.Unlock()
	close(sl.ready)
	if g.apply.heat.Load() > 0 {
		h.watch.rouse(g) // so that it cools down
	}
	h.elections.begin(g, fresh)
	return g, nil
}

// begin opens the replica over its trace. fresh tells that it is founded here.
func (g *Group) begin() (fresh bool, err error) {
	defer func() { err = damageOf(g.log, err) }()
	if err := g.claim(); err != nil {
		return false, err
	}
	if g.spec.From != 0 {
		if err := g.inherit(); err != nil {
			return false, err
		}
	}
	if w, ok := g.log.(interface{ Heat() int64 }); ok {
		g.apply.heat.Store(w.Heat())
	}
	if fresh, err = g.fresh(); err != nil {
		return false, err
	}
	return fresh, withoutHole(g.open(false))
}

// Group returns a running group.
func (h *Host) Group(id transport.GroupID) (*Group, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sl, ok := h.groups[id]
	if !ok || sl.g == nil || sl.gone != nil {
		return nil, false
	}
	return sl.g, true
}

// Stop ends a group on this node and keeps its durable trace. Stopping a group that
// does not run is no error.
func (h *Host) Stop(id transport.GroupID) error { return h.end(id, nil, nil) }

// Delete ends a group on this node and wipes its durable trace.
func (h *Host) Delete(id transport.GroupID) error {
	return h.end(id, nil, func() error {
		if err := h.cfg.Store.DeleteGroup(id); err != nil {
			return fmt.Errorf("delete group %d: %w", id, err)
		}
		return nil
	})
}

// end stops a group and runs then before the id can be started again. With only it does so if that is what runs.
func (h *Host) end(id transport.GroupID, only *Group, then func() error) error {
	var sl *slot
	for {
		h.mu.Lock()
		var ok bool
		if sl, ok = h.groups[id]; only != nil && (!ok || isClosed(sl.ready) && sl.g != only) {
			h.mu.Unlock()
			return nil
		}
		if !ok {
			// An empty slot keeps a start from overtaking the wipe.
			sl = &slot{ready: make(chan struct{})}
			close(sl.ready)
			h.groups[id] = sl
		}
		if sl.gone == nil && isClosed(sl.ready) {
			sl.gone = make(chan struct{})
			h.mu.Unlock()
			break
		}
		wait := sl.ready
		if sl.gone != nil {
			wait = sl.gone
		}
		h.mu.Unlock()
		<-wait
	}
	var err error
	if sl.g != nil {
		if then != nil {
			sl.g.running.Load().wire.Leave()
		}
		err = sl.g.stop()
	}
	if then != nil {
		err = errors.Join(err, then())
	}
	h.mu.Lock()
	delete(h.groups, id)
	if then != nil {
		delete(h.damaged, id)
	}
	h.mu.Unlock()
	close(sl.gone)
	return err
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Close stops every group and then the host. It is safe twice.
func (h *Host) Close() error {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	ids := make([]transport.GroupID, 0, len(h.groups))
	for id := range h.groups {
		ids = append(ids, id)
	}
	h.mu.Unlock()
	if first {
		h.unsub()
	}
	h.cancel()
	h.wg.Wait()
	errs := make([]error, len(ids))
	var wg sync.WaitGroup
	sem := make(chan struct{}, closeAtOnce)
	for i, id := range ids {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() { <-sem }()
			errs[i] = h.Stop(id)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// closeAtOnce bounds how many groups are stopped at a time by Close.
const closeAtOnce = 64

// spawn runs f on a goroutine that Close waits for; it reports false, without running
// f, when the host is closed.
func (h *Host) spawn(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Go(f)
	return true
}

// Groups returns all running groups in no order.
func (h *Host) Groups() []*Group {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]*Group, 0, len(h.groups))
	for _, sl := range h.groups {
		if sl.g != nil && sl.gone == nil {
			all = append(all, sl.g)
		}
	}
	return all
}

// mayLead tells whether a presumed leader is worth waiting for.
func (h *Host) mayLead(n transport.NodeID) bool {
	return n == h.cfg.Local || h.cfg.Detector.State(n) != detector.Dead
}

// verdict takes a verdict of the detector. It runs on the detector's goroutine.
func (h *Host) verdict(e detector.Event) {
	if e.State == detector.Suspect {
		h.unheard(e.Node)
		return
	}
	h.balance.verdict(e)
	if e.State == detector.Alive {
		h.elections.hurry()
		h.watch.revived.Store(true)
		h.watch.poke()
		return
	}
	orphans := 0
	for _, g := range h.Groups() {
		l, ok := g.settledLeader()
		if ok && l.leader != e.Node {
			continue
		}
		if orphans == 0 {
			h.elections.death()
		}
		// The node may be alive again before the election, which must not pass for a sign of its former
		// leadership: perhaps its new process never runs this group.
		g.doubt(e.Node)
		h.elections.want(g, 0)
		orphans++
	}
	h.log.Info("electing after a death", "node", e.Node, "groups", orphans)
}

// unknownGroup wakes a frame's group if it sleeps here, and hands one that does not run here to the owner, once at a time for each group.
func (h *Host) unknownGroup(id transport.GroupID, from transport.NodeID, catalogIndex uint64) {
	if g, ok := h.Group(id); ok {
		g.rouse(false)
		return
	}
	if h.cfg.OnUnknown == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.groups[id]; known || h.closed || h.unknown[id] || len(h.unknown) >= h.cfg.UnknownMax {
		return
	}
	h.unknown[id] = true
	h.wg.Go(func() {
		h.cfg.OnUnknown(id, from, catalogIndex)
		h.mu.Lock()
		delete(h.unknown, id)
		h.mu.Unlock()
	})
}
