package group

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// A group whose first term is given leads at once, by votes that nobody is asked for.
func TestFirstLeaderIsNotElected(t *testing.T) {
	for first, votes := range map[transport.NodeID]int64{"": 2, "n0": 0} {
		t.Run(string(first), func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
				c.found(Spec{ID: queueA, Preferred: "n0", FirstLeader: first, Young: true})
				g := c.waitLeader(queueA, time.Second)
				if leader, term, _ := g.Leader(); leader != "n0" || term != firstTerm {
					t.Errorf("%s leads in term %d", leader, term)
				}
				if _, err := propose(g, "a"); err != nil {
					t.Fatal(err)
				}
				c.agree(queueA, []string{"a"})
				if n := c.net.votes.Load(); n != votes {
					t.Errorf("%d votes were asked for, want %d", n, votes)
				}
				// What comes after the first term is an election as ever.
				c.kill("n0")
				g = c.waitLeader(queueA, 10*time.Second, "n0")
				if _, term, _ := g.Leader(); term <= firstTerm {
					t.Errorf("another leads in term %d", term)
				}
				c.boot("n0").start(t, Spec{ID: queueA, Members: c.ids, Preferred: "n0", FirstLeader: first, Bootstrap: true})
				if _, err := propose(c.waitLeader(queueA, time.Second), "b"); err != nil {
					t.Fatal(err)
				}
				c.agree(queueA, []string{"a", "b"})
			})
		})
	}
}

// The others do not wait for the first leader for ever. It may still take its term when they are in a later one, and then commits nothing
// and takes over what they have. (It has no lease either: that needs appends accepted in its term.)
func TestFirstLeaderComesLate(t *testing.T) {
	bubble(t, 3, nil, func(t *testing.T, c *memCluster) {
		s := Spec{ID: queueA, Members: c.ids, Preferred: "n0", FirstLeader: "n0", Bootstrap: true}
		for _, id := range c.ids[1:] {
			c.nodes[id].start(t, s)
		}
		g := c.waitLeader(queueA, 30*time.Second)
		if _, term, _ := g.Leader(); term <= firstTerm {
			t.Errorf("%s leads in term %d, which is another's", g.host.cfg.Local, term)
		}
		if _, err := propose(g, "a"); err != nil {
			t.Fatal(err)
		}
		c.net.isolate("n0", true)
		time.Sleep(time.Second) // what is on its way to it
		late := c.nodes["n0"].start(t, s)
		if err := late.running.Load().wire.InjectTimeoutNow(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, time.Second, "the first leader does not take its term", late.IsLeader)
		lost := confirm(late, "lost")
		time.Sleep(time.Second)
		c.net.isolate("n0", false)
		if err := <-lost; !errors.Is(err, ErrUnknown) {
			t.Errorf("proposed to a leader without followers: %v", err)
		}
		if _, err := propose(c.waitLeader(queueA, 30*time.Second), "b"); err != nil {
			t.Fatal(err)
		}
		c.agree(queueA, []string{"a", "b"})
	})
}

// Nothing of the first term leaves its leader before its disk has that it has stood in it: if it forgot, it would lead in the same term again, with
// another log.
func TestFirstTermIsDurable(t *testing.T) {
	open, disks := heldStorage(t)
	c := newRealCluster(t, open, QueueProfile())
	s := Spec{ID: queueA, Members: c.ids, Preferred: c.ids[0], FirstLeader: c.ids[0], Bootstrap: true, Young: true}
	disks[c.ids[0]].mu.Lock()
	var others []*Group
	for _, id := range c.ids[1:] {
		c.nodes[id].start(t, s)
		g, _ := c.nodes[id].host.Group(queueA)
		others = append(others, g)
	}
	c.nodes[c.ids[0]].start(t, s)
	g, _ := c.nodes[c.ids[0]].host.Group(queueA)
	time.Sleep(100 * time.Millisecond)
	for _, o := range others {
		if last := o.replica().LastIndex(); last != 1 || g.IsLeader() {
			t.Errorf("%s has entries up to %d while the vote is on its way to the disk; leader: %t", o.host.cfg.Local, last, g.IsLeader())
		}
	}
	disks[c.ids[0]].mu.Unlock()
	waitFor(t, time.Minute, "it does not lead", g.IsLeader)
	if _, term, _ := g.Leader(); term != firstTerm {
		t.Errorf("it leads in term %d", term)
	}
	confirmed(t, "in the first term", confirm(g, "a"))
	if term, err := g.log.GetUint64([]byte("LastVoteTerm")); err != nil || term != firstTerm {
		t.Errorf("it has voted in term %d: %v", term, err)
	}
	for _, o := range others {
		if _, err := o.log.GetUint64([]byte("LastVoteTerm")); err == nil {
			t.Errorf("%s has voted", o.host.cfg.Local)
		}
	}
}

// Votes are given for one term, to one member, with the log of the founding.
func TestVotesByBirth(t *testing.T) {
	ask := raft.RequestVoteRequest{Term: firstTerm, LastLogIndex: 1, LastLogTerm: foundingTerm}
	mine := Spec{FirstLeader: "n0", Bootstrap: true}
	for _, c := range []struct {
		name string
		spec Spec
		ask  func(*raft.RequestVoteRequest)
		want bool
	}{
		{"the first leader's", mine, func(*raft.RequestVoteRequest) {}, true},
		{"a later term", mine, func(a *raft.RequestVoteRequest) { a.Term++ }, false},
		{"more than the founding", mine, func(a *raft.RequestVoteRequest) { a.LastLogIndex++ }, false},
		{"another founding", mine, func(a *raft.RequestVoteRequest) { a.LastLogTerm++ }, false},
		{"another member's", Spec{FirstLeader: "n1", Bootstrap: true}, func(*raft.RequestVoteRequest) {}, false},
		{"nobody's", Spec{Bootstrap: true}, func(*raft.RequestVoteRequest) {}, false},
		{"of a later generation", Spec{FirstLeader: "n0"}, func(*raft.RequestVoteRequest) {}, false},
	} {
		g, a := &Group{host: &Host{cfg: HostConfig{Local: "n0"}}, spec: c.spec}, ask
		if c.ask(&a); g.isGiven(&a) != c.want {
			t.Errorf("%s: %t", c.name, !c.want)
		}
	}
	for node, want := range map[transport.NodeID]uint64{"n0": foundingTerm, "n1": firstTerm} {
		if got := mine.bornIn(node); got != want {
			t.Errorf("%s is born in term %d, want %d", node, got, want)
		}
	}
	if got := (&Spec{}).bornIn("n1"); got != foundingTerm {
		t.Errorf("without a first leader a replica is born in term %d", got)
	}
}
