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

// ForceDropQueue deletes a queue, and all that were deleted under its name and have not ended. Those of which no member has led until the bound for answers of
// queues end without their log: the dead letters on their way out are lost, with all messages if their deletion was to dead-letter them, and nodes
// that are away delete their replicas when they are back. It tells how many ready messages went with the queue, as far as its leader said. NotFound if there is none;
// PreconditionFailed if one has a leader, which is still to end it. That the user may do this is for the caller to see, permissions apart.
func (b *Broker) ForceDropQueue(ctx context.Context, u User, vhost, name string) (messages uint32, err error) {
	return messages, b.withConn(ctx, u, vhost, func(c *Conn) error {
		if err := c.allowed(ctx, b.cat.View(), auth.Configure, queueResource(name)); err != nil {
			return err
		}
		q, missing := c.find(ctx, name)
		if q != nil {
			messages, missing = c.deleteQueue(ctx, name, deleting{force: true})
		}
		if missing != nil && !isNotFound(missing) {
			return missing
		}
		closing := b.closingNamed(vhost, name)
		if len(closing) == 0 {
			return missing
		}
		ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
		defer cancel()
		for _, q := range closing {
			if err := b.endWithoutLeader(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}

// closingNamed lists the replicated queues that were deleted under a name and have not ended.
func (b *Broker) closingNamed(vhost, name string) (list []*catalog.Queue) {
	for q := range b.cat.View().AllQueues() {
		if q.State == catalog.Closing && q.Kind == catalog.Replicated && q.DelayOf == "" && q.Vhost == vhost && q.Name == name {
			list = append(list, q)
		}
	}
	return list
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
			return Errorf(PreconditionFailed, "queue '%s' in vhost '%s' is deleted, and ends as soon as the messages on their way out of it have gone: %s", q.Name, q.Vhost, leads)
		}
		break
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.cfg.QueueTimeout)
	defer cancel()
	b.cfg.Logger.Warn("a deleted queue without a leader is ended by force; dead letters on their way out of it are lost", "queue", q.ID, "vhost", q.Vhost, "name", q.Name)
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
