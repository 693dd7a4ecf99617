package catalog

import "github.com/warrenmq/warren/amqp"

// NodeState is what an operator wants of a node.
type NodeState uint8

// The states. The numbers are stored.
const (
	NodeRegular NodeState = 1
	// NodeDraining: it is about to stop, or under maintenance; it leads nothing and gets nothing new. Its next registration ends that.
	NodeDraining NodeState = 2
	// NodeLeaving: its replicas move to other nodes, for good.
	NodeLeaving NodeState = 3
)

func (s NodeState) String() string {
	switch s {
	case NodeDraining:
		return "draining"
	case NodeLeaving:
		return "leaving"
	}
	return "regular"
}

// SetNodeState says what is wanted of a node. With NotLast it is refused to a node that is to leave after all others. Entries of programs before it
// had that do not have it.
type SetNodeState struct {
	ID      NodeID
	State   NodeState
	NotLast bool
}

func (c *SetNodeState) fields(f *fields) {
	str(f, &c.ID)
	enum(f, &c.State, NodeLeaving)
	var guard uint64
	if c.NotLast {
		guard = 1
	}
	if f.optional(&guard); guard > 1 {
		f.fail("guard %d", guard)
	}
	c.NotLast = guard > 0
}

func (c *SetNodeState) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.Node(c.ID)
	switch {
	case old == nil || old.Superseded:
		return Result{}, errNoNode(c.ID)
	case old.State == c.State:
		return Result{}, nil
	case c.NotLast && c.State == NodeLeaving && !tx.OthersStay(c.ID):
		return Result{}, refused("node '%s' is the last one that stays", old.Name)
	}
	n := *old
	n.State = c.State
	tx.putNode(&n)
	return Result{Changed: true}, nil
}

// OthersStay tells whether nodes besides one are not leaving.
func (v *View) OthersStay(id NodeID) bool {
	for n := range v.Nodes() {
		if n.ID != id && !n.Superseded && n.State != NodeLeaving {
			return true
		}
	}
	return false
}
