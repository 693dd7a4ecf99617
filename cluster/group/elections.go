package group

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

const (
	// leaderGrace is how long a group may be without a leader before the host acts: a
	// change of leader passes through such a moment.
	leaderGrace = 300 * time.Millisecond
	// electionTick is the shortest pause between two rounds; it gathers groups into
	// common questions.
	electionTick = 5 * time.Millisecond
	// pollTimeout bounds one question to a node.
	pollTimeout = 200 * time.Millisecond
	// quorumRetry is how often a group without a quorum of live voters is looked at; a
	// node that returns shortens it.
	quorumRetry = time.Second
	// backoffMax bounds the doubling of pauses between attempts: 2^backoffMax.
	backoffMax = 4
	// patienceMax bounds the doubling of the time a replica may stay Candidate: the
	// transport keeps refused votes open for 3 s, and FreeCandidate needs one.
	patienceMax = 2
)

// elections finds leaders for groups that have none. It owns one campaign for each such
// group and decides from one goroutine.
type elections struct {
	h    *Host
	wake chan struct{} // capacity 1

	mu        sync.Mutex // guards campaigns and what they hold; never held while calling out
	campaigns map[*Group]*campaign
}

// campaign is the search for the leader of one group.
type campaign struct {
	g        *Group
	due      time.Time
	polling  bool
	first    bool // the group never had a leader
	attempts int  // injections made
	waited   bool // a better replica was given its turn
	injected bool // an injected election is under way
	// candidate is when the replica was first seen as Candidate; zero if it is not.
	candidate time.Time
	freed     bool // FreeCandidate was tried since
}

func newElections(h *Host) *elections {
	return &elections{h: h, wake: make(chan struct{}, 1), campaigns: make(map[*Group]*campaign)}
}

func (e *elections) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// begin opens the campaign of a group that was just started. A fresh group elects by
// rank without waiting for the others' timers, any other asks at once who leads.
func (e *elections) begin(g *Group, fresh bool) {
	if _, ok := g.settledLeader(); ok {
		return
	}
	var delay time.Duration
	if fresh {
		ranked := rank(g, g.spec.Members)
		delay = time.Duration(max(0, slices.Index(ranked, e.h.cfg.Local))) * e.h.cfg.FirstStagger
	}
	e.mu.Lock()
	c, ok := e.campaigns[g]
	if !ok {
		c = &campaign{g: g}
		e.campaigns[g] = c
	}
	c.first = fresh
	c.due = time.Now().Add(delay)
	e.mu.Unlock()
	e.poke()
}

// want asks for a leader of g in delay, or earlier if that was wanted already.
func (e *elections) want(g *Group, delay time.Duration) {
	if isClosed(g.stopped) {
		return
	}
	due := time.Now().Add(delay)
	e.mu.Lock()
	c, ok := e.campaigns[g]
	if !ok {
		c = &campaign{g: g, due: due}
		e.campaigns[g] = c
	} else if delay == 0 && !c.injected && due.Before(c.due) {
		c.due = due
	}
	e.mu.Unlock()
	if !ok || delay == 0 {
		e.poke()
	}
}

// settled ends the campaign of a group whose leader is known.
func (e *elections) settled(g *Group) {
	e.mu.Lock()
	c, ok := e.campaigns[g]
	delete(e.campaigns, g)
	e.mu.Unlock()
	if ok && c.injected {
		e.poke() // there is room for the next
	}
}

// hurry makes every waiting campaign due: a node came back.
func (e *elections) hurry() {
	now := time.Now()
	e.mu.Lock()
	for _, c := range e.campaigns {
		if !c.injected && c.candidate.IsZero() {
			c.due = now
		}
	}
	e.mu.Unlock()
	e.poke()
}

// run decides until the host is closed.
func (e *elections) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := e.take(time.Now())
		e.round(due)
		if len(due) > 0 {
			continue
		}
		timer.Reset(max(electionTick, next))
		select {
		case <-e.h.ctx.Done():
			return
		case <-timer.C:
		case <-e.wake:
			// More groups usually follow at once; ask about them together.
			timer.Reset(electionTick)
			select {
			case <-e.h.ctx.Done():
				return
			case <-timer.C:
			}
		}
	}
}

// take returns the campaigns whose time has come, hottest first and within the bound of
// concurrent elections, and the time until the next one.
func (e *elections) take(now time.Time) (due []*campaign, next time.Duration) {
	next = time.Hour
	e.mu.Lock()
	defer e.mu.Unlock()
	busy := 0
	for _, c := range e.campaigns {
		if c.injected {
			busy++
		}
		if c.polling {
			continue
		}
		if wait := c.due.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		due = append(due, c)
	}
	slices.SortFunc(due, func(a, b *campaign) int {
		return cmp.Compare(b.g.apply.heat.Load(), a.g.apply.heat.Load())
	})
	// Campaigns under way are never held back: their next step frees a place.
	room := max(0, e.h.cfg.ElectionsMax-busy)
	kept := due[:0]
	for _, c := range due {
		if c.injected {
			kept = append(kept, c)
		} else if room > 0 {
			room--
			kept = append(kept, c)
		}
	}
	return kept, next
}

// round takes one step in each campaign and asks the other nodes about those that
// need it, all groups of a node in one call.
func (e *elections) round(due []*campaign) {
	var polls []*campaign
	for _, c := range due {
		if e.step(c) {
			polls = append(polls, c)
		}
	}
	if len(polls) == 0 {
		return
	}
	if !e.h.spawn(func() { e.poll(polls) }) {
		e.mu.Lock()
		clear(e.campaigns)
		e.mu.Unlock()
	}
}

// step looks at a campaign's group. It reports whether the other voters must be asked.
func (e *elections) step(c *campaign) (poll bool) {
	g := c.g
	if isClosed(g.stopped) {
		e.settled(g)
		return false
	}
	if l, ok := g.settledLeader(); ok && !e.hinted(g, l) {
		e.settled(g)
		return false
	}
	r := g.replica()
	if r.State() == raft.Candidate {
		e.candidate(c, r)
		return false
	}
	e.mu.Lock()
	c.candidate, c.freed, c.injected = time.Time{}, false, false
	e.mu.Unlock()
	voters := g.voters()
	if !g.isVoter() || !g.aliveQuorum(voters) {
		e.wait(c, quorumRetry)
		return false
	}
	e.mu.Lock()
	c.polling = true
	e.mu.Unlock()
	return true
}

// hinted tells whether the leader is known by its own word only: raft has not heard of
// it, so the campaign goes on watching.
func (e *elections) hinted(g *Group, l leadership) bool {
	if l.self {
		return false
	}
	_, id := g.replica().LeaderWithID()
	return id == ""
}

// candidate deals with a replica that is Candidate: it is left alone for a while, then
// freed, then re-created. Injecting again would do nothing.
func (e *elections) candidate(c *campaign, r *raft.Raft) {
	e.mu.Lock()
	now := time.Now()
	if c.candidate.IsZero() {
		c.candidate, c.freed = now, false
	}
	// A slow cluster gets more time at each attempt.
	patience := e.h.cfg.CandidateMax << min(max(c.attempts-1, 0), patienceMax)
	left := patience - now.Sub(c.candidate)
	freed := c.freed
	switch {
	case left > 0:
		c.due = now.Add(left)
		e.mu.Unlock()
		return
	case !freed:
		c.freed, c.candidate = true, now
		c.due = now.Add(e.h.cfg.CandidateMax)
	default:
		c.due = now.Add(e.h.cfg.CandidateMax)
	}
	e.mu.Unlock()
	if !freed && c.g.running.Load().wire.FreeCandidate(r.CurrentTerm()) {
		e.h.counters.freed.Add(1)
		return
	}
	e.mu.Lock()
	c.candidate, c.freed, c.injected = time.Time{}, false, false
	e.mu.Unlock()
	e.h.spawn(func() {
		if err := c.g.recycle(); err != nil {
			e.h.log.Error("group cannot be restarted", "group", uint64(c.g.spec.ID), "err", err)
		}
	})
}

// poll asks the other voters of the campaigns' groups and decides each campaign.
func (e *elections) poll(cs []*campaign) {
	byNode := make(map[transport.NodeID][]int)
	for i, c := range cs {
		for _, v := range c.g.voters() {
			if v != e.h.cfg.Local && e.h.mayLead(v) && e.h.cfg.Mesh.Peer(v).Up {
				byNode[v] = append(byNode[v], i)
			}
		}
	}
	ctx, cancel := context.WithTimeout(e.h.ctx, pollTimeout)
	defer cancel()
	answers := make([]map[transport.NodeID]replicaStatus, len(cs))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for n, indexes := range byNode {
		wg.Go(func() {
			for part := range slices.Chunk(indexes, statusGroupsMax) {
				ids := make([]transport.GroupID, len(part))
				for k, i := range part {
					ids[k] = cs[i].g.spec.ID
				}
				all, err := e.h.askStatus(ctx, n, askLeaderless, ids)
				if err != nil {
					e.h.log.Debug("voter does not answer", "node", n, "err", err)
					return
				}
				mu.Lock()
				for k, i := range part {
					if answers[i] == nil {
						answers[i] = make(map[transport.NodeID]replicaStatus)
					}
					answers[i][n] = all[k]
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for i, c := range cs {
		e.decide(c, answers[i])
	}
	e.poke()
}

// decide takes the next step of a campaign from what the other voters said.
func (e *elections) decide(c *campaign, answers map[transport.NodeID]replicaStatus) {
	g := c.g
	own := g.status()
	if l, ok := leaderAmong(answers, own.term); ok {
		e.wait(c, 2*time.Second)
		g.adopt(l)
		return
	}
	if e.hearsay(g, own, answers) {
		e.wait(c, leaderGrace)
		return
	}
	best := bestReplica(g, own, answers)
	if best == e.h.cfg.Local {
		e.inject(c)
		return
	}
	e.mu.Lock()
	waited := c.waited
	c.waited = !waited
	e.mu.Unlock()
	if !waited {
		e.wait(c, e.h.cfg.Stagger)
		return
	}
	// The better replica does not act; perhaps it does not know that it should.
	e.wait(c, e.pause(c))
	ctx, cancel := context.WithTimeout(e.h.ctx, pollTimeout)
	defer cancel()
	e.h.counters.injectedAway.Add(1)
	if err := e.h.cfg.Mesh.InjectAt(ctx, best, g.spec.ID); err != nil {
		e.h.log.Debug("election cannot be injected", "node", best, "group", uint64(g.spec.ID), "err", err)
	}
}

// wait ends the polling of a campaign and sets its next time.
func (e *elections) wait(c *campaign, d time.Duration) {
	e.mu.Lock()
	c.polling = false
	c.due = time.Now().Add(d)
	e.mu.Unlock()
}

// pause counts an attempt and returns how long its result is waited for.
func (e *elections) pause(c *campaign) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.h.cfg.CandidateMax << min(c.attempts, backoffMax)
	c.attempts++
	return d
}

// inject starts the election of the local replica.
func (e *elections) inject(c *campaign) {
	d := e.pause(c)
	e.mu.Lock()
	_, wanted := e.campaigns[c.g]
	c.injected = wanted
	e.mu.Unlock()
	e.wait(c, d)
	r := c.g.replica()
	if !wanted || r.State() != raft.Follower {
		return
	}
	e.h.counters.injected.Add(1)
	if err := c.g.running.Load().wire.InjectTimeoutNow(); err != nil {
		e.h.log.Debug("election cannot be injected", "group", uint64(c.g.spec.ID), "err", err)
		e.mu.Lock()
		c.injected = false
		c.due = time.Now().Add(electionTick * 10)
		e.mu.Unlock()
	}
}

// leaderAmong returns the newest leader that answered for itself.
func leaderAmong(answers map[transport.NodeID]replicaStatus, ownTerm uint64) (l leadership, ok bool) {
	for n, s := range answers {
		if s.leads() && s.term >= ownTerm && s.term >= l.term {
			l, ok = leadership{term: s.term, leader: n}, true
		}
	}
	return l, ok
}

// hearsay tells whether another voter follows a leader that did not answer here and is
// not known to be dead: the link to it may be the only one that is broken. Who follows
// it also notices its end.
func (e *elections) hearsay(g *Group, own replicaStatus, answers map[transport.NodeID]replicaStatus) bool {
	for _, s := range answers {
		if s.leader == "" || s.leader == e.h.cfg.Local || s.term < own.term {
			continue
		}
		if _, answered := answers[s.leader]; !answered && g.mayLead(s.leader) {
			return true
		}
	}
	return false
}

// bestReplica returns the voter that should lead: the longest log first, then the
// preferred node, then an order that all nodes agree on. A voter that does not run the
// group yet counts as one that holds nothing but the first configuration.
func bestReplica(g *Group, own replicaStatus, answers map[transport.NodeID]replicaStatus) transport.NodeID {
	local := g.host.cfg.Local
	nodes := []transport.NodeID{local}
	logs := map[transport.NodeID]replicaStatus{local: own}
	for n, s := range answers {
		if s.known() && !s.voter() {
			continue
		}
		if !s.known() {
			s.lastTerm, s.lastIndex = 1, 1
		}
		logs[n] = s
		nodes = append(nodes, n)
	}
	nodes = rank(g, nodes)
	slices.SortStableFunc(nodes, func(a, b transport.NodeID) int {
		return cmp.Or(
			cmp.Compare(logs[b].lastTerm, logs[a].lastTerm),
			cmp.Compare(logs[b].lastIndex, logs[a].lastIndex),
		)
	})
	return nodes[0]
}

// rank orders nodes by who should lead a group, all else being equal: the preferred
// node, then an order by hash that spreads the groups of a lost node.
func rank(g *Group, nodes []transport.NodeID) []transport.NodeID {
	weight := make(map[transport.NodeID]uint64, len(nodes))
	for _, n := range nodes {
		f := fnv.New64a()
		var id [8]byte
		for i := range id {
			id[i] = byte(g.spec.ID >> (8 * i))
		}
		f.Write(id[:])
		f.Write([]byte(n))
		weight[n] = f.Sum64()
	}
	ranked := slices.Clone(nodes)
	slices.SortFunc(ranked, func(a, b transport.NodeID) int {
		if a != b && (a == g.spec.Preferred || b == g.spec.Preferred) {
			if a == g.spec.Preferred {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(weight[a], weight[b]), cmp.Compare(a, b))
	})
	return ranked
}
