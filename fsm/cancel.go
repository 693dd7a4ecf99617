package fsm

import (
	"slices"

	"github.com/warrenmq/warren/queue"
)

// tagCancel is Cancel's tag among the operations of a stream. It belongs to level 2 of the cluster.
const tagCancel = 6

// Cancel takes a message of a delayed exchange back that has not come due: it is nowhere then. Its outcome is Cancelled if it did, also when it is
// asked for once more, and Done if the message has gone on, is of another queue, or was never there. The order of the log decides: of a message that
// comes due and is cancelled at the same time exactly one is true.
type Cancel struct{ ID queue.MessageID }

func (Cancel) op() {}

// cancelledMax is how many cancelled messages a queue knows, so that whoever has no answer can ask again.
const cancelledMax = 4096

func (a *apply) cancel(id queue.MessageID) OutcomeKind {
	if a.closed {
		return Gone
	}
	if slices.Contains(a.cancelled, id) {
		return Cancelled
	}
	m, live := a.queue.Get(id)
	if !live || !a.settings.Delayed || a.away(id) {
		return Done
	}
	a.release(a.take(id).Ref)
	a.counters.Purged++
	// What a capture holds of the list stays as it is.
	a.cancelled = append(a.cancelled, m.ID)
	a.cancelled = a.cancelled[max(0, len(a.cancelled)-cancelledMax):]
	return Cancelled
}

// appendCancelled writes the cancelled messages, the oldest first, each as the distance from the one before.
func appendCancelled(b []byte, ids []queue.MessageID) []byte {
	b = appendUint(b, uint64(len(ids)))
	var last queue.MessageID
	for _, id := range ids {
		b = appendInt(b, int64(id-last))
		last = id
	}
	return b
}

func (r *reader) cancelled(m *Machine) {
	n := r.count(1)
	if r.err == nil && (n == 0 || n > cancelledMax || m.closed) {
		r.fail(ErrMalformed, "number of cancelled messages")
		return
	}
	var id queue.MessageID
	for range n {
		id += queue.MessageID(r.varint())
		if _, live := m.queue.Get(id); r.err != nil || live || id == 0 || id > m.queue.Tail() {
			r.fail(ErrMalformed, "cancelled message")
			return
		}
		m.cancelled = append(m.cancelled, id)
	}
}
