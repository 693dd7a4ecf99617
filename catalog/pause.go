package catalog

import "github.com/warrenmq/warren/amqp"

// PauseQueue has a queue hand out nothing, or hand out again. Queue.Settings stays: where the replicas are is as it was, and plans for them
// go on.
type PauseQueue struct {
	ID     uint64
	Paused bool
}

func (*PauseQueue) kind() commandKind { return kindPauseQueue }

func (c *PauseQueue) fields(f *fields) {
	f.u64(&c.ID)
	f.bool(&c.Paused)
}

func (c *PauseQueue) validate() error { return nil }

func (c *PauseQueue) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.QueueByID(c.ID)
	switch {
	case old == nil || old.State != Running:
		return Result{}, amqp.Errorf(amqp.NotFound, 0, "no queue with id %d", c.ID)
	case old.DelayOf != "":
		return Result{}, refused("the queue of a delayed exchange hands out nothing")
	case old.Paused == c.Paused:
		return Result{ID: old.ID, Queue: old}, nil
	}
	q := *old
	q.Paused, q.PausedAt = c.Paused, tx.index
	tx.putQueue(&q)
	return Result{Changed: true, ID: q.ID, Queue: &q}, nil
}

// hasNotes tells whether there is more of a queue that is to be written behind it.
func (q *Queue) hasNotes() bool { return q.PausedAt > 0 || q.DeclaredBy != "" || q.FirstLeader != "" }

// noteFields is what a queue has that was paused once, or whose declarer or first leader is known, as a snapshot's record behind the queues.
func (q *Queue) noteFields(f *fields) {
	f.u64(&q.ID)
	f.u64(&q.PausedAt)
	f.bool(&q.Paused)
	str(f, &q.DeclaredBy)
	if q.FirstLeader != "" || f.reading && len(f.buf) > 0 { // came later
		str(f, &q.FirstLeader)
	}
}

// restoreNotes adds such a record to the queue that it extends.
func (tx *txn) restoreNotes(f *fields) (problem string) {
	var notes Queue
	if notes.noteFields(f); f.err != nil {
		return ""
	}
	old := tx.QueueByID(notes.ID)
	switch {
	case old == nil:
		return "no such queue"
	case !notes.hasNotes() || notes.PausedAt > tx.revision || notes.Paused && notes.PausedAt == 0:
		return "a pause at no time"
	}
	q := *old
	q.Paused, q.PausedAt, q.DeclaredBy, q.FirstLeader = notes.Paused, notes.PausedAt, notes.DeclaredBy, notes.FirstLeader
	tx.putQueue(&q)
	return ""
}
