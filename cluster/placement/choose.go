package placement

import (
	"cmp"
	"slices"
	"strings"
)

// Node is what is known of a node.
type Node struct {
	ID string
	// Zone is what fails together with it: at most one member of a queue is in a zone if there
	// are as many zones with live nodes as members. All nodes without one ("") share a zone.
	Zone string
	// Leads and Holds count the queues that it should lead and of which it holds replicas.
	Leads, Holds int
	// Away: it is not alive. It becomes a member only if there are not enough others: it finds
	// its replica when it comes back, and the queue can lose another node then.
	Away bool
	// LastRank: it is about to go (draining, leaving). It becomes a member only if there are not enough others that are
	// alive, and it leads only if no other member is alive.
	LastRank bool
	// Leaves: it goes for good. It becomes a member only if no node lives that does not: a queue that misses a member gets one when there is a
	// node for it, and one that was given to this node would have to be taken away from it again, by a person if there is nowhere to go.
	Leaves bool
}

// rank is how late a node is taken, and how late it should lead.
func (n Node) rank() int {
	switch {
	case n.Away:
		return 2
	case n.LastRank:
		return 1
	}
	return 0
}

// Request asks for the place of one queue.
type Request struct {
	// Nodes are the nodes of the cluster in any order, each once.
	Nodes []Node
	// Local is the node at which the queue is declared. It is a member, as with RabbitMQ,
	// even if Nodes does not have it, but not if it is of the last rank.
	Local string
	// Size is how many members are wanted; fewer if there are fewer nodes, and never none.
	Size int
	// LeadLocal: Local should lead (x-queue-leader-locator: client-local), rather than the member that
	// should lead the fewest.
	LeadLocal bool
	// Seed draws the candidates; for instance a hash of the queue's name.
	Seed uint64
}

// Choice is where a queue goes: Members, which begin with the one that should lead it.
type Choice struct {
	Members   []string
	Preferred string
}

// Choose places a queue.
func Choose(r Request) Choice {
	s := search{draws: r.Seed, zones: map[string]int{}}
	known := false
	stay := slices.ContainsFunc(r.Nodes, func(n Node) bool { return !n.Leaves && !n.Away })
	for _, n := range r.Nodes {
		known = known || n.ID == r.Local
		switch {
		case n.Leaves && stay:
		case n.ID == r.Local && !n.LastRank:
			s.take(n)
		case n.Away:
			s.away = append(s.away, n)
		case n.LastRank:
			s.last = append(s.last, n)
		default:
			s.live = append(s.live, n)
		}
	}
	if !known {
		s.take(Node{ID: r.Local})
	}
	// So that the order in which the caller lists nodes means nothing.
	for _, rank := range []*[]Node{&s.live, &s.last, &s.away} {
		sortByID(*rank)
		for len(s.members) < max(r.Size, 1) && len(*rank) > 0 {
			s.take(s.pick(rank))
		}
	}
	if r.LeadLocal {
		return s.choice(r.Local)
	}
	return s.choice("")
}

// search is a choice in the making. The first of members is the local node, unless that is of the last rank.
type search struct {
	draws      uint64
	members    []Node
	live       []Node         // candidates, in the order of their ids
	last, away []Node         // those to be taken then
	zones      map[string]int // members in each
	drawn      []int          // scratch of pick
}

func (s *search) take(n Node) {
	s.members = append(s.members, n)
	s.zones[n.Zone]++
}

// pick takes a candidate out of from: of those in the zones with the fewest members two are
// drawn, and the one with fewer replicas is it.
func (s *search) pick(from *[]Node) Node {
	fewest := s.zones[(*from)[0].Zone]
	for _, n := range *from {
		fewest = min(fewest, s.zones[n.Zone])
	}
	s.drawn = s.drawn[:0]
	for i, n := range *from {
		if s.zones[n.Zone] == fewest {
			s.drawn = append(s.drawn, i)
		}
	}
	a := s.draw(len(s.drawn))
	best := s.drawn[a]
	if len(s.drawn) > 1 {
		// Another one than the first, each with the same chance.
		b := s.draw(len(s.drawn) - 1)
		if b >= a {
			b++
		}
		if other := s.drawn[b]; lighter((*from)[other], (*from)[best]) {
			best = other
		}
	}
	n := (*from)[best]
	*from = slices.Delete(*from, best, best+1)
	return n
}

func lighter(a, b Node) bool {
	if a.Holds != b.Holds {
		return a.Holds < b.Holds
	}
	return a.Leads < b.Leads
}

// draw returns a number below n, by the splitmix64 generator (public domain, Vigna 2015). The
// generators of math/rand do not promise the same numbers for ever.
func (s *search) draw(n int) int {
	s.draws += 0x9e3779b97f4a7c15
	z := s.draws
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

// choice names the leader: of the members of the best rank the one that should lead the fewest, the first among equals; first of
// all the given one, if it is a member of the first rank.
func (s *search) choice(first string) Choice {
	lead := 0
	for i, n := range s.members {
		if n.ID == first && n.rank() == 0 {
			lead = i
			break
		}
		if best := s.members[lead]; cmp.Or(cmp.Compare(n.rank(), best.rank()), cmp.Compare(n.Leads, best.Leads)) < 0 {
			lead = i
		}
	}
	members := make([]string, 0, len(s.members))
	members = append(members, s.members[lead].ID)
	for i, n := range s.members {
		if i != lead {
			members = append(members, n.ID)
		}
	}
	return Choice{Members: members, Preferred: members[0]}
}

// sortByID sorts nodes, which mostly are sorted.
func sortByID(nodes []Node) {
	byID := func(a, b Node) int { return strings.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(nodes, byID) {
		slices.SortFunc(nodes, byID)
	}
}

// Best returns the node that should hold a queue's replica beside those that are there, of which zones counts how many are in
// each: of the candidates in the zones with the fewest it is the one that holds the fewest replicas, then the one that should lead the
// fewest queues, then the first by its id. Unlike [Choose] it draws nothing: it is for who knows exactly what each node holds.
// The nodes' ranks do not count. ok is false if there are no candidates.
func Best(candidates []Node, zones map[string]int) (best Node, ok bool) {
	for _, n := range candidates {
		in, than := zones[n.Zone], zones[best.Zone]
		if !ok || in < than || in == than && (lighter(n, best) || !lighter(best, n) && n.ID < best.ID) {
			best, ok = n, true
		}
	}
	return best, ok
}
