package steward

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/repair"
)

// Catalog is what is used of a [catalog.Catalog].
type Catalog interface {
	View() *catalog.View
	ReadIndex(ctx context.Context) error
	Leading() bool
	LeaderID() catalog.NodeID
	Unheard() time.Duration
	Voters() []catalog.NodeID
	Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error)
	Subscribe(f func(old, now *catalog.View))
}

// Config describes a Steward.
type Config struct {
	// Catalog is the node's; required.
	Catalog Catalog
	// Alive tells whether a node, this one too, can be reached now and is not known to be dead; required.
	Alive func(catalog.NodeID) bool
	// Clock is the time by which the catalog notes who is down, in milliseconds since 1970; required.
	Clock func() int64
	// Ended tells whether the process of a node that cannot be reached seems to have ended, rather than to be slow or cut off; nil: never.
	Ended func(catalog.NodeID) bool
	// LostAfter is how long a node must be dead before the queues in its memory are deleted, and SilentAfter how long if its process does not seem to have
	// ended: its clients may use them. 3 s and 10 s.
	LostAfter, SilentAfter time.Duration
	// Policy bounds repairs.
	Policy repair.Policy
	// Logger may be nil.
	Logger *slog.Logger
	// Every is the time between two looks; 1 s. A change of the catalog is looked at at once while plans are under way.
	Every time.Duration
}

// Times.
const (
	proposeWait = 5 * time.Second
	refusedWait = 5 * time.Second // before a queue whose plan was refused is looked at again; it doubles
	refusedMax  = 5 * time.Minute
	stuckWait   = 10 * time.Second // before all queues are walked again when nothing could be planned
	tellEvery   = 10 * time.Second // between two lines in the log about progress
	leaderMax   = 3 * time.Second  // silence of the catalog's leader after which it counts as none
	lookShare   = 10               // looks take at most this part of the time
)

// Stats are figures of a Steward. Those of the last look are 0 at nodes that do not lead the catalog.
type Stats struct {
	// Plans counts the plans that were entered, by repair.Reason; Refused those that the catalog did not take.
	Plans   [repair.Missing + 1]uint64
	Refused uint64
	// Waiting to Short are those of repair.Outcome.
	Waiting, Nowhere, NoMajority, Underway, Stalled, Short int
}

// Steward looks after the replicas. It owns a goroutine that ends at Close.
type Steward struct {
	cfg    Config
	wake   chan struct{} // capacity 1
	active atomic.Bool   // a change of the catalog is worth a look
	stop   context.CancelFunc
	done   sync.WaitGroup
	stats  struct {
		sync.Mutex
		Stats
	}

	// The rest is the goroutine's alone.
	watch   watch
	refused map[uint64]refusal
	buried  uint64    // revision of the view in which nothing is left to bury
	next    time.Time // all queues are not walked again before, unless nodes have changed
	seen    string    // the nodes at the last walk
	told    time.Time
	telling Stats // what the log was told last
	mourned time.Time
	silent  map[catalog.NodeID]silence
}

// refusal is a queue whose plan was refused.
type refusal struct {
	until time.Time
	wait  time.Duration
}

// New starts a steward.
func New(cfg Config) *Steward {
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	if cfg.Ended == nil {
		cfg.Ended = func(catalog.NodeID) bool { return false }
	}
	cfg.LostAfter, cfg.SilentAfter = cmp.Or(cfg.LostAfter, lostAfter), cmp.Or(cfg.SilentAfter, silentAfter)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Steward{cfg: cfg, wake: make(chan struct{}, 1), stop: cancel, refused: make(map[uint64]refusal)}
	cfg.Catalog.Subscribe(func(_, _ *catalog.View) {
		if s.active.Load() {
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	})
	s.done.Go(func() { s.run(ctx) })
	return s
}

// Close ends it. It is safe twice.
func (s *Steward) Close() {
	s.stop()
	s.done.Wait()
}

// Stats returns its figures.
func (s *Steward) Stats() Stats {
	s.stats.Lock()
	defer s.stats.Unlock()
	return s.stats.Stats
}

func (s *Steward) run(ctx context.Context) {
	for {
		began := time.Now()
		s.look(ctx)
		// Walking many queues takes its time, and changes of the catalog may come one after the other.
		pause := time.NewTimer(min(s.cfg.Every, (lookShare-1)*time.Since(began)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		rest := time.NewTimer(max(0, s.cfg.Every-time.Since(began)))
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-s.wake:
		case <-rest.C:
		}
		rest.Stop()
	}
}

// look looks once, and plans what is to be planned.
func (s *Steward) look(ctx context.Context) {
	cat := s.cfg.Catalog
	view, now := cat.View(), time.Now()
	s.watch.look(now, s.cfg.Clock(), view, cat.LeaderID() != "" && cat.Unheard() < leaderMax, 2*s.cfg.Every)
	if !cat.Leading() {
		s.mourned, s.silent = time.Time{}, nil
		s.rest()
		return
	}
	s.mourn(ctx, view, now)
	if view.Level() < 2 {
		s.rest()
		return
	}
	nodes := Nodes(view, s.cfg.Alive, s.watch.down)
	seen, troubled := s.trouble(view, nodes)
	s.bury(ctx, view)
	s.forget(ctx, view)
	if !troubled {
		s.rest()
		return
	}
	if seen == s.seen && now.Before(s.next) {
		return
	}
	s.seen = seen
	o := repair.Next(s.cfg.Policy, nodes, Queues(view), func(id uint64) bool { return now.Before(s.refused[id].until) })
	s.note(&o)
	s.active.Store(true)
	s.next = time.Time{}
	if len(o.Plans) == 0 && o.Underway == o.Stalled && o.Waiting == 0 {
		s.next = now.Add(stuckWait)
		s.active.Store(false)
	}
	for _, p := range o.Plans {
		if !s.enter(ctx, &p) {
			return
		}
	}
}

// rest ends what was under way: there is nothing to do, or another node does it.
func (s *Steward) rest() {
	s.active.Store(false)
	s.note(new(repair.Outcome))
	s.seen, s.next = "", time.Time{}
	clear(s.refused)
}

// trouble tells whether replicas are missing, or on nodes on which they cannot stay, and describes all nodes so that a difference is seen.
func (s *Steward) trouble(view *catalog.View, nodes []repair.Node) (seen string, is bool) {
	b := make([]byte, 0, 64*len(nodes))
	is = view.Short() > 0
	strangers := view.Hosts() // hosts that are not among the nodes
	for i := range nodes {
		n := &nodes[i]
		reason := s.cfg.Policy.Reason(n)
		if view.Replicas(n.ID) > 0 {
			strangers--
			is = is || reason != repair.None
		}
		b = append(b, n.ID...)
		b = append(b, ' ', '0'+byte(reason))
		for _, fact := range []bool{n.Alive, n.Willing, n.Down > 0} {
			if fact {
				b = append(b, '+')
			} else {
				b = append(b, '-')
			}
		}
		b = append(b, n.Zone...)
		b = append(b, '\n')
	}
	return string(b), is || strangers > 0
}

// enter proposes one plan. It returns false if the catalog does not answer, so that others would not be entered either.
func (s *Steward) enter(ctx context.Context, p *repair.Plan) bool {
	ctx, cancel := context.WithTimeout(ctx, proposeWait)
	defer cancel()
	_, err := s.cfg.Catalog.Propose(ctx, &catalog.PlanMembers{
		ID: p.Queue, Wanted: p.Wanted, Preferred: p.Preferred, IfSettings: p.IfSettings, Why: p.Why,
	})
	s.stats.Lock()
	defer s.stats.Unlock()
	if err == nil {
		s.stats.Plans[p.Reason]++
		delete(s.refused, p.Queue)
		s.cfg.Logger.Debug("a queue gets other members", "queue", p.Queue, "members", p.Wanted, "because", p.Why)
		return true
	}
	s.stats.Refused++
	if _, ok := errors.AsType[*amqp.Error](err); !ok {
		s.cfg.Logger.Debug("a plan could not be entered", "queue", p.Queue, "err", err)
		return false
	}
	r := s.refused[p.Queue]
	r.wait = min(max(refusedWait, 2*r.wait), refusedMax)
	r.until = time.Now().Add(r.wait)
	s.refused[p.Queue] = r
	s.cfg.Logger.Info("the catalog refuses a plan", "queue", p.Queue, "err", err)
	return true
}

// bury takes deleted queues out of the catalog of which no replica is left: a queue's own leader does that when it has ended, and these can have none.
// Who sends to them finds that they have gone.
func (s *Steward) bury(ctx context.Context, view *catalog.View) {
	if view.Revision() == s.buried || !view.Stranded() {
		return
	}
	for q := range view.AllQueues() {
		if q.State != catalog.Closing || !view.NoneLeft(q) {
			continue
		}
		call, cancel := context.WithTimeout(ctx, proposeWait)
		_, err := s.cfg.Catalog.Propose(call, &catalog.QueueGone{ID: q.ID})
		cancel()
		s.cfg.Logger.Info("a deleted queue of which no replica is left is gone", "queue", q.ID, "vhost", q.Vhost, "name", q.Name, "err", err)
		if err != nil {
			return // it is looked for again
		}
	}
	s.buried = view.Revision()
}

// forget takes storages out of the catalog that were replaced by newer ones and have nothing any more. Those that run refuse their name already.
func (s *Steward) forget(ctx context.Context, view *catalog.View) {
	for n := range view.Nodes() {
		if !n.Superseded || view.Replicas(n.ID) > 0 || slices.Contains(s.cfg.Catalog.Voters(), n.ID) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, proposeWait)
		_, err := s.cfg.Catalog.Propose(ctx, &catalog.ForgetNode{ID: n.ID, Incarnation: n.Incarnation})
		cancel()
		s.cfg.Logger.Info("a replaced storage has nothing any more and is forgotten", "node", string(n.ID), "err", err)
		return // the view is an older one now
	}
}

// note keeps what a look found, and tells it now and then.
func (s *Steward) note(o *repair.Outcome) {
	s.stats.Lock()
	st := &s.stats.Stats
	st.Waiting, st.Nowhere, st.NoMajority, st.Underway, st.Stalled, st.Short = o.Waiting, o.Nowhere, o.NoMajority, o.Underway, o.Stalled, o.Short
	now := *st
	s.stats.Unlock()
	was := &s.telling
	same := now.Waiting == was.Waiting && now.Nowhere == was.Nowhere && now.NoMajority == was.NoMajority &&
		now.Underway == was.Underway && now.Stalled == was.Stalled
	over := now.Waiting+now.Nowhere+now.NoMajority+now.Underway == 0 && len(o.Plans) == 0
	if same || !over && time.Since(s.told) < tellEvery {
		return
	}
	s.told, s.telling = time.Now(), now
	if over {
		s.told = time.Time{}
		s.cfg.Logger.Info("no replicas wait for another place any more")
		return
	}
	s.cfg.Logger.Info("replicas get other places", "planned_now", len(o.Plans), "waiting", now.Waiting, "underway", now.Underway,
		"stalled", now.Stalled, "nowhere", now.Nowhere, "no_majority", now.NoMajority)
}

// Nodes describes the nodes of a view. down tells for how long a node has been down, of the time that counts.
func Nodes(view *catalog.View, alive func(catalog.NodeID) bool, down func(catalog.NodeID) time.Duration) (list []repair.Node) {
	for n := range view.Nodes() {
		r := repair.Node{
			ID: n.ID, Zone: n.Zone, Alive: !n.Superseded && alive(n.ID), Superseded: n.Superseded,
			// One that has not told its level has not told its zone.
			Willing: n.State == catalog.NodeRegular && n.Level > 0, Young: n.State == catalog.NodeRegular && n.Level == 0, Leaving: n.State == catalog.NodeLeaving,
		}
		if n.Down != 0 {
			r.Down = max(1, down(n.ID))
		}
		if next := view.NodeByName(n.Name); n.Superseded && next != nil {
			r.Successor = next.ID
		}
		list = append(list, r)
	}
	return list
}

// Queues walks the replicated queues of a view.
func Queues(view *catalog.View) iter.Seq[repair.Queue] {
	return func(yield func(repair.Queue) bool) {
		for q := range view.AllQueues() {
			if q.Kind == catalog.Replicated && !yield(queueOf(q)) {
				return
			}
		}
	}
}

func queueOf(q *catalog.Queue) repair.Queue {
	r := repair.Queue{
		ID: q.ID, Settings: q.Settings, Members: q.Members, Generations: q.Generations, Wanted: q.Wanted, Preferred: q.Preferred,
		Settled: q.Settled, Stood: int(q.Stood),
	}
	if q.Wanted != nil {
		r.Preferred = q.WantedPreferred
	}
	if q.Survivors == nil { // else it is only being recovered
		r.Missing = q.Missing()
	}
	return r
}
