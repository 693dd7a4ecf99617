package catalog

import (
	"slices"

	"github.com/warrenmq/warren/amqp"
)

// A queue that has lost the majority of its replicas for good goes on in another life: under another id, which is also
// another Raft group, begun from what one of the survivors has (ADR 29). Nothing moves backwards: the former life's log
// stays as it is until the new one has its first leader, and is wiped then.

// livesMax bounds Queue.Former.
const livesMax = 1 << 10

// Kept is what a life of a queue began from.
type Kept struct {
	Index, Term uint64 // of the newest entry that the kept replica had
	Messages    uint64 // live ones, with those on their way to other queues
	// Again is how many of these had been sent to other queues, without it being certain that they arrived, and are sent again.
	Again uint64
}

// RecoverQueue gives a queue another life. Lost are the members that are gone for good, Survivors all others, the one with the newest
// log first: from that replica it begins. It is refused unless the lost ones are known to be down, were replaced or forgotten, and
// are so many that the others can be no majority. For a queue that is being recovered it names another keeper, if the
// first one is lost too; Survivors are those that were named first then, without Lost. IfSettings must equal Queue.Settings.
type RecoverQueue struct {
	ID              uint64
	Survivors, Lost []NodeID
	IfSettings      uint64
}

// QueueRecovered says that the new life has its first leader, so that the others' replicas of the former one may go.
// IfSettings must equal Queue.Settings.
type QueueRecovered struct {
	ID, IfSettings uint64
	Kept           Kept
}

func (*RecoverQueue) kind() commandKind   { return kindRecoverQueue }
func (*QueueRecovered) kind() commandKind { return kindQueueRecovered }

func (c *RecoverQueue) fields(f *fields) {
	f.u64(&c.ID)
	list(f, &c.Survivors)
	list(f, &c.Lost)
	f.u64(&c.IfSettings)
}

func (c *QueueRecovered) fields(f *fields) {
	f.u64(&c.ID)
	f.u64(&c.IfSettings)
	c.Kept.fields(f)
}

func (k *Kept) fields(f *fields) {
	f.u64(&k.Index)
	f.u64(&k.Term)
	f.u64(&k.Messages)
	f.u64(&k.Again)
}

func (c *RecoverQueue) validate() error {
	switch {
	case c.IfSettings == 0:
		return refused("a recovery says what it was decided for")
	case len(c.Lost) == 0 || len(c.Lost) > plannedMembersMax || len(c.Survivors) == 0 || len(c.Survivors) > plannedMembersMax:
		return refused("%d members are lost and %d are not", len(c.Lost), len(c.Survivors))
	}
	all := append(slices.Clone(c.Survivors), c.Lost...)
	for i, n := range all {
		if slices.Contains(all[:i], n) {
			return refused("member '%s' is named twice", n)
		}
		if err := checkNodeID(n); err != nil {
			return firstError(err)
		}
	}
	return nil
}

func (c *QueueRecovered) validate() error {
	if c.IfSettings == 0 {
		return refused("the end of a recovery says which one it was")
	}
	return nil
}

// lost tells whether nobody hears of a node, as far as the catalog knows.
func (tx *txn) lost(id NodeID) bool {
	n := tx.Node(id)
	return n == nil || n.Superseded || n.Down != 0
}

func (c *RecoverQueue) apply(tx *txn) (Result, *amqp.Error) {
	old, err := tx.replicated(c.ID, c.IfSettings)
	if err != nil {
		return Result{}, err
	}
	for _, n := range c.Lost {
		if !tx.lost(n) {
			return Result{}, refused("node '%s' is not known to be down", n)
		}
	}
	keep := c.Survivors[0]
	if tx.lost(keep) {
		return Result{}, refused("node '%s' is down, and was to be kept", keep)
	}
	q := *old
	q.Survivors = c.Survivors
	if old.Survivors != nil {
		if !slices.Contains(c.Lost, old.Members[0]) || !slices.Equal(c.Survivors, without(old.Survivors, c.Lost)) {
			return Result{}, refused("queue '%s' in vhost '%s' is being recovered from another replica", old.Name, old.Vhost)
		}
	} else {
		gone := without(old.Members, c.Survivors)
		switch {
		case len(gone)+len(c.Survivors) != len(old.Members), len(without(gone, c.Lost)) > 0, len(without(c.Lost, gone)) > 0:
			return Result{}, refused("queue '%s' in vhost '%s' has other members", old.Name, old.Vhost)
		// While members change it is not known here who votes; who asks for it has looked.
		case old.Wanted == nil && 2*len(gone) < len(old.Members):
			return Result{}, refused("queue '%s' in vhost '%s' has lost %d of %d replicas, which is no majority", old.Name, old.Vhost, len(gone), len(old.Members))
		case len(old.Former) >= livesMax:
			return Result{}, refused("queue '%s' in vhost '%s' was recovered %d times", old.Name, old.Vhost, len(old.Former))
		}
		q.ID = tx.index
		q.Former = append(slices.Clone(old.Former), old.ID)
	}
	q.Members, q.Generations, q.Preferred, q.FirstLeader = []NodeID{keep}, []uint64{tx.index}, keep, ""
	q.Size = sizeAbove(max(old.Size, uint64(len(old.Target()))), q.Members)
	q.Wanted, q.WantedPreferred, q.Founders, q.Settings, q.Kept = nil, "", nil, tx.index, Kept{}
	q.Settled, q.Stood = 0, 0
	if q.ID != old.ID {
		tx.forgetQueue(old.ID)
		if x := tx.Exchange(q.Vhost, q.DelayOf); q.DelayOf != "" && x != nil && x.DelayQueue == old.ID {
			renewed := *x
			renewed.DelayQueue = q.ID
			tx.putExchange(&renewed)
		}
	}
	tx.putQueue(&q)
	return Result{Changed: true, ID: q.ID, Queue: &q}, nil
}

func (c *QueueRecovered) apply(tx *txn) (Result, *amqp.Error) {
	old, err := tx.replicated(c.ID, c.IfSettings)
	switch {
	case err != nil:
		return Result{}, err
	case old.Survivors == nil:
		return Result{ID: old.ID, Queue: old}, nil
	}
	q := *old
	q.Survivors, q.Kept, q.Settings = nil, c.Kept, tx.index
	tx.putQueue(&q)
	return Result{Changed: true, ID: q.ID, Queue: &q}, nil
}

func without(all, less []NodeID) (left []NodeID) {
	for _, n := range all {
		if !slices.Contains(less, n) {
			left = append(left, n)
		}
	}
	return left
}

// NoneLeft tells whether no replica of a queue is left, nor ever comes back: the storages of its members, and of those from which a new life
// of it could begin yet, were replaced by newer ones or taken out of the cluster, or are among lost. One that is only down comes back with what
// it has.
func (v *View) NoneLeft(q *Queue, lost ...NodeID) bool {
	comesBack := func(id NodeID) bool {
		n := v.Node(id) // every member was registered once
		return n != nil && !n.Superseded && !slices.Contains(lost, id)
	}
	return q.Kind == Replicated && !slices.ContainsFunc(q.Members, comesBack) && !slices.ContainsFunc(q.Survivors, comesBack)
}

// Stranded tells whether queues have members that do not come back, which is cheaper than a look at all queues.
func (v *View) Stranded() bool {
	known := 0
	for n := range v.Nodes() {
		switch {
		case v.Replicas(n.ID) == 0:
		case n.Superseded:
			return true
		default:
			known++
		}
	}
	return known < v.Hosts()
}

// Life is the number of the queue's present life, 0 for one that was never recovered.
func (q *Queue) Life() uint32 { return uint32(len(q.Former)) }

// Successor returns the queue that goes on in place of a former life of it, and the number of that life, from 1; nil if id is none.
func (v *View) Successor(id uint64) (q *Queue, life uint32) {
	now, ok := v.former.get(numberKey(id))
	if !ok {
		return nil, 0
	}
	if q = v.QueueByID(now); q == nil {
		return nil, 0
	}
	return q, uint32(slices.Index(q.Former, id) + 1)
}

// Needs tells whether a node is to keep what it has under the id of a queue, or of a former life of one: it is a member, or the queue's new
// life has not begun yet and may have to begin from this. A queue that is newer than the view may be any.
func (v *View) Needs(node NodeID, id uint64) bool {
	if q := v.QueueByID(id); q != nil || id > v.revision {
		return q == nil || slices.Contains(q.Members, node)
	}
	next, _ := v.Successor(id)
	return next != nil && slices.Contains(next.Survivors, node)
}

// tallyLives notes who goes on in place of the queue's former lives, or, as they go with it, nobody.
func (tx *txn) tallyLives(q *Queue, there bool) {
	for _, id := range q.Former {
		if there {
			tx.former.put(numberKey(id), q.ID)
		} else {
			tx.former.del(numberKey(id))
		}
	}
}

// lifeFields is what a queue that was recovered has, as a snapshot's record behind the queues.
func (q *Queue) lifeFields(f *fields) {
	f.u64(&q.ID)
	f.u64s(&q.Former)
	list(f, &q.Survivors)
	q.Kept.fields(f)
}

// restoreLife adds such a record to the queue that it extends.
func (tx *txn) restoreLife(f *fields) (problem string) {
	var life Queue
	if life.lifeFields(f); f.err != nil {
		return ""
	}
	old := tx.QueueByID(life.ID)
	switch {
	case old == nil:
		return "no such queue"
	case len(life.Former) == 0 || len(life.Former) > livesMax || !slices.IsSorted(life.Former) || life.Former[len(life.Former)-1] >= life.ID:
		return "former lives out of order"
	case len(life.Survivors) > 0 && (len(old.Members) != 1 || !slices.Contains(life.Survivors, old.Members[0])):
		return "the keeper is no survivor"
	}
	q := *old
	q.Former, q.Survivors, q.Kept = life.Former, life.Survivors, life.Kept
	tx.putQueue(&q)
	return ""
}
