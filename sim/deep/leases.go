package deep

import (
	"fmt"
	"slices"
	"time"

	"github.com/warrenmq/warren/transport"
)

// leasePeriod is how often leases are looked at.
const leasePeriod = 25 * time.Millisecond

// tenure is a replica that leads in a term.
type tenure struct {
	term uint64
	node transport.NodeID
}

// overlaps notes since when each two replicas of a group have had a lease at the same time. Two leaders may, for as long as one lease lasts; three
// that follow each other do so two by two, and the first need not have had one with the last.
type overlaps struct {
	since map[[2]tenure]time.Time
	told  map[[2]tenure]bool // that it is too long
}

// note takes those that have a lease now, by term, and returns which two have had it the longest, and for how long; 0 if fewer than two have.
func (o *overlaps) note(holders []tenure, now time.Time) (longest time.Duration, two [2]tenure) {
	since := make(map[[2]tenure]time.Time)
	for i, x := range holders {
		for _, y := range holders[:i] {
			p := [2]tenure{y, x}
			since[p] = now
			if began, ok := o.since[p]; ok {
				since[p] = began
			}
			if d := now.Sub(since[p]) + leasePeriod; d > longest {
				longest, two = d, p
			}
		}
	}
	o.since = since
	return longest, two
}

// first tells whether a pair is told of for the first time.
func (o *overlaps) first(two [2]tenure) bool {
	if o.told == nil {
		o.told = make(map[[2]tenure]bool)
	}
	told := o.told[two]
	o.told[two] = true
	return !told
}

// watchLeases measures for how long two replicas of a group have a lease.
func (w *world) watchLeases(stop <-chan struct{}) {
	groups, seen := make(map[transport.GroupID]*overlaps), make(map[transport.GroupID]string)
	for {
		select {
		case <-stop:
			return
		case <-time.After(leasePeriod):
		}
		for _, id := range w.all() {
			holders := w.leaseHolders(id)
			if len(holders) < 2 {
				delete(groups, id)
				delete(seen, id)
				continue
			}
			if groups[id] == nil {
				groups[id] = new(overlaps)
			}
			if now := fmt.Sprint(holders); now != seen[id] {
				seen[id] = now
				w.oracle.Note("group %d: leases, by term: %v", id, holders)
			}
			overlap, two := groups[id].note(holders, time.Now())
			if limit := w.cfg.OverlapMax; limit > 0 && overlap > limit && groups[id].first(two) {
				w.oracle.Fail("group %d: leases overlap by %v, which is more than %v: %v of %v", id, overlap, limit, two, holders)
			}
			w.overlap.Store(max(w.overlap.Load(), int64(overlap)))
		}
	}
}

// leaseHolders are the replicas of a group that have a lease, by term: two in one term fail the run.
func (w *world) leaseHolders(id transport.GroupID) (holders []tenure) {
	for _, n := range w.members(id) {
		l := w.nodes[n].running()
		if l == nil {
			continue
		}
		g, ok := l.host.Group(id)
		if !ok || g.Asleep() || !g.HasLease() {
			continue
		}
		_, term, _ := g.Leader()
		for _, h := range holders {
			if h.term == term {
				w.oracle.Fail("group %d: %s and %s have a lease in term %d", id, h.node, n, term)
			}
		}
		holders = append(holders, tenure{term, n})
	}
	slices.SortFunc(holders, func(x, y tenure) int { return int(x.term) - int(y.term) })
	return holders
}
