package group

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestColdStartOnAStarvedMachine starts all nodes after a crash of all where what is sent between them waits for one processor, as where five nodes with
// thousands of queues share two that others keep busy. More elections at once than are over in the time for which a vote is waited for end none of them:
// groups were candidates again and again, and their instances were made anew, for minutes.
func TestColdStartOnAStarvedMachine(t *testing.T) {
	for _, cost := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond} {
		t.Run(cost.String(), func(t *testing.T) {
			bubble(t, 5, nil, func(t *testing.T, c *memCluster) { coldStart(t, c, cost) })
		})
	}
}

const (
	coldGroups = 60
	// coldMessages is how many messages an election takes, with some that find out that it is due: two requests for votes and two first entries, with their
	// answers.
	coldMessages = 8
)

func coldSpec(c *memCluster, i int) Spec {
	s := Spec{ID: queueA + transport.GroupID(i), Preferred: c.ids[i%5], Bootstrap: true}
	for k := range 3 {
		s.Members = append(s.Members, c.ids[(i+k)%5])
	}
	return s
}

func coldStart(t *testing.T, c *memCluster, cost time.Duration) {
	for i := range coldGroups {
		s := coldSpec(c, i)
		for _, m := range s.Members {
			c.nodes[m].start(t, s)
		}
	}
	for i := range coldGroups {
		if _, err := propose(c.waitLeader(coldSpec(c, i).ID, 10*time.Second), "a"); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Second) // everybody knows the commit index
	for _, id := range c.ids {
		c.kill(id)
	}
	var free time.Time
	c.net.lag = func(bool) time.Duration { // under the network's mutex
		if now := time.Now(); free.Before(now) {
			free = now
		}
		free = free.Add(cost)
		return time.Until(free)
	}
	for _, id := range c.ids {
		c.boot(id)
	}
	began := time.Now()
	var starts sync.WaitGroup
	for _, id := range c.ids {
		n := c.nodes[id]
		starts.Go(func() {
			for i := range coldGroups {
				if s := coldSpec(c, i); slices.Contains(s.Members, id) {
					n.start(t, s)
				}
			}
		})
	}
	starts.Wait()
	led := 0
	waitFor(t, 2*time.Minute, "not all groups have leaders", func() bool {
		for led < coldGroups && c.leader(coldSpec(c, led).ID) != nil {
			led++
		}
		return led == coldGroups
	})
	took := time.Since(began)
	var injected, freed, recycled uint64
	for _, n := range c.nodes {
		s := n.host.Stats()
		injected, freed, recycled = injected+s.ElectionsInjected, freed+s.CandidatesFreed, recycled+s.InstancesRecycled
	}
	least := coldGroups * coldMessages * cost
	t.Logf("leaders after %v, of which %v are their messages; %d elections, %d candidates freed, %d made anew", took, least, injected, freed, recycled)
	if limit := 3*least + 2*time.Second; took > limit || injected > 2*coldGroups || recycled > coldGroups/10 {
		t.Errorf("leaders after %v, want at most %v; %d elections of %d groups, %d made anew", took, limit, injected, coldGroups, recycled)
	}
}
