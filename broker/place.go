package broker

import (
	"context"
	"errors"
	"hash/fnv"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/placement"
	"github.com/warrenmq/warren/exchange"
)

// placeTries bounds how often the members of a queue are chosen. Each time a node must have left the cluster meanwhile.
const placeTries = 5

// propose proposes a command. A declaration that finds too few nodes is placed once more among those that the catalog's leader knows: this node's copy may
// not have a node yet that has just joined, and a queue whose members are one less is lost with one less. One that the catalog refuses because
// a node that was to be a member has left the cluster meanwhile gets other members: this node has heard of it by then.
func (b *Broker) propose(ctx context.Context, cmd catalog.Command) (res catalog.Result, err error) {
	if b.isShort(cmd) {
		if _, err := b.fresh(ctx); err == nil { // else the proposal says what is wrong
			cmd = b.placedAnew(cmd)
		}
	}
	for range placeTries {
		res, err = b.cat.Propose(ctx, cmd)
		if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != amqp.ResourceError {
			break
		}
		again := b.placedAnew(cmd)
		if again == nil {
			break
		}
		cmd = again
	}
	return res, err
}

// isShort tells whether a declared queue, or that of a declared exchange, would have fewer members than it should.
func (b *Broker) isShort(cmd catalog.Command) bool {
	switch c := cmd.(type) {
	case *catalog.DeclareQueue:
		q := &c.Queue
		return q.Kind == catalog.Replicated && len(q.Members) < b.sizeOf(effectOf(q, b.cat.View().Policies(q.Vhost)).arguments)
	case *catalog.DeclareExchange:
		return c.Exchange.Type == exchange.Delayed && len(c.Members) < b.cfg.Replicas
	}
	return false
}

// sizeOf is how many members a queue with these arguments should have.
func (b *Broker) sizeOf(args amqp.Table) int {
	return int(intArg(args, "x-quorum-initial-group-size", int64(b.cfg.Replicas)))
}

// placedAnew returns a declaration with members chosen anew, nil of any other command.
func (b *Broker) placedAnew(cmd catalog.Command) catalog.Command {
	switch c := cmd.(type) {
	case *catalog.DeclareQueue:
		if c.Queue.Kind == catalog.Replicated {
			again := *c
			b.placeQueue(b.cat.View(), &again.Queue)
			return &again
		}
	case *catalog.DeclareExchange:
		if c.Exchange.Type == exchange.Delayed {
			again := *c
			b.placeDelays(&again)
			return &again
		}
	}
	return nil
}

// placeQueue chooses the members of a queue that is to be declared, and who leads it.
func (b *Broker) placeQueue(view *catalog.View, q *catalog.Queue) {
	args := effectOf(q, view.Policies(q.Vhost)).arguments
	q.Members, q.Preferred, q.Size = b.place(q.Vhost, q.Name,
		b.sizeOf(args),
		stringArg(args, "x-queue-leader-locator") == clientLocal)
	q.FirstLeader = ""
	if view.Level() >= 2 && len(q.Members) > 1 {
		q.FirstLeader = q.Preferred
	}
}

// placeDelays is placeQueue for the queue of a delayed exchange.
func (b *Broker) placeDelays(c *catalog.DeclareExchange) {
	c.Members, c.Preferred, c.Size = b.place(c.Exchange.Vhost, c.Exchange.Name, b.cfg.Replicas, false)
}

// place chooses the members of a new queue and who should lead it; see package placement. short is size if there are too few nodes for it, else 0: others become
// members when they come.
func (b *Broker) place(vhost, name string, size int, leadLocal bool) (members []catalog.NodeID, preferred catalog.NodeID, short uint64) {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(vhost + "\x00" + name)) // never fails
	r := placement.Request{Local: b.cfg.Node, Size: size, LeadLocal: leadLocal, Seed: seed.Sum64()}
	view := b.cat.View()
	b.queues.mu.RLock()
	for n := range view.Nodes() {
		if !n.Superseded {
			l := b.queues.loads[n.ID]
			r.Nodes = append(r.Nodes, placement.Node{
				ID: string(n.ID), Leads: l.leads, Holds: l.holds, Away: !b.online(string(n.ID)),
				Zone: n.Zone, LastRank: n.State != catalog.NodeRegular, Leaves: n.State == catalog.NodeLeaving,
			})
		}
	}
	b.queues.mu.RUnlock()
	c := placement.Choose(r)
	for _, m := range c.Members {
		members = append(members, catalog.NodeID(m))
	}
	if len(members) < size && view.Level() >= 2 {
		short = uint64(size)
	}
	return members, catalog.NodeID(c.Preferred), short
}
