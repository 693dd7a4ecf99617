package scale

import (
	"cmp"
	"slices"
	"time"
)

// Budget is what Warren's own work may take of a node before it counts as a bottleneck.
type Budget struct {
	Cores    float64       // processor seconds a second while nothing happens
	Memory   float64       // bytes
	Failover time.Duration // until the last queue of a lost node has a leader
	Zone     time.Duration // the same of a lost zone
	Homes    time.Duration // until leaders are at home again
	Moves    time.Duration // until a new node has its share of replicas
}

// DefaultBudget is that of docs/scaling.md: a quarter of two cores, and what operators would wait for.
func DefaultBudget() Budget {
	return Budget{Cores: 0.5, Memory: 8 << 30, Failover: 10 * time.Second, Zone: 30 * time.Second, Homes: time.Hour, Moves: 6 * time.Hour}
}

// Row is all that the model says of a size.
type Row struct {
	Size
	steady    steady
	node      failure
	zone      failure
	balance   rebalancing
	declares  float64
	bound     string
	uses      []use  // of the budget, most first
	evenLeads [2]int // fewest and most
	evenHolds [2]int
}

// use is the share of its budget that a part takes.
type use struct {
	what  string
	share float64
}

// zones is the number of zones in the model.
const zones = 3

// Model works out a size. The times of detection are those of real detectors: a node's or a zone's processes were killed.
func Model(c Costs, b Budget, s Size) Row {
	l := lay(s, zones, 50)
	r := Row{Size: s, steady: c.steady(s, l)}
	detected := time.Millisecond // TestDetectors: two ways of a link
	one := make([]bool, s.Nodes)
	one[s.Nodes-1] = true
	r.node = c.fail(l, one, detected)
	r.zone = c.fail(l, l.zoneOf(0), detected)
	r.balance = c.rebalance(s, l)
	r.declares, r.bound = c.declares(s)
	r.evenLeads, r.evenHolds = spread(l.leads), spread(l.holds)
	r.uses = []use{
		{"memory of replicas", r.steady.replicas * float64(c.ReplicaBytes) / b.Memory},
		{"memory of the catalog", (r.steady.memory - r.steady.replicas*float64(c.ReplicaBytes)) / b.Memory},
		{"heartbeats of queues", r.steady.beats.cpu.Seconds() / b.Cores},
		{"pings", r.steady.pings.cpu.Seconds() / b.Cores},
		{"idle appends of the catalog's leader", r.steady.catalog.cpu.Seconds() / b.Cores},
		{"elections after a node's failure", r.node.Last.Seconds() / b.Failover.Seconds()},
		{"elections after a zone's failure", r.zone.Last.Seconds() / b.Zone.Seconds()},
		{"leaders going home", r.balance.homesTime.Seconds() / b.Homes.Seconds()},
		{"moving replicas", r.balance.movesTime.Seconds() / b.Moves.Seconds()},
	}
	slices.SortStableFunc(r.uses, func(a, b use) int { return cmp.Compare(b.share, a.share) })
	return r
}

func spread(counts []int) [2]int {
	out := [2]int{counts[0], counts[0]}
	for _, n := range counts {
		out = [2]int{min(out[0], n), max(out[1], n)}
	}
	return out
}
