package catalog

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

func (tx *txn) putExchange(x *Exchange) {
	if x.table == nil {
		x.table = exchange.New(x.Type, x.Arguments)
	}
	tx.exchanges.put(key(x.Vhost, x.Name), x)
	tx.tallyExchange(x)
}

func (c *DeclareExchange) apply(tx *txn) (Result, *amqp.Error) {
	x := c.Exchange
	if tx.Vhost(x.Vhost) == nil {
		return Result{}, errNoVhost(x.Vhost)
	}
	if old := tx.Exchange(x.Vhost, x.Name); old != nil {
		if !old.Durable {
			renewed := *old
			renewed.Renewed = tx.index
			tx.putExchange(&renewed)
		}
		return Result{}, nil
	}
	if err := tx.checkPlaces(c.Members); err != nil {
		return Result{}, err
	}
	x.Created, x.Renewed, x.DelayQueue, x.table, x.bindings = tx.index, tx.index, 0, nil, 0
	if x.Type == exchange.Delayed {
		x.DelayQueue = tx.index
		tx.putQueue(&Queue{
			ID: tx.index, Vhost: x.Vhost, Name: x.Name, DelayOf: x.Name, Durable: true,
			Kind: Replicated, State: Running, Members: c.Members, Preferred: c.Preferred, Settings: tx.index,
			Size: sizeAbove(c.Size, c.Members),
		})
	}
	x.alternate = tx.alternate(&x)
	tx.putExchange(&x)
	return Result{Changed: true}, nil
}

func (c *DeleteExchange) apply(tx *txn) (Result, *amqp.Error) {
	x := tx.Exchange(c.Vhost, c.Name)
	if x == nil {
		return Result{}, nil
	}
	if c.IfUnused && x.bindings > 0 {
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "exchange '%s' in vhost '%s' in use", c.Name, c.Vhost)
	}
	tx.deleteExchange(x)
	return Result{Changed: true}, nil
}

// deleteExchange removes x with the bindings on both of its sides. Auto-delete
// exchanges that were bound to it may follow.
func (tx *txn) deleteExchange(x *Exchange) {
	// First of all, so that removing its bindings does not find it.
	tx.forgetExchange(x)
	tx.closeDelays(x)
	for b := range tx.BindingsFrom(x.Vhost, x.Name) {
		tx.bySource.del(b.sourceKey())
		tx.byDestination.del(b.destinationKey())
	}
	tx.unbindAll(x.Vhost, x.Name, true)
}

// closeDelays ends the queue of a delayed exchange, with the messages in it.
func (tx *txn) closeDelays(x *Exchange) {
	if x.DelayQueue == 0 {
		return
	}
	if q := tx.QueueByID(x.DelayQueue); q != nil {
		tx.closeQueue(q)
	}
}

// unbindAll removes the bindings that lead to a queue or an exchange.
func (tx *txn) unbindAll(vhost, destination string, toExchange bool) {
	for b := range tx.BindingsTo(vhost, destination, toExchange) {
		tx.unbind(b)
	}
}

// unbind removes a stored binding and, with it, an auto-delete exchange for which it was
// the last one as source.
func (tx *txn) unbind(b *Binding) {
	if _, ok := tx.bySource.get(b.sourceKey()); !ok {
		return // a cascade got here first
	}
	tx.bySource.del(b.sourceKey())
	tx.byDestination.del(b.destinationKey())
	old := tx.Exchange(b.Vhost, b.Source)
	if old == nil {
		return
	}
	x := *old
	x.table = old.table.Remove(b.routing())
	x.bindings--
	tx.putExchange(&x)
	if x.AutoDelete && x.bindings == 0 {
		tx.deleteExchange(&x)
	}
}

func (c *Bind) apply(tx *txn) (Result, *amqp.Error) {
	b := &c.Binding
	source := tx.Exchange(b.Vhost, b.Source)
	switch {
	case source == nil:
		return Result{}, errNoExchange(b.Vhost, b.Source)
	case b.ToExchange && tx.Exchange(b.Vhost, b.Destination) == nil:
		return Result{}, errNoExchange(b.Vhost, b.Destination)
	case !b.ToExchange && tx.Queue(b.Vhost, b.Destination) == nil:
		return Result{}, errNoQueue(b.Vhost, b.Destination)
	}
	if err := exchange.ValidateBinding(source.Type, source.Arguments, b.Key, b.Arguments); err != nil {
		return Result{}, refusal(err)
	}
	if tx.Binding(b) != nil {
		return Result{}, nil
	}
	tx.bind(b, source)
	return Result{Changed: true}, nil
}

// bind adds a binding that is not there yet.
func (tx *txn) bind(b *Binding, source *Exchange) {
	tx.bySource.put(b.sourceKey(), b)
	tx.byDestination.put(b.destinationKey(), b)
	x := *source
	x.table = source.table.Add(b.routing())
	x.bindings++
	tx.putExchange(&x)
}

func (c *Unbind) apply(tx *txn) (Result, *amqp.Error) {
	stored := tx.Binding(&c.Binding)
	if stored == nil {
		return Result{}, nil
	}
	tx.unbind(stored)
	return Result{Changed: true}, nil
}

func (c *DeclareQueue) apply(tx *txn) (Result, *amqp.Error) {
	h := tx.Vhost(c.Queue.Vhost)
	if h == nil {
		return Result{}, errNoVhost(c.Queue.Vhost)
	}
	if old := tx.Queue(c.Queue.Vhost, c.Queue.Name); old != nil {
		return Result{ID: old.ID, Queue: old}, nil
	}
	if most := h.Limits.Queues; most.Bounds() && most.Reached(tx.namedQueues(h.Name)) {
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "cannot declare queue '%s': queue limit in vhost '%s' (%d) is reached",
			c.Queue.Name, h.Name, most.Value)
	}
	q := c.Queue
	q.ID, q.State, q.Settings, q.Incarnation = tx.index, Running, tx.index, 0
	q.Size = sizeAbove(q.Size, q.Members)
	if q.Kind == Transient {
		q.Size = 0
		n := tx.Node(q.Members[0])
		if n == nil || n.Superseded || n.Incarnation != c.NodeIncarnation {
			return Result{}, amqp.Errorf(amqp.ResourceError, 0, "node '%s' has registered anew since the queue was asked for", q.Members[0])
		}
		q.Incarnation = n.Incarnation
	} else if err := tx.checkPlaces(q.Members); err != nil {
		return Result{}, err
	}
	tx.putQueue(&q)
	return Result{Changed: true, ID: q.ID, Queue: &q}, nil
}

// checkPlaces refuses, from level 2 on, a new queue with a member that was forgotten or replaced while the declaration was on its way. The code tells who
// declares to choose others; see broker.
func (tx *txn) checkPlaces(members []NodeID) *amqp.Error {
	if tx.Level() < 2 {
		return nil
	}
	for _, id := range members {
		if n := tx.Node(id); n == nil || n.Superseded {
			return amqp.Errorf(amqp.ResourceError, 0, "node '%s' has left the cluster since the queue was asked for", id)
		}
	}
	return nil
}

func (tx *txn) putQueue(q *Queue) {
	if q.State == Running && q.DelayOf == "" {
		tx.queues.put(key(q.Vhost, q.Name), q)
	}
	tx.retally(tx.QueueByID(q.ID), q)
	tx.tallyLives(q, true)
	tx.queuesByID.put(numberKey(q.ID), q)
	tx.changed(q.ID)
}

// closeQueue frees the name of a running queue. Its bindings are the caller's.
func (tx *txn) closeQueue(q *Queue) {
	closing := *q
	closing.State, closing.Settings = Closing, tx.index
	if q.DelayOf == "" {
		tx.queues.del(key(q.Vhost, q.Name))
	}
	tx.putQueue(&closing)
}

func (c *DeleteQueue) apply(tx *txn) (Result, *amqp.Error) {
	var q *Queue
	if c.Name == "" {
		q = tx.QueueByID(c.ID)
	} else {
		q = tx.Queue(c.Vhost, c.Name)
	}
	if q == nil || q.State != Running || q.DelayOf != "" || c.ID != 0 && c.ID != q.ID {
		return Result{}, nil
	}
	tx.closeQueue(q)
	tx.unbindAll(q.Vhost, q.Name, false)
	return Result{Changed: true, ID: q.ID}, nil
}

func (c *QueueGone) apply(tx *txn) (Result, *amqp.Error) {
	q := tx.QueueByID(c.ID)
	switch {
	case q == nil:
		return Result{}, nil
	case q.State != Closing:
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "queue '%s' in vhost '%s' is not closing", q.Name, q.Vhost)
	}
	tx.forgetQueue(c.ID)
	return Result{Changed: true, ID: c.ID}, nil
}

func (c *UpdateMembers) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.QueueByID(c.ID)
	switch {
	case old == nil:
		return Result{}, amqp.Errorf(amqp.NotFound, 0, "no queue with id %d", c.ID)
	case old.Kind != Replicated:
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "queue '%s' in vhost '%s' is not replicated", old.Name, old.Vhost)
	case tx.Level() >= 2:
		return Result{}, refused("members of queue '%s' in vhost '%s' are changed by a plan", old.Name, old.Vhost)
	case c.IfSettings != 0 && c.IfSettings != old.Settings:
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "queue '%s' in vhost '%s' has changed meanwhile", old.Name, old.Vhost)
	}
	q := *old
	q.Members, q.Preferred, q.Settings = c.Members, c.Preferred, tx.index
	tx.putQueue(&q)
	return Result{Changed: true, ID: q.ID, Queue: &q}, nil
}
