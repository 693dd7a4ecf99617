package group

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/transport"
)

// A replica that is asleep has no Raft instance: no goroutines, no timers, no heartbeats. It keeps its log, its machine and what it knew of
// the leadership, which goes on to be the answer to whoever asks for a leader. That is a state of the replica and not of the
// group: nothing of it is durable, no replica relies on another one sleeping, and each wakes by whatever it cannot answer asleep. See ADR 46.

// dozing is a replica's sleep. It is guarded by Group.life, except for what anybody may read.
type dozing struct {
	follows transport.Following // whom the wire followed
	term    atomic.Uint64       // in which the replica fell asleep last
	// absent are members that were dead when the leader fell asleep: they may lack something.
	absent atomic.Pointer[[]transport.NodeID]
}

// dozeEntriesMax is how many entries may be above the newest snapshot of a replica that falls asleep: it reads them again when it wakes.
const dozeEntriesMax = 1024

// doze ends the Raft instance of a replica that knows of this leadership and has all of the log, which is committed and ends at last. One that
// began not long ago need not know that it is, if told is true: its leader has said so. absent is for a leader.
func (g *Group) doze(l leadership, last uint64, told bool, absent []transport.NodeID) bool {
	if !g.snapshot.TryLock() {
		return false // its log is being read
	}
	defer g.snapshot.Unlock()
	if !g.life.TryLock() {
		return false
	}
	defer g.life.Unlock()
	in := g.running.Load()
	switch {
	case !g.mayDoze(l, last, told):
		return false
	case g.asleep.Load():
		return true
	case !g.nod(l):
		return false
	}
	g.dozing.absent.Store(&absent)
	g.dozing.term.Store(l.term)
	in.wire.rests.Store(true)
	if err := g.endInstance(in.wire.Rest); err != nil {
		g.host.log.Warn("a replica has not fallen asleep cleanly", "group", uint64(g.spec.ID), "err", err)
	}
	in.wire.rests.Store(false)
	g.dozing.follows = in.wire.Following()
	g.running.Store(in.remains())
	g.host.counters.dozed.Add(1)
	return true
}

// mayDoze tells whether the replica is where doze wants it. Whoever holds Group.life can rely on it, others can only ask.
func (g *Group) mayDoze(l leadership, last uint64, told bool) bool {
	r := g.replica()
	if isClosed(g.stopped) || r.CurrentTerm() != l.term || r.LastIndex() != last || r.CommitIndex() != last && !told || g.learners.Load() || g.damaged.Load() {
		return false
	}
	kept, _ := g.Beginning()
	return last-min(last, kept) <= dozeEntriesMax
}

// nod marks the replica as asleep, if nothing is under way. From then on the end of its instance changes nothing of what it tells.
func (g *Group) nod(l leadership) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.seen != l || g.doubtful(l) || len(g.inFlight)+len(g.backlog) > 0 || l.self && (g.pumping || g.paused > 0) {
		return false
	}
	g.asleep.Store(true)
	return true
}

// rouse wakes the replica, if it sleeps, without waiting for it. A former leader is elected again at once if now is true: somebody needs it.
func (g *Group) rouse(now bool) {
	if !g.asleep.Load() || isClosed(g.stopped) {
		return
	}
	if now {
		g.needed.Store(true)
	}
	g.asked.Store(true)
	if !g.rousing.CompareAndSwap(false, true) {
		return
	}
	woken := g.host.spawn(func() {
		woke := g.awaken()
		g.rousing.Store(false)
		if woke && g.asked.Load() {
			g.rouse(false) // it fell asleep again, and was asked for before that could be seen
		}
	})
	if !woken {
		g.rousing.Store(false)
	}
}

// awaken wakes the replica and tries again where that fails. It gives up, and tells so, if the replica ends.
func (g *Group) awaken() (woke bool) {
	for pause := wakeRetryMin; ; pause = min(2*pause, wakeRetryMax) {
		err := g.takeTurn()
		if err == nil {
			return true
		}
		if errors.Is(err, ErrStopped) || g.hurt(damageOf(g.log, err)) {
			return false
		}
		g.host.log.Error("group does not wake", "group", uint64(g.spec.ID), "err", err)
		g.stepDown()
		select {
		case <-time.After(pause):
		case <-g.stopped:
			return false
		case <-g.host.ctx.Done():
			return false
		}
	}
}

const (
	wakeRetryMin = time.Second
	wakeRetryMax = time.Minute
)

// takeTurn wakes the replica when few enough others are just waking.
func (g *Group) takeTurn() error {
	select {
	case g.host.wakes <- struct{}{}:
	case <-g.host.ctx.Done():
		return ErrStopped
	}
	defer func() { <-g.host.wakes }()
	return g.wake()
}

// stepDown has others look for a leader in place of this replica, which does not wake.
func (g *Group) stepDown() {
	g.mu.Lock()
	led := g.seen.self
	g.tell(leadership{term: g.seen.term})
	g.mu.Unlock()
	if led {
		g.host.renounce(g.spec.ID, g.Members())
	}
}

// wake begins a new Raft instance.
func (g *Group) wake() error {
	g.life.Lock()
	defer g.life.Unlock()
	if g.closed {
		return ErrStopped
	}
	if !g.asleep.Load() {
		return nil
	}
	g.mu.Lock()
	led := g.seen.self
	g.mu.Unlock()
	g.apply.seen = 0 // raft's goroutines have ended
	keep, err := g.machineIsCurrent()
	if err != nil {
		return fmt.Errorf("wake group %d: %w", g.spec.ID, err)
	}
	g.asked.Store(false)
	g.forgot.Store(true)
	if err := g.open(keep); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	g.dozing.absent.Store(nil)
	g.dozing.follows = transport.Following{}
	g.host.counters.woken.Add(1)
	// Nothing may be proposed to the new instance in the former leadership.
	g.mu.Lock()
	g.asleep.Store(false)
	g.tell(g.view(g.replica()))
	g.mu.Unlock()
	g.sync(g.replica())
	if g.needed.Swap(false) && (!led || !g.host.elections.first(g, g.voters())) {
		g.host.elections.want(g, 0)
	}
	return nil
}

// lead waits until this replica, if it has led when it fell asleep, leads again.
func (g *Group) lead(ctx context.Context) error {
	if !g.asleep.Load() {
		return nil
	}
	if !g.leading.Load() {
		return ErrNotLeader
	}
	g.rouse(true)
	ctx, cancel := context.WithTimeout(ctx, wakePatience)
	defer cancel()
	tick := time.NewTicker(transferTick)
	defer tick.Stop()
	for g.asleep.Load() || !g.leading.Load() {
		select {
		case <-tick.C:
		case <-g.stopped:
			return ErrStopped
		case <-ctx.Done():
			return ErrNotLeader
		}
	}
	return nil
}

// wakePatience is how long the leader of a group may take to be elected again.
const wakePatience = 2 * time.Second

// statusAsleep is what a sleeping replica says about itself.
func (g *Group) statusAsleep(r replica) replicaStatus {
	l, _, _ := g.Leader()
	s := replicaStatus{flags: statusKnown | statusSleeps, term: r.CurrentTerm(), generation: g.spec.Generation}
	if l == g.host.cfg.Local {
		s.flags |= statusLeader
	} else {
		s.leader = l
	}
	return s
}

// sleepToo has a replica that looks for its leader sleep as its leader does, or wakes the leader because the replica may lack something.
func (e *elections) sleepToo(g *Group, l leadership, own, leader replicaStatus) {
	if own.term == l.term && own.lastTerm == leader.lastTerm && own.lastIndex == leader.lastIndex {
		g.forgot.Store(false) // there is nothing to be told
		g.adopt(l)
		if g.doze(l, own.lastIndex, true, nil) {
			return
		}
		g.forgot.Store(true)
		e.want(g, quorumRetry)
	}
	e.wakeAt(g, l.leader)
}

// wakeAt wakes another node's replica.
func (e *elections) wakeAt(g *Group, n transport.NodeID) {
	ctx, cancel := context.WithTimeout(e.h.ctx, pollTimeout)
	defer cancel()
	if _, err := e.h.askStatus(ctx, n, askLeaderless, []transport.GroupID{g.spec.ID}); err != nil {
		e.h.log.Debug("a replica that sleeps is not woken", "group", uint64(g.spec.ID), "node", n, "err", err)
	}
}
