package leader

import (
	"time"

	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/fsm"
)

// parked says when dead letters without a route are routed again.
type parked struct {
	look   bool
	cycles bool      // those that are parked as cycles too
	after  time.Time // not before
	pass   pass
}

// pass is one look at all that was parked. The mover decides on letters in the order of their numbers, so
// that a release in the middle would have it begin again, and never come to the end while the
// catalog changes all the time.
type pass struct {
	state passState
	// upTo is the newest letter that the pass, or what came meanwhile, has to be over with.
	upTo dlx.ItemID
	n    int // letters released
}

type passState uint8

const (
	passNone     passState = iota
	passProposed           // the release is not applied yet
	passOn                 // letters up to upTo are being decided on
	passRest               // those that came meanwhile are
)

// Bounds of looking again: the work grows with the number of parked letters, so does
// the pause.
const (
	releasePauseEach = 50 * time.Microsecond
	releasePauseMax  = 5 * time.Second
	// topologyPause is the least time between two looks.
	topologyPause = 20 * time.Millisecond
)

// releaseParked makes parked dead letters unrouted again after a change of topology,
// and in a queue that is closing, where they are dropped if they still have no route.
func (l *Leader) releaseParked() {
	if !l.parked.look && !l.closing.closed || l.phase == phaseOpen {
		return
	}
	var unrouted, cycles int
	l.replica.View(func(m *fsm.Machine) {
		unrouted, cycles = m.Outbox().Parked(fsm.ParkUnrouted), m.Outbox().Parked(fsm.ParkCycle)
	})
	if !l.closing.closed && !l.parked.cycles {
		cycles = 0
	}
	if unrouted+cycles == 0 {
		l.parked.look, l.parked.cycles = false, false
		return
	}
	if l.passing() && !l.closing.closed {
		return // it goes on when entries are applied
	}
	if left := time.Until(l.parked.after); left > 0 {
		l.wake(left)
		return
	}
	if l.closing.closed {
		l.cfg.Logger.Warn("dead letters without a route end with their queue", "queue", l.cfg.Queue, "messages", unrouted+cycles)
	}
	l.parked.look, l.parked.cycles = false, false
	l.parked.after = time.Now().Add(releasePause(unrouted + cycles))
	l.parked.pass = pass{state: passProposed, n: unrouted + cycles}
	if unrouted > 0 {
		l.pending.add(fsm.Release{Kind: fsm.ParkUnrouted}, false)
	}
	if cycles > 0 {
		l.pending.add(fsm.Release{Kind: fsm.ParkCycle}, false)
	}
	l.pending.applied = append(l.pending.applied, func() {
		l.parked.pass.state = passOn
		l.replica.View(func(m *fsm.Machine) { l.parked.pass.upTo = m.Outbox().Last() })
	})
}

// releasePause is the least time between two looks at n parked letters, from the end of the first.
func releasePause(n int) time.Duration {
	return min(topologyPause+time.Duration(n)*releasePauseEach, releasePauseMax)
}

// passing tells whether the newest pass is not over, or the letters that came while it went on
// are not decided on: they do not wait for another one.
func (l *Leader) passing() bool {
	p := &l.parked.pass
	if p.state == passNone || p.state == passProposed {
		return p.state == passProposed
	}
	var left bool
	var last dlx.ItemID
	l.replica.View(func(m *fsm.Machine) {
		next := m.Outbox().Unrouted(1)
		left, last = len(next) > 0 && next[0].ID <= p.upTo, m.Outbox().Last()
	})
	switch {
	case left:
		return true
	case p.state == passOn:
		l.parked.after = time.Now().Add(releasePause(p.n))
		p.state, p.upTo = passRest, last
		return l.passing()
	}
	p.state = passNone
	return false
}
