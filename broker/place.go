package broker

import (
	"hash/fnv"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/placement"
)

// place chooses the members of a new queue and who should lead it; see package placement.
func (b *Broker) place(vhost, name string, size int, leadLocal bool) (members []catalog.NodeID, preferred catalog.NodeID) {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(vhost + "\x00" + name)) // never fails
	r := placement.Request{Local: b.cfg.Node, Size: size, LeadLocal: leadLocal, Seed: seed.Sum64()}
	b.queues.mu.RLock()
	for n := range b.cat.View().Nodes() {
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
	return members, catalog.NodeID(c.Preferred)
}
