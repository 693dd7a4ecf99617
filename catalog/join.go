package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// Join makes this node a member of the group, as a non-voter at first. It asks the given
// nodes, which the mesh must be able to reach, until the leader has committed the change
// or ctx ends. It is idempotent.
func (c *Catalog) Join(ctx context.Context, through func() []NodeID) error {
	err, said := ErrNoLeader, map[NodeID]string{} // by whom was asked
	for {
		for _, id := range through() {
			if id == c.cfg.Local {
				continue
			}
			var f fields
			j := joinRequest{Node: c.cfg.Local}
			j.fields(&f)
			call, cancel := context.WithTimeout(ctx, membershipWait)
			_, err = c.cfg.Mesh.Call(call, id, MethodJoin, f.buf)
			cancel()
			if err == nil {
				return nil
			}
			remote, ok := errors.AsType[*transport.RemoteError](err)
			if ok && remote.Code == codeForgotten {
				return fmt.Errorf("%w: %s", ErrForgotten, remote.Text)
			}
			if ok && remote.Text != said[id] {
				c.log.Warn("this node cannot join yet", "through", string(id), "err", err)
				said[id] = remote.Text
			}
		}
		if !pause(ctx, retryMax) {
			return fmt.Errorf("join the catalog: %w: %w", ctx.Err(), err)
		}
	}
}

// AskBelongs asks the given nodes whether this storage still belongs to the cluster. The error is ErrForgotten if one that knows the catalog's
// leader says that it does not, and nil otherwise, also if nobody answers.
func (c *Catalog) AskBelongs(ctx context.Context, through []NodeID) error {
	var f fields
	j := joinRequest{Node: c.cfg.Local} // who belongs to it is a member already
	j.fields(&f)
	for _, id := range through {
		if id == c.cfg.Local {
			continue
		}
		call, cancel := context.WithTimeout(ctx, positionWait)
		_, err := c.cfg.Mesh.Call(call, id, MethodJoin, f.buf)
		cancel()
		if remote, ok := errors.AsType[*transport.RemoteError](err); ok && remote.Code == codeForgotten {
			return fmt.Errorf("%w: %s", ErrForgotten, remote.Text)
		}
	}
	return nil
}

// joinRequest asks for membership of Node.
type joinRequest struct {
	Node      NodeID
	Forwarded bool // by a node that is not the leader: not to be forwarded again
}

func (j *joinRequest) fields(f *fields) {
	f.version(1)
	str(f, &j.Node)
	f.bool(&j.Forwarded)
}

func (c *Catalog) handleJoin(ctx context.Context, _ NodeID, req []byte) ([]byte, error) {
	var j joinRequest
	f := fields{buf: req, reading: true}
	j.fields(&f)
	if err := f.end(); err != nil {
		return nil, err
	}
	if err := checkNodeID(j.Node); err != nil {
		return nil, &transport.RemoteError{Code: codeBadCommand, Text: err.Text}
	}
	leader := c.LeaderID()
	switch {
	case leader == c.cfg.Local:
		return nil, c.admit(ctx, j.Node)
	case leader == "":
		return nil, ErrNoLeader
	case j.Forwarded:
		return nil, errNotLeader
	}
	f = fields{}
	j.Forwarded = true
	j.fields(&f)
	return c.cfg.Mesh.Call(ctx, leader, MethodJoin, f.buf)
}

// admit adds a node to the configuration, as the leader.
func (c *Catalog) admit(ctx context.Context, id NodeID) error {
	if err := c.readyForTerm(ctx); err != nil {
		return err // an older view may not know who was replaced
	}
	if n := c.View().Node(id); n != nil && n.Superseded {
		return &transport.RemoteError{Code: codeForgotten, Text: fmt.Sprintf("storage %s was replaced by a newer one of the same node id", id)}
	}
	if c.View().Forgotten(id) {
		return &transport.RemoteError{Code: codeForgotten, Text: fmt.Sprintf("storage %s was forgotten: a node comes back with an empty data folder only", id)}
	}
	if err := c.configuring.lock(ctx); err != nil {
		return err
	}
	defer c.configuring.unlock()
	future := c.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	for _, s := range future.Configuration().Servers {
		if NodeID(s.ID) == id {
			return nil
		}
	}
	if err := c.nameFree(id); err != nil {
		return err
	}
	if err := c.levels.lock(ctx); err != nil {
		return err
	}
	defer c.levels.unlock()
	if err := c.stampJoining(ctx, id); err != nil {
		return err
	}
	c.log.Info("a node joins the catalog's group", "node", string(id))
	add := c.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, membershipWait)
	if err := c.spreadAfter(c.await(ctx, add.Error, nothing)); err != nil {
		return fmt.Errorf("add node %s: %w", id, err)
	}
	c.poke()
	return nil
}
