package group

import "github.com/warrenmq/warren/transport"

// Critical counts the groups here that would be without a quorum if this node went: of three or more replicas,
// too few others that vote can be reached. One that does not vote yet, because it is being filled, is a replica all the same, and so is
// one that is to come: until it votes the others are needed. Groups of one or two always need each of them and are not counted.
func (h *Host) Critical() int { return len(h.CriticalGroups()) }

// CriticalGroups are those that Critical counts.
func (h *Host) CriticalGroups() (all []transport.GroupID) {
	reachable := h.reachableOnce()
	for _, g := range h.Groups() {
		voters, self := g.votersAndSelf()
		if g.size() < 3 || !self {
			continue
		}
		others := 0
		for _, v := range voters {
			if v != h.cfg.Local && reachable(v) {
				others++
			}
		}
		if others <= len(voters)/2 {
			all = append(all, g.spec.ID)
		}
	}
	return all
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
