package repair

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/cluster/placement"
	"github.com/warrenmq/warren/transport"
)

// NodeID names a node's storage.
type NodeID = transport.NodeID

// Queue is a replicated queue as the catalog has it; see there for the fields.
type Queue struct {
	ID, Settings uint64
	Members      []NodeID
	Generations  []uint64 // parallel to Members; nil: all are 0
	Wanted       []NodeID // nil: no plan is under way
	Preferred    NodeID   // while a plan is under way, the one that is to lead in the end
	// Settled is Settings, and Stood the number of Members, before all that is under way; 0 if no plan is.
	Settled uint64
	Stood   int
	// Missing is how many more members it shall have.
	Missing int
}

// votes tells whether member i was there before all that is planned, with what it had. What plans added or began anew has a later generation. (That
// is a guess: some of these may vote already, and others be removed. The group's leader, which knows its configuration, guards each change.)
func (q *Queue) votes(i int) bool {
	return q.Wanted == nil || i >= len(q.Generations) || q.Generations[i] <= q.Settled
}

// voters is how many there were then.
func (q *Queue) voters() int {
	if q.Wanted != nil && q.Stood > 0 {
		return q.Stood
	}
	return len(q.Members)
}

// Policy bounds repairs.
type Policy struct {
	// After is how long a node must have been down until its replicas are made anew elsewhere; 0: never.
	After time.Duration
	// Groups is how many queues may have their members changed at a time.
	Groups int
}

// Plan is a change of a queue's members: what catalog.PlanMembers says.
type Plan struct {
	Queue, IfSettings uint64
	Wanted            []NodeID
	Preferred         NodeID
	Reason            Reason // the weightiest
	Why               string // for people, at most whyBytesMax
}

// whyBytesMax bounds Plan.Why: what the catalog takes.
const whyBytesMax = 255

// Outcome is what Next found. Each queue is counted once among Waiting, Nowhere, Short and NoMajority.
type Outcome struct {
	Plans []Plan
	// Waiting are queues with a member to be replaced, or missing, for which there is no room yet, or which are to be let be for a while.
	Waiting int
	// Short are those that miss members only because there are no nodes for them.
	Short int
	// Nowhere are those for which no node can take the replica, NoMajority those without a living majority.
	Nowhere, NoMajority int
	// Underway are queues whose members are being changed, by whomever, Plans included; Stalled those among them that cannot go on as things are.
	Underway, Stalled int
}

// Next says what to plan now. later tells whether a queue is to be let be for a while; nil: none is.
// Queues are walked once. The order of nodes and queues means nothing.
func Next(p Policy, nodes []Node, queues iter.Seq[Queue], later func(id uint64) bool) (o Outcome) {
	c := newCluster(p, nodes)
	var due []patient
	for q := range queues {
		c.count(&q)
		f := c.triage(&q)
		if q.Wanted != nil {
			o.Underway++
			if !f.goes {
				o.Stalled++
			}
		}
		switch f.is {
		case hopeless:
			o.NoMajority++
		case ill:
			if _, ok := c.mend(&q); !ok && f.troubled {
				o.Nowhere++
				continue
			} else if !ok {
				o.Short++
				continue
			}
			o.Waiting++
			if later == nil || !later(q.ID) {
				due = admit(due, patient{q, f}, p.Groups)
			}
		}
	}
	going := o.Underway - o.Stalled
	for _, d := range due {
		switch {
		case d.goes: // its plan is replaced
		case going >= p.Groups:
			continue
		default:
			going++
		}
		plan, _ := c.mend(&d.Queue)
		c.note(&d.Queue, &plan)
		o.Plans = append(o.Plans, plan)
		o.Waiting--
		if d.Wanted == nil {
			o.Underway++
		}
	}
	return o
}

// patient is a queue that waits for a plan.
type patient struct {
	Queue
	finding
}

// admit keeps the room queues that are worst off, the worst first.
func admit(due []patient, q patient, room int) []patient {
	at, _ := slices.BinarySearchFunc(due, q, func(a, b patient) int {
		return cmp.Or(cmp.Compare(a.spare, b.spare), cmp.Compare(a.ID, b.ID))
	})
	if at >= room {
		return due
	}
	due = slices.Insert(due, at, q)
	return due[:min(len(due), room)]
}

// mend plans the replacement of those members that can be replaced, and others where they are missing. ok is false if there are none.
func (c *cluster) mend(q *Queue) (p Plan, ok bool) {
	set := slices.Clone(q.Members)
	if q.Wanted != nil {
		set = slices.Clone(q.Wanted)
	}
	var why []string
	for _, reason := range Reasons() {
		for i, m := range set {
			if c.loss(q, m) != reason {
				continue
			}
			by, found := c.replacement(q, set, i, reason)
			if !found {
				continue
			}
			set[i] = by
			p.Reason = cmp.Or(p.Reason, reason)
			why = append(why, c.explain(m, reason))
		}
	}
	before := len(set)
	if q.Wanted == nil {
		set = c.extend(set, q.Missing)
	}
	if n := len(set) - before; n > 0 {
		p.Reason = cmp.Or(p.Reason, Missing)
		why = append(why, fmt.Sprintf("%d of %d members are missing", q.Missing, before+q.Missing))
	}
	if p.Reason == None {
		return Plan{}, false
	}
	p.Queue, p.IfSettings, p.Wanted, p.Preferred = q.ID, q.Settings, set, c.home(q.Preferred, set)
	p.Why = strings.Join(why, "; ")
	p.Why = p.Why[:min(len(p.Why), whyBytesMax)] // names are ASCII
	return p, true
}

// loss is why a wanted member is to be replaced. While a plan is under way only those that it adds are looked at: the others are as they were
// when it was made, and their turn comes.
func (c *cluster) loss(q *Queue, m NodeID) Reason {
	if q.Wanted != nil {
		if i := slices.Index(q.Members, m); i < 0 || q.votes(i) {
			return None
		}
	}
	return c.reason(m)
}

// replacement finds who takes the place of set[i].
func (c *cluster) replacement(q *Queue, set []NodeID, i int, reason Reason) (NodeID, bool) {
	clear(c.zones)
	for j, m := range set {
		if j != i {
			c.zones[c.zone(m)]++
		}
	}
	before := len(c.zones)
	if c.zones[c.zone(set[i])] == 0 {
		before++
	}
	after := func(id NodeID) int {
		if c.zones[c.zone(id)] == 0 {
			return len(c.zones) + 1
		}
		return len(c.zones)
	}
	fits := func(id NodeID) bool { return c.takes(id) && !slices.Contains(set, id) }
	if n := c.nodes[set[i]]; reason == Gone && n != nil && !slices.Contains(q.Members, n.Successor) {
		if next := c.nodes[n.Successor]; next != nil && next.Young && next.Alive {
			return "", false // in a moment
		}
		if fits(n.Successor) && after(n.Successor) >= before {
			return n.Successor, true
		}
	}
	// One that is a member still, because the plan which was to take it away is not done, has its replica.
	for _, has := range []bool{true, false} {
		c.free = c.free[:0]
		for _, id := range c.ids {
			if fits(id) && slices.Contains(q.Members, id) == has {
				n := c.nodes[id]
				c.free = append(c.free, placement.Node{ID: string(id), Zone: n.Zone, Holds: n.holds, Leads: n.leads})
			}
		}
		best, ok := placement.Best(c.free, c.zones)
		// A node that is only down may come back, and the queue should find its zones as they were.
		if id := NodeID(best.ID); ok && (reason != Down || after(id) >= before) {
			return id, true
		}
	}
	return "", false
}

// extend adds at most so many members, as far as there are nodes for them.
func (c *cluster) extend(set []NodeID, by int) []NodeID {
	clear(c.zones)
	for _, m := range set {
		c.zones[c.zone(m)]++
	}
	for range by {
		c.free = c.free[:0]
		for _, id := range c.ids {
			if c.takes(id) && !slices.Contains(set, id) {
				n := c.nodes[id]
				c.free = append(c.free, placement.Node{ID: string(id), Zone: n.Zone, Holds: n.holds, Leads: n.leads})
			}
		}
		best, ok := placement.Best(c.free, c.zones)
		if !ok {
			break
		}
		set = append(set, NodeID(best.ID))
		c.zones[best.Zone]++
	}
	return set
}

func (c *cluster) explain(m NodeID, r Reason) string {
	name, _, _ := strings.Cut(string(m), "/")
	switch r {
	case Down:
		return fmt.Sprintf("%s has been down for %v", name, c.nodes[m].Down.Round(time.Second))
	case Leaving:
		return name + " leaves the cluster"
	}
	return "the disk of " + name + " is gone"
}

// home is who should lead the members of set: the one that should now if it can, else the one that should lead the fewest.
func (c *cluster) home(now NodeID, set []NodeID) NodeID {
	if slices.Contains(set, now) && c.takes(now) {
		return now
	}
	var best *node
	for _, m := range set {
		if n := c.nodes[m]; c.takes(m) && (best == nil || cmp.Or(cmp.Compare(n.leads, best.leads), cmp.Compare(n.ID, best.ID)) < 0) {
			best = n
		}
	}
	switch {
	case best != nil:
		return best.ID
	case slices.Contains(set, now):
		return now
	}
	return set[0]
}

// note counts what a plan brings, so that the next one is made with it.
func (c *cluster) note(q *Queue, p *Plan) {
	for _, m := range p.Wanted {
		if n := c.nodes[m]; n != nil && !slices.Contains(q.Members, m) {
			n.holds++
		}
	}
	if n := c.nodes[q.Preferred]; n != nil {
		n.leads--
	}
	if n := c.nodes[p.Preferred]; n != nil {
		n.leads++
	}
}
