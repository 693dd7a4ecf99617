package group

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/warrenmq/warren/cluster/balance"
	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/transport"
)

const (
	// balanceCatchUp bounds how long proposals of a group that goes home are held back for
	// the newest entries to arrive there.
	balanceCatchUp = 200 * time.Millisecond
	// balanceMove bounds a whole move.
	balanceMove = 2 * time.Second
	// balanceLater is when strays are looked at again after moves, and while groups here have no leader.
	balanceLater = time.Second
)

// balancer gives leaderships to the nodes at which their groups are at home, a few in a
// second. What goes is decided by package balance. It does nothing while every group that is led
// here is at home here.
type balancer struct {
	h      *Host
	policy balance.Policy
	wake   chan struct{} // capacity 1

	mu     sync.Mutex // guards the rest; never held while calling out
	strays map[*Group]*stray
	alive  map[transport.NodeID]time.Time // since when a node is alive without a break
	// unwilling nodes said so when they were asked last.
	unwilling map[transport.NodeID]bool
}

// stray is a group that this node leads and that is at home on another.
type stray struct {
	failures  int // in a row
	notBefore time.Time
}

func newBalancer(h *Host) *balancer {
	p := balance.Default()
	p.Settle = h.cfg.MoveSettle
	return &balancer{
		h: h, policy: p, wake: make(chan struct{}, 1), strays: make(map[*Group]*stray),
		alive: make(map[transport.NodeID]time.Time), unwilling: make(map[transport.NodeID]bool),
	}
}

func (b *balancer) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// leads notes the begin or the end of this node's leadership of g. It is called under
// the group's mutex.
func (b *balancer) leads(g *Group, self bool) {
	home := g.Home()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !self || home == "" || home == b.h.cfg.Local {
		delete(b.strays, g)
		return
	}
	if b.strays[g] == nil {
		b.strays[g] = &stray{}
	}
	b.poke()
}

// verdict notes whether a node is alive.
func (b *balancer) verdict(e detector.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.unwilling, e.Node)
	if e.State != detector.Alive {
		delete(b.alive, e.Node)
		return
	}
	b.alive[e.Node] = e.At
	b.poke()
}

// run moves leaders until the host is closed.
func (b *balancer) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-b.h.ctx.Done():
			return
		case <-b.wake:
		case <-timer.C:
		}
		if again := b.round(); again > 0 {
			timer.Reset(again)
		} else {
			timer.Stop()
		}
	}
}

// round moves the leaders of about a second and returns when to go on, 0: when something
// has changed.
func (b *balancer) round() time.Duration {
	rate := b.h.cfg.MovesPerSecond
	if rate <= 0 || b.h.draining.Load() {
		return 0
	}
	b.mu.Lock()
	none := len(b.strays) == 0
	b.mu.Unlock()
	if none {
		return 0
	}
	if b.h.elections.busy() {
		return balanceLater
	}
	due, again := b.plan(time.Now(), rate)
	for _, g := range b.ready(due) {
		if !sleep(b.h.ctx, time.Second/time.Duration(rate)) || b.h.draining.Load() {
			return 0
		}
		b.move(g)
	}
	if len(due) > 0 && (again == 0 || again > balanceLater) {
		return balanceLater // what has failed is due some time
	}
	return again
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// plan asks package balance.
func (b *balancer) plan(now time.Time, room int) ([]*Group, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	groups := make(map[uint64]*Group, len(b.strays))
	list := make([]balance.Stray, 0, len(b.strays))
	for g, s := range b.strays {
		groups[uint64(g.spec.ID)] = g
		list = append(list, balance.Stray{
			Group: uint64(g.spec.ID), Home: string(g.Home()), Heat: g.apply.heat.Load(), NotBefore: s.notBefore,
		})
	}
	moves, again := b.policy.Plan(now, list, func(id string) balance.Node {
		n := transport.NodeID(id)
		return balance.Node{Since: b.alive[n], Linked: b.h.reachable(n), Unwilling: b.unwilling[n]}
	}, room)
	b.unwilling = make(map[transport.NodeID]bool) // they are asked again
	due := make([]*Group, len(moves))
	for i, m := range moves {
		due[i] = groups[m.Group]
	}
	return due, again
}

// ready asks the homes of groups, each node once, and returns those that can take over.
func (b *balancer) ready(due []*Group) (list []*Group) {
	byHome := make(map[transport.NodeID][]*Group)
	for _, g := range due {
		home := g.Home()
		byHome[home] = append(byHome[home], g)
	}
	for home, groups := range byHome {
		ids := make([]transport.GroupID, len(groups))
		for i, g := range groups {
			ids[i] = g.spec.ID
		}
		ctx, cancel := context.WithTimeout(b.h.ctx, pollTimeout)
		all, err := b.h.askStatus(ctx, home, 0, ids)
		cancel()
		for i, g := range groups {
			switch {
			case err != nil:
				b.failed(g, err)
			case all[i].flags&statusUnwilling != 0:
				b.mu.Lock()
				b.unwilling[home] = true
				b.mu.Unlock()
			case !b.policy.Ready(replicaOf(g.status()), replicaOf(all[i])):
				b.failed(g, errNotReady)
			default:
				list = append(list, g)
			}
		}
	}
	return list
}

var errNotReady = errors.New("its replica is not there yet, or behind")

func replicaOf(s replicaStatus) balance.Replica {
	return balance.Replica{Runs: s.known(), Voter: s.voter(), LastTerm: s.lastTerm, LastIndex: s.lastIndex}
}

// move gives one leadership away.
func (b *balancer) move(g *Group) {
	home := g.Home()
	if !g.IsLeader() || home == "" || home == b.h.cfg.Local { // it may have changed just now
		return
	}
	ctx, cancel := context.WithTimeout(b.h.ctx, balanceMove)
	defer cancel()
	began := time.Now()
	err := g.moveTo(ctx, home, balanceCatchUp)
	if err != nil && g.IsLeader() {
		b.h.counters.homesFailed.Add(1)
		b.failed(g, err)
		return
	}
	b.h.counters.homes.Add(1)
	b.h.log.Debug("leader went home", "group", uint64(g.spec.ID), "node", home, "took", time.Since(began))
}

// failed has a group wait before the next try.
func (b *balancer) failed(g *Group, err error) {
	b.mu.Lock()
	s := b.strays[g]
	if s != nil {
		s.failures++
		s.notBefore = b.policy.After(time.Now(), s.failures)
	}
	b.mu.Unlock()
	if s != nil {
		b.h.log.Debug("leader cannot go home yet", "group", uint64(g.spec.ID), "node", g.Home(), "err", err)
	}
}

// away counts the groups that are led here and at home elsewhere.
func (b *balancer) away() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.strays)
}
