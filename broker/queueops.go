package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

const (
	// everyoneWait bounds how long a change waits for the other nodes to apply
	// it.
	everyoneWait = time.Second
	nameBytesMax = 255
)

// DeclareQueue declares a queue, or checks that it is there, and tells its
// counts. It answers once the queue's leader has committed its first entry.
func (c *Conn) DeclareQueue(ctx context.Context, d QueueDeclare) (QueueOK, error) {
	ok, _, err := c.makeQueue(ctx, d)
	return ok, err
}

// makeQueue is DeclareQueue, and tells whether this declaration made it: of several at the same time one did.
func (c *Conn) makeQueue(ctx context.Context, d QueueDeclare) (ok QueueOK, made bool, err error) {
	d.Name = stripLines(d.Name)
	if isReplyName(d.Name) {
		ok, err = c.declareReplies(ctx, d.Name)
		return ok, false, err
	}
	if d.Passive {
		ok, err = c.passive(ctx, d.Name)
		return ok, false, err
	}
	// An exclusive queue is not durable, whatever is asked for: both may be declared again.
	d.Durable = d.Durable && !d.Exclusive
	generated := d.Name == ""
	if generated {
		d.Name = serverName()
	}
	if len(d.Name) > nameBytesMax {
		return QueueOK{}, false, Errorf(PreconditionFailed, "queue name is longer than %d bytes", nameBytesMax)
	}
	for began := time.Now(); ; {
		ok, made, err := c.declareOnce(ctx, d, generated)
		if !isNotFound(err) || time.Since(began) >= c.b.cfg.QueueTimeout {
			return ok, made, err
		}
		// The queue that was there has just ended, before it was asked. Clients that make, use and leave one at once can keep it there for a while.
		if _, err := c.b.fresh(ctx); err != nil {
			return QueueOK{}, false, asError(err)
		}
	}
}

func (c *Conn) declareOnce(ctx context.Context, d QueueDeclare, generated bool) (_ QueueOK, made bool, err error) {
	view := c.b.cat.View()
	if err := c.allowed(ctx, view, auth.Configure, queueResource(d.Name)); err != nil {
		return QueueOK{}, false, err
	}
	d.Arguments = withDefaultType(d, view.Vhost(c.vhost))
	q := view.Queue(c.vhost, d.Name)
	if q != nil && c.mayDeclareAgain(d, q) != nil {
		// What this copy still has may have been deleted: nobody is refused for that.
		var err error
		if view, err = c.b.fresh(ctx); err != nil {
			return QueueOK{}, false, err
		}
		q = view.Queue(c.vhost, d.Name)
	}
	if q == nil {
		err := c.mayDeadLetter(ctx, view, d)
		if err != nil {
			return QueueOK{}, false, err
		}
		if q, made, err = c.create(ctx, view, d, generated); err != nil {
			return QueueOK{}, false, err
		}
		if made {
			seen := c.b.seenEverywhere(ctx, q.ID)
			ok, err := c.countsOfNew(ctx, q)
			<-seen
			return ok, true, err
		}
	}
	if err := c.mayDeclareAgain(d, q); err != nil {
		return QueueOK{}, false, c.unlessLost(ctx, q, err)
	}
	ok, err := c.counts(ctx, q)
	if isNotFound(err) {
		c.endUnused(ctx, q.ID) // its name is free once the catalog knows
	}
	return ok, false, err
}

func isNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Kind == NotFound
}

// countsOfNew is counts of a queue that this declaration made. Somebody may have deleted it since: it
// was declared all the same, whatever has the name now.
func (c *Conn) countsOfNew(ctx context.Context, q *catalog.Queue) (QueueOK, error) {
	ok, err := c.counts(ctx, q)
	if isNotFound(err) {
		return QueueOK{Name: q.Name}, nil
	}
	return ok, err
}

// mayDeclareAgain tells whether a declaration agrees with the queue that is there.
func (c *Conn) mayDeclareAgain(d QueueDeclare, q *catalog.Queue) error {
	if err := c.checkOwner(q); err != nil {
		return err
	}
	if d.Exclusive != q.Exclusive {
		return c.locked(q) // RabbitMQ's word for it, not 406
	}
	return checkEquivalent(d, q)
}

// unlessLost returns a refusal of a declaration for which the queue q stands in the way, or NotFound if q ends meanwhile: one in the memory of another
// node that has died is in the way until it is taken out of the catalog. A client that recovers declares it anew before that.
func (c *Conn) unlessLost(ctx context.Context, q *catalog.Queue, refusal error) error {
	if q.Kind != catalog.Transient || q.Members[0] == catalog.NodeID(c.b.cfg.Node) {
		return refusal
	}
	if _, err := c.b.status(ctx, q, false); errors.Is(err, errQueueGone) {
		return c.queueError(err, q.Name)
	}
	return refusal
}

// mayDeadLetter checks what a new queue with a dead-letter exchange needs beside the
// permission to configure it.
func (c *Conn) mayDeadLetter(ctx context.Context, view *catalog.View, d QueueDeclare) error {
	v, _ := d.Arguments.Get("x-dead-letter-exchange")
	dlx, ok := v.(string)
	if !ok {
		return nil
	}
	if err := c.allowed(ctx, view, auth.Read, queueResource(d.Name)); err != nil {
		return err
	}
	return c.allowed(ctx, view, auth.Write, exchangeResource(dlx))
}

func (c *Conn) passive(ctx context.Context, name string) (QueueOK, error) {
	if err := c.allowedAny(ctx, queueResource(name)); err != nil {
		return QueueOK{}, err
	}
	q, err := c.find(ctx, name)
	if err != nil {
		return QueueOK{}, err
	}
	var ok QueueOK
	err = c.asks(ctx, q, func(q *catalog.Queue) (err error) {
		ok, err = c.statusOf(ctx, q)
		return err
	})
	return ok, err
}

func (c *Conn) counts(ctx context.Context, q *catalog.Queue) (QueueOK, error) {
	ok, err := c.statusOf(ctx, q)
	return ok, c.queueError(err, q.Name)
}

func (c *Conn) statusOf(ctx context.Context, q *catalog.Queue) (QueueOK, error) {
	st, err := c.b.status(ctx, q, true)
	if err != nil {
		return QueueOK{}, err
	}
	c.b.churn.declared.Add(1)
	return QueueOK{Name: q.Name, Messages: clamp(st.Ready), Consumers: clamp(st.Consumers)}, nil
}

func clamp(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }

// levelDeclarer is the level of the cluster from which on queues know who declared them.
const levelDeclarer = 2

// create makes the queue's entry. The result may be somebody else's who was
// faster: then made is false. The other nodes may not have it yet.
func (c *Conn) create(ctx context.Context, view *catalog.View, d QueueDeclare, generated bool) (q *catalog.Queue, made bool, err error) {
	if !generated && strings.HasPrefix(d.Name, "amq.") {
		return nil, false, Errorf(AccessRefused, "queue name '%s' contains reserved prefix 'amq.*'", d.Name)
	}
	if err := checkArguments(d, c.vhost); err != nil {
		return nil, false, err
	}
	if err := c.checkDeadLetter(ctx, view, d); err != nil {
		return nil, false, err
	}
	entry := c.b.entryOf(view, c.vhost, d)
	if view.Level() >= levelDeclarer {
		entry.DeclaredBy = c.login
	}
	if d.Exclusive {
		entry.Owner = c.owner
	}
	res, err := c.change(ctx, &catalog.DeclareQueue{Queue: entry, NodeIncarnation: c.b.origin().Incarnation})
	if err != nil {
		return nil, false, err
	}
	if res.Queue == nil {
		return nil, false, Errorf(NotFound, "no queue '%s' in vhost '%s'", d.Name, c.vhost)
	}
	if res.Changed {
		c.b.churn.created.Add(1)
	}
	if d.Exclusive && res.Changed {
		_ = c.owns(res.Queue.ID, d.Name) // a connection does nothing beside its end
	}
	return res.Queue, res.Changed, nil
}

// checkDeadLetter checks the permissions that declaring a new queue with a
// dead-letter exchange needs.
func (c *Conn) checkDeadLetter(ctx context.Context, view *catalog.View, d QueueDeclare) error {
	v, ok := d.Arguments.Get("x-dead-letter-exchange")
	if !ok {
		return nil
	}
	if err := c.allowed(ctx, view, auth.Read, queueResource(d.Name)); err != nil {
		return err
	}
	return c.allowed(ctx, view, auth.Write, exchangeResource(v.(string)))
}

// PurgeQueue removes the ready messages and tells how many they were.
func (c *Conn) PurgeQueue(ctx context.Context, name string) (uint32, error) {
	q, err := c.queue(ctx, name, auth.Read)
	if err != nil {
		return 0, err
	}
	var n uint64
	err = c.asks(ctx, q, func(q *catalog.Queue) (err error) {
		n, err = c.b.stream(q).purge(ctx, c.b.cfg.QueueTimeout)
		return err
	})
	return clamp(n), err
}

// DeleteQueue deletes a queue and tells how many messages went with it. A
// missing queue is fine.
func (c *Conn) DeleteQueue(ctx context.Context, name string, ifUnused, ifEmpty bool) (uint32, error) {
	return c.deleteQueue(ctx, name, deleting{ifUnused: ifUnused, ifEmpty: ifEmpty})
}

// deleting is how a queue is to be deleted: under conditions, or by force, if nobody leads it also one that is to keep its messages.
type deleting struct{ ifUnused, ifEmpty, force bool }

func (c *Conn) deleteQueue(ctx context.Context, name string, how deleting) (uint32, error) {
	if err := c.allowed(ctx, c.b.cat.View(), auth.Configure, queueResource(name)); err != nil {
		return 0, err
	}
	for try := 1; ; try++ {
		q, err := c.find(ctx, name)
		if err != nil && (q == nil || !c.b.ownerless(q)) {
			if isNotFound(err) {
				return 0, nil
			}
			return 0, err
		}
		n, err := c.deleteFound(ctx, q, how)
		if err != nil {
			return 0, err
		}
		// The copy has the deletion by now. If another queue has the name, the one that was found may have been gone before the client asked.
		if now := c.b.cat.View().Queue(c.vhost, name); now == nil || now.ID == q.ID || n.done || try == livesTried {
			return n.messages, nil
		}
	}
}

// deletion is what became of a deletion: whether it was this one that ended the queue, and the messages that went with that.
type deletion struct {
	done     bool
	messages uint32
}

// deleteFound deletes a queue that was found.
func (c *Conn) deleteFound(ctx context.Context, q *catalog.Queue, how deleting) (d deletion, err error) {
	var st *wire.Status
	err = errQueueGone
	if how.ifUnused || how.ifEmpty || !c.b.lostMemory(q) {
		st, err = c.b.status(ctx, q, false)
	}
	if err != nil && (how.ifUnused || how.ifEmpty) && !errors.Is(err, errQueueGone) {
		return d, c.queueError(err, q.Name)
	}
	if err == nil {
		d.messages = clamp(st.Ready)
		switch {
		case how.ifUnused && st.Consumers > 0:
			return d, Errorf(PreconditionFailed, "queue '%s' in vhost '%s' in use", q.Name, c.vhost)
		case how.ifEmpty && c.b.wouldLose(q, st):
			return d, c.notEmpty(q, st)
		}
	}
	if refused := c.b.mayRemove(ctx, q, st); refused != nil && (!how.force || st != nil || c.b.leads(ctx, q) != "") {
		return d, refused
	}
	if how.ifEmpty && err == nil {
		if d.done, err = c.endEmpty(ctx, q); err != nil {
			return d, err
		}
	}
	res, err := c.changeSeen(ctx, &catalog.DeleteQueue{Vhost: c.vhost, Name: q.Name, ID: q.ID})
	if err != nil {
		return d, err
	}
	d.done = d.done || res.Changed
	c.mu.Lock()
	delete(c.exclusive, q.ID)
	c.mu.Unlock()
	return d, nil
}

// levelEndEmpty is the level of the cluster from which on leaders know wire.Query.End.
const levelEndEmpty = 2

// endEmpty has the leader of a queue that was found empty end it if it still is, and tells whether it did: what is confirmed from then on does not
// go with the queue. It did not if the queue has ended anyway, or if the cluster's level is too low for it.
func (c *Conn) endEmpty(ctx context.Context, q *catalog.Queue) (ended bool, err error) {
	if c.b.cat.View().Level() < levelEndEmpty {
		return false, nil
	}
	when := wire.EndEmpty
	if c.b.keepsOutbox(q) {
		when = wire.EndResolved
	}
	st, err := c.b.query(ctx, q, wire.Query{End: when})
	switch {
	case errors.Is(err, errQueueGone):
		return false, nil
	case err != nil:
		return false, c.queueError(err, q.Name)
	case !st.Ended:
		return false, c.notEmpty(q, st)
	}
	return true, nil
}

// notEmpty refuses a deletion, with RabbitMQ's words. What keeps a queue in which lists show no message is named.
func (c *Conn) notEmpty(q *catalog.Queue, st *wire.Status) error {
	why := ""
	switch {
	case st.Ready+st.Unacked > 0:
	case st.Delayed > 0:
		why = fmt.Sprintf(": messages that wait for a retry: %d", st.Delayed)
	case st.Parked > 0:
		why = fmt.Sprintf(": dead letters without a route: %d", st.Parked)
	case st.Outbox > 0:
		why = fmt.Sprintf(": messages on their way out of it, which may come back: %d", st.Outbox)
	default:
		why = ": something is on its way into it"
	}
	return Errorf(PreconditionFailed, "queue '%s' in vhost '%s' not empty%s", q.Name, c.vhost, why)
}

// sortIDs puts message ids in queue order.
func sortIDs(ids []queue.MessageID) { slices.Sort(ids) }

// withoutHeader takes one header out of raw properties.
func withoutHeader(raw []byte, name string) ([]byte, error) {
	return amqp.Rewrite(raw, func(p *amqp.Properties) {
		headers, _ := p.Headers()
		headers = headers.Clone()
		headers.Delete(name)
		p.SetHeaders(headers)
	})
}
