package group

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/transport"
)

// drainAtOnce bounds the leader moves of Drain under way at a time.
const drainAtOnce = 64

// Drain moves the leadership of every group that this node leads to another voter, as
// before a planned stop, and returns how many moved and how many stayed. Groups without
// another live voter stay. It ends early when ctx does. From then on this node tells
// others that it wants no leaderships; a group without a better leader may still elect it.
func (h *Host) Drain(ctx context.Context) (moved, stayed int) {
	h.draining.Store(true)
	var done, left atomic.Int64
	var wg sync.WaitGroup
	places := make(chan struct{}, drainAtOnce)
	for _, g := range h.Groups() {
		if !g.IsLeader() {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if h.moveAway(ctx, g) {
				done.Add(1)
			} else {
				left.Add(1)
			}
		})
	}
	wg.Wait()
	return int(done.Load()), int(left.Load())
}

// moveAway gives the leadership of g to the first live voter in rank that takes it.
func (h *Host) moveAway(ctx context.Context, g *Group) bool {
	for _, n := range rank(g, g.voters()) {
		if n == h.cfg.Local || ctx.Err() != nil || !h.reachable(n) {
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

// reachable tells whether another node can be asked now.
func (h *Host) reachable(n transport.NodeID) bool {
	return h.cfg.Detector.State(n) != detector.Dead && h.cfg.Mesh.Peer(n).Up
}
