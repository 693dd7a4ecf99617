package catalog

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/exchange"
)

// txn is a view in the making: one command at one log index.
type txn struct {
	View
	index uint64
}

// begin starts the successor of v.
func begin(v *View, index uint64) *txn {
	tx := &txn{View: *v, index: index}
	tx.revision = index
	return tx
}

// changed records that a queue differs from the view before.
func (tx *txn) changed(id uint64) {
	if len(tx.changes) >= changesMax {
		half := len(tx.changes) / 2
		// The entry at the cut may have changed several queues: it goes as a whole or
		// is said to be missing.
		tx.full = tx.changes[half-1].revision
		tx.changes = append(make([]change, 0, changesMax), tx.changes[half:]...)
	}
	tx.changes = append(tx.changes, change{tx.index, id})
}

// systemExchanges are in every vhost from its start. trace is for rabbitmq's tracing.
var systemExchanges = [...]struct {
	name     string
	typ      exchange.Type
	internal bool
}{
	{"", exchange.Direct, false},
	{"amq.direct", exchange.Direct, false},
	{"amq.fanout", exchange.Fanout, false},
	{"amq.topic", exchange.Topic, false},
	{"amq.headers", exchange.Headers, false},
	{"amq.match", exchange.Headers, false},
	{"amq.rabbitmq.trace", exchange.Topic, true},
}

// SystemExchange reports whether name is one of the predeclared exchanges, which
// cannot be deleted.
func SystemExchange(name string) bool {
	_, ok := SystemExchangeType(name)
	return ok
}

// SystemExchangeType is the type of a predeclared exchange.
func SystemExchangeType(name string) (typ exchange.Type, ok bool) {
	for i := range systemExchanges {
		if systemExchanges[i].name == name {
			return systemExchanges[i].typ, true
		}
	}
	return 0, false
}

func (c *Found) apply(tx *txn) (Result, *amqp.Error) {
	if tx.clusterID != "" {
		return Result{}, nil
	}
	tx.clusterID = c.ClusterID
	tx.putVhost(&Vhost{Name: DefaultVhost, Description: "Default virtual host"})
	admin := c.Admin
	tx.users.put(key(admin.Name), &admin)
	p, err := auth.NewPermission(admin.Name, DefaultVhost, ".*", ".*", ".*")
	if err != nil {
		panic(err) // the patterns are constants
	}
	tx.permissions.put(key(p.Vhost, p.User), p)
	return Result{Changed: true}, nil
}

// putVhost stores a vhost and, if it is new, makes the exchanges it starts with.
func (tx *txn) putVhost(h *Vhost) (created bool) {
	if old := tx.Vhost(h.Name); old != nil {
		h.Created, h.Limits, h.policies = old.Created, old.Limits, old.policies
		tx.vhosts.put(key(h.Name), h)
		return false
	}
	h.Created, h.Limits, h.policies = tx.index, VhostLimits{}, nil
	tx.vhosts.put(key(h.Name), h)
	for i := range systemExchanges {
		s := &systemExchanges[i]
		tx.putExchange(&Exchange{Vhost: h.Name, Name: s.name, Type: s.typ, Durable: true, Internal: s.internal, Created: tx.index, Renewed: tx.index})
	}
	return true
}

func (c *DeleteVhost) apply(tx *txn) (Result, *amqp.Error) {
	h := tx.Vhost(c.Name)
	if h == nil {
		return Result{}, nil
	}
	if h.Protected {
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "vhost '%s' is protected from deletion", c.Name)
	}
	for b := range tx.Bindings(c.Name) {
		tx.bySource.del(b.sourceKey())
		tx.byDestination.del(b.destinationKey())
	}
	for x := range tx.Exchanges(c.Name) {
		tx.forgetExchange(x)
		tx.closeDelays(x)
	}
	for q := range tx.Queues(c.Name) {
		tx.closeQueue(q)
	}
	for p := range tx.permissions.prefix(key(c.Name)) {
		tx.permissions.del(key(p.Vhost, p.User))
	}
	for p := range tx.topics.prefix(key(c.Name)) {
		tx.topics.del(topicKey(p))
	}
	for s := range tx.shovels.prefix(key(c.Name)) {
		tx.shovels.del(key(s.Vhost, s.Name))
	}
	tx.vhosts.del(key(c.Name))
	return Result{Changed: true}, nil
}

func (c *PutUser) apply(tx *txn) (Result, *amqp.Error) {
	u, old := c.User, tx.User(c.User.Name)
	u.Limits, u.Added = auth.UserLimits{}, tx.index
	if old != nil {
		u.Limits, u.Added = old.Limits, old.Added
	}
	tx.users.put(key(u.Name), &u)
	return Result{Changed: old == nil}, nil
}

func (c *DeleteUser) apply(tx *txn) (Result, *amqp.Error) {
	if tx.User(c.Name) == nil {
		return Result{}, nil
	}
	for p := range tx.permissions.all() {
		if p.User == c.Name {
			tx.permissions.del(key(p.Vhost, p.User))
		}
	}
	for p := range tx.topics.all() {
		if p.User == c.Name {
			tx.topics.del(topicKey(p))
		}
	}
	tx.users.del(key(c.Name))
	return Result{Changed: true}, nil
}

func (c *PutPermission) apply(tx *txn) (Result, *amqp.Error) {
	switch {
	case tx.Vhost(c.Vhost) == nil:
		return Result{}, errNoVhost(c.Vhost)
	case tx.User(c.User) == nil:
		return Result{}, errNoUser(c.User)
	}
	p, err := auth.NewPermission(c.User, c.Vhost, c.Configure, c.Write, c.Read)
	if err != nil {
		// Refused, not a panic: what compiles may differ between versions of Go only
		// for patterns that validate refuses on at least one side.
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "%v", err)
	}
	created := tx.Permission(c.Vhost, c.User) == nil
	tx.permissions.put(key(c.Vhost, c.User), p)
	return Result{Changed: created}, nil
}

func (c *DeletePermission) apply(tx *txn) (Result, *amqp.Error) {
	if tx.Permission(c.Vhost, c.User) == nil {
		return Result{}, nil
	}
	tx.permissions.del(key(c.Vhost, c.User))
	return Result{Changed: true}, nil
}

func (c *RegisterNode) apply(tx *txn) (Result, *amqp.Error) {
	n := &Node{
		ID: c.ID, Name: nameOf(c.ID), Incarnation: tx.index,
		ClusterAddr: c.ClusterAddr, GossipAddr: c.GossipAddr, AMQPAddr: c.AMQPAddr, HTTPAddr: c.HTTPAddr, GRPCAddr: c.GRPCAddr,
		Process: c.Process, Since: tx.vouched(c), State: NodeRegular,
	}
	old := tx.Node(c.ID)
	if tx.Forgotten(c.ID) {
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "node '%s' was forgotten", c.ID)
	}
	if old != nil && old.Superseded {
		return Result{}, amqp.Errorf(amqp.PreconditionFailed, 0, "node '%s' was replaced by a newer storage of the same name", c.ID)
	}
	if old != nil {
		n.Number = old.Number
		n.Zone, n.Version, n.Level, n.Listeners = old.Zone, old.Version, old.Level, old.Listeners
		if old.State == NodeLeaving {
			n.State = NodeLeaving
		}
	} else {
		tx.nodeNumber++
		n.Number = tx.nodeNumber
		for other := range tx.nodes.all() {
			if other.Name == n.Name && !other.Superseded {
				gone := *other
				gone.Superseded = true
				tx.putNode(&gone)
			}
		}
	}
	tx.putNode(n)
	tx.dropTransient(n.Name)
	tx.dropUnvouched()
	return Result{Changed: true, ID: n.Incarnation}, nil
}

func (tx *txn) putNode(n *Node) {
	tx.nodes.put(key(string(n.ID)), n)
	tx.nodesByNumber.put(numberKey(uint64(n.Number)), n)
}

// dropTransient forgets the queues that lived in the memory of any process of the named
// node: the process that registers now has none of them.
func (tx *txn) dropTransient(name string) {
	for q := range tx.transients.prefix(key(name)) {
		if q.State == Running {
			tx.closeQueue(q)
			tx.unbindAll(q.Vhost, q.Name, false)
		}
		tx.forgetQueue(q.ID)
	}
}

func (c *RemoveNode) apply(tx *txn) (Result, *amqp.Error) {
	n := tx.Node(c.ID)
	if n == nil {
		return Result{}, nil
	}
	if err := tx.removeNode(n); err != nil {
		return Result{}, err
	}
	tx.dropTransient(n.Name)
	return Result{Changed: true}, nil
}

// removeNode takes a node out of the catalog unless it has replicas.
func (tx *txn) removeNode(n *Node) *amqp.Error {
	if count, _ := tx.replicas.get(key(string(n.ID))); count > 0 {
		return amqp.Errorf(amqp.PreconditionFailed, 0, "node '%s' still has replicas of queues", n.ID)
	}
	tx.nodes.del(key(string(n.ID)))
	tx.nodesByNumber.del(numberKey(uint64(n.Number)))
	tx.dropUnvouched()
	return nil
}
