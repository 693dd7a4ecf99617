package group

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

const testSleepAfter = 2 * time.Minute

func sleepy(c *HostConfig) { c.SleepAfter = testSleepAfter }

// asleep counts the replicas that sleep on the running nodes.
func (c *memCluster) asleep() (n int) {
	for _, node := range c.nodes {
		n += node.host.Stats().Asleep
	}
	return n
}

func (c *memCluster) waitAsleep(want int) {
	c.t.Helper()
	waitFor(c.t, 2*testSleepAfter, fmt.Sprintf("not %d asleep", want), func() bool { return c.asleep() == want })
}

// proposeUntil proposes until it is committed; what was surely not appended is proposed again.
func (c *memCluster) proposeUntil(id transport.GroupID, text string, limit time.Duration) time.Duration {
	c.t.Helper()
	began := time.Now()
	for {
		if g := c.leader(id); g != nil {
			_, err := propose(g, text)
			if err == nil {
				return time.Since(began)
			}
			if !errors.Is(err, ErrNotLeader) {
				c.t.Fatalf("propose: %v", err)
			}
		}
		if time.Since(began) > limit {
			c.t.Fatalf("not committed after %v", limit)
		}
		time.Sleep(time.Millisecond)
	}
}

func raftGoroutines() int {
	b := make([]byte, 16<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "hashicorp/raft.(*Raft)")
}

// TestIdleGroupsSleep shows that groups without work have no Raft instance after a while and say nothing to each other, keep who leads and what
// they have, and work again at once when they are needed.
func TestIdleGroupsSleep(t *testing.T) {
	const groups = 20
	bubble(t, 3, sleepy, func(t *testing.T, c *memCluster) {
		for i := range groups {
			c.found(Spec{ID: queueA + transport.GroupID(i), Preferred: "n1", Young: true})
		}
		for i := range groups {
			c.waitLeader(queueA+transport.GroupID(i), time.Second)
		}
		c.proposeUntil(queueA, "a", time.Second)
		before := raftGoroutines()
		c.waitAsleep(3 * groups)
		if n := raftGoroutines(); n > 0 {
			t.Errorf("%d goroutines of raft, %d before", n, before)
		}
		g := c.leader(queueA)
		_, term, _ := g.Leader()
		if g == nil || g.host.cfg.Local != "n1" {
			t.Fatalf("led by %v", g)
		}
		nothings := c.net.nothings.Load()
		time.Sleep(time.Hour)
		if n := c.net.nothings.Load() - nothings; n > 0 || c.asleep() != 3*groups {
			t.Errorf("%d appends of nothing, %d asleep", n, c.asleep())
		}
		if took := c.proposeUntil(queueA, "b", time.Second); took > 100*time.Millisecond {
			t.Errorf("a group that slept took %v", took)
		}
		if l, now, _ := g.Leader(); l != "n1" || now != term+1 {
			t.Errorf("led by %s in term %d after %d", l, now, term)
		}
		c.agree(queueA, []string{"a", "b"})
		if n := c.asleep(); n != 3*groups-3 {
			t.Errorf("%d asleep", n)
		}
		c.waitAsleep(3 * groups)
	})
}

// TestSleepersAreLedAfterADeath shows that the groups of a dead node are led by others although nobody was awake, sleep without it, and have it
// back when it returns.
func TestSleepersAreLedAfterADeath(t *testing.T) {
	bubble(t, 3, sleepy, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n1", Young: true})
		c.waitLeader(queueA, time.Second)
		c.proposeUntil(queueA, "a", time.Second)
		c.waitAsleep(3)
		c.kill("n1")
		g := c.waitLeader(queueA, 10*time.Second, "n1")
		c.proposeUntil(queueA, "b", time.Second)
		c.waitAsleep(2)
		if l, _, _ := g.Leader(); l != g.host.cfg.Local {
			t.Fatalf("led by %s", l)
		}
		c.boot("n1")
		c.found(Spec{ID: queueA, Preferred: "n1"})
		c.agree(queueA, []string{"a", "b"})
		c.proposeUntil(queueA, "c", time.Second)
		c.agree(queueA, []string{"a", "b", "c"})
		c.waitAsleep(3)
	})
}

// TestReplicaThatStartsAgainSleepsToo shows that a replica whose process is new wakes nobody if it has what the others have.
func TestReplicaThatStartsAgainSleepsToo(t *testing.T) {
	bubble(t, 3, sleepy, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n1", Young: true})
		c.waitLeader(queueA, time.Second)
		c.proposeUntil(queueA, "a", time.Second)
		c.waitAsleep(3)
		c.kill("n2")
		time.Sleep(time.Minute)
		c.boot("n2")
		c.found(Spec{ID: queueA, Preferred: "n1"})
		waitFor(t, 5*time.Second, "it stays awake", func() bool { return c.asleep() == 3 })
		for _, n := range []transport.NodeID{"n0", "n1"} {
			if s := c.nodes[n].host.Stats(); s.Woken != 0 {
				t.Errorf("%s woke %d times", n, s.Woken)
			}
		}
		c.proposeUntil(queueA, "b", time.Second)
		c.agree(queueA, []string{"a", "b"})
	})
}

// TestOwnersKeepGroupsAwake shows that a group stays awake for as long as its owner wants that, and that one which is being stopped, moved or
// asked for a change of its members wakes for it.
func TestOwnersKeepGroupsAwake(t *testing.T) {
	bubble(t, 3, sleepy, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n1", Young: true})
		var may atomic.Bool
		c.waitLeader(queueA, time.Second).RestIf(may.Load)
		time.Sleep(time.Hour)
		if n := c.asleep(); n != 0 {
			t.Fatalf("%d asleep", n)
		}
		may.Store(true)
		c.waitAsleep(3)
		if err := c.leader(queueA).TransferTo(t.Context(), "n2"); err != nil {
			t.Fatal(err)
		}
		c.waitLeader(queueA, time.Second, "n1")
		c.waitAsleep(3)
		g := c.leader(queueA)
		if err := g.RemoveServer(t.Context(), "n0", 0); err != nil {
			t.Fatal(err)
		}
		if n := len(g.Members()); n != 2 {
			t.Errorf("%d members", n)
		}
		if d := c.nodes["n2"].host.Drain(t.Context(), nil); d.Moved != 1 || d.Stayed != 0 {
			t.Errorf("drained %+v", d)
		}
	})
}

// FuzzSleep shows that no question to sleep does harm.
func FuzzSleep(f *testing.F) {
	f.Add([]byte{1, 0, 1, 5, 2, 9})
	f.Add([]byte{1, 1, 2, 5, 2, 9})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, all, err := decodeSleep(b)
		if err == nil && len(all) > len(b) {
			t.Errorf("%d groups of %d bytes", len(all), len(b))
		}
	})
}

// TestSingleNodesSleepersWake: with nobody to ask.
func TestSingleNodesSleepersWake(t *testing.T) {
	bubble(t, 1, sleepy, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n0", Young: true})
		c.waitLeader(queueA, time.Second)
		for i := range 3 {
			if took := c.proposeUntil(queueA, fmt.Sprint(i), time.Second); took > 100*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			c.waitAsleep(1)
		}
		c.agree(queueA, []string{"0", "1", "2"})
	})
}

// TestBusyGroupsAreNotedOnce shows that a group which rests again and again does not pile up where groups wait for sleep.
func TestBusyGroupsAreNotedOnce(t *testing.T) {
	bubble(t, 3, sleepy, func(t *testing.T, c *memCluster) {
		c.found(Spec{ID: queueA, Preferred: "n1", Young: true})
		c.waitLeader(queueA, time.Second)
		s := c.nodes["n1"].host.sleeper
		for i := range 100 {
			c.proposeUntil(queueA, fmt.Sprint(i), time.Second)
			time.Sleep(testSleepAfter / 8)
			s.mu.Lock()
			n := len(s.tires)
			s.mu.Unlock()
			if n > 1 || c.asleep() > 0 {
				t.Fatalf("noted %d times, %d asleep", n, c.asleep())
			}
		}
		c.waitAsleep(3)
	})
}

// TestSleepIsNoTurningAway runs over the real transport: nodes support each other as before when replicas have fallen asleep, a sleeping leader can be
// confirmed, and a follower that something wakes sleeps again without waking anybody.
func TestSleepIsNoTurningAway(t *testing.T) {
	const groups = 9
	var calm atomic.Bool
	c := bootReal(&realCluster{t: t, open: diskStorage(t), profile: QueueProfile(), sleep: 200 * time.Millisecond, rest: calm.Load})
	c.found(groups)
	supports := func() (all []transport.Support) {
		for _, n := range c.ids {
			for _, o := range c.ids {
				all = append(all, c.nodes[n].mesh.Peer(o).Support)
			}
		}
		return all
	}
	pings := func() {
		begun := time.Now()
		waitFor(t, 30*time.Second, "no pings", func() bool {
			for _, n := range c.ids {
				for _, o := range c.ids {
					if c.nodes[n].mesh.Peer(o).LastAnswered.Before(begun) && n != o {
						return false
					}
				}
			}
			return true
		})
	}
	// On a starved machine nodes turn away from each other until all first leaders are found: nobody sleeps before that is over.
	var before []transport.Support
	waitFor(t, time.Minute, "nodes turn away without end", func() bool {
		for _, id := range c.every(groups) {
			if !c.agreed(id) {
				return false
			}
		}
		pings()
		before = supports()
		pings()
		return slices.Equal(supports(), before)
	})
	calm.Store(true)
	asleep := func() (n int) {
		for _, node := range c.nodes {
			n += node.host.Stats().Asleep
		}
		return n
	}
	waitFor(t, 30*time.Second, "not all asleep", func() bool { return asleep() == 3*groups })
	pings()
	if now := supports(); !slices.Equal(now, before) {
		t.Errorf("support was %v and is %v", before, now)
	}
	// On a starved machine that need not be the preferred one.
	at := slices.IndexFunc(c.ids, func(n transport.NodeID) bool {
		g, _ := c.nodes[n].host.Group(queueA)
		return g.IsLeader()
	})
	if at < 0 {
		t.Fatal("the group has no leader")
	}
	leader, other := c.nodes[c.ids[at]], c.nodes[c.ids[(at+1)%len(c.ids)]]
	led, _ := leader.host.Group(queueA)
	_, term, _ := led.Leader()
	since := time.Now()
	if err := led.ConfirmLeader(term, since, since.Add(10*time.Second), func(d time.Duration) bool { time.Sleep(d); return true }); err != nil || !led.Asleep() {
		t.Errorf("confirmed %v, asleep %v", err, led.Asleep())
	}
	follower, _ := other.host.Group(queueA)
	follower.rouse(true)
	waitFor(t, 10*time.Second, "it does not wake", func() bool { return other.host.Stats().Woken > 0 })
	waitFor(t, 10*time.Second, "it stays awake", func() bool { return asleep() == 3*groups })
	if _, now, _ := led.Leader(); now != term || leader.host.Stats().Woken > 0 {
		t.Errorf("term %d after %d, the leader woke %d times", now, term, leader.host.Stats().Woken)
	}
	pings()
	if now := supports(); !slices.Equal(now, before) {
		t.Errorf("support was %v and is %v after a wake", before, now)
	}
	c.commitAll(c.every(groups), "second", 10*time.Second)
}

// agreed tells whether one node leads the group and all know it.
func (c *realCluster) agreed(id transport.GroupID) bool {
	var leader transport.NodeID
	var term uint64
	for i, n := range c.ids {
		g, ok := c.nodes[n].host.Group(id)
		if !ok {
			return false
		}
		l, of, ok := g.Leader()
		if !ok || i > 0 && (l != leader || of != term) {
			return false
		}
		leader, term = l, of
	}
	g, _ := c.nodes[leader].host.Group(id)
	return g.IsLeader()
}

// neverWoken tells whether nobody tries to wake the group any more.
func neverWoken(g *Group) bool {
	for range 50 {
		if g.rousing.Load() {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}

// TestEndOfAGroupThatWaitsToWake shows that a sleeping group which is deleted while it waits for its turn to wake is left alone from then on.
func TestEndOfAGroupThatWaitsToWake(t *testing.T) {
	c := newMemCluster(t, 3, func(c *HostConfig) { c.SleepAfter = 50 * time.Millisecond })
	defer c.close()
	c.found(Spec{ID: queueA, Preferred: "n1", Young: true})
	c.waitLeader(queueA, 5*time.Second)
	waitFor(t, 20*time.Second, "awake", func() bool { return c.asleep() == 3 })
	h := c.nodes["n2"].host
	g, _ := h.Group(queueA)
	for range cap(h.wakes) { // as many as may are waking
		h.wakes <- struct{}{}
	}
	h.unknownGroup(queueA, "n1", 0) // a frame, as from a leader that wakes
	if err := h.Delete(queueA); err != nil {
		t.Fatal(err)
	}
	for range cap(h.wakes) {
		<-h.wakes
	}
	waitFor(t, 10*time.Second, "it is being woken for ever", func() bool { return neverWoken(g) })
}

// sleepingDamaged is a cluster whose replica on n2 sleeps and can be damaged.
func sleepingDamaged(t *testing.T, do func(c *memCluster, rot *decaying, told *atomic.Int64)) {
	rot, told := &decaying{}, &atomic.Int64{}
	c := newMemCluster(t, 3, func(c *HostConfig) {
		c.SleepAfter = 50 * time.Millisecond
		if c.Local == "n2" {
			c.Store = &decayingStore{c.Store.(*memStore), rot}
			c.OnDamaged = func(transport.GroupID) { told.Add(1) }
		}
	})
	defer c.close()
	c.found(Spec{ID: queueA, Preferred: "n1", Young: true})
	c.waitLeader(queueA, 5*time.Second)
	waitFor(t, 20*time.Second, "awake", func() bool { return c.asleep() == 3 })
	g, _ := c.nodes["n2"].host.Group(queueA)
	do(c, rot, told)
	waitFor(t, 10*time.Second, "nobody is told of the damage", func() bool { return told.Load() == 1 })
	if _, runs := c.nodes["n2"].host.Group(queueA); runs {
		t.Error("it still runs")
	}
	c.proposeUntil(queueA, "b", 10*time.Second)
	waitFor(t, 10*time.Second, "it is being woken for ever", func() bool { return neverWoken(g) })
}

// TestDamageOfASleeper shows that a replica which sleeps ends, and its node goes on, if its log is damaged: as it is woken, and as the store tells so.
func TestDamageOfASleeper(t *testing.T) {
	t.Run("found as it wakes", func(t *testing.T) {
		sleepingDamaged(t, func(c *memCluster, rot *decaying, _ *atomic.Int64) {
			rot.gone.Store(true)
			c.proposeUntil(queueA, "a", 10*time.Second)
		})
	})
	t.Run("found by the store", func(t *testing.T) {
		sleepingDamaged(t, func(c *memCluster, rot *decaying, told *atomic.Int64) {
			rot.gone.Store(true)
			h := c.nodes["n2"].host
			h.damagedLog(queueA, errRot)
			waitFor(t, 10*time.Second, "nobody is told of the damage", func() bool { return told.Load() == 1 })
			h.damagedLog(queueA, errRot) // it has ended
		})
	})
}
