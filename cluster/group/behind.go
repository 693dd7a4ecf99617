package group

import (
	"context"
	"sync"
	"time"

	"github.com/warrenmq/warren/transport"
)

// Lag says how the replicas of a node stand to their leaders.
type Lag struct {
	// Behind counts the replicas that miss more entries than asked about, or whose leader did not say.
	Behind int
	// Unreached counts those whose leader cannot be asked: it is dead, or cut off from this node.
	Unreached int
	// Leaderless counts those whose leader is not known.
	Leaderless int
}

// Behind asks the leaders of the groups that run here how far their logs go, each node once for all of its groups, and
// counts the replicas that miss more than so many entries. It ends with ctx.
func (h *Host) Behind(ctx context.Context, entries uint64) Lag {
	return h.survey(ctx, func(_ *Group, own, leader uint64) bool { return own+entries < leader })
}

// Chase follows the replicas of a node until each has caught up once: until it got all that its leader had within [reachRound], so that what
// it lacks then is what came in the meantime. It is not safe for concurrent use.
type Chase struct {
	h    *Host
	mu   sync.Mutex // guards the rest: a look asks several nodes at a time
	ends map[transport.GroupID]mark
}

// mark is how far a leader's log went.
type mark struct {
	index uint64
	at    time.Time
	done  bool // the replica had it in time
}

// Chase returns one that has not looked yet.
func (h *Host) Chase() *Chase { return &Chase{h: h, ends: make(map[transport.GroupID]mark)} }

// Look counts the replicas that have not caught up yet. It is to be called several times a round. It ends with ctx.
func (c *Chase) Look(ctx context.Context) Lag { return c.h.survey(ctx, c.behind) }

func (c *Chase) behind(g *Group, own, leader uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, seen := c.ends[g.spec.ID]
	switch now := time.Now(); {
	case m.done:
	case own >= leader, seen && own >= m.index && now.Sub(m.at) <= reachRound:
		m.done = true
	case !seen || own >= m.index:
		m = mark{index: leader, at: now}
	}
	c.ends[g.spec.ID] = m
	return !m.done
}

// survey asks the leaders of the groups that run here how far their logs go, and counts those of whose replicas lacks says so. It is called by
// several goroutines.
func (h *Host) survey(ctx context.Context, lacks func(g *Group, own, leader uint64) bool) (l Lag) {
	led := make(map[transport.NodeID][]*Group)
	for _, g := range h.Groups() {
		leader, _, ok := g.Leader()
		switch {
		case !ok:
			l.Leaderless++
		case leader != h.cfg.Local:
			led[leader] = append(led[leader], g)
		}
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, groups := range led {
		wg.Go(func() {
			behind, unreached := h.surveyLed(ctx, n, groups, lacks)
			mu.Lock()
			defer mu.Unlock()
			l.Behind += behind
			l.Unreached += unreached
		})
	}
	wg.Wait()
	return l
}

// surveyLed is survey for the groups that one node leads.
func (h *Host) surveyLed(ctx context.Context, n transport.NodeID, groups []*Group, lacks func(g *Group, own, leader uint64) bool) (behind, unreached int) {
	for len(groups) > 0 {
		part := groups[:min(len(groups), statusGroupsMax)]
		groups = groups[len(part):]
		ids := make([]transport.GroupID, len(part))
		for i, g := range part {
			ids[i] = g.spec.ID
		}
		all, err := h.askStatus(ctx, n, 0, ids)
		switch {
		case err != nil && !h.reachable(n):
			unreached += len(part)
			continue
		case err != nil:
			behind += len(part)
			continue
		}
		for i, g := range part {
			// Asked before the own log is looked at: what arrives in between counts.
			_, own := g.lastEntry()
			if all[i].leads() && lacks(g, own, all[i].lastIndex) {
				behind++
			}
		}
	}
	return behind, unreached
}
