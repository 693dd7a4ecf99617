package group

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/transport"
)

// A disk that hangs, as one in a network does now and then, ends neither a process nor its links, so that nobody looks for another leader. But nothing
// that is proposed here is answered before the disk is: a leader waits for its own log, although its followers' would do (docs/adr/0021-overlapped-syncs.md).
// So a node whose log does not get on gives its leaderships to voters whose logs do, and takes none for a while.

const (
	// stuckWarning is how old a write of the log is when a node takes no leaderships from others any more.
	stuckWarning = time.Second
	// stuckRest is how long a node that has given its leaderships away, or would have, takes none after its log got on.
	stuckRest = 10 * time.Second
	// stuckAgain is the pause before what stayed is tried once more.
	stuckAgain = time.Second
)

// stuckLog is what a host knows of its node's log.
type stuckLog struct {
	mu     sync.Mutex
	until  time.Time // no leaderships are taken before
	moving bool      // they are being given away
}

// unwilling tells whether this node wants no leaderships.
func (h *Host) unwilling() bool {
	if h.draining.Load() || h.cfg.SyncOutstanding() >= stuckWarning {
		return true
	}
	h.stuck.mu.Lock()
	defer h.stuck.mu.Unlock()
	return time.Now().Before(h.stuck.until)
}

// lookAtLog has the leaderships given away when the log does not get on.
func (h *Host) lookAtLog(now time.Time) {
	if h.cfg.SyncOutstanding() < h.cfg.StuckMax {
		return
	}
	h.stuck.mu.Lock()
	defer h.stuck.mu.Unlock()
	if h.stuck.until = now.Add(stuckRest); h.stuck.moving {
		return
	}
	h.stuck.moving = h.spawn(func() {
		h.flee()
		sleep(h.ctx, stuckAgain)
		h.stuck.mu.Lock()
		h.stuck.moving = false
		h.stuck.mu.Unlock()
	})
}

// flee gives every leadership to another voter that can have it, the busiest first.
func (h *Host) flee() {
	led := slices.DeleteFunc(h.led(), func(g *Group) bool { return g.asleep.Load() })
	var wg sync.WaitGroup
	places := make(chan struct{}, drainAtOnce)
	var moved atomic.Int64
	for _, g := range slices.Backward(led) {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if g.flee() {
				moved.Add(1)
			}
		})
	}
	wg.Wait()
	if n := moved.Load(); n > 0 {
		h.counters.fled.Add(uint64(n))
		h.log.Warn("the log does not get on, other nodes lead its groups", "for", h.cfg.SyncOutstanding().Round(time.Millisecond), "moved", n, "of", len(led))
	}
}

// flee has the voter with the longest log start an election, which it wins without this node. Nothing is waited for here as in a planned move: what is under way may be
// taken by the new leader or not, as when this node had died, and this replica hears of it when its log gets on. It tells whether it was so; false: another one leads already, or none can.
func (g *Group) flee() bool {
	ctx, cancel := context.WithTimeout(g.host.ctx, pollTimeout+transferPatience)
	defer cancel()
	select {
	case g.transfer <- struct{}{}:
		defer func() { <-g.transfer }()
	case <-g.stopped:
		return false
	case <-ctx.Done():
		return false
	}
	term := g.replica().CurrentTerm()
	best := g.refuge(ctx, term)
	if best == "" {
		return false
	}
	resume := g.pause()
	defer resume()
	if err := g.host.cfg.Mesh.InjectAt(ctx, g.replicaAt(best), g.spec.ID); err != nil {
		g.host.log.Debug("a voter cannot be asked to lead", "group", uint64(g.spec.ID), "node", best, "err", err)
		return false
	}
	tick := time.NewTicker(transferTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-g.stopped:
			return false
		case <-ctx.Done():
			return false
		}
		if s, ok := g.statusAt(ctx, best); !ok || s.term > term && s.leads() {
			return ok
		}
	}
}

// refuge returns the voter that should lead in place of this node, "" if it could not be elected without it, or one leads already.
func (g *Group) refuge(ctx context.Context, term uint64) (best transport.NodeID) {
	voters := g.voters()
	var longest replicaStatus
	able := 0
	for _, n := range rank(g, voters) {
		if n == g.host.cfg.Local || !g.host.reachable(n) {
			continue
		}
		s, ok := g.statusAt(ctx, n)
		if !ok || !s.known() || !s.voter() {
			continue
		}
		if s.leads() && s.term > term {
			return ""
		}
		if s.flags&statusUnwilling != 0 {
			continue // its own log does not get on, or it is being stopped
		}
		able++
		if best == "" || s.lastTerm > longest.lastTerm || s.lastTerm == longest.lastTerm && s.lastIndex > longest.lastIndex {
			best, longest = n, s
		}
	}
	if able < len(voters)/2+1 {
		return ""
	}
	return best
}

// statusAt asks another node about its replica of the generation that this one knows.
func (g *Group) statusAt(ctx context.Context, n transport.NodeID) (s replicaStatus, ok bool) {
	all, err := g.host.askStatus(ctx, n, 0, []transport.GroupID{g.spec.ID})
	if err != nil {
		return s, false
	}
	generation, _ := g.replicaAt(n).Generation()
	return all[0], all[0].generation == generation
}
