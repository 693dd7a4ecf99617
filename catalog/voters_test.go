package catalog_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// newMortals are n nodes whose votes others get soon after they have died.
func newMortals(t *testing.T, n int) *nodes {
	t.Helper()
	c := newNodesOf(t, n, &nodes{program: func(m *transport.Config, cfg *catalog.Config) {
		m.Level = 2
		cfg.DownAfter, cfg.VoterReplaceAfter = 100*time.Millisecond, 300*time.Millisecond
	}})
	c.ready()
	c.untilLevel(2)
	for _, n := range c.all {
		propose(t, n, &catalog.RegisterNode{ID: n.id})
	}
	return c
}

// TestDeadVoterIsReplaced kills one of five voters of six nodes, and when the sixth node votes in its place a second one: three of the four that are left
// vote, and the catalog goes on. Who comes back is not down any more.
func TestDeadVoterIsReplaced(t *testing.T) {
	c := newMortals(t, 6)
	c.untilVoters(5)
	var dirs []string
	var gone []transport.NodeID
	for _, want := range []int{5, 3} {
		voters := c.leader().catalog.Voters()
		i := slices.IndexFunc(voters, func(id transport.NodeID) bool { return id != c.leader().id })
		dirs, gone = append(dirs, c.all[voters[i]].dir), append(gone, voters[i])
		c.kill(voters[i])
		c.untilVoters(want)
		if n := c.leader().catalog.View().Node(voters[i]); n.Down == 0 {
			t.Errorf("%s is not down", n.ID)
		}
	}
	for _, n := range c.all {
		propose(t, n, &catalog.PutUser{User: auth.User{Name: "u-" + string(n.id[:2])}})
	}
	// Back without a registration, as after a cut: what was noted is taken back.
	back := c.start(gone[0], dirs[0], true)
	until(t, "it is not down", func() bool { return c.leader().catalog.View().Node(back.id).Down == 0 })
	c.untilVoters(5)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := back.catalog.ReadIndex(ctx); err != nil {
		t.Error(err)
	}
}

// untilVoters waits until so many nodes vote, all of them alive.
func (c *nodes) untilVoters(n int) {
	c.t.Helper()
	until(c.t, fmt.Sprintf("%d vote, all of them alive", n), func() bool {
		now := c.leader().catalog.Voters()
		return len(now) == n && !slices.ContainsFunc(now, func(id transport.NodeID) bool { return c.all[id] == nil })
	})
}

// declares checks that the catalog takes a command from each node.
func (c *nodes) declares(name string) {
	c.t.Helper()
	for _, n := range c.all {
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		_, err := n.catalog.Propose(ctx, &catalog.PutUser{User: auth.User{Name: name}})
		cancel()
		if err != nil {
			c.t.Fatalf("%s, at %s: %v", name, n.id, err)
		}
	}
}

// TestNodesDieOneAfterTheOther kills nodes of five and of seven, always one that votes and does not lead, and the next one when it has been down for
// long: the catalog goes on until two are left. Of five voters three would have to be. Five vote again when five nodes are there.
func TestNodesDieOneAfterTheOther(t *testing.T) {
	for _, all := range []int{5, 7} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			t.Parallel()
			c := newMortals(t, all)
			c.untilVoters(5)
			dirs := map[transport.NodeID]string{}
			for left := all - 1; left >= 2; left-- {
				voters := c.leader().catalog.Voters()
				victim := voters[slices.IndexFunc(voters, func(id transport.NodeID) bool { return id != c.leader().id })]
				dirs[victim] = c.all[victim].dir
				c.kill(victim)
				c.declares(fmt.Sprint("left-", left))
				switch {
				case left == 2: // nobody can take the place of the last one
				case left < 5:
					c.untilVoters(3)
				default:
					c.untilVoters(5)
				}
			}
			for id, dir := range dirs {
				if len(c.all) < 5 {
					c.start(id, dir, true)
				}
			}
			c.untilVoters(5)
		})
	}
}

// TestAnyTwoOfFiveDie kills each pair of five nodes in turn, at once: the catalog goes on, and so it does with both back.
func TestAnyTwoOfFiveDie(t *testing.T) {
	c := levelled(t, 5)
	c.untilVoters(5)
	for i, one := range c.ids {
		for _, two := range c.ids[i+1:] {
			pair := []*node{c.all[one], c.all[two]}
			for _, n := range pair {
				c.kill(n.id)
			}
			c.declares(fmt.Sprintf("without %.2s and %.2s", one, two))
			for _, n := range pair {
				c.start(n.id, n.dir, true)
			}
			c.ready()
			c.declares(fmt.Sprintf("with %.2s and %.2s", one, two))
		}
	}
}

// TestFourDoNotVoteForLong: of five nodes one is under maintenance when the cluster has grown from three, so that four could vote: three do, and five when it is over.
func TestFourDoNotVoteForLong(t *testing.T) {
	c := levelled(t, 3)
	for i := range 2 {
		n := c.start(nodeID(4+i), filepath.Join(t.TempDir(), "catalog"), false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := n.catalog.Join(ctx, func() []transport.NodeID { return c.ids })
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		propose(t, n, &catalog.RegisterNode{ID: n.id})
		if i == 0 {
			propose(t, n, &catalog.SetNodeState{ID: n.id, State: catalog.NodeDraining})
		}
	}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if v := c.leader().catalog.Voters(); len(v) != 3 {
			t.Fatalf("voters are %v", v)
		}
	}
	propose(t, c.leader(), &catalog.SetNodeState{ID: nodeID(4), State: catalog.NodeRegular})
	c.untilVoters(5)
	// One leaves: the step from five to three does not end half way.
	propose(t, c.leader(), &catalog.SetNodeState{ID: nodeID(5), State: catalog.NodeLeaving})
	c.untilVoters(3)
}

// TestVotesAreSpreadOverZones: when five voters in three zones become three, each zone keeps a vote, whoever registered last.
func TestVotesAreSpreadOverZones(t *testing.T) {
	c := unregistered(t, 5)
	zones := map[transport.NodeID]string{}
	for i, zone := range []string{"a", "a", "b", "b", "c"} { // in this order: the last number is the only one of its zone
		id := c.ids[i]
		zones[id] = zone
		propose(t, c.all[id], &catalog.RegisterNode{ID: id})
		propose(t, c.all[id], &catalog.NodeAbout{ID: id, Incarnation: c.all[id].catalog.View().Node(id).Incarnation, Zone: zone})
	}
	c.untilVoters(5)
	victim := c.ids[0]
	if c.leader().id == victim {
		victim = c.ids[1]
	}
	propose(t, c.leader(), &catalog.SetNodeState{ID: victim, State: catalog.NodeLeaving})
	c.untilVoters(3)
	var in []string
	for _, id := range c.leader().catalog.Voters() {
		in = append(in, zones[id])
	}
	if slices.Sort(in); !slices.Equal(in, []string{"a", "b", "c"}) {
		t.Errorf("the votes are in the zones %v", in)
	}
}

// TestOneAnswerIsNoReturn has a node answer pings that the failure detector does not take for its return, as one does that ends for good just then: it
// is noted as down all the same, until the detector finds it alive.
func TestOneAnswerIsNoReturn(t *testing.T) {
	var dead atomic.Value // transport.NodeID
	dead.Store(transport.NodeID(""))
	c := newNodesOf(t, 3, &nodes{program: func(m *transport.Config, cfg *catalog.Config) {
		m.Level = 2
		cfg.DownAfter = time.Second // some pings are answered in that time
		cfg.Dead = func(id transport.NodeID) bool { return id == dead.Load() }
	}})
	c.ready()
	c.untilLevel(2)
	for _, n := range c.all {
		propose(t, n, &catalog.RegisterNode{ID: n.id})
	}
	victim := c.follower().id
	dead.Store(victim)
	for _, n := range c.all {
		if n.id != victim {
			n.catalog.NodeDead(victim)
		}
	}
	until(t, "it is down", func() bool { return c.leader().catalog.View().Node(victim).Down != 0 })
	dead.Store(transport.NodeID(""))
	until(t, "it is not down any more", func() bool { return c.leader().catalog.View().Node(victim).Down == 0 })
}

// TestVoterOfThreeStays does not take the vote of a dead node of three: nobody can take its place.
func TestVoterOfThreeStays(t *testing.T) {
	c := newNodesOf(t, 3, &nodes{program: func(m *transport.Config, cfg *catalog.Config) {
		m.Level = 2
		cfg.DownAfter, cfg.VoterReplaceAfter = 50*time.Millisecond, 100*time.Millisecond
	}})
	c.ready()
	c.untilLevel(2)
	for _, n := range c.all {
		propose(t, n, &catalog.RegisterNode{ID: n.id})
	}
	victim := c.follower().id
	c.kill(victim)
	until(t, "it is down", func() bool { return c.leader().catalog.View().Node(victim).Down != 0 })
	time.Sleep(300 * time.Millisecond)
	if voters := c.leader().catalog.Voters(); len(voters) != 3 || !slices.Contains(voters, victim) {
		t.Errorf("voters are %v", voters)
	}
}

// TestDownByAWrongClock has a leader whose clock is an hour off note that a voter is down: another one votes in its place when it has been dead for long
// enough, whatever the clocks of leaders say, and not before.
func TestDownByAWrongClock(t *testing.T) {
	for _, tc := range []struct {
		name         string
		off, replace time.Duration
		replaced     bool
	}{
		{"an hour behind", -time.Hour, 30 * time.Minute, false},
		{"an hour ahead", time.Hour, 300 * time.Millisecond, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newNodesOf(t, 5, &nodes{program: func(m *transport.Config, cfg *catalog.Config) {
				m.Level = 2
				cfg.DownAfter, cfg.VoterReplaceAfter = time.Hour, tc.replace
			}})
			c.ready()
			c.untilLevel(2)
			for _, n := range c.all {
				propose(t, n, &catalog.RegisterNode{ID: n.id})
			}
			leader := c.leader()
			voters := leader.catalog.Voters()
			victim := voters[slices.IndexFunc(voters, func(id transport.NodeID) bool { return id != leader.id })]
			c.kill(victim)
			n := leader.catalog.View().Node(victim)
			propose(t, leader, &catalog.NodeDown{ID: victim, Incarnation: n.Incarnation, AtMillis: time.Now().Add(tc.off).UnixMilli()})
			replaced := func() bool { return !slices.Contains(c.leader().catalog.Voters(), victim) }
			if tc.replaced {
				until(t, "another one votes", replaced)
				return
			}
			time.Sleep(3 * time.Second)
			if replaced() {
				t.Error("a voter that has just died has lost its vote")
			}
		})
	}
}
