package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// planned is a cluster of four nodes in which the members of one group change as a catalog says: each
// node runs the replica that is wanted there, or the one that it had until a change is reached.
type planned struct {
	*memCluster

	mu      sync.Mutex
	reached uint64
	members []transport.ReplicaID // in the catalog: at least those of raft
	wanted  *Membership
}

func withPlan(t *testing.T, f func(t *testing.T, c *planned)) { withPlanTuned(t, nil, f) }

func withPlanTuned(t *testing.T, tune func(*HostConfig), f func(t *testing.T, c *planned)) {
	p := &planned{}
	bubble(t, 4, func(cfg *HostConfig) {
		if tune != nil {
			tune(cfg)
		}
		cfg.OnReached = func(_ context.Context, _ transport.GroupID, revision uint64) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.reached = max(p.reached, revision)
		}
	}, func(t *testing.T, c *memCluster) {
		p.memCluster = c
		for _, id := range c.ids[:3] {
			c.nodes[id].start(t, Spec{ID: queueA, Members: c.ids[:3], Preferred: "n0", Bootstrap: true})
			p.members = append(p.members, transport.Replica(id, 0))
		}
		c.waitLeader(queueA, 5*time.Second)
		f(t, p)
	})
}

// want enters a plan and lets every node know.
func (p *planned) want(m Membership) {
	p.wanted = &m
	for _, w := range m.Wanted {
		p.members = slices.DeleteFunc(p.members, func(r transport.ReplicaID) bool { return r.Node() == w.Node() })
		p.members = append(p.members, w)
	}
	for _, id := range p.ids {
		p.follow(id)
	}
}

// follow has a node do what the catalog says.
func (p *planned) follow(id transport.NodeID) {
	p.t.Helper()
	n, up := p.nodes[id]
	if !up {
		return
	}
	at := slices.IndexFunc(p.members, func(r transport.ReplicaID) bool { return r.Node() == id })
	if at < 0 {
		if err := n.host.Delete(queueA); err != nil {
			p.t.Fatal(err)
		}
		n.forget()
		return
	}
	generation, _ := p.members[at].Generation()
	if g, ok := n.host.Group(queueA); ok && g.spec.Generation != generation {
		for _, v := range g.voters() {
			if g.IsLeader() && v != id {
				_ = g.TransferTo(p.t.Context(), v) // else the others find out by themselves, later
			}
		}
		if err := n.host.Stop(queueA); err != nil {
			p.t.Fatal(err)
		}
		n.forget()
	}
	n.start(p.t, Spec{ID: queueA, Generation: generation, Members: p.ids[:3], Preferred: "n0"}).Want(p.wanted)
}

// forget drops the machine of a replica that is gone for good.
func (n *clusterNode) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.machines, queueA)
}

// settle waits until the plan is reached and has the catalog and the nodes take note.
func (p *planned) settle() {
	p.t.Helper()
	waitFor(p.t, 2*time.Minute, "the members are not reached", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.reached == p.wanted.Revision
	})
	g := p.waitLeader(queueA, time.Minute)
	var got []transport.ReplicaID
	for _, m := range g.Members() {
		if !m.Voter {
			p.t.Errorf("%s has no vote", m.Replica)
		}
		got = append(got, m.Replica)
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(p.wanted.Wanted)); !slices.Equal(got, want) {
		p.t.Fatalf("members %v, want %v", got, want)
	}
	p.members, p.wanted = slices.Clone(p.wanted.Wanted), nil
	for _, id := range p.ids {
		p.follow(id)
	}
}

// put proposes until one attempt is known to be committed.
func (p *planned) put(text string) {
	p.t.Helper()
	waitFor(p.t, time.Minute, "nothing is committed", func() bool {
		g := p.leader(queueA)
		if g == nil {
			return false
		}
		_, err := propose(g, text)
		return err == nil
	})
}

func TestReplicaIsReplaced(t *testing.T) {
	for name, wanted := range map[string][]transport.ReplicaID{
		"a living one":            {"n0", "n1", "n3#7"},
		"a dead one":              {"n0", "n1", "n3#7"},
		"on the same node":        {"n0", "n1", "n2#7"},
		"the leader":              {"n1", "n2", "n3#7"},
		"the leader, on its node": {"n0#7", "n1", "n2"},
		"one more":                {"n0", "n1", "n2", "n3#7"},
		"one less":                {"n0", "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			withPlan(t, func(t *testing.T, p *planned) {
				p.put("a")
				p.agreeOf("a")
				if name == "a dead one" {
					p.kill("n2")
				}
				p.want(Membership{Wanted: wanted, Revision: 9})
				p.put("b")
				p.settle()
				p.put("c")
				p.agreeOf("a", "b", "c")
			})
		})
	}
}

// TestVoteOnlyWithTheLog: a new replica does not vote before it has what the leader had, however few entries that is: they may be large.
func TestVoteOnlyWithTheLog(t *testing.T) {
	withPlan(t, func(t *testing.T, p *planned) {
		p.put("a")
		p.net.mu.Lock()
		p.net.withheld = map[transport.NodeID]bool{"n3": true}
		p.net.mu.Unlock()
		p.want(Membership{Wanted: []transport.ReplicaID{"n0", "n1", "n2", "n3#7"}, Revision: 9})
		for range 10 {
			time.Sleep(2 * time.Second)
			p.put("b")
			for _, m := range p.leader(queueA).Members() {
				if m.Node == "n3" && m.Voter {
					t.Fatal("n3 votes, and has nothing of the log")
				}
			}
		}
		p.net.mu.Lock()
		p.net.withheld = nil
		p.net.mu.Unlock()
		p.settle()
	})
}

// agreeOf waits until each replica that is a member has applied what was proposed.
func (p *planned) agreeOf(want ...string) {
	p.t.Helper()
	for _, r := range p.members {
		n, up := p.nodes[r.Node()]
		if !up {
			continue
		}
		waitFor(p.t, time.Minute, string(r)+" lacks something", func() bool {
			n.mu.Lock()
			m := n.machines[queueA]
			n.mu.Unlock()
			return m != nil && slices.Equal(slices.Compact(slices.Clone(m.all())), want)
		})
	}
}

// TestConfigurationChangesUnderCrashes kills nodes, the leader most of all, while members change at random: each change
// ends as it was wanted, whoever leads by then, and nothing that was confirmed is lost.
func TestConfigurationChangesUnderCrashes(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			withPlan(t, func(t *testing.T, p *planned) {
				r := rand.New(rand.NewPCG(seed, 1))
				var done []string
				for round := range uint64(4) {
					revision := 10 + round
					wanted := slices.Clone(p.members)
					out := r.IntN(len(wanted))
					away := slices.IndexFunc(p.ids, func(id transport.NodeID) bool {
						return !slices.ContainsFunc(p.members, func(m transport.ReplicaID) bool { return m.Node() == id })
					})
					to := wanted[out].Node()
					if away >= 0 && r.IntN(3) > 0 {
						to = p.ids[away]
					}
					wanted[out] = transport.Replica(to, revision)
					p.want(Membership{Wanted: wanted, Revision: revision})
					for range 1 + r.IntN(3) {
						time.Sleep(time.Duration(r.IntN(900)) * time.Millisecond)
						victim := p.ids[r.IntN(len(p.ids))]
						if g := p.leader(queueA); g != nil && r.IntN(3) > 0 {
							victim = g.host.cfg.Local
						}
						p.kill(victim)
						time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
						p.boot(victim)
						p.follow(victim)
					}
					done = append(done, fmt.Sprintf("%d", round))
					p.put(done[len(done)-1])
					p.settle()
				}
				p.agreeOf(done...)
			})
		})
	}
}

func TestPlanKeepsAQuorum(t *testing.T) {
	voter := func(r transport.ReplicaID) Member { return Member{Node: r.Node(), Replica: r, Voter: true} }
	learner := func(r transport.ReplicaID) Member { return Member{Node: r.Node(), Replica: r} }
	three := []Member{voter("a"), voter("b"), voter("c")}
	for name, tc := range map[string]struct {
		members []Member
		wanted  []transport.ReplicaID
		dead    []transport.NodeID
		behind  bool
		want    change
	}{
		"as wanted":                      {three, []transport.ReplicaID{"c", "b", "a"}, nil, false, change{reached: true}},
		"add first":                      {three, []transport.ReplicaID{"a", "b", "d#1"}, nil, false, change{kind: changeAdd, replica: "d#1"}},
		"wait for it":                    {append(three[:3:3], learner("d#1")), []transport.ReplicaID{"a", "b", "d#1"}, nil, true, change{}},
		"promote":                        {append(three[:3:3], learner("d#1")), []transport.ReplicaID{"a", "b", "d#1"}, nil, false, change{kind: changePromote, replica: "d#1"}},
		"the dead one goes before":       {append(three[:3:3], learner("d#1")), []transport.ReplicaID{"a", "b", "d#1"}, []transport.NodeID{"c"}, false, change{kind: changeRemove, replica: "c"}},
		"then remove":                    {append(three[:3:3], voter("d#1")), []transport.ReplicaID{"a", "b", "d#1"}, nil, false, change{kind: changeRemove, replica: "c"}},
		"not into a lost quorum":         {append(three[:3:3], voter("d#1")), []transport.ReplicaID{"a", "b", "d#1"}, []transport.NodeID{"b", "d"}, false, change{}},
		"a dropped learner":              {append(three[:3:3], learner("e#1")), []transport.ReplicaID{"a", "b", "d#2"}, nil, false, change{kind: changeRemove, replica: "e#1"}},
		"the former life first":          {three, []transport.ReplicaID{"a", "b", "c#4"}, nil, false, change{kind: changeRemove, replica: "c"}},
		"not if the others are too few":  {three, []transport.ReplicaID{"a", "b", "c#4"}, []transport.NodeID{"b"}, false, change{}},
		"a leader leaves":                {append(three[:3:3], voter("d#1")), []transport.ReplicaID{"b", "c", "d#1"}, []transport.NodeID{"b"}, false, change{kind: changeLeave, replica: "c"}},
		"a leader with nobody else does": {[]Member{voter("a")}, []transport.ReplicaID{"a#2"}, nil, false, change{}},
	} {
		got := plan(tc.members, tc.wanted, "a", situation{
			alive:   func(r transport.ReplicaID) bool { return !slices.Contains(tc.dead, r.Node()) },
			keepsUp: func(transport.ReplicaID) bool { return !tc.behind },
		})
		if got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestFounderComesLate plans other members before one of the founders has ever started its replica, and before any has: those that start found
// the group as it was declared, the plan is reached, and the one that comes when it has no part any more disturbs nobody.
func TestFounderComesLate(t *testing.T) {
	var reached atomic.Uint64
	bubble(t, 4, func(cfg *HostConfig) {
		cfg.OnReached = func(_ context.Context, _ transport.GroupID, revision uint64) { reached.Store(revision) }
	}, func(t *testing.T, c *memCluster) {
		wanted := Membership{Wanted: []transport.ReplicaID{"n0", "n1", "n3#9"}, Revision: 9}
		spec := Spec{ID: queueA, Members: c.ids[:3], Preferred: "n2", Bootstrap: true}
		c.nodes["n0"].start(t, spec).Want(&wanted)
		c.nodes["n1"].start(t, spec).Want(&wanted)
		added := spec
		added.Generation = 9
		c.nodes["n3"].start(t, added).Want(&wanted)
		waitFor(t, time.Minute, "the plan is not reached", func() bool { return reached.Load() == 9 })
		lead := c.waitLeader(queueA, time.Minute)
		_, term, _ := lead.Leader()
		if _, err := propose(lead, "a"); err != nil {
			t.Fatal(err)
		}
		c.nodes["n2"].start(t, spec) // its catalog is old
		time.Sleep(2 * time.Minute)
		if _, now, _ := lead.Leader(); now != term || !lead.IsLeader() {
			t.Errorf("the leader of term %d has lost its place, term %d", term, now)
		}
		if err := c.nodes["n2"].host.Delete(queueA); err != nil {
			t.Fatal(err)
		}
		delete(c.nodes["n2"].machines, queueA)
		for _, id := range []transport.NodeID{"n0", "n1", "n3"} {
			waitFor(t, time.Minute, string(id)+" lacks something", func() bool { return slices.Equal(c.nodes[id].machines[queueA].all(), []string{"a"}) })
		}
	})
}

// TestReachedIsSaidByALeader: one that was cut off and does not know that it was deposed finds the members as they are wanted, and says nothing: others
// may have changed them by a plan that it has not heard of (ADR 31).
func TestReachedIsSaidByALeader(t *testing.T) {
	withPlan(t, func(t *testing.T, p *planned) {
		g := p.leader(queueA)
		p.net.isolate(g.host.cfg.Local, true)
		g.Want(&Membership{Wanted: []transport.ReplicaID{"n0", "n1", "n2"}, Revision: 12})
		time.Sleep(20 * time.Second)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.reached != 0 {
			t.Errorf("told of %d", p.reached)
		}
	})
}

// TestNewestPlanIsAskedForInEachTerm: that a plan was the newest one in an earlier term says nothing once others have led.
func TestNewestPlanIsAskedForInEachTerm(t *testing.T) {
	var newest atomic.Uint64
	withPlanTuned(t, func(cfg *HostConfig) {
		cfg.Current = func(_ context.Context, _ transport.GroupID, revision uint64) (bool, error) {
			return revision == newest.Load(), nil
		}
	}, func(t *testing.T, p *planned) {
		newest.Store(9)
		g := p.leader(queueA)
		plan := Membership{Wanted: []transport.ReplicaID{"n0", "n1", "n3#9"}, Revision: 9}
		g.Want(&plan)
		waitFor(t, time.Minute, "no learner is added", func() bool { return len(g.Members()) == 4 })
		newest.Store(10)
		first := g.host.cfg.Local
		next := slices.DeleteFunc(slices.Clone(p.ids[:3]), func(id transport.NodeID) bool { return id == first })[0]
		for _, to := range []transport.NodeID{next, first} {
			if err := p.leader(queueA).TransferTo(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			waitFor(t, time.Minute, "the leadership is not moved", func() bool {
				now := p.leader(queueA)
				return now != nil && now.host.cfg.Local == to
			})
		}
		p.nodes["n3"].start(t, Spec{ID: queueA, Generation: 9, Members: p.ids[:3], Preferred: "n0"})
		time.Sleep(20 * time.Second)
		for _, m := range g.Members() {
			if m.Node == "n3" && m.Voter {
				t.Error("a plan that is the newest no more was carried out")
			}
		}
	})
}
