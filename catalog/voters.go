package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// deadSince is when NodeDead named a node that has not come back since.
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

// tendVoters makes one change of who votes if one is due: a node that keeps up becomes a voter while there are too few, one that is
// dead, or the one that registered last, is none any more while there are too many, and so is one that has been down for long if another can take
// its place. That one goes first: with one voter dead of four, three would be needed of the three that are alive. A node that leaves goes
// last, when enough others vote, and does not count for how many those are.
func (c *Catalog) tendVoters(ctx context.Context, config raft.Configuration) error {
	view := c.View()
	var voters, others, leaving []raft.Server // leaving are among the voters
	staying, lasting := 0, 0                  // lasting are the voters that neither leave nor have been down for long
	for _, s := range config.Servers {
		leaves := view.NodeState(NodeID(s.ID)) == NodeLeaving
		if !leaves {
			staying++
		}
		switch {
		case s.Suffrage != raft.Voter:
			others = append(others, s)
			continue
		case leaves:
			leaving = append(leaving, s)
		case !c.isLongDown(view, NodeID(s.ID)):
			lasting++
		}
		voters = append(voters, s)
	}
	wanted := max(1, votersWanted(staying))
	if wanted == votersMany && !c.electable(ctx, view, others, votersMany-lasting) {
		wanted = votersFew
	}
	enough := len(voters)-len(leaving) >= wanted
	switch gone := c.longDown(view, voters); {
	case len(voters) > wanted && gone != "":
		return c.demote(ctx, gone)
	case enough && len(leaving) > 0:
		return c.demoteLeaving(ctx, voters, leaving)
	case len(voters) > wanted && len(leaving) == 0:
		return c.demote(ctx, c.surplus(view, voters))
	case enough && gone == "":
		return nil
	case gone != "" && len(voters) < votersFew: // a majority of two is both: the change could not be committed
		return nil
	}
	return c.promote(ctx, voters, others, wanted)
}

// electable tells whether so many of the nodes without a vote could have one at this moment. Five vote only if there are five that can: four would not
// survive more deaths than three do, and each of the five that is dead would have another one live.
func (c *Catalog) electable(ctx context.Context, view *View, others []raft.Server, missing int) bool {
	for _, s := range others {
		if missing <= 0 {
			break
		}
		if id := NodeID(s.ID); view.NodeState(id) == NodeRegular && !c.isDead(id) && c.keepsUp(ctx, id) {
			missing--
		}
	}
	return missing <= 0
}

// demoteLeaving takes the vote of a node that leaves. One that leads gives the leadership away first.
func (c *Catalog) demoteLeaving(ctx context.Context, voters, leaving []raft.Server) error {
	for _, s := range leaving {
		if NodeID(s.ID) != c.cfg.Local {
			if c.mostLive(voters, NodeID(s.ID)) {
				return c.demote(ctx, NodeID(s.ID))
			}
			continue
		}
		view := c.View()
		c.leaves.Store(true)
		if err := c.Yield(ctx, func(id NodeID) bool { return view.NodeState(id) != NodeRegular }); err != nil {
			return fmt.Errorf("this node leaves the cluster and leads the catalog: %w", err)
		}
		return nil
	}
	return nil
}

// mostLive tells whether most voters would be alive without one.
func (c *Catalog) mostLive(voters []raft.Server, but NodeID) bool {
	all, living := 0, 0
	for _, s := range voters {
		if id := NodeID(s.ID); id != but {
			all++
			if id == c.cfg.Local || c.cfg.Mesh.Peer(id).Up && !c.isDead(id) {
				living++
			}
		}
	}
	return living > all/2
}

// criticalMin is how many voters the catalog must have for one to be spared: of one or two each is needed, always.
const criticalMin = 3

// Critical tells whether the catalog would be without a majority if this node went: it is one of three voters or more, and too few others
// can be reached and are not known to be dead.
func (c *Catalog) Critical() bool {
	voters := c.voters()
	others, self := 0, false
	for _, id := range voters {
		switch {
		case id == c.cfg.Local:
			self = true
		case c.cfg.Mesh.Peer(id).Up && !c.isDead(id):
			others++
		}
	}
	return self && len(voters) >= criticalMin && others <= len(voters)/2
}

// promote makes a voter of a node that keeps up, first of all one in a zone with few votes. If there are enough voters, it makes room for that: one is down for
// long.
func (c *Catalog) promote(ctx context.Context, voters, others []raft.Server, wanted int) error {
	view := c.View()
	zones := zonesOf(view, voters)
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
		if gone := c.longDown(view, voters); gone != "" && len(voters) >= wanted {
			return c.demote(ctx, gone)
		}
		c.log.Info("a node becomes a voter of the catalog's group", "node", s.ID)
		defer c.poke() // four voters are no better than three: the fifth follows at once
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

// longDown is a voter that has been down for so long that another one should vote, "" if none. The time is counted by this node, since it heard of the
// death: the catalog's record is of the clock of who led then.
func (c *Catalog) longDown(view *View, voters []raft.Server) NodeID {
	for _, s := range voters {
		if id := NodeID(s.ID); c.isLongDown(view, id) {
			return id
		}
	}
	return ""
}

func (c *Catalog) isLongDown(view *View, id NodeID) bool {
	n := view.Node(id)
	if n == nil || n.Down == 0 || id == c.cfg.Local {
		return false
	}
	at, dead := c.deadSince(id)
	return dead && time.Since(at) >= c.cfg.VoterReplaceAfter
}

// surplus is the voter of too many that loses its vote: a dead one if there is one, else one in the zone with most votes, the one that was given the
// highest number, but never this one, and none without which most would not be alive; "" if there is none.
func (c *Catalog) surplus(view *View, voters []raft.Server) (id NodeID) {
	zones := zonesOf(view, voters)
	var last *Node
	for _, s := range voters {
		n := view.Node(NodeID(s.ID))
		if n == nil || n.ID == c.cfg.Local {
			continue
		}
		if c.isDead(n.ID) {
			return n.ID
		}
		if (last == nil || cmp.Or(cmp.Compare(zones[n.Zone], zones[last.Zone]), cmp.Compare(n.Number, last.Number)) > 0) && c.mostLive(voters, n.ID) {
			id, last = n.ID, n
		}
	}
	return id
}

// zonesOf counts the votes in each zone.
func zonesOf(view *View, voters []raft.Server) map[string]int {
	zones := map[string]int{}
	for _, s := range voters {
		if n := view.Node(NodeID(s.ID)); n != nil {
			zones[n.Zone]++
		}
	}
	return zones
}
