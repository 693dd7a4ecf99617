package restore

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/warrenmq/warren/backup"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/bootstrap"
)

// Options say what cluster a backup becomes. All nodes' runs need equal ones.
type Options struct {
	// Nodes are the names of the nodes of the new cluster.
	Nodes []string
	// Zones name, for some nodes, what fails together with them.
	Zones map[string]string
	// Replicas is how many replicas a queue has at least, if there are as many nodes; 0: as many as it had.
	Replicas int
	// Salt tells one restore of a backup from another one: with another salt it becomes another cluster.
	Salt string
}

const (
	nodesMax    = 64
	replicasMax = 15 // members of one queue in the catalog
)

// Validate reports every problem at once.
func (o *Options) Validate() error {
	var all []error
	if len(o.Nodes) == 0 || len(o.Nodes) > nodesMax {
		all = append(all, fmt.Errorf("%d nodes, want 1 to %d", len(o.Nodes), nodesMax))
	}
	for i, n := range o.Nodes {
		all = append(all, bootstrap.ValidateNodeName(n))
		if slices.Contains(o.Nodes[:i], n) {
			all = append(all, fmt.Errorf("node '%s' is named twice", n))
		}
	}
	for n, z := range o.Zones {
		if !slices.Contains(o.Nodes, n) {
			all = append(all, fmt.Errorf("zone '%s' is for node '%s', which is not among the nodes", z, n))
		}
		if len(z) > 255 || z == "" {
			all = append(all, fmt.Errorf("zone of node '%s' has %d bytes, want 1 to 255", n, len(z)))
		}
	}
	if o.Replicas < 0 || o.Replicas > replicasMax {
		all = append(all, fmt.Errorf("%d replicas, want 0 to %d", o.Replicas, replicasMax))
	}
	return errors.Join(all...)
}

// node is one of the new cluster, and what it got so far.
type node struct {
	name         string
	id           catalog.NodeID
	storage      string
	zone         string
	holds, leads int
}

// plan is what the new cluster is: the same for all of its nodes.
type plan struct {
	clusterID string
	// formerly is what programs named the cluster that did not tell restores apart by all options.
	formerly string
	nodes    []*node // by name
	replicas int
	queues   map[uint64]*backup.Queue
	members  map[uint64][]catalog.NodeID
}

func newPlan(h *backup.Header, o *Options) *plan {
	names := slices.Sorted(slices.Values(o.Nodes))
	all := strings.Join(names, " ")
	p := &plan{
		clusterID: derive(append([]string{"cluster", h.ID, o.Salt, all}, o.placing()...)...),
		formerly:  derive("cluster", h.ID, o.Salt, all), replicas: o.Replicas,
		queues: map[uint64]*backup.Queue{}, members: map[uint64][]catalog.NodeID{},
	}
	for _, n := range names {
		storage := derive("storage", h.ID, o.Salt, all, n)
		p.nodes = append(p.nodes, &node{name: n, id: catalog.NodeID(n + "/" + storage), storage: storage, zone: o.Zones[n]})
	}
	for i := range h.Queues {
		p.queues[h.Queues[i].ID] = &h.Queues[i]
	}
	return p
}

// placing is what the options say of where replicas go, in one form. Nodes that were restored with unlike ones would differ in what they take for the catalog of
// their cluster, so they must be of different clusters.
func (o *Options) placing() []string {
	list := []string{fmt.Sprint("replicas ", o.Replicas)}
	for _, n := range slices.Sorted(maps.Keys(o.Zones)) {
		list = append(list, fmt.Sprintf("zone %s=%s", n, o.Zones[n]))
	}
	return list
}

// derive returns a uuid (version 8) that depends on all of its arguments.
func derive(parts ...string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "warren restore 1 %q", parts)
	b := sum.Sum(nil)[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func (p *plan) node(name string) *node {
	i := slices.IndexFunc(p.nodes, func(n *node) bool { return n.name == name })
	if i < 0 {
		return nil
	}
	return p.nodes[i]
}

// rehoming is the plan as the catalog follows it.
func (p *plan) rehoming() catalog.Rehoming {
	to := catalog.Rehoming{ClusterID: p.clusterID, Place: p.place}
	for _, n := range p.nodes {
		to.Nodes = append(to.Nodes, catalog.Rehomed{ID: n.id, Zone: n.zone})
	}
	return to
}

// place puts a queue on the nodes that are named like those it was on, and on others until there are as many as there were; it leaves out
// queues that the backup does not have. It is called for the queues in the order of their ids.
func (p *plan) place(q *catalog.Queue) (members []catalog.NodeID, preferred catalog.NodeID) {
	if p.queues[q.ID] == nil {
		return nil, ""
	}
	var on []*node
	were := q.Target()
	for _, m := range were {
		if n := p.node(nameOf(m)); n != nil && !slices.Contains(on, n) {
			on = append(on, n)
		}
	}
	for size := min(max(len(were)+q.Missing(), p.replicas), len(p.nodes)); len(on) < size; {
		on = append(on, p.next(on))
	}
	first := p.node(nameOf(q.Preferred))
	if first == nil || !slices.Contains(on, first) {
		first = slices.MinFunc(on, func(a, b *node) int { return cmp.Or(cmp.Compare(a.leads, b.leads), strings.Compare(a.name, b.name)) })
	}
	first.leads++
	for _, n := range on {
		n.holds++
		members = append(members, n.id)
	}
	p.members[q.ID] = members
	return members, first.id
}

// next is the best node that a queue is not on: in the zone where it has the fewest replicas, then the one with the fewest of all.
func (p *plan) next(on []*node) *node {
	zones := map[string]int{}
	for _, n := range on {
		zones[n.zone]++
	}
	var best *node
	for _, n := range p.nodes {
		if slices.Contains(on, n) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(zones[n.zone], zones[best.zone]), cmp.Compare(n.holds, best.holds)) < 0 {
			best = n
		}
	}
	return best
}

func nameOf(id catalog.NodeID) string {
	name, _, _ := strings.Cut(string(id), "/")
	return name
}
