package group

import (
	"sync"
	"time"
)

// proposals is the proposer of a group. It is guarded by Group.mu.
type proposals struct {
	// inFlight were handed to raft in this order and are not answered yet.
	inFlight []proposal
	// backlog waits for room in flight, or for the end of a pause.
	backlog      []proposal
	backlogBytes int
	paused       int  // pauses in force
	pumping      bool // somebody moves proposals from backlog to raft
	halted       bool // Stop has begun
}

// answersPerBacklog bounds the answers waiting for a slow collector, in backlogs.
const answersPerBacklog = 4

type proposal struct {
	data []byte
	done func(result any, err error)
	at   time.Time // when it was proposed
}

// Propose appends data to the group's log and reports the outcome through done.
//
// Proposals are appended in the order of the calls and answered in that order. data
// belongs to the group from now on and must not be empty. done may be nil; it runs on
// the group's collector, one at a time, must be quick and must not stop the group. Its
// result is what Machine.Apply returned. An error of ErrUnknown means that the entry may or may not be
// committed; after any other error it was never appended.
//
// Propose does not wait for the disk or the network.
func (g *Group) Propose(data []byte, done func(result any, err error)) {
	p := proposal{data: data, done: done, at: time.Now()}
	g.mu.Lock()
	if err := g.refusal(p); err != nil {
		g.answer(p, nil, err)
		g.mu.Unlock()
		return
	}
	g.backlog = append(g.backlog, p)
	g.backlogBytes += len(data)
	g.pump()
	g.mu.Unlock()
	g.rouse(true)
	g.host.watch.rouse(g)
}

// refusal returns why p cannot be taken. Caller holds mu.
func (g *Group) refusal(p proposal) error {
	c := &g.host.cfg
	switch {
	case g.halted:
		return ErrStopped
	case len(p.data) == 0:
		return ErrEmpty
	case !g.seen.self:
		return ErrNotLeader
	case len(g.backlog) >= c.BacklogMax,
		len(g.backlog) > 0 && g.backlogBytes+len(p.data) > c.BacklogBytesMax,
		len(g.events) >= answersPerBacklog*c.BacklogMax:
		return ErrOverloaded
	}
	return nil
}

// pump hands waiting proposals to raft while there is room in flight. Caller holds mu;
// it is released around each hand-over, because raft may have to wait for its main
// goroutine, which itself reports to sync. Only one caller pumps at a time, so that
// raft sees the proposals in order. Raft's FSM goroutine must not pump.
func (g *Group) pump() {
	if g.pumping {
		return
	}
	g.pumping = true
	for g.seen.self && !g.halted && !g.asleep.Load() && g.paused == 0 && len(g.backlog) > 0 && len(g.inFlight) < g.host.cfg.InFlightMax {
		p := g.backlog[0]
		g.backlog[0] = proposal{}
		g.backlog = g.backlog[1:]
		g.backlogBytes -= len(p.data)
		g.inFlight = append(g.inFlight, p)
		r := g.replica()
		g.mu.Unlock()
		// The future is not waited for; see applier.ApplyBatch.
		r.Apply(p.data, 0)
		g.mu.Lock()
	}
	if len(g.backlog) == 0 {
		g.backlog = nil
	}
	g.pumping = false
}

// applied answers the proposals among a batch of applied commands. It runs on raft's
// FSM goroutine.
func (g *Group) applied(results []result) {
	if len(results) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range results {
		if len(g.inFlight) == 0 {
			return
		}
		for i, p := range g.inFlight {
			if identity(p.data) != r.id {
				continue
			}
			// What was handed over before it and did not come first was refused by
			// raft between two tenures; the entry cannot come any more, but the
			// promise of ErrUnknown is the safe one.
			for _, earlier := range g.inFlight[:i] {
				g.answer(earlier, nil, ErrUnknown)
			}
			g.answer(p, r.value, nil)
			g.dropInFlight(i + 1)
			break
		}
	}
}

// dropInFlight forgets the first n proposals in flight. Caller holds mu.
func (g *Group) dropInFlight(n int) {
	clear(g.inFlight[:n])
	g.inFlight = g.inFlight[n:]
	if len(g.inFlight) == 0 {
		g.inFlight = nil
	}
}

// abandon answers everything: what raft has with flight, the rest with waiting.
// Caller holds mu.
func (g *Group) abandon(flight, waiting error) {
	for _, p := range g.inFlight {
		g.answer(p, nil, flight)
	}
	for _, p := range g.backlog {
		g.answer(p, nil, waiting)
	}
	g.inFlight, g.backlog, g.backlogBytes = nil, nil, 0
}

// expire answers what is older than limit. It reports whether any proposal is left.
func (g *Group) expire(now time.Time, limit time.Duration) (expired int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for n < len(g.inFlight) && now.Sub(g.inFlight[n].at) > limit {
		g.answer(g.inFlight[n], nil, ErrUnknown)
		n++
	}
	if n > 0 {
		g.dropInFlight(n)
	}
	expired = n
	if len(g.inFlight) > 0 {
		return expired // the backlog is younger and answers keep the order
	}
	n = 0
	for n < len(g.backlog) && now.Sub(g.backlog[n].at) > limit {
		g.answer(g.backlog[n], nil, ErrOverloaded)
		g.backlogBytes -= len(g.backlog[n].data)
		n++
	}
	clear(g.backlog[:n])
	g.backlog = g.backlog[n:]
	return expired + n
}

// pause holds proposals back in the backlog until the returned function is called or
// the tenure ends.
func (g *Group) pause() (resume func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.paused++
	tenure := g.seen
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.seen == tenure && g.paused > 0 {
			g.paused--
			g.pump()
		}
	})
}

// inFlightCount returns how many proposals raft has not answered.
func (g *Group) inFlightCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.inFlight)
}

// collector runs answers and leadership changes one after the other. Its goroutine
// exists only while there is something to run. It is guarded by Group.mu.
type collector struct {
	events     []event
	collecting bool
	idle       chan struct{} // closed when the running collector ends
}

type eventKind uint8

const (
	eventAnswer eventKind = iota
	eventLeadership
)

// event is one call to make: an answer or a leadership change.
type event struct {
	kind   eventKind
	done   func(any, error)
	result any
	err    error
	now    leadership
}

// answer queues the answer to a proposal. Caller holds mu.
func (g *Group) answer(p proposal, value any, err error) {
	if p.done == nil && len(g.backlog) == 0 {
		return
	}
	g.enqueue(event{kind: eventAnswer, done: p.done, result: value, err: err})
}

// enqueue adds an event and makes sure that somebody runs it. Caller holds mu.
func (g *Group) enqueue(e event) {
	g.events = append(g.events, e)
	if g.collecting {
		return
	}
	g.collecting = true
	g.idle = make(chan struct{})
	go g.collect(g.idle)
}

// collect runs events until none is left; stop waits for it.
func (g *Group) collect(idle chan struct{}) {
	defer close(idle)
	var batch []event
	for {
		g.mu.Lock()
		// Answers have made room in flight.
		g.pump()
		clear(batch)
		batch, g.events = g.events, batch[:0]
		if len(batch) == 0 {
			g.events = nil
			g.collecting = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		for _, e := range batch {
			switch e.kind {
			case eventAnswer:
				if e.done != nil {
					e.done(e.result, e.err)
				}
			case eventLeadership:
				if g.observer != nil {
					g.observer.Leadership(e.now.term, e.now.leader, e.now.self)
				}
			}
		}
	}
}

// awaitCollector waits until everything queued so far was run.
func (g *Group) awaitCollector() {
	g.mu.Lock()
	idle, busy := g.idle, g.collecting
	g.mu.Unlock()
	if busy {
		<-idle
	}
}
