package catalog

import (
	"slices"

	"github.com/warrenmq/warren/amqp"
)

// What follows belongs to level 2: states of nodes, and replicas that move. A queue's replicas change in two steps.
// PlanMembers says where they shall be; from then on Members has the old and the new ones, so that every server of the
// group's Raft configuration is among them, whatever its leader has done already. MembersReached says that the
// configuration is as wanted; only then the others are no members any more, and wipe what they have.

// Bounds of what level 2 brings.
const (
	forgottenMax      = 1 << 10 // tombstones of nodes: the oldest goes
	whyBytesMax       = 255     // PlanMembers.Why
	listenersMax      = 16      // NodeAbout.Listeners
	plannedMembersMax = 2 * membersMax
)

// NodeAbout is what a node's process tells of itself beside its registration. It has no effect if the node has
// registered anew since Incarnation.
type NodeAbout struct {
	ID          NodeID
	Incarnation uint64
	Zone        string // what fails together with it
	Version     string // of its program
	Level       uint64 // the newest that its program knows
	// Listeners are where clients, and who watches over it, find it, as "amqp host:port".
	Listeners []string
}

// NodeDown notes since when a node has been dead, in milliseconds since 1970 by the catalog's leader; 0: it is not. A registration
// ends it too. It has no effect if the node has registered anew since Incarnation.
type NodeDown struct {
	ID          NodeID
	Incarnation uint64
	AtMillis    int64
}

// ForgetNode takes a node out of the cluster for good: its storage is not let in again. It is refused while a queue has the node
// as a member, and, unless Incarnation is 0, if the node has registered anew since.
type ForgetNode struct {
	ID          NodeID
	Incarnation uint64
}

// SetPreferred says which member of a queue should lead it. IfSettings is as in UpdateMembers. Queue.Settings stays: where the
// replicas are is as it was.
type SetPreferred struct {
	ID         uint64
	Node       NodeID
	IfSettings uint64
}

// PlanMembers says where the replicas of a queue shall be. Members that are new, and those of Renew, which begin anew on a node
// that has the queue already, get the command's log index as their generation. What a node of Renew has is wiped at once, before the group
// has removed it: a node says that of its own replica when its log is damaged, and nobody else of any. Preferred, one of Wanted, is to lead
// when all are there. IfSettings must equal Queue.Settings.
type PlanMembers struct {
	ID            uint64
	Wanted, Renew []NodeID
	Preferred     NodeID
	IfSettings    uint64
	Why           string // for people
}

// MembersReached says that the servers of a queue's group are the wanted ones and no others, and that this is committed. IfSettings
// must equal Queue.Settings.
type MembersReached struct{ ID, IfSettings uint64 }

func (*SetNodeState) kind() commandKind   { return kindSetNodeState }
func (*SetPreferred) kind() commandKind   { return kindSetPreferred }
func (*PlanMembers) kind() commandKind    { return kindPlanMembers }
func (*MembersReached) kind() commandKind { return kindMembersReached }
func (*NodeDown) kind() commandKind       { return kindNodeDown }
func (*ForgetNode) kind() commandKind     { return kindForgetNode }
func (*NodeAbout) kind() commandKind      { return kindNodeAbout }

func (c *SetPreferred) fields(f *fields) {
	f.u64(&c.ID)
	str(f, &c.Node)
	f.u64(&c.IfSettings)
}

func (c *PlanMembers) fields(f *fields) {
	f.u64(&c.ID)
	list(f, &c.Wanted)
	list(f, &c.Renew)
	str(f, &c.Preferred)
	f.u64(&c.IfSettings)
	str(f, &c.Why)
}

func (c *MembersReached) fields(f *fields) {
	f.u64(&c.ID)
	f.u64(&c.IfSettings)
}

func (c *NodeDown) fields(f *fields) {
	str(f, &c.ID)
	f.u64(&c.Incarnation)
	f.i64(&c.AtMillis)
}

func (c *ForgetNode) fields(f *fields) {
	str(f, &c.ID)
	f.u64(&c.Incarnation)
}

func (c *NodeAbout) fields(f *fields) {
	str(f, &c.ID)
	f.u64(&c.Incarnation)
	str(f, &c.Zone)
	str(f, &c.Version)
	f.u64(&c.Level)
	list(f, &c.Listeners)
}

func (c *SetNodeState) validate() error {
	if c.State < NodeRegular || c.State > NodeLeaving {
		return refused("unknown state %d of a node", c.State)
	}
	return firstError(checkNodeID(c.ID))
}

func (c *SetPreferred) validate() error { return firstError(checkNodeID(c.Node)) }

func (c *PlanMembers) validate() error {
	if c.IfSettings == 0 {
		return refused("a plan says what it was made for")
	}
	if len(c.Why) > whyBytesMax {
		return refused("the reason has %d bytes, the maximum is %d", len(c.Why), whyBytesMax)
	}
	for i, n := range c.Renew {
		if !slices.Contains(c.Wanted, n) || slices.Contains(c.Renew[:i], n) {
			return refused("member '%s' is to begin anew and is not wanted, or is named twice", n)
		}
	}
	return firstError(checkMembers(c.Wanted, c.Preferred))
}

func (c *MembersReached) validate() error {
	if c.IfSettings == 0 {
		return refused("the end of a plan says which one it was")
	}
	return nil
}

func (c *NodeDown) validate() error {
	if c.AtMillis < 0 {
		return refused("time %d is before 1970", c.AtMillis)
	}
	return firstError(checkNodeID(c.ID))
}

func (c *ForgetNode) validate() error { return firstError(checkNodeID(c.ID)) }

func (c *NodeAbout) validate() error {
	if len(c.Listeners) > listenersMax {
		return refused("%d listeners, the maximum is %d", len(c.Listeners), listenersMax)
	}
	for _, l := range c.Listeners {
		if len(l) > addrBytesMax {
			return refused("address has %d bytes, the maximum is %d", len(l), addrBytesMax)
		}
	}
	if c.Level > levelMax {
		return refused("level %d", c.Level)
	}
	return firstError(checkNodeID(c.ID), checkName("zone", c.Zone), checkName("version", c.Version))
}

func errNoNode(id NodeID) *amqp.Error { return amqp.Errorf(amqp.NotFound, 0, "no node '%s'", id) }

// present returns the node if it has not registered anew since incarnation, else nil.
func (tx *txn) present(id NodeID, incarnation uint64) *Node {
	if n := tx.Node(id); n != nil && !n.Superseded && n.Incarnation == incarnation {
		return n
	}
	return nil
}

func (c *NodeAbout) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.present(c.ID, c.Incarnation)
	if old == nil {
		return Result{}, nil
	}
	n := *old
	n.Zone, n.Version, n.Level, n.Listeners = c.Zone, c.Version, int(c.Level), c.Listeners
	tx.putNode(&n)
	return Result{Changed: true}, nil
}

func (c *NodeDown) apply(tx *txn) (Result, *amqp.Error) {
	old := tx.present(c.ID, c.Incarnation)
	if old == nil || c.AtMillis != 0 && old.Down != 0 || c.AtMillis == old.Down {
		return Result{}, nil
	}
	n := *old
	n.Down = c.AtMillis
	tx.putNode(&n)
	return Result{Changed: true}, nil
}

func (c *ForgetNode) apply(tx *txn) (Result, *amqp.Error) {
	n := tx.Node(c.ID)
	switch {
	case n == nil && tx.Forgotten(c.ID):
		return Result{}, nil
	case n == nil:
		return Result{}, errNoNode(c.ID)
	case c.Incarnation != 0 && c.Incarnation != n.Incarnation:
		return Result{}, refused("node '%s' has registered anew since it was to be forgotten", c.ID)
	}
	if err := tx.removeNode(n); err != nil {
		return Result{}, err
	}
	if !n.Superseded { // else those of that name are the successor's
		tx.dropTransient(n.Name)
	}
	tx.bury(&tombstone{ID: c.ID, At: tx.index})
	return Result{Changed: true}, nil
}

// tombstone is what stays of a node that was forgotten.
type tombstone struct {
	ID NodeID
	At uint64 // log index
}

func (t *tombstone) fields(f *fields) {
	str(f, &t.ID)
	f.u64(&t.At)
}

// bury adds a tombstone, in place of the oldest if there are too many.
func (tx *txn) bury(t *tombstone) {
	if tx.forgotten.len() >= forgottenMax {
		var oldest *tombstone
		for other := range tx.forgotten.all() {
			if oldest == nil || other.At < oldest.At {
				oldest = other
			}
		}
		tx.forgotten.del(key(string(oldest.ID)))
	}
	tx.forgotten.put(key(string(t.ID)), t)
}

// movable returns a queue whose replicas can be changed. settings guards against concurrent changes unless it is 0.
func (tx *txn) movable(id, settings uint64) (*Queue, *amqp.Error) {
	q, err := tx.replicated(id, settings)
	if err == nil && q.Survivors != nil {
		return nil, refused("queue '%s' in vhost '%s' is being recovered", q.Name, q.Vhost)
	}
	return q, err
}

// replicated returns a queue that has replicas, if its settings are as expected.
func (tx *txn) replicated(id, settings uint64) (*Queue, *amqp.Error) {
	q := tx.QueueByID(id)
	switch {
	case q == nil:
		return nil, amqp.Errorf(amqp.NotFound, 0, "no queue with id %d", id)
	case q.Kind != Replicated:
		return nil, refused("queue '%s' in vhost '%s' is not replicated", q.Name, q.Vhost)
	case settings != 0 && settings != q.Settings:
		return nil, refused("queue '%s' in vhost '%s' has changed meanwhile", q.Name, q.Vhost)
	}
	return q, nil
}

func (c *SetPreferred) apply(tx *txn) (Result, *amqp.Error) {
	old, err := tx.movable(c.ID, c.IfSettings)
	switch {
	case err != nil:
		return Result{}, err
	case !slices.Contains(old.Members, c.Node) || old.Wanted != nil && !slices.Contains(old.Wanted, c.Node):
		return Result{}, refused("node '%s' is no member of queue '%s' in vhost '%s'", c.Node, old.Name, old.Vhost)
	}
	q := *old
	if q.Wanted == nil {
		q.Preferred = c.Node
	} else {
		q.WantedPreferred = c.Node // it may not be there yet
	}
	if q.Preferred == old.Preferred && q.WantedPreferred == old.WantedPreferred {
		return Result{ID: old.ID, Queue: old}, nil
	}
	tx.putQueue(&q)
	return Result{Changed: true, ID: q.ID, Queue: &q}, nil
}

func (c *PlanMembers) apply(tx *txn) (Result, *amqp.Error) {
	old, err := tx.movable(c.ID, c.IfSettings)
	if err != nil {
		return Result{}, err
	}
	if err := tx.sparesQuorum(old, c.Renew); err != nil {
		return Result{}, err
	}
	q := *old
	q.Members, q.Generations, q.Founders = slices.Clone(old.Members), old.generations(), old.FirstMembers()
	if old.Wanted == nil {
		q.Settled, q.Stood = old.Settings, uint64(len(old.Members))
	}
	q.Size = sizeAbove(old.Size, c.Wanted)
	if len(c.Wanted) < len(old.Target()) {
		q.Size = 0 // a person wants fewer
	}
	for _, id := range c.Wanted {
		i := slices.Index(q.Members, id)
		if n := tx.Node(id); i < 0 && (n == nil || n.Superseded) {
			return Result{}, errNoNode(id)
		}
		switch {
		case i < 0:
			q.Members, q.Generations = append(q.Members, id), append(q.Generations, tx.index)
		case slices.Contains(c.Renew, id):
			q.Generations[i] = tx.index
		}
	}
	if len(q.Members) > plannedMembersMax {
		return Result{}, refused("queue '%s' in vhost '%s' would have %d members while they change", q.Name, q.Vhost, len(q.Members))
	}
	q.Wanted, q.WantedPreferred, q.Generations, q.Settings = c.Wanted, c.Preferred, orNone(q.Generations), tx.index
	if old.Wanted == nil && slices.Contains(old.Members, c.Preferred) && !slices.Contains(c.Renew, c.Preferred) {
		q.Preferred = c.Preferred // it is there already
	}
	tx.putQueue(&q)
	return Result{Changed: true, ID: q.ID, Queue: &q}, nil
}

func (c *MembersReached) apply(tx *txn) (Result, *amqp.Error) {
	old, err := tx.movable(c.ID, c.IfSettings)
	switch {
	case err != nil:
		return Result{}, err
	case old.Wanted == nil:
		return Result{}, refused("no change of members of queue '%s' in vhost '%s' is under way", old.Name, old.Vhost)
	}
	q := *old
	q.Members, q.Generations = old.Wanted, nil
	for _, n := range q.Members {
		q.Generations = append(q.Generations, old.Generation(n))
	}
	q.Preferred, q.Generations, q.Settings = old.WantedPreferred, orNone(q.Generations), tx.index
	q.Wanted, q.WantedPreferred, q.Settled, q.Stood = nil, "", 0, 0
	tx.putQueue(&q)
	return Result{Changed: true, ID: q.ID, Queue: &q}, nil
}

// sparesQuorum refuses that so many replicas begin anew at a time that, of the members from before all that is under way, the rest
// would be no majority. Those that are dead count as lost: what is damaged may be all that is left.
func (tx *txn) sparesQuorum(q *Queue, renew []NodeID) *amqp.Error {
	if len(renew) == 0 {
		return nil
	}
	at, of := q.Settled, int(q.Stood)
	if q.Wanted == nil {
		at, of = q.Settings, len(q.Members)
	}
	whole := 0
	for i, g := range q.generations() {
		if m := q.Members[i]; g <= at && !slices.Contains(renew, m) && !tx.lost(m) {
			whole++
		}
	}
	if 2*whole > of {
		return nil
	}
	return refused("of %d replicas of queue '%s' in vhost '%s' only %d would be left while others begin anew", of, q.Name, q.Vhost, whole)
}

// sizeAbove is size, as far as a queue may have so many members, if these are fewer, else 0.
func sizeAbove(size uint64, members []NodeID) uint64 {
	if size = min(size, membersMax); size > uint64(len(members)) {
		return size
	}
	return 0
}

// Missing is how many members the queue shall have beside those that it has, or is about to have: those for which there were too few
// nodes when it was declared or restored, and those that it had when it lost its majority. An operator who takes a member away ends that.
func (q *Queue) Missing() int {
	if q.State != Running || q.Size == 0 {
		return 0
	}
	return int(q.Size) - len(q.Target())
}

// Generation is the generation of a member's replica, a part of its name in the group's configuration: 0 for those that
// the queue was declared with, else the log index of the plan that added it.
func (q *Queue) Generation(n NodeID) uint64 {
	if i := slices.Index(q.Members, n); i >= 0 && i < len(q.Generations) {
		return q.Generations[i]
	}
	return 0
}

// FirstMembers are the servers of the first configuration of the queue's group, which a member of generation 0 writes into its
// empty log, however late it begins.
func (q *Queue) FirstMembers() []NodeID {
	if q.Founders != nil {
		return q.Founders
	}
	return q.Members
}

// Target is where the replicas are to be: Wanted, or Members if that is where they are.
func (q *Queue) Target() []NodeID {
	if q.Wanted != nil {
		return q.Wanted
	}
	return q.Members
}

// generations are those of all members, a copy.
func (q *Queue) generations() []uint64 {
	all := make([]uint64, len(q.Members))
	copy(all, q.Generations)
	return all
}

// orNone returns nil for generations that are all 0, so that equal queues have equal records.
func orNone(generations []uint64) []uint64 {
	if slices.ContainsFunc(generations, func(g uint64) bool { return g != 0 }) {
		return generations
	}
	return nil
}
