package group

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// Member is one server of a group's newest configuration, committed or not.
type Member struct {
	Node    transport.NodeID
	Replica transport.ReplicaID
	Voter   bool
}

// Members returns the newest configuration this replica knows.
func (g *Group) Members() []Member { return membersOf(g.configuration().Servers) }

// Configuration returns the newest configuration in this replica's log, committed or not, and the index of its
// entry: what a change that was decided by it is given as ifIndex.
func (g *Group) Configuration() ([]Member, uint64, error) {
	c, err := g.running.Load().log.configured(g.log.Snapshots())
	if err != nil {
		return nil, 0, fmt.Errorf("configuration of group %d: %w", g.spec.ID, err)
	}
	return membersOf(c.servers), c.index, nil
}

func membersOf(servers []raft.Server) []Member {
	all := make([]Member, len(servers))
	for i, s := range servers {
		all[i] = Member{Node: transport.NodeID(s.Address), Replica: transport.ReplicaID(s.ID), Voter: s.Suffrage == raft.Voter}
	}
	return all
}

// configuration never waits: raft answers it from a copy.
func (g *Group) configuration() raft.Configuration {
	f := g.replica().GetConfiguration()
	if f.Error() != nil {
		return raft.Configuration{}
	}
	return f.Configuration()
}

func (g *Group) voters() []transport.NodeID {
	all, _ := g.votersAndSelf()
	return all
}

// votersAndSelf tells too whether this very replica votes.
func (g *Group) votersAndSelf() (all []transport.NodeID, self bool) {
	servers := g.configuration().Servers
	all = make([]transport.NodeID, 0, len(servers))
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			all = append(all, transport.NodeID(s.Address))
			self = self || s.ID == raft.ServerID(g.self)
		}
	}
	return all, self
}

// isVoter tells whether this very replica votes: one of an earlier generation on this node does not count.
func (g *Group) isVoter() bool {
	return slices.ContainsFunc(g.configuration().Servers, func(s raft.Server) bool {
		return s.ID == raft.ServerID(g.self) && s.Suffrage == raft.Voter
	})
}

func (g *Group) hasVoter(n transport.NodeID) bool { return slices.Contains(g.voters(), n) }

// replicaAt returns the replica of a node that the newest configuration has.
func (g *Group) replicaAt(n transport.NodeID) transport.ReplicaID {
	for _, s := range g.configuration().Servers {
		if s.Address == raft.ServerAddress(n) {
			return transport.ReplicaID(s.ID)
		}
	}
	return transport.Replica(n, 0)
}

// membersChanged forgets what was derived from the membership. A leader that was
// removed or lost its vote steps down without telling anybody.
func (g *Group) membersChanged() {
	g.leaseUntil.Store(0)
	// A replica that was added may be on a node whose former one knew everything.
	g.mu.Lock()
	g.spreading = spreading{}
	g.mu.Unlock()
	g.unsettle()
	if in := g.running.Load(); in != nil {
		g.noteLearners()
		g.sync(in.raft)
	}
}

func (g *Group) noteLearners() {
	g.learners.Store(slices.ContainsFunc(g.configuration().Servers, func(s raft.Server) bool { return s.Suffrage != raft.Voter }))
}

// AddNonvoter adds a replica that receives the log without voting. Like every change of
// membership it must be called on the leader, one at a time for a group, and returns
// when the change is committed; ErrUnknown means that it may still be. It is refused if the
// newest configuration is not the one at ifIndex; 0 is any.
func (g *Group) AddNonvoter(ctx context.Context, r transport.ReplicaID, ifIndex uint64) error {
	g.learners.Store(true) // raft sends to it before the change is committed, and HostConfig.Fill bounds that
	err := g.change(ctx, "add non-voter", r, func(in replica, d time.Duration) raft.IndexFuture {
		return in.AddNonvoter(raft.ServerID(r), raft.ServerAddress(r.Node()), ifIndex, d)
	})
	g.noteLearners()
	return err
}

// AddVoter adds a voter or promotes a non-voter; see AddNonvoter.
func (g *Group) AddVoter(ctx context.Context, r transport.ReplicaID, ifIndex uint64) error {
	return g.change(ctx, "add voter", r, func(in replica, d time.Duration) raft.IndexFuture {
		return in.AddVoter(raft.ServerID(r), raft.ServerAddress(r.Node()), ifIndex, d)
	})
}

// DemoteVoter takes a replica's vote; see AddNonvoter.
func (g *Group) DemoteVoter(ctx context.Context, r transport.ReplicaID, ifIndex uint64) error {
	return g.change(ctx, "demote", r, func(in replica, d time.Duration) raft.IndexFuture {
		return in.DemoteVoter(raft.ServerID(r), ifIndex, d)
	})
}

// RemoveServer removes a replica; see AddNonvoter. What it has on its node is for the host there to wipe: under its
// name it is never added again.
func (g *Group) RemoveServer(ctx context.Context, r transport.ReplicaID, ifIndex uint64) error {
	return g.change(ctx, "remove", r, func(in replica, d time.Duration) raft.IndexFuture {
		return in.RemoveServer(raft.ServerID(r), ifIndex, d)
	})
}

// changeDeadline bounds a change whose context has no deadline.
const changeDeadline = 10 * time.Second

func (g *Group) change(ctx context.Context, what string, which transport.ReplicaID, do func(replica, time.Duration) raft.IndexFuture) error {
	fail := func(err error) error { return fmt.Errorf("%s %s in group %d: %w", what, which, g.spec.ID, err) }
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	if err := g.lead(ctx); err != nil {
		return fail(err)
	}
	if !g.leading.Load() {
		return fail(ErrNotLeader)
	}
	limit, _ := ctx.Deadline()
	done := make(chan error, 1)
	// The goroutine outlives a missed deadline until raft answers, at the latest when
	// the leader steps down or its instance ends.
	wait := func() {
		in := g.running.Load()
		done <- g.waitFuture(in, do(in.raft, time.Until(limit)))
	}
	if !g.host.spawn(wait) {
		return fail(ErrStopped)
	}
	select {
	case err := <-done:
		switch {
		case err == nil:
			return nil
		case errors.Is(err, raft.ErrNotLeader):
			return fail(ErrNotLeader)
		case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
			return fail(ErrUnknown)
		}
		return fail(err)
	case <-ctx.Done():
		return fail(errors.Join(ErrUnknown, ctx.Err()))
	}
}

// waitFuture waits for a future of an instance, which may never answer it when it ends.
func (g *Group) waitFuture(in *instance, f raft.Future) error {
	answer := make(chan error, 1)
	in.endFuture(f)
	go func() { answer <- f.Error() }() // ends with the instance, see endFuture
	select {
	case err := <-answer:
		return err
	case <-in.ended:
		return raft.ErrRaftShutdown
	case <-g.stopped:
		return raft.ErrRaftShutdown
	case <-g.host.ctx.Done():
		return raft.ErrRaftShutdown
	}
}

// endFuture has a future answer when its instance has ended. raft drops committed entries that its machine has not taken at a shutdown, and
// never answers; its futures have a channel for that, which raft itself sets for some of them only.
func (in *instance) endFuture(f raft.Future) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return // it has its answer already
	}
	if c := v.Elem().FieldByName("ShutdownCh"); c.IsValid() && c.CanSet() && c.IsNil() {
		c.Set(reflect.ValueOf(in.ended))
	}
}
