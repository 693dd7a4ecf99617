package group

import (
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// instance is one Raft instance of a group and its wire.
type instance struct {
	raft replica
	wire *wire
	log  *stagedLog
	// ended is closed when its goroutines have ended; nil of a replica that sleeps.
	ended chan struct{}
}

func (g *Group) replica() replica { return g.running.Load().raft }

// open creates the Raft instance over the replica's durable part.
func (g *Group) open(keepMachine bool) error {
	conf := g.host.cfg.Profile.raftConfig(g.self, g.host.raftLog.With("group", uint64(g.spec.ID)).(*raftLog))
	conf.NoSnapshotRestoreOnStart = keepMachine
	w := &wire{RaftTransport: g.host.cfg.Mesh.Raft(g.spec.ID, g.spec.Generation), g: g}
	if g.spec.Bootstrap && !keepMachine {
		if err := g.bootstrap(); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	log := g.raftLog(w)
	w.Resume(g.dozing.follows)
	r, err := g.newRaft(conf, log, w)
	if err != nil {
		return errors.Join(fmt.Errorf("start group %d: %w", g.spec.ID, err), w.Close())
	}
	w.raft.Store(r)
	g.running.Store(&instance{raft: r, wire: w, log: log, ended: make(chan struct{})})
	g.noteLearners()
	log.started(r)
	// The filter is called on raft's own goroutine; without a channel nothing
	// is delivered, so no goroutine per group is needed.
	r.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			g.sync(r)
		}
		return false
	}))
	g.sync(r)
	return nil
}

// newRaft makes an instance. raft reads the whole log above the snapshot and panics at an entry that cannot be read: a damaged
// replica must not keep the node with all the others from starting. Nothing of the instance runs by then.
func (g *Group) newRaft(conf *raft.Config, log *stagedLog, w *wire) (r *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			var mistake runtime.Error
			cause, ok := p.(error)
			if !ok || errors.As(cause, &mistake) {
				panic(p)
			}
			r, err = nil, cause
		}
	}()
	return raft.NewRaft(conf, g.apply, log, stableLog{g.log, g}, g.log.Snapshots(), w)
}

// fresh tells whether the replica is about to be founded here: it has no log and no snapshot, and a
// term at most that its founding wrote before a crash cut it off.
func (g *Group) fresh() (bool, error) {
	if !g.spec.Bootstrap {
		return false, nil
	}
	if last, err := g.log.LastIndex(); err != nil || last > 0 {
		return false, wrapFresh(g, err)
	}
	if term, err := g.log.GetUint64([]byte("CurrentTerm")); err == nil && term > g.spec.bornIn(g.host.cfg.Local) {
		return false, nil
	}
	snapshots, err := g.log.Snapshots().List()
	return err == nil && len(snapshots) == 0, wrapFresh(g, err)
}

func wrapFresh(g *Group, err error) error {
	if err != nil {
		return fmt.Errorf("look for a trace of group %d: %w", g.spec.ID, err)
	}
	return nil
}

// foundingTerm is the term of the first entry, the configuration, and firstTerm the one after it.
const (
	foundingTerm = 1
	firstTerm    = foundingTerm + 1
)

// bornIn is the term in which a replica on node is founded. If firstTerm is somebody's, the others begin in it, so that only that one can
// ever be a candidate of it: an election begins with a term of its own.
func (s *Spec) bornIn(node transport.NodeID) uint64 {
	if s.FirstLeader == "" || s.FirstLeader == node {
		return foundingTerm
	}
	return firstTerm
}

// isGiven tells whether a vote that this replica asks for is its own by birth.
func (g *Group) isGiven(args *raft.RequestVoteRequest) bool {
	return g.spec.Bootstrap && g.spec.FirstLeader == g.host.cfg.Local && args.Term == firstTerm &&
		args.LastLogIndex == 1 && args.LastLogTerm == foundingTerm
}

// bootstrap writes the first configuration, unless the replica has a history.
func (g *Group) bootstrap() error {
	fresh, err := g.fresh()
	if err != nil || !fresh {
		return err
	}
	// Every member writes the same bytes whatever the order it was told.
	members := slices.Clone(g.spec.Members)
	slices.Sort(members)
	var c raft.Configuration
	for _, m := range slices.Compact(members) {
		c.Servers = append(c.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(transport.Replica(m, 0)), Address: raft.ServerAddress(m),
		})
	}
	term := g.spec.bornIn(g.host.cfg.Local)
	first := &raft.Log{Index: 1, Term: foundingTerm, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(c)}
	if f, ok := g.log.(founder); ok {
		err = f.Found(term, first)
	} else if err = g.log.SetUint64([]byte("CurrentTerm"), term); err == nil {
		err = g.log.StoreLog(first)
	}
	if err != nil {
		return fmt.Errorf("found group %d: %w", g.spec.ID, err)
	}
	return nil
}

// founder is a log that can begin without a wait for the disk: a replica that has promised nothing yet may forget its birth and be born again.
type founder interface {
	Found(term uint64, first *raft.Log) error
}

// stop ends the replica: proposals first, then the wire, then raft.
func (g *Group) stop() error {
	g.life.Lock()
	defer g.life.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	close(g.stopped)
	g.host.elections.settled(g)
	g.mu.Lock()
	g.halted = true
	g.abandon(ErrUnknown, ErrStopped)
	g.mu.Unlock()
	err := g.shut()
	g.mu.Lock()
	g.tell(leadership{term: g.seen.term})
	g.mu.Unlock()
	g.awaitCollector()
	return err
}

// shut ends the Raft instance and waits for its goroutines.
func (g *Group) shut() error {
	var err error
	return errors.Join(g.endInstance(func() { err = g.running.Load().wire.Close() }), err)
}

// endInstance ends it, with hangUp to close the wire. The caller holds life.
func (g *Group) endInstance(hangUp func()) error {
	in := g.running.Load()
	done := in.raft.Shutdown()
	hangUp() // ends calls that wait for a lost peer
	g.tryAgain()
	err := done.Error()
	if in.ended != nil && !isClosed(in.ended) {
		close(in.ended)
	}
	return err
}

// recycle replaces the Raft instance by a new one over the same log and machine. It is
// the last resort for a replica that stays Candidate, and the cure for one that
// compares with an entry that a snapshot has replaced, or that was to be replaced and is gone.
func (g *Group) recycle(why string) error {
	g.life.Lock()
	defer g.life.Unlock()
	if g.closed {
		return ErrStopped
	}
	if g.asleep.Load() {
		return nil // it begins anew anyway when it wakes
	}
	g.host.log.Warn("group is restarted", "group", uint64(g.spec.ID), "because", why)
	if err := g.shut(); err != nil {
		return fmt.Errorf("recycle group %d: %w", g.spec.ID, err)
	}
	g.host.counters.recycled.Add(1)
	g.apply.seen = 0 // raft's goroutines have ended
	keep, err := g.machineIsCurrent()
	if err != nil {
		return fmt.Errorf("recycle group %d: %w", g.spec.ID, err)
	}
	// The new instance knows of no commit, and the leader not of the new instance.
	g.forgot.Store(true)
	return g.open(keep)
}

// machineIsCurrent tells whether the machine has everything that the newest snapshot
// stands for. An instance that ends between the publication of a snapshot from the leader
// and its restoring leaves the machine behind, and the next one would begin to apply
// above the snapshot. Raft's goroutines have ended.
func (g *Group) machineIsCurrent() (bool, error) {
	list, err := g.log.Snapshots().List()
	if err != nil {
		return false, fmt.Errorf("list snapshots: %w", err)
	}
	return len(list) == 0 || g.apply.index >= list[0].Index, nil
}

// staleTail is a log that notices when an installed snapshot replaced its last entry by
// one of another term. Raft has the old term cached and would refuse the leader's
// entries for ever.
type staleTail interface{ TakeStaleTail() bool }

// refreshTail has the instance made anew if its cached tail is stale. It is called on
// raft's own goroutine, when a snapshot has been restored.
func (g *Group) refreshTail() {
	log, ok := g.log.(staleTail)
	if !ok || !log.TakeStaleTail() {
		return
	}
	g.renew("a snapshot replaced its last entry")
}

// renew has the instance made anew, from one of its own goroutines.
func (g *Group) renew(why string) {
	g.host.spawn(func() {
		if err := g.recycle(why); err != nil && !errors.Is(err, ErrStopped) {
			g.host.log.Error("group cannot be restarted", "group", uint64(g.spec.ID), "err", err)
		}
	})
}

// latch is a lock that may be held for long: who waits for it does so at a channel.
type latch chan struct{}

func (l latch) Lock()   { l <- struct{}{} }
func (l latch) Unlock() { <-l }
func (l latch) TryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}
