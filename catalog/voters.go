package catalog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// deadSince is when NodeDead named a node from which nothing was heard since.
func (c *Catalog) deadSince(id NodeID) (at time.Time, dead bool) {
	if !c.isDead(id) {
		return time.Time{}, false
	}
	c.deadMu.Lock()
	defer c.deadMu.Unlock()
	at, dead = c.dead[id]
	return at, dead
}

// tendDown notes in the catalog, as the leader, who has been dead for a while, and who is there again although
// it did not have to register.
func (c *Catalog) tendDown(ctx context.Context) error {
	view := c.View()
	if view.Level() < 2 {
		return nil
	}
	var all []error
	for n := range view.Nodes() {
		if n.Superseded || n.ID == c.cfg.Local && n.Down == 0 {
			continue
		}
		at, dead := c.deadSince(n.ID)
		down := int64(0)
		switch silent := time.Since(at); {
		case dead && n.Down == 0 && silent >= c.cfg.DownAfter:
			down = c.cfg.Mesh.Clock() - silent.Milliseconds()
		case n.Down != 0 && !dead && c.cfg.Mesh.Peer(n.ID).Up:
		default:
			continue
		}
		c.log.Info("the catalog notes who is down", "node", string(n.ID), "down", down != 0)
		_, err := c.Propose(ctx, &NodeDown{ID: n.ID, Incarnation: n.Incarnation, AtMillis: down})
		all = append(all, err)
	}
	return errors.Join(all...)
}

// tendVoters makes one change of who votes if one is due: a node that keeps up becomes a voter while there are too few, the one
// that registered last is none any more while there are too many, and so is one that has been down for long if another can take
// its place. That one goes first: with one voter dead of four, three would be needed of the three that are alive.
func (c *Catalog) tendVoters(ctx context.Context, config raft.Configuration) error {
	var voters, others []raft.Server
	for _, s := range config.Servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, s)
		} else {
			others = append(others, s)
		}
	}
	view, wanted := c.View(), votersWanted(len(config.Servers))
	switch gone := c.longDown(view, voters); {
	case len(voters) > wanted:
		return c.demote(ctx, cmp.Or(gone, youngest(view, voters, c.cfg.Local)))
	case gone == "" && len(voters) == wanted:
		return nil
	case gone != "" && len(voters) < 3: // a majority of two is both: the change could not be committed
		return nil
	}
	zones := map[string]int{}
	for _, s := range voters {
		if n := view.Node(NodeID(s.ID)); n != nil {
			zones[n.Zone]++
		}
	}
	place := func(s raft.Server) int {
		if n := view.Node(NodeID(s.ID)); n != nil {
			return zones[n.Zone]
		}
		return len(voters)
	}
	slices.SortFunc(others, func(a, b raft.Server) int { return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.ID, b.ID)) })
	for _, s := range others {
		id := NodeID(s.ID)
		if view.NodeState(id) != NodeRegular || !c.keepsUp(ctx, id) {
			continue
		}
		if len(voters) >= wanted {
			return c.demote(ctx, c.longDown(view, voters))
		}
		c.log.Info("a node becomes a voter of the catalog's group", "node", s.ID)
		return c.spreadAfter(c.await(ctx, c.raft.AddVoter(s.ID, s.Address, 0, membershipWait).Error, nothing))
	}
	return nil
}

func (c *Catalog) demote(ctx context.Context, id NodeID) error {
	if id == "" {
		return nil
	}
	c.log.Info("a node is no voter of the catalog's group any more", "node", string(id))
	return c.spreadAfter(c.await(ctx, c.raft.DemoteVoter(raft.ServerID(id), 0, membershipWait).Error, nothing))
}

// longDown is a voter that has been down for so long that another one should vote, "" if none.
func (c *Catalog) longDown(view *View, voters []raft.Server) NodeID {
	for _, s := range voters {
		n := view.Node(NodeID(s.ID))
		if n != nil && n.Down != 0 && n.ID != c.cfg.Local && c.cfg.Mesh.Clock()-n.Down >= c.cfg.VoterReplaceAfter.Milliseconds() && c.isDead(n.ID) {
			return n.ID
		}
	}
	return ""
}

// youngest is the voter that was given the highest number, but the given one; "" if there is none.
func youngest(view *View, voters []raft.Server, but NodeID) (id NodeID) {
	highest := uint32(0)
	for _, s := range voters {
		if n := view.Node(NodeID(s.ID)); n != nil && n.ID != but && n.Number > highest {
			id, highest = n.ID, n.Number
		}
	}
	return id
}
