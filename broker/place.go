package broker

import (
	"hash/fnv"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/placement"
)

// place chooses the members of a new queue and who should lead it; see package placement. short is size if there are too few nodes for it, else 0: others become
// members when they come.
func (b *Broker) place(vhost, name string, size int, leadLocal bool) (members []catalog.NodeID, preferred catalog.NodeID, short uint64) {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(vhost + "\x00" + name)) // never fails
	r := placement.Request{Local: b.cfg.Node, Size: size, LeadLocal: leadLocal, Seed: seed.Sum64()}
	view := b.cat.View()
	b.queues.mu.RLock()
	for n := range view.Nodes() {
		if !n.Superseded {
			l := b.queues.loads[n.ID]
			r.Nodes = append(r.Nodes, placement.Node{
				ID: string(n.ID), Leads: l.leads, Holds: l.holds, Away: !b.cfg.Alive(string(n.ID)),
				Zone: n.Zone, LastRank: n.State != catalog.NodeRegular,
			})
		}
	}
	b.queues.mu.RUnlock()
	c := placement.Choose(r)
	for _, m := range c.Members {
		members = append(members, catalog.NodeID(m))
	}
	if len(members) < size && view.Level() >= 2 {
		short = uint64(size)
	}
	return members, catalog.NodeID(c.Preferred), short
}
