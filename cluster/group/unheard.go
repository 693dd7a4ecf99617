package group

import (
	"slices"

	"github.com/warrenmq/warren/transport"
)

// unheard has the groups look for another leader that a node leads which most of their voters do not hear.
func (h *Host) unheard(n transport.NodeID) {
	for _, g := range h.Groups() {
		if l, _, known := g.Leader(); known && l == n && g.unheard(n) {
			g.doubt(n)
		}
	}
}

// unheard tells whether most of the voters do not hear a node: it can lead them no longer, although others may hear it.
func (g *Group) unheard(n transport.NodeID) bool {
	by := g.host.cfg.Detector.UnheardBy(n)
	if len(by) == 0 || n == g.host.cfg.Local {
		return false
	}
	voters, deaf := g.voters(), 0
	for _, v := range voters {
		if slices.Contains(by, v) {
			deaf++
		}
	}
	return deaf >= len(voters)/2+1
}
