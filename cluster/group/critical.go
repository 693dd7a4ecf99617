package group

import (
	"context"
	"slices"
	"sync"

	"github.com/warrenmq/warren/transport"
)

// Critical counts the groups here that would be without a quorum if this node went: of three or more replicas,
// too few others that vote can be reached. One that does not vote yet, because it is being filled, is a replica all the same, and so is
// one that is to come: until it votes the others are needed. Groups of one or two always need each of them and are not counted.
// It asks nobody: a replica that a node which can be reached does not run counts as one that is there. CriticalGroups does not take that on trust.
func (h *Host) Critical() int {
	reachable := h.reachableOnce()
	return len(h.critical(func(n transport.NodeID, _ transport.GroupID) bool { return reachable(n) }))
}

// CriticalGroups are the groups that Critical counts, and those that need this node because a replica of another one, which can be reached, does not
// run: its log is damaged, or that node has not opened it yet. Each node is asked once for all groups; one that does not answer before ctx ends has none.
func (h *Host) CriticalGroups(ctx context.Context) []transport.GroupID {
	return h.critical(h.runningElsewhere(ctx))
}

// critical are the groups that would be without a quorum if this node went and only those voters were left that are there.
func (h *Host) critical(there func(transport.NodeID, transport.GroupID) bool) (all []transport.GroupID) {
	for _, g := range h.Groups() {
		voters, counts := g.others()
		if !counts {
			continue
		}
		others := 0
		for _, v := range voters {
			if there(v, g.spec.ID) {
				others++
			}
		}
		if others <= (len(voters)+1)/2 {
			all = append(all, g.spec.ID)
		}
	}
	return all
}

// others are the nodes of the group's other voters. It counts if it is large enough to do without a replica, and this one votes.
func (g *Group) others() (voters []transport.NodeID, counts bool) {
	voters, self := g.votersAndSelf()
	voters = slices.DeleteFunc(voters, func(v transport.NodeID) bool { return v == g.host.cfg.Local })
	return voters, self && g.size() >= 3
}

// runningElsewhere asks the nodes that can be reached which replicas of the groups here they run.
func (h *Host) runningElsewhere(ctx context.Context) func(transport.NodeID, transport.GroupID) bool {
	reachable := h.reachableOnce()
	of := make(map[transport.NodeID][]transport.GroupID)
	for _, g := range h.Groups() {
		voters, counts := g.others()
		for _, v := range voters {
			if counts && reachable(v) {
				of[v] = append(of[v], g.spec.ID)
			}
		}
	}
	type replica struct {
		node  transport.NodeID
		group transport.GroupID
	}
	var mu sync.Mutex
	runs := make(map[replica]bool)
	var wg sync.WaitGroup
	for n, ids := range of {
		wg.Go(func() {
			said, err := h.Positions(ctx, n, ids)
			if err != nil {
				h.log.Debug("a node does not say which replicas it runs", "node", n, "groups", len(ids), "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for i, p := range said {
				runs[replica{n, ids[i]}] = p.Known && p.Voter
			}
		})
	}
	wg.Wait()
	return func(n transport.NodeID, id transport.GroupID) bool { return runs[replica{n, id}] }
}

// size is how many replicas the group has, or is to have if that is more.
func (g *Group) size() int {
	n := len(g.configuration().Servers)
	if m := g.wanted.Load(); m != nil {
		n = max(n, len(m.Wanted))
	}
	return n
}

// Missing counts the groups led here of which a server is on a node that cannot be reached.
func (h *Host) Missing() (n int) {
	reachable := h.reachableOnce()
	for _, g := range h.Groups() {
		if !g.IsLeader() {
			continue
		}
		for _, v := range g.voters() {
			if v != h.cfg.Local && !reachable(v) {
				n++
				break
			}
		}
	}
	return n
}

// reachableOnce is reachable for a look at many groups: it asks for each node once.
func (h *Host) reachableOnce() func(transport.NodeID) bool {
	known := map[transport.NodeID]bool{}
	return func(n transport.NodeID) bool {
		is, ok := known[n]
		if !ok {
			is = h.reachable(n)
			known[n] = is
		}
		return is
	}
}
