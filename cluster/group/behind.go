package group

import (
	"context"
	"sync"

	"github.com/warrenmq/warren/transport"
)

// Lag says how the replicas of a node stand to their leaders.
type Lag struct {
	// Behind counts the replicas that miss more entries than asked about, or whose leader did not say.
	Behind int
	// Unreached counts those whose leader cannot be asked: it is dead, or cut off from this node.
	Unreached int
	// Leaderless counts those whose leader is not known.
	Leaderless int
}

// Behind asks the leaders of the groups that run here how far their logs go, each node once for all of its groups, and
// counts the replicas that miss more than so many entries. It ends with ctx.
func (h *Host) Behind(ctx context.Context, entries uint64) (l Lag) {
	led := make(map[transport.NodeID][]*Group)
	for _, g := range h.Groups() {
		leader, _, ok := g.Leader()
		switch {
		case !ok:
			l.Leaderless++
		case leader != h.cfg.Local:
			led[leader] = append(led[leader], g)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, groups := range led {
		wg.Go(func() {
			behind, unreached := h.behind(ctx, n, groups, entries)
			mu.Lock()
			defer mu.Unlock()
			l.Behind += behind
			l.Unreached += unreached
		})
	}
	wg.Wait()
	return l
}

// behind is Behind for the groups that one node leads.
func (h *Host) behind(ctx context.Context, n transport.NodeID, groups []*Group, entries uint64) (behind, unreached int) {
	for len(groups) > 0 {
		part := groups[:min(len(groups), statusGroupsMax)]
		groups = groups[len(part):]
		ids := make([]transport.GroupID, len(part))
		for i, g := range part {
			ids[i] = g.spec.ID
		}
		all, err := h.askStatus(ctx, n, 0, ids)
		switch {
		case err != nil && !h.reachable(n):
			unreached += len(part)
			continue
		case err != nil:
			behind += len(part)
			continue
		}
		for i, g := range part {
			// Asked before the own log is looked at: what arrives in between counts.
			_, own := g.lastEntry()
			if all[i].leads() && own+entries < all[i].lastIndex {
				behind++
			}
		}
	}
	return behind, unreached
}
