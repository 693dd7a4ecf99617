package repair

import (
	"slices"
	"time"

	"github.com/warrenmq/warren/cluster/placement"
)

// Node is what is known of a node.
type Node struct {
	ID NodeID
	// Zone is what fails together with it.
	Zone string
	// Alive: it can be reached, and is not known to be dead.
	Alive bool
	// Willing: it may get replicas and lead, as far as an operator has a say, and it has told its zone.
	Willing bool
	// Young: it has only just registered and has not told its zone, which it does at once; so it is not Willing yet.
	Young bool
	// Leaving: its replicas are to go, for good.
	Leaving bool
	// Down is for how long it has been dead, of the time that counts; see Policy.After. 0: it is not.
	Down time.Duration
	// Superseded: a newer storage has taken its name, which is Successor; "" if that is unknown.
	Superseded bool
	Successor  NodeID
}

// Reason says why a member is replaced.
type Reason uint8

// The reasons, the weightiest first.
const (
	None    Reason = iota
	Gone           // the node's storage was replaced by a newer one
	Down           // the node has been down for too long
	Leaving        // the node leaves the cluster
	Missing        // nothing is replaced: the queue has fewer members than it should
)

// Reasons are all reasons for a plan, the weightiest first.
func Reasons() []Reason { return []Reason{Gone, Down, Leaving, Missing} }

func (r Reason) String() string { return [...]string{"none", "gone", "down", "leaving", "missing"}[r] }

// Reason is why the replicas of a node are to be moved; None: they are not.
func (p Policy) Reason(n *Node) Reason {
	switch {
	case n.Superseded:
		return Gone
	case p.After > 0 && !n.Alive && n.Down >= p.After:
		return Down
	case n.Leaving:
		return Leaving
	}
	return None
}

// cluster is the nodes while plans are made.
type cluster struct {
	policy Policy
	nodes  map[NodeID]*node
	ids    []NodeID         // sorted
	zones  map[string]int   // scratch of replacement
	free   []placement.Node // likewise
}

// node is a Node with the number of queues of which it is a member, and of those that it should lead.
type node struct {
	Node
	holds, leads int
}

func newCluster(p Policy, nodes []Node) *cluster {
	c := &cluster{policy: p, nodes: make(map[NodeID]*node, len(nodes)), zones: make(map[string]int)}
	for _, n := range nodes {
		c.nodes[n.ID] = &node{Node: n}
		c.ids = append(c.ids, n.ID)
	}
	slices.Sort(c.ids)
	return c
}

// count notes what a queue puts on its nodes.
func (c *cluster) count(q *Queue) {
	for _, m := range q.Members {
		if n := c.nodes[m]; n != nil {
			n.holds++
		}
	}
	if n := c.nodes[q.Preferred]; n != nil {
		n.leads++
	}
}

// reason is why a member is to be replaced. A node that is not known was taken out of the cluster.
func (c *cluster) reason(id NodeID) Reason {
	if n := c.nodes[id]; n != nil {
		return c.policy.Reason(&n.Node)
	}
	return Gone
}

func (c *cluster) zone(id NodeID) string {
	if n := c.nodes[id]; n != nil {
		return n.Zone
	}
	return ""
}

func (c *cluster) alive(id NodeID) bool {
	n := c.nodes[id]
	return n != nil && n.Alive && !n.Superseded
}

// takes tells whether a node can get a replica, and lead.
func (c *cluster) takes(id NodeID) bool {
	n := c.nodes[id]
	return n != nil && n.Alive && n.Willing && !n.Superseded && !n.Leaving && n.Down == 0
}

// condition of a queue.
type condition uint8

const (
	well     condition = iota
	moving             // a plan is under way
	ill                // a member is to be replaced, or missing
	hopeless           // and cannot be: there is no living majority
)

// finding is what triage finds of a queue.
type finding struct {
	is       condition
	spare    int  // how many more members it can lose
	goes     bool // a plan is under way and can be carried out
	troubled bool // a member is to be replaced
}

func (c *cluster) triage(q *Queue) finding {
	living, troubled, silent := 0, false, false
	for i, m := range q.Members {
		switch {
		case q.votes(i):
			if c.alive(m) {
				living++
			}
		case slices.Contains(q.Wanted, m):
			silent = silent || !c.alive(m)
		default:
			continue // of a plan that was dropped for the one that is under way
		}
		troubled = troubled || c.loss(q, m) != None
	}
	f := finding{spare: living - (q.voters()/2 + 1), troubled: troubled}
	f.goes = q.Wanted != nil && f.spare >= 0 && !silent
	switch {
	case f.spare < 0 && (troubled || q.Wanted != nil):
		f.is = hopeless
	case troubled, q.Wanted == nil && q.Missing > 0 && f.spare >= 0:
		f.is = ill
	case q.Wanted != nil:
		f.is = moving
	}
	return f
}
