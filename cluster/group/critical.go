package group

import "github.com/warrenmq/warren/transport"

// Critical counts the groups here that would be without a quorum if this node went: of three or more voters,
// too few others can be reached. Those of one or two voters always need each of them and are not counted.
func (h *Host) Critical() int { return len(h.CriticalGroups()) }

// CriticalGroups are those that Critical counts.
func (h *Host) CriticalGroups() (all []transport.GroupID) {
	reachable := h.reachableOnce()
	for _, g := range h.Groups() {
		voters, self := g.votersAndSelf()
		if len(voters) < 3 || !self {
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
