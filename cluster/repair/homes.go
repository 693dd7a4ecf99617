package repair

import (
	"cmp"
	"slices"
)

// Home says which member should lead a queue from now on: what catalog.SetPreferred says.
type Home struct {
	Queue, IfSettings uint64
	Node              NodeID
}

// Homes says which queues should be led elsewhere so that the nodes should lead alike, as far as their replicas allow: there is no way to
// take a queue, or a chain of them, from a node to one that should lead two fewer. A queue stays if it can: it moves from a
// node that cannot lead, or for the balance. Only the given queues count. Queues whose members are being changed stay.
func Homes(nodes []Node, queues []Queue) []Home {
	h := homes{c: newCluster(Policy{}, nodes), queues: slices.Clone(queues), at: make([]NodeID, len(queues)), roads: map[road][]int{}}
	slices.SortFunc(h.queues, func(a, b Queue) int { return cmp.Compare(a.ID, b.ID) })
	for i := range h.queues {
		q := &h.queues[i]
		h.c.count(q)
		h.at[i] = q.Preferred
	}
	for i := range h.queues {
		if q := &h.queues[i]; q.Wanted == nil && !h.c.takes(q.Preferred) {
			h.move(i, h.c.home(q.Preferred, q.Members))
		}
		h.open(i)
	}
	for h.improve() {
	}
	var list []Home
	for i := range h.queues {
		if q := &h.queues[i]; h.at[i] != q.Preferred {
			list = append(list, Home{Queue: q.ID, IfSettings: q.Settings, Node: h.at[i]})
		}
	}
	return list
}

// road leads from a node to one that could lead a queue in its place.
type road struct{ from, to NodeID }

// homes is an assignment in the making.
type homes struct {
	c      *cluster
	queues []Queue
	at     []NodeID       // by the index of the queue
	roads  map[road][]int // queues that may go; those that have gone are dropped when they are met
}

// move sends a queue to another node.
func (h *homes) move(i int, to NodeID) {
	if n := h.c.nodes[h.at[i]]; n != nil {
		n.leads--
	}
	if n := h.c.nodes[to]; n != nil {
		n.leads++
	}
	h.at[i] = to
}

// open notes where a queue could go.
func (h *homes) open(i int) {
	if q := &h.queues[i]; q.Wanted == nil && h.c.takes(h.at[i]) {
		for _, m := range q.Members {
			if m != h.at[i] && h.c.takes(m) {
				r := road{h.at[i], m}
				h.roads[r] = append(h.roads[r], i)
			}
		}
	}
}

// usable returns a queue that can go that way; false if there is none any more.
func (h *homes) usable(r road) (i int, ok bool) {
	list := h.roads[r]
	for len(list) > 0 && h.at[list[len(list)-1]] != r.from {
		list = list[:len(list)-1]
	}
	h.roads[r] = list
	if len(list) == 0 {
		return 0, false
	}
	return list[len(list)-1], true
}

// improve moves queues along one chain of nodes from one that should lead more to one that should lead at least two fewer. It
// returns false if there is no such chain.
func (h *homes) improve() bool {
	from := slices.DeleteFunc(slices.Clone(h.c.ids), func(id NodeID) bool { return !h.c.takes(id) })
	slices.SortStableFunc(from, func(a, b NodeID) int { return cmp.Compare(h.c.nodes[b].leads, h.c.nodes[a].leads) })
	for _, start := range from {
		before := map[NodeID]NodeID{start: ""}
		end := NodeID("")
		for line := []NodeID{start}; len(line) > 0 && end == ""; line = line[1:] {
			for _, to := range h.c.ids {
				if _, seen := before[to]; seen {
					continue
				}
				if _, ok := h.usable(road{line[0], to}); !ok {
					continue
				}
				before[to] = line[0]
				line = append(line, to)
				if h.c.nodes[to].leads+2 <= h.c.nodes[start].leads && (end == "" || h.c.nodes[to].leads < h.c.nodes[end].leads) {
					end = to
				}
			}
		}
		if end == "" {
			continue
		}
		for to := end; before[to] != ""; to = before[to] {
			r := road{before[to], to}
			i, _ := h.usable(r)
			h.move(i, to)
			h.open(i)
		}
		return true
	}
	return false
}
