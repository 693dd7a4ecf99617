package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/warrenmq/warren/catalog"
)

// A queue's replicas follow the catalog: a node that becomes a member starts one, a node that is no member any more
// deletes its own, and where another generation is wanted the former replica is deleted before the new one is started. Whoever leads a
// queue changes its group until the members are those that are wanted; that is the groups' part (Group.Follow).

// ErrDamaged reports a replica whose log on this node is damaged. See Groups.Start.
var ErrDamaged = errors.New("the replica on this node is damaged")

const (
	yieldLimit = 3 * time.Second // for another replica to take the leadership of one that ends
	// Renewals of damaged replicas: the pause between two looks, the bound of one, and how many may be under way.
	renewEvery   = 2 * time.Second
	renewTimeout = 5 * time.Second
	renewMax     = 4
)

// generation is that of the replica which the catalog wants on this node.
func (qs *queues) generation(q *catalog.Queue) uint64 {
	return q.Generation(catalog.NodeID(qs.b.cfg.Node))
}

// leave ends the replica of a queue that belongs here no more, or begins anew here. Then the catalog is followed again: only
// that goroutine decides what is hosted, because its view never goes back.
func (qs *queues) leave(h *hosted) {
	qs.b.tasks.start(func() {
		h.yield()
		if qs.dismiss(h) && !qs.wipe(h.id) {
			return
		}
		qs.mu.Lock()
		delete(qs.leaving, h.id)
		qs.left = append(qs.left, h.id)
		qs.mu.Unlock()
		qs.changed()
	})
}

// yield gives the leadership away, if this replica has it.
func (h *hosted) yield() {
	h.mu.Lock()
	leads := h.leads != nil && h.group != nil
	h.mu.Unlock()
	if !leads {
		return
	}
	ctx, cancel := context.WithTimeout(h.qs.b.ctx, yieldLimit)
	defer cancel()
	h.qs.b.cfg.Groups.Yield(ctx, h.id)
}

// dismiss ends what this broker has of a replica. It reports whether there may be a durable trace.
func (qs *queues) dismiss(h *hosted) bool {
	qs.mu.Lock()
	if qs.hosted[h.id] == h {
		delete(qs.hosted, h.id)
	}
	qs.mu.Unlock()
	h.mu.Lock()
	h.removed = true
	h.retire()
	durable := h.q.Kind == catalog.Replicated
	h.mu.Unlock()
	qs.passEarly(h.id)
	return durable
}

// wipe deletes the replica of a queue. It waits for the disk and for the replica's goroutines. It reports false when the broker is closed: the
// next start of the node finds what is to be deleted.
func (qs *queues) wipe(id uint64) bool {
	select {
	case qs.ends <- struct{}{}:
	case <-qs.b.ctx.Done():
		return false
	}
	defer func() { <-qs.ends }()
	if err := qs.b.cfg.Groups.Delete(id); err != nil {
		qs.b.cfg.Logger.Error("group not deleted", "queue", id, "err", err)
	}
	return true
}

// takeLeft returns the queues whose replicas here have ended since it was called last.
func (qs *queues) takeLeft() []uint64 {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	list := qs.left
	qs.left = nil
	return list
}

// ReplicaDamaged notes that the replica of a queue has ended because its log is damaged.
func (b *Broker) ReplicaDamaged(id uint64) {
	if h := b.queues.get(id); h != nil {
		b.queues.renew(h)
	}
}

// renew has a damaged replica begin anew, empty and under another generation, when the rest of the group works without it.
func (qs *queues) renew(h *hosted) {
	qs.mu.Lock()
	first := len(qs.damaged) == 0
	qs.damaged[h.id] = h
	qs.mu.Unlock()
	if first {
		qs.b.tasks.start(qs.renewAll)
	}
}

// renewAll looks after the damaged replicas until there are none.
func (qs *queues) renewAll() {
	b := qs.b
	told := map[uint64]string{}
	begun := map[uint64]*hosted{}
	for {
		list := qs.stillDamaged()
		if list == nil {
			return
		}
		view := b.cat.View()
		for id := range begun {
			if q := view.QueueByID(id); q == nil || q.Wanted == nil {
				delete(begun, id)
			}
		}
		for _, h := range list {
			if b.ctx.Err() != nil || len(begun) >= renewMax {
				break
			}
			if begun[h.id] == h {
				continue // the catalog is about to be followed
			}
			err := qs.renewOne(view, h)
			q := view.QueueByID(h.id)
			switch {
			case err == nil:
				begun[h.id] = h
			case told[h.id] != err.Error():
				told[h.id] = err.Error()
				b.cfg.Logger.Warn("a damaged replica cannot begin anew yet", "queue", h.id, "vhost", q.Vhost, "name", q.Name, "delay_of", q.DelayOf, "err", err)
			}
		}
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(renewEvery):
		}
	}
}

// stillDamaged lists the damaged replicas that are still hosted, nil if there is none.
func (qs *queues) stillDamaged() (list []*hosted) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for id, h := range qs.damaged {
		if qs.hosted[id] != h || qs.leaving[id] {
			delete(qs.damaged, id)
			continue
		}
		list = append(list, h)
	}
	return list
}

var (
	errNotWanted = errors.New("it is to be removed")
	errNoQuorum  = errors.New("most members would have to work without it, and do not")
	errCannotEnd = errors.New("most members would have to work without it, and do not; the queue is deleted, and delete_queue --force ends it without what it owes to other queues")
	// errDelaysCannotEnd is errCannotEnd of the queue of a delayed exchange.
	errDelaysCannotEnd = errors.New("most members would have to work without it, and do not; the delayed exchange is deleted, and delete_queue --force --delayed-exchange ends its queue without what it owes to others")
)

// renewOne plans the renewal of a damaged replica.
func (qs *queues) renewOne(view *catalog.View, h *hosted) error {
	b, self := qs.b, catalog.NodeID(qs.b.cfg.Node)
	q := view.QueueByID(h.id)
	if q == nil || !qs.belongsHere(q) || qs.generation(q) != h.generation {
		return nil // it ends anyway
	}
	preferred := q.Preferred
	if q.Wanted != nil {
		preferred = q.WantedPreferred
	}
	if !slices.Contains(q.Target(), self) {
		return errNotWanted
	}
	ctx, cancel := context.WithTimeout(b.ctx, renewTimeout)
	defer cancel()
	if !b.cfg.Groups.Survives(ctx, q) {
		if q.State == catalog.Closing {
			if q.DelayOf != "" {
				return errDelaysCannotEnd
			}
			return errCannotEnd
		}
		return errNoQuorum
	}
	_, err := b.cat.Propose(ctx, &catalog.PlanMembers{
		ID: q.ID, Wanted: q.Target(), Renew: []catalog.NodeID{self}, Preferred: preferred, IfSettings: q.Settings, Why: "damaged",
	})
	if err == nil {
		b.cfg.Logger.Warn("a damaged replica begins anew", "queue", h.id, "name", q.Name, "vhost", q.Vhost)
	}
	return err
}
