package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

func TestPreferredNodeLeadsFirst(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		began := time.Now()
		c.found(Spec{ID: queueA, Preferred: "n1"})
		g := c.waitLeader(queueA, time.Second)
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("first leader after %v", took)
		}
		if g.host.cfg.Local != "n1" {
			t.Errorf("%s leads, want the preferred n1", g.host.cfg.Local)
		}
	})
}

func TestNextRankLeadsWithoutThePreferred(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.kill("n1")
		c.found(Spec{ID: queueA, Preferred: "n1"})
		c.waitLeader(queueA, 2*time.Second)
	})
}

func TestLeaderKilled(t *testing.T) {
	for _, groups := range []int{1, 100} {
		t.Run(fmt.Sprint(groups), func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
				for i := range groups {
					c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%3]})
				}
				for i := range groups {
					if _, err := propose(c.waitLeader(queueA+transport.GroupID(i), 2*time.Second), "before"); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				c.kill("n0")
				for i := range groups {
					id := queueA + transport.GroupID(i)
					g := c.waitLeader(id, 2*time.Second, "n0")
					if _, err := propose(g, "after"); err != nil {
						t.Fatalf("group %d: %v", id, err)
					}
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("all groups write again after %v, want at most 1s", took)
				}
				for i := range groups {
					c.agree(queueA+transport.GroupID(i), []string{"before", "after"})
				}
			})
		})
	}
}

func TestFrozenLeaderIsReplacedAndStepsDown(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		old := c.waitLeader(queueA, time.Second)
		waitFor(t, time.Second, "no lease", old.HasLease)
		began := time.Now()
		c.net.change(func() { c.nodes["n0"].link.frozen = true })
		waitFor(t, 3*time.Second, "lease outlives the link", func() bool { return !old.HasLease() })
		if took := time.Since(began); took > 2100*time.Millisecond {
			t.Errorf("lease ended after %v", took)
		}
		g := c.waitLeader(queueA, 3*time.Second, "n0")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("new leader after %v", took)
		}
		if _, err := propose(g, "new"); err != nil {
			t.Fatal(err)
		}
		c.net.change(func() { c.nodes["n0"].link.frozen = false })
		waitFor(t, 15*time.Second, "the old leader does not follow", func() bool {
			l, _, _ := old.Leader()
			return l == g.host.cfg.Local
		})
		c.agree(queueA, []string{"new"})
	})
}

func TestRestartOfEveryNode(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		const groups = 20
		for i := range groups {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%3]})
		}
		for i := range groups {
			if _, err := propose(c.waitLeader(queueA+transport.GroupID(i), 2*time.Second), "one"); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range c.ids {
			c.kill(id)
		}
		for _, id := range c.ids {
			c.boot(id)
		}
		began := time.Now()
		for i := range groups {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%3]})
		}
		for i := range groups {
			if _, err := propose(c.waitLeader(queueA+transport.GroupID(i), 3*time.Second), "two"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("all groups write after %v", took)
		}
		for i := range groups {
			c.agree(queueA+transport.GroupID(i), []string{"one", "two"})
		}
	})
}

func TestRestartedFollowerDoesNotDeposeTheLeader(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		_, term, _ := g.Leader()
		c.kill("n2")
		n := c.boot("n2")
		back := n.start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		waitFor(t, time.Second, "the restarted node does not learn the leader", func() bool {
			l, _, ok := back.Leader()
			return ok && l == "n0"
		})
		time.Sleep(time.Minute)
		if l, now, _ := back.Leader(); l != "n0" || now != term {
			t.Errorf("leader %s in term %d, want n0 in %d", l, now, term)
		}
	})
}

func TestLeaderRestartedUnnoticed(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
			t.Fatal(err)
		}
		// The process comes back before anybody has judged it: the others still follow it.
		c.nodes["n0"].close(t)
		c.boot("n0").start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", Bootstrap: true})
		g := c.waitLeader(queueA, 2*time.Second)
		if _, err := propose(g, "b"); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, []string{"a", "b"})
	})
}

func TestTwoSurvivorsInjectedAtOnce(t *testing.T) {
	for _, noFree := range []bool{false, true} {
		t.Run(fmt.Sprintf("recycle=%v", noFree), func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
				c.found(Spec{ID: queueA, Preferred: "n0"})
				if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second) // everybody knows the commit index
				g1, _ := c.nodes["n1"].host.Group(queueA)
				g2, _ := c.nodes["n2"].host.Group(queueA)
				for _, n := range c.nodes {
					n.link.noFree = noFree
				}
				c.net.change(func() { c.nodes["n0"].link.down = true })
				for _, g := range []*Group{g1, g2} { // as if each had found itself the best; nobody is found so while the old leader is believed in
					g.doubt("n0")
				}
				for _, g := range []*Group{g1, g2} {
					e := g.host.elections
					e.want(g, 0)
					e.mu.Lock()
					c := e.campaigns[g]
					c.polling = true
					e.mu.Unlock()
					e.inject(c)
				}
				waitFor(t, 20*time.Millisecond, "no split vote", func() bool {
					return g1.replica().State() == raft.Candidate && g2.replica().State() == raft.Candidate
				})
				began := time.Now()
				g := c.waitLeader(queueA, 4*time.Second, "n0")
				if took := time.Since(began); !noFree && took > 500*time.Millisecond {
					t.Errorf("a leader after %v, although each knows at once that it has lost", took)
				}
				if _, err := propose(g, "b"); err != nil {
					t.Fatal(err)
				}
				var freed, recycled uint64
				for _, n := range c.nodes {
					s := n.host.Stats()
					freed, recycled = freed+s.CandidatesFreed, recycled+s.InstancesRecycled
				}
				if noFree && recycled == 0 || !noFree && (freed == 0 || recycled != 0) {
					t.Errorf("%d freed, %d recycled", freed, recycled)
				}
				c.kill("n0")
				c.agree(queueA, []string{"a", "b"})
			})
		})
	}
}

// The leader's node restarts before anybody misses it, and does not run the group any
// more: damaged, or not its turn yet. The others must not wait for raft's timers.
func TestLeaderRestartsWithoutTheGroup(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		if _, err := propose(c.waitLeader(queueA, time.Second), "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // everybody knows everybody
		c.kill("n0")
		c.boot("n0")
		g := c.waitLeader(queueA, 2*time.Second, "n0")
		if _, err := propose(g, "b"); err != nil {
			t.Fatal(err)
		}
	})
}

// A candidate whose log is too short holds up nobody whose votes it cannot have: it has deposed the leader, and the next one is elected as soon as
// the grace is over.
func TestHopelessCandidateIsNotWaitedFor(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		old := c.waitLeader(queueA, time.Second)
		if _, err := propose(old, "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // everybody knows the commit index
		_, term, _ := old.Leader()
		late, _ := c.nodes["n2"].host.Group(queueA)
		c.net.isolate("n2", true)
		if _, err := propose(old, "b"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c.net.isolate("n2", false)
		if err := late.running.Load().wire.InjectTimeoutNow(); err != nil { // before it can get the second entry
			t.Fatal(err)
		}
		waitFor(t, time.Second, "n2 deposes nobody", func() bool { return old.replica().CurrentTerm() > term })
		if _, err := propose(c.waitLeader(queueA, 2*time.Second, "n2"), "c"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*leaderGrace {
			t.Errorf("a leader after %v, want at most %v", took, 2*leaderGrace)
		}
		c.agree(queueA, []string{"a", "b", "c"})
	})
}

// A leader of a later term than the one in which the search began is not deposed because its node does not pass for living yet, but it is waited
// for only while it has a link, and not for ever.
func TestLeaderElectedSince(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		c.waitLeader(queueA, time.Second)
		g, _ := c.nodes["n1"].host.Group(queueA)
		e := c.nodes["n1"].host.elections
		own := replicaStatus{flags: statusKnown, term: 3}
		follows := func(leader transport.NodeID, term uint64) replicaStatus {
			return replicaStatus{flags: statusKnown, term: term, leader: leader}
		}
		silent := map[transport.NodeID]replicaStatus{"n2": own}
		for _, k := range []struct {
			name    string
			own     replicaStatus
			answers map[transport.NodeID]replicaStatus
			want    bool
		}{
			{"this replica follows it", follows("n0", 3), silent, true},
			{"another one does", own, map[transport.NodeID]replicaStatus{"n2": follows("n0", 3)}, true},
			{"of the same term", follows("n0", 2), silent, false},
			{"of a term that is over", own, map[transport.NodeID]replicaStatus{"n2": follows("n0", 2)}, false},
			{"it has answered", follows("n0", 3), map[transport.NodeID]replicaStatus{"n0": own}, false},
			{"it is this node", own, map[transport.NodeID]replicaStatus{"n2": follows("n1", 3)}, false},
			{"nobody", own, silent, false},
		} {
			if got := e.electedSince(&campaign{g: g, term: 2}, k.own, k.answers); got != k.want {
				t.Errorf("%s: %v, want %v", k.name, got, k.want)
			}
		}
		again := &campaign{g: g, term: 2}
		for i := range heardMax + 1 {
			if got := e.electedSince(again, follows("n0", 3), silent); got != (i < heardMax) {
				t.Errorf("round %d: %v", i, got)
			}
		}
		c.net.change(func() { c.nodes["n0"].link.down = true })
		if e.electedSince(&campaign{g: g, term: 2}, follows("n0", 3), silent) {
			t.Error("it is waited for without a link")
		}
		c.kill("n0")
	})
}
