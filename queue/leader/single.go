package leader

import (
	"cmp"
	"slices"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// single is the state of a queue with a single active consumer beside its consumers.
// Who is active is in the log (fsm.Tenure); the order of the others is theirs to tell.
type single struct {
	turns uint64 // given out in this session
	// asked is the tenure proposed last.
	asked fsm.Tenure
	// quiet is since when the holder's node may be without a word from this leader: the
	// beginning of the session, or the node's death.
	quiet time.Time
	// returning counts the deliveries that are on their way back into the queue. What
	// follows them waits, so that the next consumer goes on where the last one stopped.
	returning int
}

// turn gives a consumer its place.
func (l *Leader) turn(c *wire.Consumer) {
	if c.Turn == (wire.Turn{}) {
		l.single.turns++
		c.Turn = wire.Turn{Session: l.cfg.Session, No: l.single.turns}
	}
}

// inTurn orders waiting consumers: a higher priority first, then who came first.
func inTurn(a, b *consumer) int {
	if c := cmp.Compare(b.Priority, a.Priority); c != 0 {
		return c
	}
	return a.Turn.Compare(b.Turn)
}

func (cs *consumers) enter(c *consumer) {
	if cs.single {
		i, _ := slices.BinarySearchFunc(cs.line, c, inTurn)
		cs.line = slices.Insert(cs.line, i, c)
	}
}

func (cs *consumers) leave(c *consumer) {
	if !cs.single {
		return
	}
	if i := slices.Index(cs.line, c); i >= 0 {
		cs.line = slices.Delete(cs.line, i, i+1)
	}
	if cs.active == c {
		cs.active = nil
	}
}

// activate lets c, and nobody else, have messages; nil stops everybody.
func (cs *consumers) activate(c *consumer) {
	former := cs.active
	if former == c {
		return
	}
	cs.active = c
	if former != nil {
		cs.changed(former)
	}
	if c != nil {
		cs.changed(c)
	}
}

// appoint decides who gets the messages of a queue with a single active consumer: the
// holder that the log names, as long as it is there. The first of the line follows when
// it is not, or is of a higher priority and the holder has settled what it has. A new
// holder is in the log before it gets anything.
func (l *Leader) appoint() {
	cs := &l.consumers
	if !cs.single || len(cs.line) == 0 {
		return
	}
	first, holder := cs.line[0], l.holder()
	switch {
	case holder != nil && holder.Priority >= first.Priority:
		cs.activate(holder)
		return
	case holder != nil && holder.unacked > 0:
		cs.activate(nil)
		return
	case holder == nil && !l.tenureOver():
		cs.activate(nil)
		return
	}
	cs.activate(nil)
	if next := l.tenureOf(first); l.single.asked != next {
		l.single.asked = next
		l.pending.add(next, false)
	}
}

func (l *Leader) tenureOf(c *consumer) fsm.Tenure {
	return fsm.Tenure{Origin: l.peers[c.node].origin, Consumer: uint64(c.no)}
}

// holder returns the consumer that the log names, nil if it is not attached.
func (l *Leader) holder() *consumer {
	t := l.seen.tenure
	p := l.peers[t.Origin.Node]
	if p == nil || p.origin != t.Origin {
		return nil
	}
	return l.consumers.find(t.Origin.Node, wire.ConsumerNo(t.Consumer))
}

// coming returns the consumer that a message accepted now goes to: the active one, or
// the one that becomes active with the tenure in flight.
func (l *Leader) coming() *consumer {
	cs := &l.consumers
	if cs.active != nil || len(cs.line) == 0 || l.tenureOf(cs.line[0]) != l.single.asked {
		return cs.active
	}
	return cs.line[0]
}

// tenureOver tells whether the holder that the log names, which is not attached, can not
// be given messages by anybody any more. A node that has spoken to this leader takes
// none of an earlier one, and a process that has ended takes none at all. Of a node that
// is merely not heard nothing is known: a leader on its side may go on until its lease
// ends, and is waited for.
func (l *Leader) tenureOver() bool {
	o := l.seen.tenure.Origin
	if o == (fsm.Origin{}) || l.cfg.Lease <= 0 {
		return true
	}
	if p := l.peers[o.Node]; p != nil && p.resync > 0 && p.origin.Incarnation >= o.Incarnation {
		return true
	}
	if l.cfg.ProcessGone != nil && l.cfg.ProcessGone(o) {
		return true
	}
	left := l.cfg.Lease - time.Since(l.single.quiet)
	if left > 0 {
		l.wake(left)
	}
	return left <= 0
}

// returnsOf marks everything a consumer holds as on its way back. It looks at all that is held in the queue: who has nothing is not worth that.
func (l *Leader) returnsOf(node uint32, no wire.ConsumerNo) {
	for id, h := range l.held {
		if h.node == node && h.no == no && !h.named {
			l.setBack(&h, true)
			l.held[id] = h
		}
	}
}

// setBack notes whether a delivery is on its way back.
func (l *Leader) setBack(h *hold, back bool) {
	if h.back == back {
		return
	}
	h.back = back
	if back {
		l.single.returning++
	} else {
		l.single.returning--
	}
}
