package deep

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/transport"
)

// plans stands for the catalog: where the replicas of each group are, and are to be, by the rules of catalog.PlanMembers and
// catalog.MembersReached. It is one place that always answers; nodes hear of changes late (see follow).
type plans struct {
	mu     sync.Mutex
	index  uint64
	groups map[transport.GroupID]placing
	next   map[transport.GroupID]transport.GroupID // of groups that go on in another one
}

// placing is one group's entry. It is not changed, but replaced.
type placing struct {
	founders, members, wanted []transport.NodeID // wanted: nil if members are what is wanted
	generations               map[transport.NodeID]uint64
	settings                  uint64
	// from is the group that this one goes on from, and survivors are those from which it may begin; nil when it has begun.
	from      transport.GroupID
	survivors []transport.NodeID
}

func (p placing) target() []transport.NodeID {
	if p.wanted != nil {
		return p.wanted
	}
	return p.members
}

func (c *plans) get(id transport.GroupID) placing {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.groups[id]
}

// plan enters a plan if settings is still the entry's.
func (c *plans) plan(id transport.GroupID, wanted, renew []transport.NodeID, settings uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.groups[id]
	if !known || old.settings != settings || old.survivors != nil {
		return false
	}
	c.index++
	p := placing{founders: old.founders, members: slices.Clone(old.members), wanted: wanted, generations: maps.Clone(old.generations), settings: c.index, from: old.from}
	for _, n := range wanted {
		switch {
		case !slices.Contains(p.members, n):
			p.members = append(p.members, n)
			p.generations[n] = c.index
		case slices.Contains(renew, n):
			p.generations[n] = c.index
		}
	}
	c.groups[id] = p
	return true
}

// reached enters that a plan is reached.
func (c *plans) reached(id transport.GroupID, settings uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.groups[id]
	if old.settings != settings || old.wanted == nil {
		return false
	}
	c.index++
	p := placing{founders: old.founders, members: old.wanted, generations: make(map[transport.NodeID]uint64), settings: c.index, from: old.from}
	for _, n := range p.members {
		p.generations[n] = old.generations[n]
	}
	c.groups[id] = p
	return true
}

// Delays of what nodes know of plans, in virtual time.
const (
	followMax  = 500 * time.Millisecond
	followLate = 8 * time.Second // at times
)

// follow has a process host what the plans say, each as of a moment some time ago.
func (l *life) follow(r *rand.Rand) {
	for {
		seen := l.w.plans.view()
		limit := followMax
		if r.IntN(8) == 0 {
			limit = followLate
		}
		select {
		case <-l.over:
			return
		case <-time.After(time.Duration(r.Int64N(int64(limit)))):
		}
		if err := l.bring(seen); err != nil {
			if !l.dead.Load() {
				l.w.oracle.Fail("%s: %v", l.id, err)
			}
			return
		}
	}
}

// bring brings all replicas in line with what a process has heard.
func (l *life) bring(k knowledge) error {
	for _, id := range l.known(k) {
		if err := l.place(id, k); err != nil {
			return err
		}
	}
	for id := range l.former {
		if !k.needs(l.id, id) {
			delete(l.former, id)
			if err := l.host.Delete(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostedReplica is what a process runs of a group. The life's mu guards it.
type hostedReplica struct {
	generation uint64
	g          *group.Group // nil if it could not be started
	damaged    bool
}

// place brings the replica of a group in line with an entry, as package broker does.
func (l *life) place(id transport.GroupID, k knowledge) error {
	p := k.groups[id]
	member, wanted := slices.Contains(p.members, l.id), p.generations[l.id]
	l.mu.Lock()
	h := l.hosted[id]
	l.mu.Unlock()
	if h != nil && (!member || wanted > h.generation) {
		if err := l.leave(id, h, !member && k.needs(l.id, id)); err != nil {
			return err
		}
		h = nil
	}
	if slices.Contains(p.survivors, l.id) {
		l.former[p.from] = true
	}
	if !member {
		return nil
	}
	if h == nil {
		var err error
		if h, err = l.begin(id, wanted, p); err != nil {
			return err
		}
	}
	l.mu.Lock()
	g, damaged := h.g, h.damaged
	l.mu.Unlock()
	if damaged {
		l.renew(id, p)
		return nil
	}
	g.SetHome(p.target()[0])
	m := group.Membership{Revision: p.settings, Settled: p.wanted == nil}
	for _, n := range p.target() {
		m.Wanted = append(m.Wanted, transport.Replica(n, p.generations[n]))
	}
	g.Want(&m)
	return nil
}

// leave ends a replica that is wanted no more.
func (l *life) leave(id transport.GroupID, h *hostedReplica, keep bool) error {
	if keep {
		if err := l.host.Stop(id); err != nil { // it may be all that is left
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.hosted, id)
		delete(l.machines, id)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l.host.Yield(ctx, id)
	if err := l.host.Delete(id); err != nil {
		return err
	}
	l.w.oracle.Note("%s wipes its replica of group %d, generation %d", l.id, id, h.generation)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.hosted, id)
	delete(l.machines, id)
	return nil
}

// begin starts a replica.
func (l *life) begin(id transport.GroupID, generation uint64, p placing) (*hostedReplica, error) {
	h, m := &hostedReplica{generation: generation}, &machine{n: l, id: id}
	var former transport.GroupID
	if p.survivors != nil {
		former = p.from
		if err := l.host.Stop(former); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	l.machines[id], l.hosted[id] = m, h
	l.mu.Unlock()
	if l.w.damaging.Load() && damaged(l.st, id) != nil {
		l.hurt(id)
		return h, nil
	}
	g, err := l.host.Start(group.Spec{
		ID: id, Generation: generation, Members: p.founders, Preferred: p.target()[0], FirstLeader: firstLeader(id, p.founders), Bootstrap: true,
		Young: generation == 0 && uint64(id) > l.since, From: former,
	}, m, watcher{l, id, p})
	if errors.Is(err, group.ErrDamaged) {
		l.hurt(id)
		return h, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.g = g
	return h, err
}

// renew plans that a damaged replica begins anew.
func (l *life) renew(id transport.GroupID, p placing) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if slices.Contains(p.target(), l.id) && l.host.Survives(ctx, id, p.members) && l.w.plans.plan(id, p.target(), []transport.NodeID{l.id}, p.settings) {
		l.w.oracle.Note("%s renews its damaged replica of group %d", l.id, id)
		l.w.report.refills.Add(1)
	}
}

// hurt notes that a replica is damaged.
func (l *life) hurt(id transport.GroupID) {
	if !l.w.damaging.Load() && !l.dead.Load() {
		l.w.oracle.Fail("%s: group %d is damaged after a crash", l.id, id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h := l.hosted[id]; h != nil {
		h.damaged = true
	}
}

// planning is what the host asks and tells of plans. Some of it is late, some is lost.
func (w *world) planning(cfg *group.HostConfig, l *life, r *rand.Rand) {
	var mu sync.Mutex // guards r
	late := func() (lost bool) {
		mu.Lock()
		d, lost := time.Duration(r.Int64N(int64(followMax))), r.IntN(6) == 0
		mu.Unlock()
		time.Sleep(d)
		return lost || l.dead.Load()
	}
	cfg.Current = func(_ context.Context, id transport.GroupID, revision uint64) (bool, error) {
		if late() {
			return false, errors.New("the catalog does not answer")
		}
		return w.plans.get(id).settings == revision, nil
	}
	cfg.OnReached = func(_ context.Context, id transport.GroupID, revision uint64) {
		if !late() && w.plans.reached(id, revision) {
			w.oracle.Note("group %d: plan %d is reached, says %s", id, revision, l.id)
			w.report.moved.Add(1)
		}
	}
	cfg.OnDamaged = l.hurt
}

// move plans other members for a group: one added, removed or replaced, while another plan may be under way.
func (x *nemesis) move() {
	w := x.w
	all := w.all()
	id := all[x.moves.IntN(len(all))]
	p := w.plans.get(id)
	if w.misses(p) {
		return // a person's plan is refused if too few run
	}
	now := slices.Clone(p.target())
	out, in := now[x.moves.IntN(len(now))], w.ids[x.moves.IntN(len(w.ids))]
	without := slices.DeleteFunc(slices.Clone(now), func(n transport.NodeID) bool { return n == out })
	var wanted []transport.NodeID
	kind := x.moves.IntN(6)
	if len(now) < 3 {
		kind = 1 // as the steward does for what was recovered
	}
	switch {
	case kind == 0 && len(now) > 2:
		wanted = without
	case kind == 1 && len(now) < 5 && !slices.Contains(now, in):
		wanted = append(now, in)
	case !slices.Contains(now, in):
		wanted = append(without, in)
	default:
		return
	}
	x.moves.Shuffle(len(wanted), func(i, j int) { wanted[i], wanted[j] = wanted[j], wanted[i] })
	if w.plans.plan(id, wanted, nil, p.settings) {
		w.report.planned.Add(1)
		w.oracle.Note("group %d: plan %d from %v to %v", id, w.plans.get(id).settings, p.members, wanted)
	}
}

// threeOfEach gives each group three members or more, so that one can be lost.
func (w *world) threeOfEach() error {
	if w.plans == nil {
		return nil
	}
	for _, id := range w.all() {
		p := w.plans.get(id)
		wanted := slices.Clone(p.members)
		for _, n := range w.ids {
			if len(wanted) < 3 && !slices.Contains(wanted, n) {
				wanted = append(wanted, n)
			}
		}
		if len(wanted) > len(p.members) {
			w.plans.plan(id, wanted, nil, p.settings)
		}
	}
	return w.settle()
}

// reachLimit is how long after healing a plan may take to be reached.
const reachLimit = 2 * time.Minute

// reached waits until every plan is, and checks that each group's configuration is what was planned and nobody else has a replica.
func (w *world) reached() {
	w.replaceLost()
	for _, id := range w.all() {
		began := time.Now()
		for ; ; time.Sleep(50 * time.Millisecond) {
			why := w.astray(id)
			if why == "" {
				break
			}
			if time.Since(began) > reachLimit {
				w.oracle.Fail("group %d: %s %v after healing: %+v, %s", id, why, reachLimit, w.plans.get(id), w.describe(id))
				return
			}
		}
	}
}

// astray says how a group is not as planned, "" if it is.
func (w *world) astray(id transport.GroupID) string {
	p := w.plans.get(id)
	if p.wanted != nil {
		return "the plan is not reached"
	}
	if w.misses(p) {
		return "it misses a disk"
	}
	for _, n := range w.ids {
		l := w.nodes[n].running()
		if l == nil {
			return string(n) + " does not run"
		}
		l.mu.Lock()
		h := l.hosted[id]
		right := h != nil && h.g != nil && !h.damaged && h.generation == p.generations[n]
		l.mu.Unlock()
		member := slices.Contains(p.members, n)
		switch {
		case !member && (h != nil || slices.Contains(l.st.Groups(), storeID(id))):
			return string(n) + " has a replica"
		case member && !right:
			return string(n) + " has no replica"
		}
	}
	lead := w.leader(id)
	if lead == nil {
		return "nobody leads"
	}
	g, _ := lead.host.Group(id)
	all := g.Members()
	for _, m := range all {
		if !m.Voter || m.Replica != transport.Replica(m.Node, p.generations[m.Node]) || !slices.Contains(p.members, m.Node) {
			return "the configuration has " + string(m.Replica)
		}
	}
	if len(all) != len(p.members) {
		return "the configuration lacks a member"
	}
	return ""
}
