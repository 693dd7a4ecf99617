package repair

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is a cluster that carries plans out, as far as its nodes are alive.
type model struct {
	t       *rapid.T
	policy  Policy
	nodes   []Node
	queues  []Queue
	index   uint64
	storage int
	voters  map[uint64][]NodeID // of each group's configuration
	plans   map[uint64]int      // since nothing happens any more
	size    map[uint64]int      // how many members a queue shall have
}

func newModel(t *rapid.T) *model {
	m := &model{
		t: t, policy: Policy{After: after, Groups: rapid.IntRange(1, 5).Draw(t, "groups")},
		voters: map[uint64][]NodeID{}, plans: map[uint64]int{}, size: map[uint64]int{}, index: 1000,
	}
	zones := rapid.IntRange(1, 4).Draw(t, "zones")
	for range rapid.IntRange(1, 8).Draw(t, "nodes") {
		m.join(fmt.Sprint("n", len(m.nodes)), fmt.Sprint("z", rapid.IntRange(1, zones).Draw(t, "zone")))
	}
	for i := range rapid.IntRange(1, 40).Draw(t, "queues") {
		all := rapid.Permutation(m.nodes).Draw(t, "members")
		q := Queue{ID: uint64(i + 1), Settings: uint64(i + 1)}
		for _, n := range all[:min(len(all), rapid.IntRange(1, 5).Draw(t, "size"))] {
			q.Members = append(q.Members, n.ID)
		}
		q.Preferred = q.Members[0]
		m.queues = append(m.queues, q)
		m.voters[q.ID] = q.Members
		m.size[q.ID] = len(q.Members) + max(0, rapid.IntRange(-4, 2).Draw(t, "missing"))
		m.count(&m.queues[i])
	}
	return m
}

// count notes how many members a queue misses.
func (m *model) count(q *Queue) {
	now := q.Members
	if q.Wanted != nil {
		now = q.Wanted
	}
	q.Missing = max(0, m.size[q.ID]-len(now))
}

// recover has a queue that has lost its majority go on from what is left of it, if that is possible.
func (m *model) recover() {
	q := &m.queues[rapid.IntRange(0, len(m.queues)-1).Draw(m.t, "which")]
	keep := slices.IndexFunc(m.voters[q.ID], m.lives)
	if keep < 0 || m.majority(m.voters[q.ID]) {
		return
	}
	m.index++
	only := []NodeID{m.voters[q.ID][keep]}
	q.Members, q.Generations, q.Wanted, q.Preferred, q.Settings, q.Settled, q.Stood = only, []uint64{m.index}, nil, only[0], m.index, 0, 0
	m.voters[q.ID] = only
	m.count(q)
}

func (m *model) join(name, zone string) NodeID {
	m.storage++
	id := NodeID(fmt.Sprintf("%s/%d", name, m.storage))
	m.nodes = append(m.nodes, Node{ID: id, Zone: zone, Alive: true, Willing: true})
	return id
}

func (m *model) node(id NodeID) *Node {
	i := slices.IndexFunc(m.nodes, func(n Node) bool { return n.ID == id })
	if i < 0 {
		return nil
	}
	return &m.nodes[i]
}

// happen lets something happen to a node.
func (m *model) happen() {
	n := &m.nodes[rapid.IntRange(0, len(m.nodes)-1).Draw(m.t, "whom")]
	switch what := rapid.SampledFrom([]string{"die", "die", "return", "return", "leave", "stay", "lose", "join"}).Draw(m.t, "what"); {
	case what == "join" && len(m.nodes) < 14:
		m.join(fmt.Sprint("n", len(m.nodes), "x"), n.Zone)
	case n.Superseded:
	case what == "die":
		n.Alive, n.Down = false, max(n.Down, time.Second)
	case what == "return":
		n.Alive, n.Down = true, 0
	case what == "leave":
		n.Leaving, n.Willing = true, false
	case what == "stay":
		n.Leaving, n.Willing = false, true
	case what == "lose" && len(m.nodes) < 14:
		old, zone := n.ID, n.Zone
		name := string(old[:slices.Index([]byte(old), '/')])
		id := m.join(name, zone)
		n = m.node(old)
		n.Superseded, n.Alive, n.Down, n.Successor = true, false, 0, id
	}
}

// pass lets time pass for nodes that are down.
func (m *model) pass(d time.Duration) {
	for i := range m.nodes {
		if n := &m.nodes[i]; !n.Alive && !n.Superseded {
			n.Down += d
		}
	}
}

func (m *model) lives(id NodeID) bool {
	n := m.node(id)
	return n != nil && n.Alive && !n.Superseded
}

func (m *model) majority(voters []NodeID) bool {
	living := 0
	for _, v := range voters {
		if m.lives(v) {
			living++
		}
	}
	return living > len(voters)/2
}

// plan asks for plans, checks them and enters them as the catalog does.
func (m *model) plan() Outcome {
	o := Next(m.policy, m.nodes, slices.Values(m.queues), nil)
	going := func() (n int) {
		for i := range m.queues {
			if m.goes(&m.queues[i]) {
				n++
			}
		}
		return n
	}
	before := going()
	seen := map[uint64]bool{}
	for _, p := range o.Plans {
		if seen[p.Queue] {
			m.t.Fatalf("two plans for queue %d", p.Queue)
		}
		seen[p.Queue] = true
		m.enter(p)
	}
	if now := going(); now > max(before, m.policy.Groups) {
		m.t.Fatalf("%d plans under way after %d, %d are allowed", now, before, m.policy.Groups)
	}
	return o
}

// goes tells whether a queue's plan can be carried out.
func (m *model) goes(q *Queue) bool {
	return q.Wanted != nil && m.majority(m.voters[q.ID]) && !slices.ContainsFunc(q.Wanted, func(w NodeID) bool {
		return !slices.Contains(m.voters[q.ID], w) && !m.lives(w)
	})
}

func (m *model) enter(p Plan) {
	q := &m.queues[p.Queue-1]
	now := q.Members
	if q.Wanted != nil {
		now = q.Wanted
	}
	switch {
	case p.IfSettings != q.Settings:
		m.t.Fatalf("a plan for another state of queue %d", q.ID)
	case len(p.Wanted) != len(now)+m.room(q, p):
		m.t.Fatalf("queue %d goes from %v to %v, %d are missing", q.ID, now, p.Wanted, q.Missing)
	case !slices.Contains(p.Wanted, p.Preferred):
		m.t.Fatalf("%s should lead %v", p.Preferred, p.Wanted)
	case !m.majority(m.voters[q.ID]):
		m.t.Fatalf("queue %d has no majority of %v and goes to %v", q.ID, m.voters[q.ID], p.Wanted)
	}
	m.checkZones(q, now, p)
	if q.Wanted == nil {
		q.Settled, q.Stood = q.Settings, len(q.Members)
	}
	m.index++
	generations := make([]uint64, len(q.Members))
	copy(generations, q.Generations)
	members := slices.Clone(q.Members)
	for i, w := range p.Wanted {
		if slices.Contains(p.Wanted[:i], w) {
			m.t.Fatalf("%s is twice in %v", w, p.Wanted)
		}
		if slices.Contains(now, w) {
			continue
		}
		if n := m.node(w); !free(n) {
			m.t.Fatalf("queue %d goes to %+v", q.ID, n)
		}
		if !slices.Contains(members, w) {
			members, generations = append(members, w), append(generations, m.index)
		}
	}
	for _, old := range now {
		if !slices.Contains(p.Wanted, old) && m.policy.Reason(m.node(old)) == None {
			m.t.Fatalf("queue %d leaves %+v", q.ID, m.node(old))
		}
	}
	q.Members, q.Generations, q.Wanted, q.Preferred, q.Settings = members, generations, p.Wanted, p.Preferred, m.index
	m.count(q)
	m.plans[q.ID]++
}

// free tells whether a node can take a replica.
func free(n *Node) bool {
	return n != nil && n.Alive && n.Willing && !n.Leaving && !n.Superseded && n.Down == 0
}

// room is by how much a plan is to bring a queue more members: by as many as are missing, as far as there are nodes.
func (m *model) room(q *Queue, p Plan) int {
	if q.Wanted != nil {
		return 0
	}
	others := 0
	for i := range m.nodes {
		if id := m.nodes[i].ID; free(&m.nodes[i]) && !slices.Contains(p.Wanted, id) && !slices.Contains(q.Members, id) {
			others++
		}
	}
	added := len(p.Wanted) - len(q.Members)
	return min(q.Missing, added+others)
}

func (m *model) zonesOf(list []NodeID) int {
	zones := map[string]bool{}
	for _, id := range list {
		zones[m.node(id).Zone] = true
	}
	return len(zones)
}

// checkZones: no zone is given up for a node that may come back.
func (m *model) checkZones(q *Queue, now []NodeID, p Plan) {
	for _, old := range now {
		if !slices.Contains(p.Wanted, old) && m.policy.Reason(m.node(old)) != Down {
			return
		}
	}
	if m.zonesOf(p.Wanted) < m.zonesOf(now) {
		m.t.Fatalf("queue %d goes from %v to %v, into fewer zones", q.ID, now, p.Wanted)
	}
}

// work carries out what can be, of some of the queues.
func (m *model) work(some func(uint64) bool) {
	for i := range m.queues {
		q := &m.queues[i]
		if !m.goes(q) || !some(q.ID) {
			continue
		}
		var generations []uint64
		for _, w := range q.Wanted {
			if at := slices.Index(q.Members, w); at < len(q.Generations) {
				generations = append(generations, q.Generations[at])
			} else {
				generations = append(generations, 0)
			}
		}
		m.index++
		q.Members, q.Generations, q.Wanted, q.Settings, q.Settled, q.Stood = q.Wanted, generations, nil, m.index, 0, 0
		m.voters[q.ID] = q.Members
	}
}

// mendable finds, without the code under test, a queue that has a member to be replaced and a node for it.
func (m *model) mendable(q *Queue) bool {
	if q.Wanted != nil || !m.majority(q.Members) {
		return false
	}
	for i := range m.nodes {
		if n := &m.nodes[i]; q.Missing > 0 && free(n) && !slices.Contains(q.Members, n.ID) {
			return true
		}
	}
	for i, old := range q.Members {
		reason := m.policy.Reason(m.node(old))
		if reason == None {
			continue
		}
		for _, n := range m.nodes {
			if !free(&n) || slices.Contains(q.Members, n.ID) {
				continue
			}
			set := slices.Clone(q.Members)
			set[i] = n.ID
			if reason != Down || m.zonesOf(set) >= m.zonesOf(q.Members) {
				return true
			}
		}
	}
	return false
}

// TestRepairEnds lets nodes die, return, lose their disks, leave and join, and queues go on from one replica, while plans are made and carried out, and then lets nothing happen any
// more: all the time a plan is one that can be carried out, that endangers nobody, gives up no zone in vain and brings as many members as are missing, and no more are under
// way than are allowed; in the end nothing is left that could be mended, no queue was touched more than once for each of its
// members, and nothing is touched again.
func TestRepairEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			m.happen()
			if rapid.IntRange(0, 3).Draw(t, "recover") == 0 {
				m.recover()
			}
			m.pass(time.Duration(rapid.IntRange(0, 8).Draw(t, "minutes")) * time.Minute)
			m.plan()
			slow := rapid.Uint64Range(0, 7).Draw(t, "slow")
			m.work(func(id uint64) bool { return (id*2654435761>>7)&7 >= slow })
		}
		m.pass(after)
		clear(m.plans)
		last := m.plan()
		for rounds := 0; len(last.Plans) > 0 || last.Underway > last.Stalled; rounds++ {
			if rounds > 2*len(m.queues)+10 {
				t.Fatalf("no end: %+v", last)
			}
			m.work(func(uint64) bool { return true })
			last = m.plan()
		}
		if last.Waiting > 0 {
			t.Fatalf("the end with %+v", last)
		}
		for i := range m.queues {
			q := &m.queues[i]
			if m.mendable(q) {
				t.Fatalf("queue %d could be mended: %+v, nodes %+v", q.ID, q, m.nodes)
			}
			if m.plans[q.ID] > len(q.Members) {
				t.Fatalf("%d plans for queue %d", m.plans[q.ID], q.ID)
			}
		}
	})
}

// TestRepairIsEven: the replicas of one node, and then of another one, spread over the others about as evenly as they were before.
func TestRepairIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(5, 9).Draw(t, "nodes")
		m := &model{t: t, policy: Policy{After: after, Groups: 4}, voters: map[uint64][]NodeID{}, plans: map[uint64]int{}, size: map[uint64]int{}, index: 10_000}
		for i := range size {
			m.join(fmt.Sprint("n", i), "")
		}
		holds := func() map[NodeID]int {
			count := map[NodeID]int{}
			for _, n := range m.nodes {
				if m.lives(n.ID) {
					count[n.ID] = 0
				}
			}
			for _, q := range m.queues {
				for _, id := range q.Members {
					if m.lives(id) {
						count[id]++
					}
				}
			}
			return count
		}
		for i := range rapid.IntRange(20, 60).Draw(t, "queues") {
			q := Queue{ID: uint64(i + 1), Settings: uint64(i + 1)}
			first := rapid.IntRange(0, size-1).Draw(t, "first")
			for j := range 3 {
				q.Members = append(q.Members, m.nodes[(first+j)%size].ID)
			}
			q.Preferred = q.Members[0]
			m.queues = append(m.queues, q)
			m.voters[q.ID] = q.Members
		}
		for _, victim := range []int{0, 3} {
			was := spread(holds())
			n := &m.nodes[victim]
			n.Alive, n.Down = false, after
			for o := m.plan(); len(o.Plans) > 0; o = m.plan() {
				m.work(func(uint64) bool { return true })
			}
			// Each queue takes the best of the places that are left to it, one after the other: that is not the best for all of them together.
			if now := spread(holds()); now > max(was, 6) {
				t.Fatalf("nodes held replicas within %d of each other, and now within %d: %v", was, now, holds())
			}
		}
	})
}

func spread(count map[NodeID]int) int {
	least, most := 1<<30, 0
	for _, n := range count {
		least, most = min(least, n), max(most, n)
	}
	return most - least
}

// TestHomesAreEven: whatever the queues are, nodes that cannot lead should lead nothing that another one can, no chain of moves would make it more
// even, nothing moves to and fro, and what is even stays.
func TestHomesAreEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		for range rapid.IntRange(0, 10).Draw(t, "events") {
			m.happen()
		}
		can := func(id NodeID) bool {
			n := m.node(id)
			return n.Alive && n.Willing && !n.Leaving && !n.Superseded && n.Down == 0
		}
		for _, h := range Homes(m.nodes, m.queues) {
			q := &m.queues[h.Queue-1]
			if h.IfSettings != q.Settings || h.Node == q.Preferred || !can(h.Node) || !slices.Contains(q.Members, h.Node) {
				t.Fatalf("%+v for %+v", h, q)
			}
			q.Preferred = h.Node
		}
		leads := map[NodeID]int{}
		for i := range m.queues {
			q := &m.queues[i]
			if !can(q.Preferred) && slices.ContainsFunc(q.Members, can) {
				t.Fatalf("%s cannot lead queue %d, one of %v can", q.Preferred, q.ID, q.Members)
			}
			leads[q.Preferred]++
		}
		// reach are the nodes to which a queue of n could go, by a chain.
		for _, n := range m.nodes {
			reach := map[NodeID]bool{n.ID: true}
			for grown := can(n.ID); grown; {
				grown = false
				for _, q := range m.queues {
					for _, id := range q.Members {
						if reach[q.Preferred] && can(id) && !reach[id] {
							reach[id], grown = true, true
						}
					}
				}
			}
			for id := range reach {
				if leads[n.ID] > leads[id]+1 {
					t.Fatalf("%s should lead %d, and %s could in part, which should lead %d", n.ID, leads[n.ID], id, leads[id])
				}
			}
		}
		if again := Homes(m.nodes, m.queues); len(again) > 0 {
			t.Fatalf("what is even moves: %+v", again)
		}
	})
}

// TestHomesMoveLittle: what moves is no more than what is too much.
func TestHomesMoveLittle(t *testing.T) {
	var queues []Queue
	for i := range 90 {
		q := Queue{ID: uint64(i + 1), Settings: uint64(i + 1), Members: ids("a b c"), Preferred: "a"}
		if i >= 60 {
			q.Preferred = "b"
		}
		queues = append(queues, q)
	}
	moved := map[NodeID]int{}
	for _, h := range Homes(nodesOf("a b c"), queues) {
		moved[h.Node]++
	}
	if len(moved) != 1 || moved["c"] != 30 {
		t.Errorf("moved %v, want 30 from a to c", moved)
	}
}
