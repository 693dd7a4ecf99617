package replicas

import (
	"context"
	"slices"

	"github.com/warrenmq/warren/catalog"
)

// Forget takes a node out of the cluster for good: its storage is not let in again. It is refused while the node runs or a queue has it as
// a member, unless that is deleted and has no replica elsewhere. done is false if the catalog's group has not let go of it before ctx ended; it will. The error is an *Error, or the catalog's.
//
// The catalog forgets the node first, and then its group does, as a chore of its leader. The other way round, a node that starts just then
// would join the group again as one that the catalog knows; and whoever crashed in between would leave a member of the cluster that has no
// part in its catalog. In between it counts for the group's quorum as it did before.
func (o *Operator) Forget(ctx context.Context, node string) (done bool, err error) {
	view, n, err := o.node(ctx, node)
	if err != nil {
		return false, err
	}
	if !n.Superseded && o.Running(n.ID) {
		return false, errorf(NodeRuns, "node '%s' is running: it must be stopped before it can be removed", n.Name)
	}
	if view.Replicas(n.ID) > 0 {
		if err := o.bury(ctx, view, n); err != nil {
			return false, err
		}
	}
	if _, err := o.Catalog.Propose(ctx, &catalog.ForgetNode{ID: n.ID, Incarnation: n.Incarnation}); err != nil {
		return false, ofCatalog(err)
	}
	for o.Catalog.HasServer(n.ID) {
		if !pause(ctx, waitEvery) {
			return false, nil
		}
	}
	return true, nil
}

// bury takes deleted queues out of the catalog that wait for this node alone to be led to their end. It is refused, and nothing is done, if
// the node has replicas of others.
func (o *Operator) bury(ctx context.Context, view *catalog.View, n *catalog.Node) error {
	var over, others []*catalog.Queue
	for q := range view.AllQueues() {
		switch {
		case q.Kind != catalog.Replicated || !slices.Contains(q.Members, n.ID):
		case q.State == catalog.Closing && view.NoneLeft(q, n.ID):
			over = append(over, q)
		default:
			others = append(others, q)
		}
	}
	if len(others) > 0 {
		return errorf(HasReplicas, "node '%s' still has replicas of %d queues: %s; take them away (shrink), let others take their place (decommission_node), or delete queues that have no other",
			n.Name, len(others), list(others))
	}
	for _, q := range over {
		if _, err := o.Catalog.Propose(ctx, &catalog.QueueGone{ID: q.ID}); err != nil {
			return ofCatalog(err)
		}
	}
	return nil
}
