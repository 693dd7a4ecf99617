package group

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// sentAt is a pipeline that takes everything.
type sentAt struct{ raft.AppendPipeline }

func (sentAt) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	return nil, nil
}

// took is how long the pipeline to a follower holds raft back behind a request of so many entries.
func took(g *Group, to transport.NodeID, entries, bytes int) time.Duration {
	args := &raft.AppendEntriesRequest{}
	for i := range entries {
		args.Entries = append(args.Entries, &raft.Log{Index: 1000 + uint64(i), Data: make([]byte, bytes/entries)})
	}
	began := time.Now()
	_, _ = (&pipeline{AppendPipeline: sentAt{}, g: g, to: to}).AppendEntries(args, nil)
	return time.Since(began)
}

// sparesOf lists the followers that are spare for a leader.
func sparesOf(c *memCluster, g *Group) (list []transport.NodeID) {
	for _, id := range c.ids {
		if id != g.host.cfg.Local && g.isSpare(id) {
			list = append(list, id)
		}
	}
	return list
}

func TestOneOfTwoFollowersIsSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		first := map[transport.NodeID]int{}
		for id := queueA; id < queueA+10; id++ {
			c.found(Spec{ID: id, Preferred: c.ids[0]})
			spares := sparesOf(c, c.waitLeader(id, 10*time.Second))
			if len(spares) != 1 {
				t.Fatalf("group %d: %v are spare, want one", id, spares)
			}
			first[spares[0]]++
		}
		if len(first) != 2 {
			t.Errorf("spare are %v in ten groups, want both followers", first)
		}

		g := c.leader(queueA)
		spare := sparesOf(c, g)[0]
		var needed transport.NodeID
		for _, id := range c.ids {
			if id != spare && id != g.host.cfg.Local {
				needed = id
			}
		}
		for what, x := range map[string]struct {
			to             transport.NodeID
			entries, bytes int
			want           time.Duration
		}{
			"spare":            {spare, 1, 1200, spareGap},
			"needed":           {needed, 1, 1200, 0},
			"no entries":       {spare, 0, 0, 0},
			"a large frame":    {spare, 2, 40 << 10, 0},
			"many entries":     {spare, 64, 6400, 0},
			"a few, not large": {spare, 4, 4800, spareGap},
		} {
			if got := took(g, x.to, x.entries, x.bytes); got != x.want {
				t.Errorf("%s: held back %v, want %v", what, got, x.want)
			}
		}

		c.net.change(func() { c.net.cut[pair(needed, g.host.cfg.Local)] = true })
		if spares := sparesOf(c, g); len(spares) != 0 {
			t.Errorf("%v are spare without a link to %s", spares, needed)
		}
	})
}

// The spare follower's entries gather for longer while the others commit them, and no longer than before once they do not.
func TestASpareFollowerWaitsWhileTheOthersCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		c.found(Spec{ID: queueA, Preferred: c.ids[0]})
		g := c.waitLeader(queueA, 10*time.Second)
		if _, err := propose(g, "first"); err != nil {
			t.Fatal(err)
		}
		c.net.change(func() { c.net.delay = 100 * time.Microsecond })
		freeze := func(frozen bool) {
			c.net.change(func() {
				for _, id := range c.ids {
					c.nodes[id].link.frozen = frozen && id != g.host.cfg.Local
				}
			})
		}
		p := &pipeline{AppendPipeline: sentAt{}, g: g, to: sparesOf(c, g)[0]}
		waits := func(gap time.Duration, stopAfter time.Duration) time.Duration {
			synctest.Wait()
			sent, began := g.replica().LastIndex(), time.Now()
			var proposer sync.WaitGroup
			proposer.Go(func() {
				for i := 0; gap > 0 && i < 40; i++ {
					g.Propose([]byte("more"), nil)
					time.Sleep(gap)
				}
			})
			if stopAfter > 0 {
				proposer.Go(func() { time.Sleep(stopAfter); freeze(true) })
			}
			p.wait(sent)
			took := time.Since(began)
			proposer.Wait()
			freeze(false)
			time.Sleep(5 * time.Second) // everything is committed
			return took
		}
		for _, x := range []struct {
			what           string
			gap, stopAfter time.Duration
			want           time.Duration
		}{
			{"one entry each millisecond", time.Millisecond, 0, spareLooks * spareGap},
			{"nothing more", 0, 0, spareGap},
			{"entries in crowds", 100 * time.Microsecond, 0, spareGap},
			{"the needed follower stops at once", time.Millisecond, time.Microsecond, spareGap},
			{"the needed follower stops later", time.Millisecond, 4 * time.Millisecond, spareLooks * spareGap},
			{"the needed follower stops behind the first look", time.Millisecond, 1500 * time.Microsecond, 2 * spareGap},
		} {
			if took := waits(x.gap, x.stopAfter); took != x.want {
				t.Errorf("%s: held back %v, want %v", x.what, took, x.want)
			}
		}
	})
}

// A follower that stays behind becomes the spare one.
func TestSlowFollowerBecomesSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newMemCluster(t, 3, nil)
		defer c.close()
		c.found(Spec{ID: queueA, Preferred: c.ids[0]})
		g := c.waitLeader(queueA, 10*time.Second)
		if _, err := propose(g, "first"); err != nil {
			t.Fatal(err)
		}
		spare := sparesOf(c, g)[0]
		c.net.change(func() {
			for _, id := range c.ids {
				c.nodes[id].link.frozen = id != g.host.cfg.Local
			}
		})
		for range 3 {
			g.Propose([]byte("more"), nil)
		}
		p := &pipeline{AppendPipeline: sentAt{}, g: g, to: spare}
		for range spareStrikes {
			if now := sparesOf(c, g)[0]; now != spare {
				t.Fatalf("%s is spare too early", now)
			}
			p.wait(g.replica().CommitIndex())
		}
		if now := sparesOf(c, g)[0]; now == spare {
			t.Errorf("%s is spare still", now)
		}
		c.net.change(func() {
			for _, id := range c.ids {
				c.nodes[id].link.frozen = false
			}
		})
	})
}

// What was confirmed while a follower was behind outlives the leader.
func TestNothingIsLostWithASpareFollower(t *testing.T) {
	c := newRealCluster(t, diskStorage(t), eager())
	const groups, each = 6, 40
	c.found(groups)
	var wg sync.WaitGroup
	confirmed := make([]int, groups)
	victim := c.ids[0]
	for i := range groups {
		var g *Group
		for _, n := range c.nodes {
			if have, ok := n.host.Group(queueA + transport.GroupID(i)); ok && have.IsLeader() {
				g = have
			}
		}
		if g == nil {
			t.Fatalf("nobody leads group %d", i)
		}
		wg.Go(func() {
			for n := range each {
				if _, err := propose(g, fmt.Sprint("entry", n)); err != nil {
					t.Errorf("group %d: %v", i, err)
					return
				}
				confirmed[i]++
			}
		})
	}
	wg.Wait()
	// The spare followers may lack the newest entries now.
	n := c.kill(victim)
	c.commitAll(c.every(groups), "last", 60*time.Second)
	n.close(t)
	for i := range groups {
		for _, n := range c.nodes {
			m := n.machines[queueA+transport.GroupID(i)]
			has := func() (entries int, last bool) {
				for _, text := range m.all() {
					if text == fmt.Sprint("entry", entries) {
						entries++
					}
					last = last || text == "last"
				}
				return entries, last
			}
			waitFor(t, time.Minute, fmt.Sprintf("group %d on %s does not come to its end", i, n.id), func() bool { _, last := has(); return last })
			if got, _ := has(); got != confirmed[i] {
				t.Errorf("group %d on %s has %d of %d confirmed entries", i, n.id, got, confirmed[i])
			}
		}
	}
}
