package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/transport"
)

// unregistered starts n founding members at the newest level.
func unregistered(t *testing.T, n int) *nodes {
	t.Helper()
	c := newNodesOf(t, n, &nodes{program: func(m *transport.Config, cfg *catalog.Config) {
		m.Level = 2
		cfg.DownAfter, cfg.VoterReplaceAfter = 100*time.Millisecond, time.Hour
	}})
	c.ready()
	c.untilLevel(2)
	return c
}

// levelled is unregistered with all registered.
func levelled(t *testing.T, n int) *nodes {
	t.Helper()
	c := unregistered(t, n)
	for _, n := range c.all {
		propose(t, n, &catalog.RegisterNode{ID: n.id})
	}
	return c
}

// TestSurplusVotersAreDemoted shrinks a cluster from seven nodes to three: of its five voters three are left, and the catalog goes on all the
// time. Nodes leave in the order that is worst: the leader first.
func TestSurplusVotersAreDemoted(t *testing.T) {
	c := levelled(t, 7)
	c.untilVoters(5)
	for left := 7; left > 3; left-- {
		victim := c.leader()
		propose(t, victim, &catalog.SetNodeState{ID: victim.id, State: catalog.NodeLeaving})
		want := 3
		if left-1 >= 5 {
			want = 5
		}
		until(t, "it has no vote", func() bool {
			l := c.leader()
			return l != victim && !slices.Contains(l.catalog.Voters(), victim.id) && len(l.catalog.Voters()) == want
		})
		propose(t, victim, &catalog.ForgetNode{ID: victim.id}) // through any node
		until(t, "it is told", func() bool { return victim.catalog.View().Forgotten(victim.id) })
		victim.stop(t)
		delete(c.all, victim.id)
		for _, n := range c.all {
			n.catalog.NodeDead(victim.id)
			propose(t, n, &catalog.PutVhost{Vhost: catalog.Vhost{Name: string(victim.id) + string(n.id)}})
		}
	}
	if v := c.leader().catalog.Voters(); len(v) != 3 {
		t.Errorf("voters are %v", v)
	}
	// Any one of them can go.
	c.kill(c.leader().id)
	propose(t, c.leader(), &catalog.PutVhost{Vhost: catalog.Vhost{Name: "after"}})
}

// TestSurplusVoterThatIsNeededStays: of five voters two are dead, and one of these is forgotten, so that three votes are enough. It is the other dead one that loses its
// own, although it was not down for long: of three voters with one dead, both others would be needed.
func TestSurplusVoterThatIsNeededStays(t *testing.T) {
	c := levelled(t, 5)
	c.untilVoters(5)
	view, voters := c.leader().catalog.View(), c.leader().catalog.Voters()
	slices.SortFunc(voters, func(a, b catalog.NodeID) int { return int(view.Node(a).Number) - int(view.Node(b).Number) })
	for _, id := range voters[:2] { // the youngest is none of them
		c.kill(id)
	}
	propose(t, c.leader(), &catalog.ForgetNode{ID: voters[0]})
	c.untilVoters(3)
	c.kill(c.leader().id)
	propose(t, c.leader(), &catalog.PutVhost{Vhost: catalog.Vhost{Name: "after"}})
}

// TestLeavingVoterIsReplacedFirst: one of the voters leaves, and there is one node without a vote: it votes before the other one loses its vote. One that is called back
// may vote and lead again.
func TestLeavingVoterIsReplacedFirst(t *testing.T) {
	for all, want := range map[int]int{4: 3, 6: 5} {
		t.Run(fmt.Sprint(all), func(t *testing.T) {
			c := levelled(t, all)
			c.untilVoters(want)
			victim := c.leader()
			least := want
			propose(t, victim, &catalog.SetNodeState{ID: victim.id, State: catalog.NodeLeaving})
			until(t, "another one votes", func() bool {
				v := c.leader().catalog.Voters()
				least = min(least, len(v))
				return len(v) == want && !slices.Contains(v, victim.id)
			})
			if least < want {
				t.Errorf("there were %d voters for a while", least)
			}
			propose(t, victim, &catalog.SetNodeState{ID: victim.id, State: catalog.NodeRegular})
			// It is the only one that can take the place of another that leaves.
			propose(t, c.leader(), &catalog.SetNodeState{ID: c.leader().catalog.Voters()[0], State: catalog.NodeLeaving})
			until(t, "it votes again", func() bool { return slices.Contains(c.leader().catalog.Voters(), victim.id) })
		})
	}
}

// TestLastNodesLeave: with three nodes a leaving one loses its vote, although nobody can take its place; the only one that stays keeps its own.
func TestLastNodesLeave(t *testing.T) {
	c := levelled(t, 3)
	for left := 3; left > 1; left-- {
		victim := c.leader()
		propose(t, victim, &catalog.SetNodeState{ID: victim.id, State: catalog.NodeLeaving})
		until(t, "it has no vote", func() bool {
			return c.leader() != victim && len(c.leader().catalog.Voters()) == left-1
		})
	}
	last := c.leader()
	propose(t, last, &catalog.SetNodeState{ID: last.id, State: catalog.NodeLeaving})
	time.Sleep(1500 * time.Millisecond)
	propose(t, last, &catalog.PutVhost{Vhost: catalog.Vhost{Name: "still there"}})
	if v := last.catalog.Voters(); len(v) != 1 {
		t.Errorf("voters are %v", v)
	}
}

// TestForgottenIsTold: a storage that was forgotten while it was away is told so, founder or not, and so is one that was replaced; others are not.
func TestForgottenIsTold(t *testing.T) {
	c := levelled(t, 4)
	victim := c.follower()
	ids := []transport.NodeID{}
	for id := range c.all {
		ids = append(ids, id)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := victim.catalog.AskBelongs(ctx, ids); err != nil {
		t.Errorf("a member is told %v", err)
	}
	dir := victim.dir
	c.kill(victim.id)
	propose(t, c.leader(), &catalog.ForgetNode{ID: victim.id})
	until(t, "it is out of the group", func() bool { return !c.leader().catalog.HasServer(victim.id) })
	if !c.leader().catalog.HasServer(c.leader().id) {
		t.Error("the leader is out of its own group")
	}
	back := c.start(victim.id, dir, true)
	until(t, "it is told", func() bool { return errors.Is(back.catalog.AskBelongs(ctx, ids), catalog.ErrForgotten) })
	if err := back.catalog.Join(ctx, func() []transport.NodeID { return ids }); !errors.Is(err, catalog.ErrForgotten) {
		t.Errorf("it joins with %v", err)
	}
	other := c.leader().id
	for id := range c.all {
		if id != back.id && id != c.leader().id {
			other = id
		}
	}
	dir = c.all[other].dir
	c.kill(other)
	name := string(other)[:2]
	twin := c.start(transport.NodeID(name+"/another"), filepath.Join(t.TempDir(), "catalog"), false)
	if err := twin.catalog.Join(ctx, func() []transport.NodeID { return ids }); err != nil {
		t.Fatal(err)
	}
	propose(t, twin, &catalog.RegisterNode{ID: twin.id})
	replaced := c.start(other, dir, true)
	until(t, "it is told", func() bool { return errors.Is(replaced.catalog.AskBelongs(ctx, ids), catalog.ErrForgotten) })
}
