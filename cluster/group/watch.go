package group

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/store"
)

const (
	// barrierWait bounds the wait for a place in raft's apply channel.
	barrierWait = 10 * time.Millisecond
	// barrierPauseMin and barrierPauseMax bound the growing pause between two barriers
	// of one group while nothing commits.
	barrierPauseMin = 200 * time.Millisecond
	barrierPauseMax = 5 * time.Second
	// heatPeriod is the time in which heat halves.
	heatPeriod = 10 * time.Second
	// heatNone is as good as none: what a queue's birth applies.
	heatNone = 1 << 10
	// snapshotPause is how long a group whose snapshot failed is left alone.
	snapshotPause = 30 * time.Second
	// snapshotGap is the shortest time between two snapshots of a group, and snapshotRest how many times what
	// the last one took: it looks at everything alive, so that what it frees has to grow with that.
	snapshotGap  = time.Second
	snapshotRest = 30
	// trailingEntriesMax bounds the entries kept behind a snapshot.
	trailingEntriesMax = 10240
	// trailingDeadMin is the least share of dead bytes in the log that is reckoned with, as a divisor: what is alive
	// stays on disk anyway, so that a log of nothing else may be as many times longer.
	trailingDeadMin = 16
	// trailingWorth is what HostConfig.TrailingBytes is at least where any log is to be kept.
	trailingWorth = 1 << 20
)

// watch runs the periodic duties of a host: deadlines of proposals, barriers after
// broken streams, snapshots.
type watch struct {
	h    *Host
	wake chan struct{} // capacity 1
	// returned is set when a peer's link came up since the last round.
	returned atomic.Bool
	// revived is set when a node was found alive again.
	revived atomic.Bool

	mu      sync.Mutex // guards the rest
	stalls  map[*Group]*stall
	snaps   map[*Group]time.Time // running snapshots (zero) and those not to be taken before
	running int                  // snapshots being taken
	// awake are the groups that may have something to be looked after, see rouse.
	awake map[*Group]struct{}
	// renew are groups whose newest snapshot, at that index, a follower refused.
	renew map[*Group]uint64
}

// stall is a group whose replication stream broke while it led.
type stall struct {
	next   time.Time
	pause  time.Duration
	commit uint64 // commit index at the last barrier
}

func newWatch(h *Host) *watch {
	return &watch{h: h, wake: make(chan struct{}, 1), stalls: make(map[*Group]*stall), snaps: make(map[*Group]time.Time), renew: make(map[*Group]uint64), awake: make(map[*Group]struct{})}
}

// rouse has the watchdogs look after g until it is idle: it has proposals, or entries were applied. An
// idle group costs no look.
func (w *watch) rouse(g *Group) {
	if g.awake.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.awake.CompareAndSwap(false, true) {
		w.awake[g] = struct{}{}
	}
}

// rest takes the groups out that have become idle, and returns the others.
func (w *watch) rest() []*Group {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*Group, 0, len(w.awake))
	for g := range w.awake {
		if _, refused := w.renew[g]; !refused && (isClosed(g.stopped) || g.resting(w.h.cfg.SnapshotBytes)) {
			g.awake.Store(false)
			if isClosed(g.stopped) || g.resting(w.h.cfg.SnapshotBytes) {
				delete(w.awake, g)
				g.apply.heat.Store(0)
				w.h.sleeper.tired(g)
				continue
			}
			g.awake.Store(true) // something came in between, and has found it awake
		}
		all = append(all, g)
	}
	return all
}

// resting tells whether there is nothing to look after: no proposal, no heat, no snapshot to take, no follower to
// be told of a commit.
func (g *Group) resting(snapshotBytes int64) bool {
	if !g.mu.TryLock() {
		return false // somebody is at work; who waited for him here could have him wait for the watchdogs
	}
	defer g.mu.Unlock()
	if len(g.inFlight)+len(g.backlog) > 0 {
		return false
	}
	if g.asleep.Load() {
		return true
	}
	if g.apply.heat.Load() > heatNone || g.apply.freeable.Load() >= snapshotBytes || g.apply.logBytes.Load() >= g.host.cfg.ReplayBytes {
		return false
	}
	return !g.leading.Load() || g.settled.Load()
}

func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// stalled notes that entries of g may wait for a trigger.
func (w *watch) stalled(g *Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.stalls[g]; !ok && g.leading.Load() {
		w.stalls[g] = &stall{pause: barrierPauseMin}
		w.poke()
	}
}

// outdated notes that a follower has no use for g's snapshot at index.
func (w *watch) outdated(g *Group, index uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.renew[g] = index
	if g.awake.CompareAndSwap(false, true) {
		w.awake[g] = struct{}{}
	}
}

func (w *watch) run() {
	tick := time.NewTicker(w.h.cfg.Check)
	defer tick.Stop()
	cooled, spread := time.Now(), time.Now()
	for {
		select {
		case <-w.h.ctx.Done():
			return
		case <-w.wake:
			returned, revived := w.returned.Swap(false), w.revived.Swap(false)
			if returned || revived {
				w.welcome(returned)
			}
			w.barriers(time.Now())
			continue
		case <-tick.C:
		}
		now := time.Now()
		w.h.lookAtLog(now)
		w.barriers(now)
		groups := w.rest()
		for _, g := range groups {
			if n := g.expire(now, w.h.cfg.ProposeDeadline); n > 0 {
				w.h.counters.expired.Add(uint64(n))
				w.h.log.Warn("proposals expired", "group", uint64(g.spec.ID), "count", n)
			}
		}
		if now.Sub(spread) >= spreadEvery {
			spread = now
			for _, g := range groups {
				g.spread(now)
			}
		}
		if now.Sub(cooled) >= heatPeriod {
			cooled = now
			for _, g := range groups {
				g.apply.heat.Add(-(g.apply.heat.Load() + 1) / 2)
			}
		}
		w.snapshots(now, groups)
		w.h.sleeper.round(now)
	}
}

// welcome looks after the groups that may have waited for a node. linked tells that it has a link again.
func (w *watch) welcome(linked bool) {
	groups := w.h.Groups()
	if linked {
		for _, g := range groups {
			g.tryAgain()
			g.unsettle()
		}
	}
	for n, missed := range w.h.missedBy(groups) {
		w.h.spawn(func() { w.h.reunite(n, missed) })
	}
}

// barriers appends a barrier to every led group whose stream broke with entries
// uncommitted: raft replicates again only when something is appended or its long commit
// timer fires.
func (w *watch) barriers(now time.Time) {
	w.mu.Lock()
	var due []*Group
	for g, s := range w.stalls {
		r := g.replica()
		commit := r.CommitIndex()
		if !g.leading.Load() || isClosed(g.stopped) || commit >= r.LastIndex() {
			delete(w.stalls, g)
			continue
		}
		if commit > s.commit {
			s.commit, s.pause = commit, barrierPauseMin
		}
		if now.Before(s.next) {
			continue
		}
		s.next = now.Add(s.pause)
		s.pause = min(2*s.pause, barrierPauseMax)
		due = append(due, g)
	}
	w.mu.Unlock()
	for _, g := range due {
		w.h.counters.barriers.Add(1)
		w.h.log.Debug("barrier after a broken stream", "group", uint64(g.spec.ID))
		g.replica().Barrier(barrierWait)
	}
}

// snapshots starts snapshots of the groups that would free the most.
func (w *watch) snapshots(now time.Time, groups []*Group) {
	w.mu.Lock()
	renew := w.renew
	w.renew = make(map[*Group]uint64)
	w.mu.Unlock()
	worth := slices.DeleteFunc(groups, func(g *Group) bool {
		refused, ok := renew[g]
		return g.apply.freeable.Load() < w.h.cfg.SnapshotBytes && g.apply.logBytes.Load() < w.h.cfg.ReplayBytes && (!ok || g.apply.applied.Load() <= refused)
	})
	slices.SortFunc(worth, func(a, b *Group) int {
		return cmp.Compare(b.apply.freeable.Load(), a.apply.freeable.Load())
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for g, until := range w.snaps {
		if !until.IsZero() && now.After(until) {
			delete(w.snaps, g)
		}
	}
	for _, g := range worth {
		if w.running >= w.h.cfg.SnapshotsMax {
			return
		}
		if until, rests := w.snaps[g]; rests && (until.IsZero() || renew[g] == 0) {
			continue // one that a follower needs waits for none but a running one
		}
		w.running++
		w.snaps[g] = time.Time{}
		if !w.h.spawn(func() { w.snapshot(g) }) {
			return
		}
	}
}

func (w *watch) snapshot(g *Group) {
	began := time.Now()
	freed := g.apply.freeable.Load()
	err := g.Snapshot()
	w.mu.Lock()
	w.running--
	w.snaps[g] = time.Now().Add(max(snapshotGap, snapshotRest*time.Since(began)))
	if err != nil {
		w.snaps[g] = time.Now().Add(snapshotPause)
	}
	w.mu.Unlock()
	if err != nil && !errors.Is(err, ErrStopped) && !errors.Is(err, ErrNothingNew) {
		w.h.counters.snapshotsFailed.Add(1)
		w.h.log.Warn("snapshot failed", "group", uint64(g.spec.ID), "err", err)
		return
	}
	w.h.log.Debug("snapshot taken", "group", uint64(g.spec.ID), "reclaimable_bytes", freed, "took", time.Since(began))
}

// Snapshot takes a snapshot now and compacts the log behind it. It waits until the
// snapshot is published. ErrNothingNew tells that no entry was applied since the last.
func (g *Group) Snapshot() error {
	g.snapshot.Lock()
	defer g.snapshot.Unlock()
	r := g.replica()
	if isClosed(g.stopped) {
		return fmt.Errorf("snapshot group %d: %w", g.spec.ID, ErrStopped)
	}
	if g.asleep.Load() {
		return fmt.Errorf("snapshot group %d: %w", g.spec.ID, ErrNothingNew)
	}
	rc := r.ReloadableConfig()
	rc.TrailingLogs = g.trailing()
	if err := r.ReloadConfig(rc); err != nil {
		return fmt.Errorf("snapshot group %d: %w", g.spec.ID, err)
	}
	err := r.Snapshot().Error()
	switch {
	case err == nil:
		g.host.counters.snapshots.Add(1)
		g.apply.snapshotted()
		return nil
	case errors.Is(err, raft.ErrNothingNewToSnapshot):
		return fmt.Errorf("snapshot group %d: %w", g.spec.ID, ErrNothingNew)
	case errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("snapshot group %d: %w", g.spec.ID, ErrStopped)
	}
	return fmt.Errorf("snapshot group %d: %w", g.spec.ID, err)
}

// trailing returns how many entries may stay behind a snapshot: as many as fit into
// HostConfig.TrailingBytes at the mean size of what was applied lately, or of what the log has, if that is larger: behind
// large messages there may be nothing but their acks.
func (g *Group) trailing() uint64 {
	entries, bytes := g.apply.entries.Load(), g.apply.logBytes.Load()
	if entries <= 0 || bytes <= 0 {
		return trailingEntriesMax
	}
	mean := max(1, bytes/entries)
	if l, ok := g.log.(interface{ Usage() store.Usage }); ok {
		u := l.Usage()
		mean = max(mean, int64(u.LogBytes/max(1, u.LogEntries)))
	}
	keep := g.host.cfg.TrailingBytes
	if keep >= trailingWorth {
		keep *= max(1, min(trailingDeadMin, bytes/max(1, g.apply.freeable.Load())))
	}
	return uint64(min(trailingEntriesMax, keep/mean))
}
