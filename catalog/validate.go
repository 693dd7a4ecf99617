package catalog

import (
	"errors"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/cluster/level"
	"github.com/warrenmq/warren/exchange"
)

// Bounds of what can be proposed.
const (
	nameBytesMax        = 255     // names of vhosts, exchanges, queues; routing keys: short strings
	addrBytesMax        = 512     // one address
	nodeIDBytesMax      = 512     // a NodeID
	tagsMax             = 32      // tags of a vhost or a user
	argumentsBytesMax   = 1 << 18 // arguments of an object
	descriptionBytesMax = 4096
	membersMax          = 15
	metMax              = 1 << 10 // processes met by a registering one
)

func refused(format string, args ...any) *amqp.Error {
	return amqp.Errorf(amqp.PreconditionFailed, 0, format, args...)
}

// refusal returns err as the protocol's error; any other error becomes a 406 with its
// text.
func refusal(err error) *amqp.Error {
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return e
	}
	return refused("%v", err)
}

// firstError returns the first refusal among errs as an error, or nil.
func firstError(errs ...*amqp.Error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkName(what, name string) *amqp.Error {
	if len(name) > nameBytesMax {
		return refused("%s has %d bytes, the maximum is %d", what, len(name), nameBytesMax)
	}
	return nil
}

func checkSome(what, name string) *amqp.Error {
	if name == "" {
		return refused("%s is empty", what)
	}
	return checkName(what, name)
}

func checkNodeID(id NodeID) *amqp.Error {
	name, storage, ok := strings.Cut(string(id), "/")
	if !ok || name == "" || storage == "" || len(id) > nodeIDBytesMax {
		return refused("'%s' is no node id with a storage uuid", id)
	}
	return nil
}

func checkArguments(t amqp.Table) *amqp.Error {
	if err := t.Validate(); err != nil {
		return refused("arguments: %v", err)
	}
	if n := len(amqp.AppendTable(nil, t)); n > argumentsBytesMax {
		return refused("arguments have %d bytes, the maximum is %d", n, argumentsBytesMax)
	}
	return nil
}

func checkTags(tags []string) *amqp.Error {
	if len(tags) > tagsMax {
		return refused("%d tags, the maximum is %d", len(tags), tagsMax)
	}
	for _, t := range tags {
		if err := checkSome("tag", t); err != nil {
			return err
		}
	}
	return nil
}

func checkUser(u *auth.User) *amqp.Error {
	if err := u.Validate(); err != nil {
		return refused("%v", err)
	}
	if userLevel(u) > level.Now {
		return refused("a password hash of %s belongs to level %d, this program knows level %d", u.PasswordHash.Algorithm(), userLevel(u), level.Now)
	}
	return checkTags(u.Tags)
}

func checkMembers(members []NodeID, preferred NodeID) *amqp.Error {
	if len(members) == 0 || len(members) > membersMax {
		return refused("%d members, want 1 to %d", len(members), membersMax)
	}
	for i, m := range members {
		if err := checkNodeID(m); err != nil {
			return err
		}
		if slices.Contains(members[:i], m) {
			return refused("member '%s' is named twice", m)
		}
	}
	if !slices.Contains(members, preferred) {
		return refused("preferred leader '%s' is no member", preferred)
	}
	return nil
}

func (c *Found) validate() error {
	return firstError(checkSome("cluster id", c.ClusterID), checkUser(&c.Admin))
}

func (c *RegisterNode) validate() error {
	for _, a := range []string{c.ClusterAddr, c.GossipAddr, c.AMQPAddr, c.HTTPAddr, c.GRPCAddr} {
		if len(a) > addrBytesMax {
			return refused("address has %d bytes, the maximum is %d", len(a), addrBytesMax)
		}
	}
	if len(c.Met) > metMax {
		return refused("met %d processes, the maximum is %d", len(c.Met), metMax)
	}
	for i := range c.Met {
		if err := checkNodeID(c.Met[i].Node); err != nil {
			return err
		}
	}
	return firstError(checkNodeID(c.ID))
}

func (c *RemoveNode) validate() error { return firstError(checkNodeID(c.ID)) }

func (c *PutVhost) validate() error {
	h := &c.Vhost
	if c.Only >= vhostPartsEnd {
		return refused("unknown settings %#x of a vhost", uint64(c.Only))
	}
	if len(h.Description) > descriptionBytesMax {
		return refused("description has %d bytes, the maximum is %d", len(h.Description), descriptionBytesMax)
	}
	return firstError(checkSome("vhost name", h.Name), checkTags(h.Tags), checkName("default queue type", h.DefaultQueueType))
}

func (c *DeleteVhost) validate() error { return firstError(checkName("vhost name", c.Name)) }
func (c *PutUser) validate() error     { return firstError(checkUser(&c.User)) }
func (c *DeleteUser) validate() error  { return firstError(checkName("user name", c.Name)) }

func (c *PutPermission) validate() error {
	if _, err := auth.NewPermission(c.User, c.Vhost, c.Configure, c.Write, c.Read); err != nil {
		return refused("%v", err)
	}
	return firstError(checkName("vhost name", c.Vhost), checkName("user name", c.User))
}

func (c *DeletePermission) validate() error {
	return firstError(checkName("vhost name", c.Vhost), checkName("user name", c.User))
}

func (c *DeclareExchange) validate() error {
	x := &c.Exchange
	if !x.Type.Valid() || x.Type > exchangeTypeMax {
		return refused("unknown exchange type %d", x.Type)
	}
	if err := exchange.Validate(x.Type, x.Arguments); err != nil {
		return err
	}
	if x.Type == exchange.Delayed {
		if err := checkMembers(c.Members, c.Preferred); err != nil {
			return err
		}
	} else if len(c.Members) > 0 || c.Preferred != "" {
		return refused("an exchange of type %s has no queue", x.Type)
	}
	return firstError(checkName("vhost name", x.Vhost), checkSome("exchange name", x.Name), checkArguments(x.Arguments))
}

func (c *DeleteExchange) validate() error {
	if SystemExchange(c.Name) {
		return amqp.Errorf(amqp.AccessRefused, 0, "deletion of system exchange '%s' in vhost '%s' not allowed", c.Name, c.Vhost)
	}
	return firstError(checkName("vhost name", c.Vhost), checkName("exchange name", c.Name))
}

func checkBinding(b *Binding) error {
	if b.Source == "" || b.ToExchange && b.Destination == "" {
		return amqp.Errorf(amqp.AccessRefused, 0, "operation not permitted on the default exchange")
	}
	return firstError(checkName("vhost name", b.Vhost), checkName("exchange name", b.Source),
		checkName("destination name", b.Destination), checkName("routing key", b.Key), checkArguments(b.Arguments))
}

func (c *Bind) validate() error   { return checkBinding(&c.Binding) }
func (c *Unbind) validate() error { return checkBinding(&c.Binding) }

func (c *DeclareQueue) validate() error {
	q := &c.Queue
	switch {
	case q.DelayOf != "":
		return refused("the queue of a delayed exchange comes with the exchange")
	case q.Kind != Replicated && q.Kind != Transient:
		return refused("unknown kind of queue %d", q.Kind)
	case q.Kind == Transient && len(q.Members) != 1:
		return refused("a transient queue has one member, not %d", len(q.Members))
	case q.Exclusive && (q.Kind != Transient || q.Owner.Node != q.Members[0]):
		return refused("an exclusive queue lives on the node of its connection")
	case q.FirstLeader != "" && (q.Kind != Replicated || q.FirstLeader != q.Preferred):
		return refused("'%s' cannot lead first", q.FirstLeader)
	}
	return firstError(checkName("vhost name", q.Vhost), checkSome("queue name", q.Name),
		checkMembers(q.Members, q.Preferred), checkArguments(q.Arguments), checkName("declarer", q.DeclaredBy))
}

func (c *DeleteQueue) validate() error {
	if c.Name == "" && c.ID == 0 {
		return refused("neither name nor id of a queue")
	}
	return firstError(checkName("vhost name", c.Vhost), checkName("queue name", c.Name))
}

func (c *QueueGone) validate() error { return nil }

func (c *UpdateMembers) validate() error { return firstError(checkMembers(c.Members, c.Preferred)) }
