package catalog

import "slices"

// The indexes that this file keeps say again what others say, so that a command costs what it changes
// and not what there is. They are not in snapshots.

// tallyQueue counts a queue n times, 1 or -1.
func (tx *txn) tallyQueue(q *Queue, n int) {
	tx.tallyName(q, n)
	tx.tallyMissing(q, n)
	tx.tallyPlaces(q, n)
}

func (tx *txn) tallyName(q *Queue, n int) {
	if q.State == Running && q.DelayOf == "" {
		addTo(&tx.named, key(q.Vhost), n)
	}
}

func (tx *txn) tallyMissing(q *Queue, n int) {
	if q.Missing() > 0 {
		tx.short += n
	}
}

func (tx *txn) tallyPlaces(q *Queue, n int) {
	switch {
	case q.Kind == Replicated:
		for _, m := range q.Members {
			addTo(&tx.replicas, key(string(m)), n)
		}
	case n > 0:
		tx.transients.put(transientKey(q), q)
	default:
		tx.transients.del(transientKey(q))
	}
}

func transientKey(q *Queue) []byte {
	return append(key(nameOf(q.Members[0])), numberKey(q.ID)...)
}

// addTo adds n to a count; one that is 0 is not there.
func addTo(x *index[int], key []byte, n int) {
	old, _ := x.get(key)
	if old+n == 0 {
		x.del(key)
	} else {
		x.put(key, old+n)
	}
}

// retally is tallyQueue of a queue that takes the place of old, which may be nil.
func (tx *txn) retally(old, q *Queue) {
	if old == nil {
		tx.tallyQueue(q, 1)
		return
	}
	tx.tallyMissing(old, -1)
	tx.tallyMissing(q, 1)
	if old.State != q.State {
		tx.tallyName(old, -1)
		tx.tallyName(q, 1)
	}
	if q.Kind == Transient || !slices.Equal(old.Members, q.Members) {
		tx.tallyPlaces(old, -1)
		tx.tallyPlaces(q, 1)
	}
}

// forgetQueue takes a queue that is not running, or whose name the next one takes, out of the catalog.
func (tx *txn) forgetQueue(id uint64) {
	if q := tx.QueueByID(id); q != nil {
		tx.tallyQueue(q, -1)
		tx.tallyLives(q, false)
	}
	tx.queuesByID.del(numberKey(id))
	tx.changed(id)
}

// namedQueues is how many queues clients see in a vhost.
func (tx *txn) namedQueues(vhost string) uint64 {
	n, _ := tx.named.get(key(vhost))
	return uint64(n)
}

// tallyExchange notes one that was put, forgetExchange takes one out of the catalog.
func (tx *txn) tallyExchange(x *Exchange) {
	if !x.Durable {
		tx.fleeting.put(key(x.Vhost, x.Name), x)
	}
}

func (tx *txn) forgetExchange(x *Exchange) {
	tx.exchanges.del(key(x.Vhost, x.Name))
	tx.fleeting.del(key(x.Vhost, x.Name))
}
