package leader

import (
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// endPatience is how long what is under way may keep it open whether a queue is empty. Nobody waits much longer for the answer, and a
// queue that ends later would do so when it is not expected any more.
const endPatience = 5 * time.Second

// endEmpty ends the queue if it is empty, for queue.delete with if-empty, and tells whether that is decided: it is not while something is
// under way that may become a message. That is decided here and not by the catalog, so that what is confirmed after the look does not go
// with the queue.
func (l *Leader) endEmpty(q parkedQuery) (decided bool) {
	if l.closing.begun() {
		return false // it is told that the queue has ended, as soon as that is so
	}
	s := l.status()
	s.Req = q.q.Req
	switch {
	case s.Ready+s.Unacked+s.Delayed+s.Parked > 0 || q.q.End == wire.EndResolved && s.Outbox > 0:
		l.out.send(q.from, s)
	case l.still():
		l.endItself()
		l.closing.waiting = append(l.closing.waiting, func() {
			s.Ended = true
			l.out.send(q.from, s)
		})
	default:
		left := endPatience - time.Since(q.since)
		if left > 0 {
			l.wake(left)
			return false
		}
		l.out.send(q.from, s)
	}
	return true
}

// still tells whether the queue has no message and nothing is under way that may bring one: entries, operations and transfers that wait
// for one, and operations that a node has announced.
func (l *Leader) still() (empty bool) {
	if len(l.inFlight)+len(l.pending.commands)+l.supply.bytes > 0 {
		return false
	}
	for _, p := range l.peers {
		if len(p.pending) > 0 || p.announced >= p.next {
			return false
		}
	}
	l.replica.View(func(m *fsm.Machine) { empty = m.Queue().Len() == 0 })
	return empty
}
