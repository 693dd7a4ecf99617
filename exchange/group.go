package exchange

import (
	"fmt"
	"slices"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// group is an immutable set of destinations, each with the number of bindings that
// lead there. A small one is a list sorted by destination, which a change copies; beyond
// groupListMax a change would cost too much.
type group struct {
	dests  []Destination
	counts []int32 // counts[i] >= 1 belongs to dests[i]
	large  *fanoutTable
}

const groupListMax = 64

func (g group) empty() bool { return g.large == nil && len(g.dests) == 0 }

// all lists the destinations. It is shared.
func (g group) all() []Destination {
	if g.large != nil {
		return g.large.all()
	}
	return g.dests
}

func (g group) with(d Destination) group {
	if g.large != nil {
		t := g.large.with(d)
		return group{large: &t}
	}
	i, found := slices.BinarySearchFunc(g.dests, d, compareDestinations)
	if found {
		counts := slices.Clone(g.counts)
		counts[i]++
		return group{dests: g.dests, counts: counts}
	}
	if len(g.dests) == groupListMax {
		return g.grown().with(d)
	}
	// Clipping makes Insert copy instead of writing into shared memory.
	return group{dests: slices.Insert(slices.Clip(g.dests), i, d), counts: slices.Insert(slices.Clip(g.counts), i, 1)}
}

func (g group) without(d Destination) group {
	if g.large != nil {
		t := g.large.without(d)
		if t.counts.Len() <= groupListMax/2 {
			return shrunk(t)
		}
		return group{large: &t}
	}
	i, found := slices.BinarySearchFunc(g.dests, d, compareDestinations)
	if !found {
		panic(fmt.Sprintf("exchange: no binding to %+v to remove", d))
	}
	if g.counts[i] > 1 {
		counts := slices.Clone(g.counts)
		counts[i]--
		return group{dests: g.dests, counts: counts}
	}
	return group{dests: slices.Concat(g.dests[:i], g.dests[i+1:]), counts: slices.Concat(g.counts[:i], g.counts[i+1:])}
}

func (g group) grown() group {
	tx := iradix.New[fanoutEntry]().Txn()
	for i, d := range g.dests {
		tx.Insert(fanoutKey(d), fanoutEntry{d, g.counts[i]})
	}
	t := newFanout(tx.Commit())
	return group{large: &t}
}

func shrunk(t fanoutTable) (g group) {
	var entries []fanoutEntry
	t.counts.Root().Walk(func(_ []byte, e fanoutEntry) bool {
		entries = append(entries, e)
		return false
	})
	slices.SortFunc(entries, func(a, b fanoutEntry) int { return compareDestinations(a.Destination, b.Destination) })
	for _, e := range entries {
		g.dests, g.counts = append(g.dests, e.Destination), append(g.counts, e.count)
	}
	return g
}
