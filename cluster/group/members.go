package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// Member is one server of a group's newest configuration, committed or not.
type Member struct {
	Node  transport.NodeID
	Voter bool
}

// Members returns the newest configuration this replica knows.
func (g *Group) Members() []Member {
	servers := g.configuration().Servers
	all := make([]Member, len(servers))
	for i, s := range servers {
		all[i] = Member{Node: transport.NodeID(s.ID), Voter: s.Suffrage == raft.Voter}
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
	servers := g.configuration().Servers
	all := make([]transport.NodeID, 0, len(servers))
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			all = append(all, transport.NodeID(s.ID))
		}
	}
	return all
}

func (g *Group) isVoter() bool { return g.hasVoter(g.host.cfg.Local) }

func (g *Group) hasVoter(n transport.NodeID) bool {
	for _, s := range g.configuration().Servers {
		if s.ID == raft.ServerID(n) {
			return s.Suffrage == raft.Voter
		}
	}
	return false
}

// membersChanged forgets what was derived from the membership. A leader that was
// removed or lost its vote steps down without telling anybody.
func (g *Group) membersChanged() {
	g.leaseUntil.Store(0)
	if in := g.running.Load(); in != nil {
		g.sync(in.raft)
	}
}

// AddNonvoter adds a node that receives the log without voting. Like every change of
// membership it must be called on the leader, one at a time for a group, and returns
// when the change is committed; ErrUnknown means that it may still be.
func (g *Group) AddNonvoter(ctx context.Context, n transport.NodeID) error {
	return g.change(ctx, "add non-voter", n, func(r *raft.Raft, d time.Duration) raft.IndexFuture {
		return r.AddNonvoter(raft.ServerID(n), raft.ServerAddress(n), 0, d)
	})
}

// AddVoter adds a voter or promotes a non-voter; see AddNonvoter.
func (g *Group) AddVoter(ctx context.Context, n transport.NodeID) error {
	return g.change(ctx, "add voter", n, func(r *raft.Raft, d time.Duration) raft.IndexFuture {
		return r.AddVoter(raft.ServerID(n), raft.ServerAddress(n), 0, d)
	})
}

// DemoteVoter takes a node's vote; see AddNonvoter.
func (g *Group) DemoteVoter(ctx context.Context, n transport.NodeID) error {
	return g.change(ctx, "demote", n, func(r *raft.Raft, d time.Duration) raft.IndexFuture {
		return r.DemoteVoter(raft.ServerID(n), 0, d)
	})
}

// RemoveServer removes a node; see AddNonvoter.
func (g *Group) RemoveServer(ctx context.Context, n transport.NodeID) error {
	return g.change(ctx, "remove", n, func(r *raft.Raft, d time.Duration) raft.IndexFuture {
		return r.RemoveServer(raft.ServerID(n), 0, d)
	})
}

// changeDeadline bounds a change whose context has no deadline.
const changeDeadline = 10 * time.Second

func (g *Group) change(ctx context.Context, what string, n transport.NodeID, do func(*raft.Raft, time.Duration) raft.IndexFuture) error {
	fail := func(err error) error { return fmt.Errorf("%s %s in group %d: %w", what, n, g.spec.ID, err) }
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	if !g.leading.Load() {
		return fail(ErrNotLeader)
	}
	limit, _ := ctx.Deadline()
	done := make(chan error, 1)
	// The goroutine outlives a missed deadline until raft answers, at the latest when
	// the leader steps down or the replica stops.
	if !g.host.spawn(func() { done <- waitFuture(do(g.replica(), time.Until(limit)), g.stopped) }) {
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

// waitFuture waits for a future that may never be answered when its instance stops.
func waitFuture(f raft.Future, stopped <-chan struct{}) error {
	answer := make(chan error, 1)
	// Weak: when raft drops a committed entry at shutdown this goroutine stays for
	// the life of the process; the library offers no other way to wait.
	go func() { answer <- f.Error() }()
	select {
	case err := <-answer:
		return err
	case <-stopped:
		return raft.ErrRaftShutdown
	}
}
