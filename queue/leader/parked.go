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
	upTo  dlx.ItemID
	n     int   // letters released
	bytes int64 // of their bodies, about
}

type passState uint8

const (
	passNone     passState = iota
	passProposed           // the release is not applied yet
	passOn                 // letters up to upTo are being decided on
	passRest               // those that came meanwhile are
)

// Bounds of looking again: the work grows with the number of parked letters and with their bytes, which are all read, so does
// the pause.
const (
	releasePauseEach = 50 * time.Microsecond
	releasePauseMiB  = 4 * time.Millisecond
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
	var unrouted, cycles, all int
	var bytes int64
	l.replica.View(func(m *fsm.Machine) {
		unrouted, cycles = m.Outbox().Parked(fsm.ParkUnrouted), m.Outbox().Parked(fsm.ParkCycle)
		all, bytes = m.Outbox().Len(), m.Outbox().Bytes()
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
	l.parked.pass = pass{state: passProposed, n: unrouted + cycles, bytes: bytes / int64(all) * int64(unrouted+cycles)}
	l.parked.after = time.Now().Add(l.parked.pass.pause())
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

// pause is the least time between this look and the next, from the end of this one.
func (p *pass) pause() time.Duration {
	return min(topologyPause+time.Duration(p.n)*releasePauseEach+time.Duration(p.bytes>>20)*releasePauseMiB, releasePauseMax)
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
		l.parked.after = time.Now().Add(p.pause())
		p.state, p.upTo = passRest, last
		return l.passing()
	}
	p.state = passNone
	return false
}
