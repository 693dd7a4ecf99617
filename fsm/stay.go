package fsm

import (
	"github.com/warrenmq/warren/dlx"
	"github.com/warrenmq/warren/queue"
)

// In a queue whose settings let expired messages stay (StopTTL, MaxHops), Expire puts a message into
// the outbox and leaves it at its place too: only Route tells whether it dies. Meanwhile it has no
// time to live and is out of everybody's reach, like what a redrive sends.

// stays tells whether an expired message may stay.
func stays(s *queue.Settings) bool {
	return s.DeadLetter && !s.Delayed && (s.StopTTL || s.MaxHops > 0)
}

// expire lets a live message die, or die when it is decided that it does not stay.
func (a *apply) expire(m queue.Message) {
	// A plan is for messages without a history, which neither go round nor have come far.
	if !stays(&a.settings) || a.closed || a.routesNow(dlx.Expired) {
		a.die(a.take(m.ID), dlx.Expired)
		return
	}
	a.queue.StopTTL(m.ID)
	a.undecided.add(a.outbox.Add(m.Ref, m.BodyBytes, dlx.Expired, a.time), m.ID)
	a.changed(true)
}

// depart takes the message of an outbox item from its place, if it is still there: it is dead.
func (a *apply) depart(it OutboxID) {
	if id, ok := a.undecided.remove(it); ok {
		a.take(id)
		a.counters.Died[dlx.Expired]++
		a.dead().Died[dlx.Expired]++
	}
}

// stay gives a message back to its place, without a time to live. If it has left that, it is kept
// in the outbox.
func (a *apply) stay(it OutboxID) {
	id, ok := a.undecided.remove(it)
	if !ok {
		a.changed(a.outbox.Park(it, ParkCycle))
		return
	}
	a.outbox.Drop(it)
	a.changed(true)
	a.counters.Stayed++
	a.res.Freed = queue.AppendID(a.res.Freed, id)
}

// departAll takes every place before the queue is closed.
func (a *apply) departAll() {
	for _, x := range a.undecided.list() {
		a.depart(x.item)
	}
}

// away tells whether a live message is out of reach, because it is leaving or may be.
func (m *Machine) away(id queue.MessageID) bool { return m.leaving.has(id) || m.undecided.has(id) }

// UndecidedLen is the number of expired messages that may stay.
func (m *Machine) UndecidedLen() int { return len(m.undecided.ids) }

// MayStay tells whether the message of an outbox item is at its place yet.
func (m *Machine) MayStay(it OutboxID) bool {
	_, ok := m.undecided.items[it]
	return ok
}
