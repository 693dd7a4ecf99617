package replicas

import (
	"context"

	"github.com/warrenmq/warren/catalog"
)

// Forget takes a node out of the cluster for good: its storage is not let in again. It is refused while the node runs or a queue has it as
// a member. done is false if the catalog's group has not let go of it before ctx ended; it will. The error is an *Error, or the catalog's.
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
	if count := view.Replicas(n.ID); count > 0 {
		return false, o.stillHas(view, n, count)
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

func (o *Operator) stillHas(view *catalog.View, n *catalog.Node, count int) *Error {
	var queues []*catalog.Queue
	for q := range view.AllQueues() {
		for _, m := range q.Members {
			if q.Kind == catalog.Replicated && m == n.ID {
				queues = append(queues, q)
			}
		}
	}
	return errorf(HasReplicas, "node '%s' still has replicas of %d queues: %s; take them away (shrink), or let others take their place (decommission_node)",
		n.Name, count, list(queues))
}
