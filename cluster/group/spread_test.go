package group

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// silent has raft's own timers say nothing for hours.
func silent(h *HostConfig) {
	h.Profile = QueueProfile()
	h.Profile.Commit = 10 * time.Hour
}

func (c *memCluster) waitCommit(id transport.GroupID, limit time.Duration, what string) {
	c.t.Helper()
	l := c.waitLeader(id, time.Second)
	defer func() {
		if c.t.Failed() {
			for _, n := range c.nodes {
				if g, ok := n.host.Group(id); ok {
					c.t.Logf("%s: %+v commit %d", n.id, g.status(), g.replica().CommitIndex())
				}
			}
		}
	}()
	waitFor(c.t, limit, what, func() bool {
		for _, n := range c.nodes {
			g, ok := n.host.Group(id)
			if !ok || g.replica().CommitIndex() != l.replica().LastIndex() || g.replica().(*raft.Raft).AppliedIndex() != l.replica().LastIndex() {
				return false
			}
		}
		return true
	})
}

// TestFollowersLearnTheLastCommit shows that the followers of a group that becomes idle know soon how far its log is committed, and
// that it is said once.
func TestFollowersLearnTheLastCommit(t *testing.T) {
	bubble(t, 3, silent, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		c.waitCommit(queueA, 3*time.Second, "the first entry is not known to be committed")
		for i := range 3 {
			if _, err := propose(g, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
			c.waitCommit(queueA, 3*time.Second, "the last entry is not known to be committed")
		}
		said := g.host.counters.spread.Load()
		time.Sleep(time.Hour)
		if n := g.host.counters.spread.Load(); n != said || n > 10 {
			t.Errorf("said %d times, then %d more", said, n-said)
		}
		if n := g.host.Stats().Barriers; n != 0 {
			t.Errorf("%d barriers", n)
		}
	})
}

// TestReplicaThatStartsAgainCatchesUp shows that a follower of an idle group that was stopped, killed or cut off has what it missed, and
// what is committed, without a new entry and without raft's timers.
func TestReplicaThatStartsAgainCatchesUp(t *testing.T) {
	for name, away := range map[string]func(c *memCluster) (back func()){
		"killed": func(c *memCluster) func() {
			c.kill("n2")
			return func() { c.boot("n2").start(c.t, Spec{ID: queueA, Members: c.ids, Preferred: "n0"}) }
		},
		"cut off": func(c *memCluster) func() {
			c.net.isolate("n2", true)
			return func() { c.net.isolate("n2", false) }
		},
		"recycled": func(c *memCluster) func() {
			g, _ := c.nodes["n2"].host.Group(queueA)
			if err := g.recycle("test"); err != nil {
				c.t.Fatal(err)
			}
			return func() {}
		},
		"stopped": func(c *memCluster) func() {
			if err := c.nodes["n2"].host.Stop(queueA); err != nil {
				c.t.Fatal(err)
			}
			return func() { c.nodes["n2"].start(c.t, Spec{ID: queueA, Members: c.ids, Preferred: "n0"}) }
		},
	} {
		for _, missed := range []int{0, 5} {
			t.Run(fmt.Sprintf("%s, missed %d", name, missed), func(t *testing.T) {
				bubble(t, 3, silent, func(t *testing.T, c *memCluster) {
					c.found(Spec{ID: queueA, Preferred: "n0"})
					g := c.waitLeader(queueA, time.Second)
					if _, err := propose(g, "before"); err != nil {
						t.Fatal(err)
					}
					c.waitCommit(queueA, 3*time.Second, "not committed everywhere")
					back := away(c)
					for i := range missed {
						if _, err := propose(g, fmt.Sprint("missed", i)); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(10 * time.Minute)
					back()
					c.waitCommit(queueA, 10*time.Second, "the replica that is back has not caught up")
					if !g.IsLeader() {
						t.Error("the leader was deposed")
					}
				})
			})
		}
	}
}

// TestReplicaThatHearsAHeartbeatFirst shows that a replica that is started again learns what is committed whatever comes first, its question who leads or
// one of the heartbeats that the leader goes on trying: it starts at every moment between two of them, which wait for it for a tenth of a second each.
func TestReplicaThatHearsAHeartbeatFirst(t *testing.T) {
	bubble(t, 3, silent, func(t *testing.T, c *memCluster) {
		spec := Spec{ID: queueA, Members: c.ids, Preferred: "n0"}
		c.found(spec)
		g := c.waitLeader(queueA, time.Second)
		if _, err := propose(g, "before"); err != nil {
			t.Fatal(err)
		}
		c.waitCommit(queueA, 3*time.Second, "not committed everywhere")
		const step = 50 * time.Millisecond
		for at := time.Duration(0); at < heartbeatPauseMax+4*step; at += step {
			if err := c.nodes["n2"].host.Stop(queueA); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute + at)
			c.nodes["n2"].start(t, spec)
			c.waitCommit(queueA, 10*time.Second, fmt.Sprintf("started %s later: has not caught up", at))
		}
		if !g.IsLeader() {
			t.Error("the leader was deposed")
		}
	})
}

// TestReplicaThatMissedMuchCatchesUpAtOnce shows that a follower of a busy group, whose replication is pipelined, has all that it missed as
// soon as it is back, although nothing is appended any more. A pipeline of raft's sends one batch for each entry that comes, and so
// had the rest wait for what comes next.
func TestReplicaThatMissedMuchCatchesUpAtOnce(t *testing.T) {
	for _, cut := range []time.Duration{0, 2 * time.Second} {
		t.Run(cut.String(), func(t *testing.T) {
			bubble(t, 3, silent, func(t *testing.T, c *memCluster) {
				c.net.pipelined = true
				c.found(Spec{ID: queueA, Preferred: "n0"})
				g := c.waitLeader(queueA, time.Second)
				entry := strings.Repeat("x", 4096)
				for range 100 { // until it is warm
					if _, err := propose(g, entry); err != nil {
						t.Fatal(err)
					}
				}
				c.waitCommit(queueA, 3*time.Second, "not committed everywhere")
				c.net.isolate("n2", true)
				for range 40 * g.host.cfg.Profile.AppendEntriesMax {
					if _, err := propose(g, entry); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(cut)
				c.net.isolate("n2", false)
				c.waitCommit(queueA, 6*time.Second, "the replica that is back has not caught up")
			})
		})
	}
}

// TestSlowReplicaCatchesUpInTheEnd shows the same for a follower whose pipeline was full when the last entries came.
func TestSlowReplicaCatchesUpInTheEnd(t *testing.T) {
	bubble(t, 3, silent, func(t *testing.T, c *memCluster) {
		c.net.pipelined, c.net.slow = true, map[transport.NodeID]time.Duration{"n2": 200 * time.Millisecond}
		c.found(Spec{ID: queueA, Preferred: "n0"})
		g := c.waitLeader(queueA, time.Second)
		entry := strings.Repeat("x", 4096)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 100 {
					if _, err := propose(g, entry); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		c.waitCommit(queueA, 15*time.Second, "the slow replica has not caught up")
	})
}
