package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
)

// A deleted queue stays in the catalog until its leader has ended it in its log, with the dead letters on their way out of it. One that can have no
// leader, as its only replica is damaged, would stay for as long as that is so, with its replica. Its name is free meanwhile.

// forceEvery is the pause between two looks for a leader.
const forceEvery = 200 * time.Millisecond

// ForceDropQueue deletes a queue, and all that were deleted under its name, or with its vhost, and have not ended. Those of which no member has led until the bound for
// answers of queues end without their log: the dead letters on their way out are lost, with all messages if their deletion was to dead-letter them, and nodes
// that are away delete their replicas when they are back. It tells how many ready messages went with the queue, as far as its leader said. NotFound if there is none;
// PreconditionFailed if one has a leader, which is still to end it. That the user may do this is for the caller to see, permissions in a vhost that is there apart.
func (b *Broker) ForceDropQueue(ctx context.Context, u User, vhost, name string) (messages uint32, err error) {
	err = b.withConnIfThere(ctx, u, vhost, func(c *Conn) error {
		if err := c.allowed(ctx, b.cat.View(), auth.Configure, queueResource(name)); err != nil {
			return err
		}
		q, err := c.find(ctx, name)
		if q != nil {
			messages, err = c.deleteQueue(ctx, name, deleting{force: true})
		}
		return err
	})
	if err != nil && !isNotFound(err) {
		return messages, err
	}
	if closing := b.closingOf(vhost, func(q *catalog.Queue) bool { return q.DelayOf == "" && q.Name == name }); len(closing) > 0 {
		return messages, b.endAllWithoutLeader(ctx, closing)
	}
	if err != nil {
		err = Errorf(NotFound, "no queue '%s' in vhost '%s'", name, vhost)
	}
	return messages, err
}

// ForceDropDelays is ForceDropQueue for the queues of delayed exchanges of a name that were deleted, in which their messages waited. An exchange that is there keeps its own.
// NotFound if there is none.
func (b *Broker) ForceDropDelays(ctx context.Context, u User, vhost, exchange string) error {
	err := b.withConnIfThere(ctx, u, vhost, func(c *Conn) error {
		if err := c.allowed(ctx, b.cat.View(), auth.Configure, exchangeResource(exchange)); err != nil {
			return err
		}
		_, err := b.fresh(ctx)
		return err
	})
	if err != nil && !isNotFound(err) {
		return err
	}
	closing := b.closingOf(vhost, func(q *catalog.Queue) bool { return q.DelayOf == exchange && exchange != "" })
	if len(closing) == 0 {
		return Errorf(NotFound, "no queue of a deleted delayed exchange '%s' in vhost '%s'", exchange, vhost)
	}
	return b.endAllWithoutLeader(ctx, closing)
}

// withConnIfThere is withConn; NotFound without any work if the vhost is not there, as of an up-to-date copy of the catalog.
func (b *Broker) withConnIfThere(ctx context.Context, u User, vhost string, work func(c *Conn) error) error {
	switch there, err := b.HasVhost(ctx, vhost); {
	case err != nil:
		return err
	case !there:
		return Errorf(NotFound, "vhost '%s' not found", vhost)
	}
	return b.withConn(ctx, u, vhost, work)
}

// closingOf lists the replicated queues of a vhost that were deleted and have not ended, of those that are asked for.
func (b *Broker) closingOf(vhost string, asked func(*catalog.Queue) bool) (list []*catalog.Queue) {
	for q := range b.cat.View().AllQueues() {
		if q.State == catalog.Closing && q.Kind == catalog.Replicated && q.Vhost == vhost && asked(q) {
			list = append(list, q)
		}
	}
	return list
}

// endAllWithoutLeader is endWithoutLeader for all of them, within the bound for answers of queues.
func (b *Broker) endAllWithoutLeader(ctx context.Context, list []*catalog.Queue) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	for _, q := range list {
		if err := b.endWithoutLeader(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// closingText names a deleted queue to people.
func closingText(q *catalog.Queue) string {
	if q.DelayOf != "" {
		return fmt.Sprintf("the queue of delayed exchange '%s' in vhost '%s'", q.DelayOf, q.Vhost)
	}
	return fmt.Sprintf("queue '%s' in vhost '%s'", q.Name, q.Vhost)
}

// endWithoutLeader takes a deleted queue out of the catalog if it has no leader until ctx ends.
func (b *Broker) endWithoutLeader(ctx context.Context, q *catalog.Queue) error {
	tick := time.NewTicker(forceEvery)
	defer tick.Stop()
	for {
		leads := b.leads(ctx, q)
		if b.cat.View().QueueByID(q.ID) == nil {
			return nil
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		if leads != "" {
			return Errorf(PreconditionFailed, "%s is deleted, and ends as soon as the messages on their way out of it have gone: %s", closingText(q), leads)
		}
		break
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.QueueTimeout)
	defer cancel()
	b.cfg.Logger.Warn("a deleted queue without a leader is ended by force; dead letters on their way out of it are lost", "queue", q.ID, "vhost", q.Vhost, "name", q.Name, "delay_of", q.DelayOf)
	if _, err := b.cat.Propose(ctx, &catalog.QueueGone{ID: q.ID}); err != nil {
		return asError(err)
	}
	return nil
}

// leads says who leads a queue, or may, "" if no member that can be reached does. The queue may be closing.
func (b *Broker) leads(ctx context.Context, q *catalog.Queue) string {
	req, err := json.Marshal(inquiry{Version: inquiryVersion, Queue: q.ID, Op: opRedriveStatus, Body: json.RawMessage("{}")})
	if err != nil {
		panic(fmt.Sprintf("queue %d: %v", q.ID, err)) // it has nothing that cannot be written
	}
	for _, m := range q.Members {
		if !b.online(string(m)) {
			continue
		}
		// The last look, as ctx ends, has time for its answers, too.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
		a, err := b.askNode(call, string(m), req)
		cancel()
		switch {
		case errors.Is(err, errNotHere):
		case err != nil:
			return fmt.Sprintf("node '%s' may lead it, and does not answer", shortName(string(m)))
		case !a.NotLeader:
			return fmt.Sprintf("node '%s' leads it", shortName(string(m)))
		}
	}
	return ""
}
