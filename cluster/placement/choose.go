package placement

import (
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
}

// Request asks for the place of one queue.
type Request struct {
	// Nodes are the nodes of the cluster in any order, each once.
	Nodes []Node
	// Local is the node at which the queue is declared. It is a member, as with RabbitMQ,
	// even if Nodes does not have it.
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
	for _, n := range r.Nodes {
		if n.ID == r.Local {
			s.take(n)
			continue
		}
		if n.Away {
			s.away = append(s.away, n)
		} else {
			s.live = append(s.live, n)
		}
	}
	if len(s.members) == 0 {
		s.take(Node{ID: r.Local})
	}
	// So that the order in which the caller lists nodes means nothing.
	sortByID(s.live)
	sortByID(s.away)
	for len(s.members) < r.Size && len(s.live) > 0 {
		s.take(s.pick(&s.live))
	}
	for len(s.members) < r.Size && len(s.away) > 0 {
		s.take(s.pick(&s.away))
	}
	return s.choice(r.LeadLocal)
}

// search is a choice in the making. The first of members is the local node.
type search struct {
	draws      uint64
	members    []Node
	live, away []Node         // candidates, in the order of their ids
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

// choice names the leader: of the live members the one that should lead the fewest, the local
// one first among equals.
func (s *search) choice(leadLocal bool) Choice {
	lead := 0
	for i, n := range s.members {
		better := s.members[lead]
		if leadLocal || n.Away {
			continue
		}
		if better.Away || n.Leads < better.Leads {
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
