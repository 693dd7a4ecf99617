package group

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/transport"
)

const (
	// drainAtOnce bounds the leader moves of Drain under way at a time.
	drainAtOnce = 64
	// drainRounds is how often Drain looks for groups that this node leads: one may be elected here meanwhile.
	drainRounds = 2
	// drainSilence is how long a node may not have answered pings and be asked before the others.
	drainSilence = time.Second
)

// Drained is what Drain did.
type Drained struct {
	// Moved and Stayed count the leaderships that other nodes have taken, and those that are still here.
	Moved, Stayed int
}

// Drain moves the leadership of every group that this node leads to another voter, as before a
// planned stop: quiet groups first, busy ones last, so that those change hands once all else has. A voter that
// wants no leaderships itself, or for which avoid is true (it may be nil), gets none. Groups without another live
// voter stay. It ends early when ctx does. From then on this node tells others that it wants no
// leaderships, until Revive; a group without a better leader may still elect it.
func (h *Host) Drain(ctx context.Context, avoid func(transport.NodeID) bool) Drained {
	h.draining.Store(true)
	var moved atomic.Int64
	for range drainRounds {
		var wg sync.WaitGroup
		places := make(chan struct{}, drainAtOnce)
		for _, g := range h.led() {
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				if h.moveAway(ctx, g, avoid) {
					moved.Add(1)
				}
			})
		}
		wg.Wait()
	}
	return Drained{Moved: int(moved.Load()), Stayed: len(h.led())}
}

// Revive ends Drain: this node takes leaderships again, and those of the groups that are at home here come back.
func (h *Host) Revive() {
	h.draining.Store(false)
	h.balance.poke()
}

// led returns the groups that this node leads, the busiest last.
func (h *Host) led() []*Group {
	all := slices.DeleteFunc(h.Groups(), func(g *Group) bool { return !g.IsLeader() })
	slices.SortFunc(all, func(a, b *Group) int { return cmp.Compare(a.apply.heat.Load(), b.apply.heat.Load()) })
	return all
}

// moveAway gives the leadership of g to the first live voter in rank that takes it. Nodes that have not answered
// just now come last: proposals wait while one is asked.
func (h *Host) moveAway(ctx context.Context, g *Group, avoid func(transport.NodeID) bool) bool {
	ranked := rank(g, g.voters())
	slices.SortStableFunc(ranked, func(a, b transport.NodeID) int { return cmp.Compare(h.silence(a), h.silence(b)) })
	for _, n := range ranked {
		if n == h.cfg.Local || ctx.Err() != nil || !h.reachable(n) || avoid != nil && avoid(n) {
			continue
		}
		err := g.TransferTo(ctx, n)
		if err == nil || !g.IsLeader() {
			return true
		}
		h.log.Warn("leadership stays", "group", uint64(g.spec.ID), "node", n, "err", err)
	}
	return false
}

// silence is 0 for a node that has answered just now, 1 for another one.
func (h *Host) silence(n transport.NodeID) int {
	if n == h.cfg.Local || time.Since(h.cfg.Mesh.Peer(n).LastAnswered) < drainSilence {
		return 0
	}
	return 1
}

// reachable tells whether another node can be asked now.
func (h *Host) reachable(n transport.NodeID) bool {
	return h.cfg.Detector.State(n) != detector.Dead && h.cfg.Mesh.Peer(n).Up
}
