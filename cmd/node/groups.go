package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/group"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// raftGroups lets the broker host its queues' logs in the group host: here the
// bytes of cluster/group and the commands of fsm meet.
type raftGroups struct {
	host  *group.Host
	store *store.Store
	// since is the catalog revision at which this process registered.
	since *atomic.Uint64
	born  func() // is told of each replica that begins
}

// Start implements broker.Groups.
func (r raftGroups) Start(q *catalog.Queue, replica *leader.Replica, lead func(uint64, string, bool)) (broker.Group, error) {
	r.born()
	var former transport.GroupID
	if q.Survivors != nil {
		// The trace of the former life is read, and nothing may write to it meanwhile.
		former = transport.GroupID(q.Former[len(q.Former)-1])
		if err := r.host.Stop(former); err != nil {
			return nil, err
		}
	}
	g, err := r.host.Start(group.Spec{
		ID: transport.GroupID(q.ID), Generation: q.Generation(r.host.Local()), Members: q.FirstMembers(), Preferred: q.Preferred,
		FirstLeader: q.FirstLeader,
		// A member of the first hour founds its replica, however late; one that was added later, which has another
		// generation, waits to be filled.
		Bootstrap: true,
		Young:     q.Founders == nil && r.since.Load() > 0 && q.ID > r.since.Load(),
		From:      former,
	}, machine{replica, q.Life()}, observer(lead))
	if errors.Is(err, group.ErrDamaged) {
		return nil, fmt.Errorf("%w: %w", broker.ErrDamaged, err)
	}
	if err != nil {
		return nil, err
	}
	return queueLog{g, r.store.Group(store.GroupID(q.ID))}, nil
}

// Yield implements broker.Groups.
func (r raftGroups) Yield(ctx context.Context, id uint64) { r.host.Yield(ctx, transport.GroupID(id)) }

// Survives implements broker.Groups.
func (r raftGroups) Survives(ctx context.Context, q *catalog.Queue) bool {
	return r.host.Survives(ctx, transport.GroupID(q.ID), q.Members)
}

const reachedTimeout = 3 * time.Second // for the catalog to note that the members of a queue are as wanted

// reached is told by the leader of a queue whose members are those of the plan that was made at revision.
func (n *running) reached(ctx context.Context, id transport.GroupID, revision uint64) {
	ctx, cancel := context.WithTimeout(ctx, reachedTimeout)
	defer cancel()
	// If the plan is not the newest any more, that is the answer; else it is said again.
	if _, err := n.catalog.Load().Propose(ctx, &catalog.MembersReached{ID: uint64(id), IfSettings: revision}); err != nil {
		n.log.Debug("the catalog does not note the members of a queue", "queue", uint64(id), "err", err)
	}
}

// planned tells whether the newest plan for a queue is that of revision.
func (n *running) planned(ctx context.Context, id transport.GroupID, revision uint64) (bool, error) {
	cat := n.catalog.Load()
	if err := cat.ReadIndex(ctx); err != nil {
		return false, fmt.Errorf("read the catalog up to date: %w", err)
	}
	q := cat.View().QueueByID(uint64(id))
	return q != nil && q.Settings == revision, nil
}

// Heat implements broker.Groups.
func (r raftGroups) Heat(id uint64) int64 { return r.store.Group(store.GroupID(id)).Heat() }

// Stop implements broker.Groups.
func (r raftGroups) Stop(id uint64) error { return r.host.Stop(transport.GroupID(id)) }

// Delete implements broker.Groups.
func (r raftGroups) Delete(id uint64) error { return r.host.Delete(transport.GroupID(id)) }

// wipeDeleted removes what this node keeps of queues that left the catalog, or of which it is no member any more,
// since it was here last: a queue's members in the catalog are never fewer than those of its group (ADR 22). The view is as new as this start's registration; what is newer than the view is
// let be.
func (n *running) wipeDeleted(view *catalog.View) {
	for _, id := range n.store.Groups() {
		if view.Needs(n.identity.NodeID(), uint64(id)) {
			continue
		}
		if view.QueueByID(uint64(id)) == nil && view.Unaccounted(uint64(id)) {
			n.log.Error("a queue that the lost part of the catalog may have known has a log here, which is kept and used by nobody", "queue", uint64(id))
			continue
		}
		if err := n.host.Delete(transport.GroupID(id)); err != nil {
			n.log.Error("a deleted queue's log stays", "queue", uint64(id), "err", err)
			continue
		}
		n.log.Info("wiped a queue that was deleted while this node was away, or has other members now", "queue", uint64(id))
	}
}

// clockOffsets tells how far the clocks of the other nodes are ahead of this one's, of
// those that this process has been linked to.
func (n *running) clockOffsets(view *catalog.View) (list []time.Duration) {
	for node := range view.Nodes() {
		if node.Superseded || node.ID == n.identity.NodeID() {
			continue
		}
		if s := n.mesh.Peer(node.ID); s.ClockKnown {
			list = append(list, s.ClockOffset)
		}
	}
	return list
}

type observer func(term uint64, node string, self bool)

// Leadership implements group.Observer.
func (o observer) Leadership(term uint64, leader transport.NodeID, self bool) {
	o(term, string(leader), self)
}

// queueLog is a queue's group as its leader sees it.
type queueLog struct {
	g    *group.Group
	disk *store.Group
}

func (l queueLog) Propose(data []byte, done func(error)) {
	l.g.Propose(data, func(_ any, err error) { done(err) })
}

func (l queueLog) Read(index uint64) ([]byte, error) {
	data, err := l.g.Read(index)
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Follow implements broker.Group. Members that were never changed need not be looked after.
func (l queueLog) Follow(q *catalog.Queue) {
	l.g.SetHome(q.Preferred)
	if q.Founders == nil {
		l.g.Want(nil)
		return
	}
	m := group.Membership{Revision: q.Settings, Settled: q.Wanted == nil}
	for _, n := range q.Target() {
		m.Wanted = append(m.Wanted, transport.Replica(n, q.Generation(n)))
	}
	l.g.Want(&m)
}

// RestIf implements broker.Group.
func (l queueLog) RestIf(may func() bool) { l.g.RestIf(may) }

func (l queueLog) Beginning() (index, term uint64) { return l.g.Beginning() }

func (l queueLog) HasLease() bool { return l.g.HasLease() }
func (l queueLog) IsLeader() bool { return l.g.IsLeader() }

func (l queueLog) KeepLog() (release func()) { return l.g.KeepLog() }

func (l queueLog) ConfirmLeader(term uint64, since, until time.Time, wait func(time.Duration) bool) error {
	return l.g.ConfirmLeader(term, since, until, wait)
}

func (l queueLog) OpenState(index uint64, manifest []byte, pins []fsm.IndexRange) (io.ReadCloser, int64, error) {
	return l.disk.OpenState(index, manifest, ranges(pins))
}

func ranges(pins []fsm.IndexRange) []store.Range {
	all := make([]store.Range, len(pins))
	for i, p := range pins {
		all[i] = store.Range{First: p.First, Last: p.Last}
	}
	return all
}

// machine is a queue's replica as its group sees it.
type machine struct {
	r    *leader.Replica
	life uint32 // of the queue
}

// Succeed implements group.Heir.
func (m machine) Succeed() { m.r.Succeed(m.life) }

func (m machine) Apply(e group.Entry) any {
	m.r.Apply(e.Index, e.Data)
	return nil
}

func (m machine) Snapshot() (func() ([]byte, []store.Range), error) {
	encode := m.r.Snapshot()
	return func() ([]byte, []store.Range) {
		manifest, pins := encode()
		return manifest, ranges(pins)
	}, nil
}

func (m machine) Restore(manifest []byte) error { return m.r.Restore(manifest) }

// Reclaimable implements group.Reclaimer.
func (m machine) Reclaimable() int64 { return m.r.Reclaimable() }

var errNotReady = errors.New("node is not ready")
