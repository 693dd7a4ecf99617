package group

import (
	"cmp"
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
	// pollTimeout bounds one question to a node. After pollPatience the decision is made
	// without those that have not answered, if a majority has.
	pollTimeout  = time.Second
	pollPatience = 200 * time.Millisecond
	// pollLongest bounds the questions of a round while no majority has answered, unless a node comes back meanwhile. To ask again sooner where nodes have no
	// time to answer would leave them even less.
	pollLongest = 8 * time.Second
	// injectTimeout bounds the request to another node to start an election.
	injectTimeout = 200 * time.Millisecond
	// quorumRetry is how often a group without a quorum of live voters is looked at; a
	// node that returns shortens it.
	quorumRetry = time.Second
	// backoffMax bounds the doubling of pauses between attempts: 2^backoffMax.
	backoffMax = 4
	// yieldsMax is how many rounds a better replica on another node is given, each twice
	// as long as the one before: together some two seconds, because after the death of
	// a node with thousands of leaders it may have others to elect first.
	yieldsMax = 4
	// heardMax is how many rounds of leaderGrace a leader is waited for that was elected meanwhile and whose node
	// does not pass for living yet.
	heardMax = 4
	// lonelyMax is how many rounds a replica waits for other voters to start the group, with
	// pauses of up to electionTick doubled lonelyBackoffMax times: about a second.
	lonelyMax        = 8
	lonelyBackoffMax = 6
	// CandidateMax divided by candidateLook is when an injected election that is not over is looked at first, unless more than
	// fewElections are under way: after the death of a node with thousands of leaders most take longer, without being lost.
	candidateLook = 4
	fewElections  = 32
	// candidateFactor times CandidateMax is how long a replica may stay Candidate without
	// any sign that it has lost. The transport keeps votes open for 10 s, and
	// FreeCandidate needs one.
	candidateFactor = 19
)

// elections finds leaders for groups that have none. It owns one campaign for each such
// group and decides from one goroutine.
type elections struct {
	h    *Host
	wake chan struct{} // capacity 1

	mu        sync.Mutex // guards the rest, and what campaigns hold; never held while calling out
	campaigns map[*Group]*campaign
	atOnce    atOnce
	// hurried is closed and replaced when a node came back.
	hurried chan struct{}
	// began is when a death was noticed after which there were campaigns all the time, and found
	// counts those that have ended; zero if there was none.
	began time.Time
	found int
}

// campaign is the search for the leader of one group.
type campaign struct {
	g        *Group
	began    time.Time
	due      time.Time
	polling  bool
	first    bool      // the group never had a leader
	attempts int       // injections made
	lonely   int       // rounds in which too few voters ran the group
	yields   int       // rounds in which a better replica was given its turn
	injected bool      // an injected election is under way
	started  time.Time // when it was injected
	// early tells that it is looked at before until, which is how long it may take; from is the term of the replica before it.
	early bool
	until time.Time
	from  uint64
	// candidate is when the replica was first seen as Candidate, or until if that is later; zero if it is not.
	candidate time.Time
	freed     bool   // FreeCandidate was tried since
	reached   uint64 // term in which all voters that answered were seen once, without having made it leader
	term      uint64 // of the replica when the campaign began
	heard     int    // rounds in which a leader of a later term was waited for
}

func newElections(h *Host) *elections {
	return &elections{h: h, wake: make(chan struct{}, 1), campaigns: make(map[*Group]*campaign), atOnce: newAtOnce(h.cfg.ElectionsMax), hurried: make(chan struct{})}
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
	if fresh && g.spec.Young && g.Home() == e.h.cfg.Local && e.first(g, g.spec.Members) {
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
		c = &campaign{g: g, term: g.replica().CurrentTerm(), began: time.Now()}
		e.campaigns[g] = c
	}
	c.first = fresh
	c.due = time.Now().Add(delay)
	e.mu.Unlock()
	e.poke()
}

// first starts the first election of a group, or of one that has slept, at once, as if the voters had been asked: they hold
// the request until they run the group. It reports false if that has to wait.
func (e *elections) first(g *Group, voters []transport.NodeID) bool {
	if !g.aliveQuorum(voters) {
		return false
	}
	e.mu.Lock()
	free := len(e.campaigns) <= e.atOnce.now
	if c := e.campaigns[g]; c != nil { // it has no leader since it was opened
		free = free && !c.polling && !c.injected
	}
	if free {
		now := time.Now()
		e.campaigns[g] = &campaign{
			g: g, term: g.replica().CurrentTerm(), began: now, first: true,
			injected: true, started: now, attempts: 1, due: now.Add(e.h.cfg.CandidateMax),
		}
	}
	e.mu.Unlock()
	if !free {
		return false
	}
	e.poke()
	e.h.counters.injected.Add(1)
	if err := g.running.Load().wire.InjectTimeoutNow(); err != nil {
		e.h.log.Debug("election cannot be injected", "group", uint64(g.spec.ID), "err", err)
	}
	return true
}

// want asks for a leader of g in delay, or earlier if that was wanted already.
func (e *elections) want(g *Group, delay time.Duration) {
	if isClosed(g.stopped) {
		return
	}
	now := time.Now()
	due := now.Add(delay)
	e.mu.Lock()
	c, ok := e.campaigns[g]
	if !ok {
		c = &campaign{g: g, term: g.replica().CurrentTerm(), began: now, due: due}
		e.campaigns[g] = c
	} else if delay == 0 && !c.injected && due.Before(c.due) {
		c.due = due
	}
	e.mu.Unlock()
	if !ok || delay == 0 {
		e.poke()
	}
}

// death notes that campaigns begin because of one.
func (e *elections) death() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.began.IsZero() {
		e.began, e.found = time.Now(), 0
	}
}

// busy tells whether groups here look for their leaders.
func (e *elections) busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.campaigns) > 0
}

// settled ends the campaign of a group whose leader is known.
func (e *elections) settled(g *Group) {
	e.mu.Lock()
	c, ok := e.campaigns[g]
	freed := ok && c.injected
	if freed && !isClosed(g.stopped) {
		e.atOnce.ended(c.started, true, e.underWay)
	}
	delete(e.campaigns, g)
	if ok && !isClosed(g.stopped) {
		e.found++
		e.h.counters.searches.note(time.Since(c.began))
	}
	none, found, began := len(e.campaigns) == 0, e.found, e.began
	if none {
		e.found, e.began = 0, time.Time{}
	}
	e.mu.Unlock()
	if ok && none && !began.IsZero() {
		e.h.log.Info("groups here have their leaders again", "found", found, "took", time.Since(began))
	}
	if freed {
		e.poke() // there is room for the next
	}
}

// hurry makes every waiting campaign due: a node came back.
func (e *elections) hurry() {
	now := time.Now()
	e.mu.Lock()
	close(e.hurried)
	e.hurried = make(chan struct{})
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
	for _, c := range e.campaigns {
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
	room := max(0, e.atOnce.now-e.underWay())
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

// underWay counts the injected elections. Caller holds mu.
func (e *elections) underWay() (n int) {
	for _, c := range e.campaigns {
		if c.injected {
			n++
		}
	}
	return n
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
	if g.asleep.Load() {
		g.rouse(true)
		e.wait(c, leaderGrace)
		return false
	}
	if g.replica().State() == raft.Candidate {
		return e.candidate(c)
	}
	if l, ok := g.settledLeader(); ok && !e.hinted(g, l) {
		e.settled(g)
		return false
	}
	e.mu.Lock()
	if c.injected && c.early && g.replica().CurrentTerm() == c.from && time.Now().Before(c.until) {
		c.due = c.until // it has not begun
		e.mu.Unlock()
		return false
	}
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

// candidate deals with a replica that is Candidate: the voters are asked why, soon in case it cannot win, and after a while for other reasons. Injecting
// again would do nothing.
func (e *elections) candidate(c *campaign) (poll bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if c.candidate.IsZero() {
		c.candidate = now
		if c.injected && c.early && c.until.After(now) {
			c.candidate, c.polling = c.until, true
			return true
		}
	}
	if left := e.h.cfg.CandidateMax - now.Sub(c.candidate); left > 0 {
		c.due = now.Add(left)
		return false
	}
	c.polling = true
	return true
}

// wait ends the polling of a campaign and sets its next time.
func (e *elections) wait(c *campaign, d time.Duration) {
	e.mu.Lock()
	c.polling = false
	c.due = time.Now().Add(d)
	e.mu.Unlock()
}

// waitTogether is wait until a moment that campaigns share, so that their next questions are one.
func (e *elections) waitTogether(c *campaign, d time.Duration) {
	e.wait(c, d+d-time.Since(e.h.began)%d)
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
	r := c.g.replica()
	e.mu.Lock()
	_, wanted := e.campaigns[c.g]
	c.injected = wanted
	c.started, c.from = time.Now(), r.CurrentTerm()
	c.until = c.started.Add(d)
	if c.early = len(e.campaigns) <= fewElections; c.early {
		d = e.h.cfg.CandidateMax / candidateLook
	}
	e.mu.Unlock()
	e.wait(c, d)
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
