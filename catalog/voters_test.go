package catalog_test

import (
	"context"
	"fmt"
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

// TestDeadVoterIsReplaced kills one of three voters of five nodes, and when another node votes in its place a second one:
// the catalog goes on. Who comes back is not down any more.
func TestDeadVoterIsReplaced(t *testing.T) {
	c := newMortals(t, 5)
	first := c.leader().catalog.Voters()
	if len(first) != 3 {
		t.Fatalf("voters are %v", first)
	}
	var dirs []string
	var gone []transport.NodeID
	for range 2 {
		voters := c.leader().catalog.Voters()
		i := slices.IndexFunc(voters, func(id transport.NodeID) bool { return id != c.leader().id })
		dirs, gone = append(dirs, c.all[voters[i]].dir), append(gone, voters[i])
		c.kill(voters[i])
		until(t, "another one votes", func() bool {
			now := c.leader().catalog.Voters()
			return len(now) == 3 && !slices.Contains(now, voters[i])
		})
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
	if now := c.leader().catalog.Voters(); len(now) != 3 {
		t.Errorf("voters are %v", now)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := back.catalog.ReadIndex(ctx); err != nil {
		t.Error(err)
	}
}

// TestSevenNodesDieOneAfterTheOther kills nodes of seven, always one that votes and does not lead, and the next one when it has been down for long: the
// catalog goes on until two are left. Of five voters three would have to be. Five vote again when five nodes are there.
func TestSevenNodesDieOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := newMortals(t, 7)
	dirs := map[transport.NodeID]string{}
	for left := 6; left >= 2; left-- {
		voters := c.leader().catalog.Voters()
		victim := voters[slices.IndexFunc(voters, func(id transport.NodeID) bool { return id != c.leader().id })]
		dirs[victim] = c.all[victim].dir
		c.kill(victim)
		for _, n := range c.all {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, err := n.catalog.Propose(ctx, &catalog.PutUser{User: auth.User{Name: fmt.Sprint("left-", left)}})
			cancel()
			if err != nil {
				t.Fatalf("%d nodes are left: %v", left, err)
			}
		}
		if left == 2 {
			break // nobody can take the place of the last one
		}
		want := 5
		if left < 5 {
			want = 3
		}
		until(t, fmt.Sprintf("%d vote, all of them alive", want), func() bool {
			now := c.leader().catalog.Voters()
			return len(now) == want && !slices.ContainsFunc(now, func(id transport.NodeID) bool { return c.all[id] == nil })
		})
	}
	for id, dir := range dirs {
		if len(c.all) < 5 {
			c.start(id, dir, true)
		}
	}
	until(t, "five vote again", func() bool { return len(c.leader().catalog.Voters()) == 5 })
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
