package deep

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/transport"
)

// Groups that have lost most of their members go on in another group, which begins from what one of the survivors has (docs/adr/0029-lost-majority.md), by the
// rules of catalog.RecoverQueue and catalog.QueueRecovered. Who was lost comes back later, and has no part in it.

// knowledge is what a node has heard of plans, as of one moment.
type knowledge struct {
	groups map[transport.GroupID]placing
	next   map[transport.GroupID]transport.GroupID // of groups that go on in another one
	index  uint64
}

func (c *plans) view() knowledge {
	c.mu.Lock()
	defer c.mu.Unlock()
	return knowledge{maps.Clone(c.groups), maps.Clone(c.next), c.index}
}

// needs tells whether a node is to keep what it has of a group, as catalog.View.Needs does.
func (k knowledge) needs(n transport.NodeID, id transport.GroupID) bool {
	if p, there := k.groups[id]; there {
		return slices.Contains(p.members, n)
	}
	return slices.Contains(k.groups[k.next[id]].survivors, n)
}

// recover has a group go on in another one, from the first of the survivors. then is called before anybody hears of it.
func (c *plans) recover(id transport.GroupID, survivors []transport.NodeID, settings uint64, then func(to transport.GroupID)) (transport.GroupID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, known := c.groups[id]; !known || old.settings != settings || old.wanted != nil || old.survivors != nil {
		return 0, false
	}
	c.index++
	to := transport.GroupID(c.index)
	then(to)
	delete(c.groups, id)
	c.next[id] = to
	c.groups[to] = placing{from: id}.keptBy(survivors, c.index)
	return to, true
}

// keptBy is an entry that begins from the first of the survivors.
func (p placing) keptBy(survivors []transport.NodeID, index uint64) placing {
	keep := survivors[0]
	return placing{
		founders: []transport.NodeID{keep}, members: []transport.NodeID{keep}, generations: map[transport.NodeID]uint64{keep: index},
		settings: index, from: p.from, survivors: survivors,
	}
}

// keepAnother names the next survivor if the group has not begun yet.
func (c *plans) keepAnother(id transport.GroupID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.groups[id]
	if len(old.survivors) < 2 {
		return false
	}
	c.index++
	c.groups[id] = old.keptBy(old.survivors[1:], c.index)
	return true
}

// begun enters that a group that goes on from another one has its first leader.
func (c *plans) begun(id transport.GroupID, settings uint64, then func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, known := c.groups[id]
	if !known || p.settings != settings || p.survivors == nil {
		return false
	}
	then()
	c.index++
	p.survivors, p.settings = nil, c.index
	c.groups[id] = p
	return true
}

// usable tells whether clients may use a group: one that has not begun yet may be begun again by another survivor.
func (w *world) usable(id transport.GroupID) bool {
	return w.plans == nil || w.plans.get(id).survivors == nil
}

// recover takes most members of a group away, and has it go on from what is left.
func (x *nemesis) recover() error {
	w := x.w
	all := w.all()
	id := all[x.births.IntN(len(all))]
	p := w.plans.get(id)
	if n := len(p.members); n < 2 || p.wanted != nil || p.survivors != nil || w.misses(p) {
		return nil
	}
	members := slices.Clone(p.members)
	x.births.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	lost, left := members[:(len(members)+1)/2], members[(len(members)+1)/2:]
	for _, n := range lost {
		w.nodes[n].crash(true)
	}
	best, err := x.rank(id, left)
	if err != nil || best == nil {
		return err
	}
	to, ok := w.plans.recover(id, best, p.settings, w.oracle.succeeds)
	if !ok {
		return nil
	}
	w.report.recovered.Add(1)
	w.oracle.Note("group %d has lost %v, and goes on as %d from %v", id, lost, to, best)
	if len(best) > 1 && x.births.IntN(2) == 0 {
		time.Sleep(time.Duration(x.births.Int64N(int64(2 * followMax))))
		w.nodes[best[0]].crash(true)
		if w.plans.keepAnother(to) {
			w.oracle.Note("group %d is begun from %s, as %s is lost too", to, best[1], best[0])
		}
	}
	return nil
}

// rank returns survivors, the one with the newest log first; nil if one of them does not tell.
func (x *nemesis) rank(id transport.GroupID, left []transport.NodeID) ([]transport.NodeID, error) {
	at := make(map[transport.NodeID]group.Position)
	for _, n := range left {
		l := x.w.nodes[n].running()
		if l == nil {
			x.w.reap()
			if err := x.w.nodes[n].boot(); err != nil {
				return nil, err
			}
			x.w.introduce()
			l = x.w.nodes[n].running()
		}
		if l == nil {
			return nil, nil
		}
		all, err := l.host.Positions(context.Background(), n, []transport.GroupID{id})
		if err != nil || !all[0].Known {
			return nil, nil
		}
		at[n] = all[0]
	}
	best := slices.Clone(left)
	slices.SortStableFunc(best, func(a, b transport.NodeID) int {
		return cmp.Or(cmp.Compare(at[b].LastTerm, at[a].LastTerm), cmp.Compare(at[b].LastIndex, at[a].LastIndex))
	})
	return best, nil
}

// begins tells the plans, a moment later, that a group has its first leader on this node.
func (l *life) begins(id transport.GroupID, settings uint64) {
	r := rand.New(rand.NewPCG(settings, l.since))
	l.w.wg.Go(func() {
		time.Sleep(time.Duration(r.Int64N(int64(followMax))))
		m := l.machine(id)
		if l.dead.Load() || m == nil {
			return
		}
		if l.w.plans.begun(id, settings, func() { s, _ := m.state(); l.w.oracle.begins(id, s) }) {
			l.w.oracle.Note("group %d has begun on %s", id, l.id)
		}
	})
}

// started waits until every group that goes on from another one has begun.
func (w *world) started() {
	for _, id := range w.all() {
		for began := time.Now(); !w.usable(id); time.Sleep(50 * time.Millisecond) {
			if time.Since(began) > reachLimit {
				w.oracle.Fail("group %d has not begun %v after healing: %+v, %s", id, reachLimit, w.plans.get(id), w.describe(id))
				return
			}
		}
	}
}
