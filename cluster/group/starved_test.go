package group

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warrenmq/warren/transport"
)

// TestElectionsOnAStarvedMachine moves leaders about where messages between nodes take up to seconds, as they do where thirty processes want a
// processor. Who has just voted for another node does not depose it by an election of its own: groups were without a
// leader for up to nine seconds, in one term after the other.
func TestElectionsOnAStarvedMachine(t *testing.T) {
	for _, worst := range []time.Duration{600 * time.Millisecond, time.Second, 1400 * time.Millisecond} {
		t.Run(worst.String(), func(t *testing.T) {
			bubble(t, 3, nil, func(t *testing.T, c *memCluster) { starvedMoves(t, c, worst) })
		})
	}
}

const starvedGroups = 20

func starvedMoves(t *testing.T, c *memCluster, worst time.Duration) {
	group := func(i int) transport.GroupID { return queueA + transport.GroupID(i) }
	for i := range starvedGroups {
		c.found(Spec{ID: group(i), Preferred: c.ids[i%3]})
		c.waitLeader(group(i), 2*time.Second)
	}
	lags := rand.New(rand.NewPCG(1, 1))
	c.net.change(func() {
		c.net.lag = func(raft bool) time.Duration { // under the network's mutex
			if raft {
				return time.Duration(lags.Int64N(int64(worst)))
			}
			return time.Duration(lags.Int64N(int64(worst / 2)))
		}
	})
	led := make([]time.Time, starvedGroups)
	for i := range led {
		led[i] = time.Now()
	}
	pick := rand.New(rand.NewPCG(1, 2))
	next, longest := time.Now(), time.Duration(0)
	for began := time.Now(); time.Since(began) < 3*time.Minute; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(next) {
			next = time.Now().Add(500 * time.Millisecond)
			g, to := c.leader(group(pick.IntN(starvedGroups))), c.ids[pick.IntN(3)]
			if g != nil {
				g.host.spawn(func() { _ = g.TransferTo(t.Context(), to) })
			}
		}
		for i := range led {
			if c.leader(group(i)) != nil {
				led[i] = time.Now()
			}
			longest = max(longest, time.Since(led[i]))
		}
	}
	var injected, moved uint64
	for _, n := range c.nodes {
		injected += n.host.Stats().ElectionsInjected - starvedGroups/3
		moved += n.host.counters.transfers.Load()
	}
	t.Logf("%d moves, %d other elections, at most %v without a leader", moved, injected, longest)
	if injected > 40 || longest > 8*time.Second {
		t.Errorf("%d elections beside %d moves, %v without a leader", injected, moved, longest)
	}
}
