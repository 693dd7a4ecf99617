package steward

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/cluster/repair"
	"github.com/warrenmq/warren/cluster/replicas"
)

// Progress is how far a node is that leaves the cluster.
type Progress struct {
	Node  string `json:"node"`
	State string `json:"state"` // regular, draining or leaving
	// Replicas is how many it has. Of these queues, members are to be changed in Waiting, are being changed in Underway (by Stalled
	// of them a node is missed), cannot be changed because no node could take the replica in Nowhere, or because most of them are dead in NoMajority.
	Replicas   int `json:"replicas"`
	Waiting    int `json:"waiting"`
	Underway   int `json:"underway"`
	Stalled    int `json:"stalled"`
	Nowhere    int `json:"nowhere"`
	NoMajority int `json:"no_majority"`
	// Voter: its word counts in the catalog's group.
	Voter bool `json:"voter"`
	// Done: it leaves and has nothing any more; it can be dismissed.
	Done bool `json:"done"`
}

func refused(r replicas.Reason, text string) error { return &replicas.Error{Reason: r, Text: text} }

// find finds a node by its name or its storage.
func (s *Steward) find(name string) (*catalog.View, *catalog.Node, error) {
	view := s.cfg.Catalog.View()
	n := view.NodeByName(name)
	if n == nil {
		n = view.Node(catalog.NodeID(name))
	}
	if n == nil {
		return nil, nil, refused(replicas.NoNode, "no node '"+name+"' is in the cluster")
	}
	return view, n, nil
}

// findNow is find in a view that is not older than the call: what an old one has, or has not, is no reason to do nothing.
func (s *Steward) findNow(ctx context.Context, name string) (*catalog.View, *catalog.Node, error) {
	if err := cmp.Or(s.cfg.Catalog.ReadIndex(ctx), ctx.Err()); err != nil {
		return nil, nil, err
	}
	return s.find(name)
}

// Leave says that a node is to leave the cluster for good, or, if leaves is false, that it stays after all. What has moved by then does not move back. The
// error is a *replicas.Error if it is refused, or the catalog's.
func (s *Steward) Leave(ctx context.Context, name string, leaves bool) error {
	view, n, err := s.findNow(ctx, name)
	if err != nil {
		return err
	}
	state := catalog.NodeLeaving
	switch {
	case leaves && n.Superseded:
		return refused(replicas.Refused, "node '"+name+"' was replaced: it leaves by itself")
	case leaves && !view.OthersStay(n.ID):
		return refused(replicas.LastMember, "node '"+name+"' is the last one that stays")
	case leaves: // the catalog looks again: another one may be on its way out
	case n.State != catalog.NodeLeaving:
		return nil
	default:
		state = catalog.NodeRegular
	}
	_, err = s.cfg.Catalog.Propose(ctx, &catalog.SetNodeState{ID: n.ID, State: state, NotLast: leaves})
	return ofCatalog(err)
}

// Progress tells how far a node is.
func (s *Steward) Progress(name string) (Progress, error) {
	view, n, err := s.find(name)
	if err != nil {
		return Progress{}, err
	}
	p := Progress{
		Node: n.Name, State: n.State.String(), Replicas: view.Replicas(n.ID), Voter: slices.Contains(s.cfg.Catalog.Voters(), n.ID),
	}
	if p.Replicas > 0 {
		nodes := Nodes(view, s.cfg.Alive, func(catalog.NodeID) time.Duration { return 1 })
		o := repair.Next(repair.Policy{}, nodes, func(yield func(repair.Queue) bool) {
			for q := range Queues(view) {
				if q.Missing = 0; slices.Contains(q.Members, n.ID) && !yield(q) {
					return
				}
			}
		}, nil)
		p.Waiting, p.Underway, p.Stalled, p.Nowhere, p.NoMajority = o.Waiting, o.Underway, o.Stalled, o.Nowhere, o.NoMajority
	}
	p.Done = n.State == catalog.NodeLeaving && p.Replicas == 0 && !p.Voter
	return p, nil
}

// Dismiss takes a node out of the cluster that leaves and has nothing any more, whether it runs or not. If it runs it hands its clients over, and ends.
// The error is a *replicas.Error if it is refused, or the catalog's.
func (s *Steward) Dismiss(ctx context.Context, name string) error {
	_, n, err := s.findNow(ctx, name)
	if err != nil {
		return err
	}
	p, err := s.Progress(name)
	switch {
	case err != nil:
		return err
	case n.State != catalog.NodeLeaving:
		return refused(replicas.Refused, "node '"+name+"' does not leave the cluster")
	case p.Replicas > 0:
		return refused(replicas.HasReplicas, "node '"+name+"' still has replicas of queues")
	case p.Voter:
		return refused(replicas.Busy, "node '"+name+"' still votes in the catalog's group")
	}
	_, err = s.cfg.Catalog.Propose(ctx, &catalog.ForgetNode{ID: n.ID, Incarnation: n.Incarnation})
	return ofCatalog(err)
}

// ofCatalog gives the catalog's refusals their form.
func ofCatalog(err error) error {
	if errors.Is(err, catalog.ErrLevel) {
		return refused(replicas.OldLevel, err.Error()+": all nodes must have a program that knows it")
	}
	if errors.Is(err, catalog.ErrUnknownOutcome) {
		return replicas.Unknown(err)
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return refused(replicas.Refused, e.Text)
	}
	return err
}
