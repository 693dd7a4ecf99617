package catalog

import (
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/policy"
	"github.com/warrenmq/warren/transport"
)

// NodeID names one incarnation of a node's storage: "node-id/storage-uuid".
type NodeID = transport.NodeID

// nameOf returns the node id without the storage uuid.
func nameOf(id NodeID) string {
	name, _, _ := strings.Cut(string(id), "/")
	return name
}

// DefaultVhost exists from the founding on.
const DefaultVhost = "/"

// Everything a View returns is immutable and shared: read only.

// Vhost is a virtual host.
type Vhost struct {
	Name, Description string
	Tags              []string
	DefaultQueueType  string // of durable queues that name none; "" is classic
	Limits            VhostLimits
	Tracing           bool
	Protected         bool // refuses deletion
	Created           uint64

	policies *policy.Set
}

// Exchange is an exchange with its routing table.
type Exchange struct {
	Vhost, Name                   string
	Type                          exchange.Type
	Durable, AutoDelete, Internal bool
	Arguments                     amqp.Table
	Created                       uint64 // log index
	// Renewed is the log index of the newest declaration that was noted: what is not
	// durable ends when no process is left that was up then.
	Renewed uint64
	// DelayQueue is the id of the queue that holds what a delayed exchange keeps back,
	// 0 for other types.
	DelayQueue uint64

	table *exchange.Table
	// alternate is the alternate exchange in effect, by argument or policy.
	alternate string
	bindings  int // bindings with this exchange as source; equals those in table
}

// Alternate returns the name of the alternate exchange in effect, by argument or by
// policy, "" if there is none.
func (x *Exchange) Alternate() string { return x.alternate }

const argAlternate = "alternate-exchange"

// Binding leads from exchange Source to a queue, or to an exchange if ToExchange.
// Two bindings are the same if all fields are equal, whatever the order of the
// arguments.
type Binding struct {
	Vhost, Source, Destination string
	ToExchange                 bool
	Key                        string
	Arguments                  amqp.Table
}

func (b *Binding) routing() exchange.Binding {
	return exchange.Binding{
		Destination: exchange.Destination{Name: b.Destination, ToExchange: b.ToExchange},
		Key:         b.Key,
		Arguments:   b.Arguments,
	}
}

// QueueKind says what carries a queue's log.
type QueueKind uint8

// The kinds of queues. The numbers are stored.
const (
	Replicated QueueKind = 1 // a Raft group over Members
	Transient  QueueKind = 2 // memory of Members[0] during its incarnation
)

// QueueState is where a queue is in its life.
type QueueState uint8

// The states. The numbers are stored.
const (
	Running QueueState = 1
	// Closing: the name is free and no route leads here; the machine lives on until
	// its outbox is empty and QueueGone is proposed.
	Closing QueueState = 2
)

// Owner is the connection an exclusive queue belongs to.
type Owner struct {
	Node        NodeID
	Incarnation uint64
	Connection  uint64
}

// Queue is a queue's entry.
type Queue struct {
	ID                             uint64 // log index of the declaration; also the Raft group's id
	Vhost, Name                    string
	Durable, AutoDelete, Exclusive bool
	Owner                          Owner // zero unless Exclusive
	Arguments                      amqp.Table
	Kind                           QueueKind
	State                          QueueState
	Members                        []NodeID // at least one; exactly one if Transient
	Preferred                      NodeID   // the member that should lead; one of Members
	// FirstLeader is the member that leads the group first without being elected, Preferred at the declaration; "" if the cluster was below level
	// 2 then, and in later lives. It never changes: the other members are founded with it, however late.
	FirstLeader NodeID
	// Incarnation of Members[0] at the declaration of a Transient queue, else 0.
	Incarnation uint64
	// Settings is the log index of the newest entry that changed anything here but Preferred or Paused alone.
	Settings uint64
	// Wanted is where the replicas shall be, nil if that is where they are: Members has these and those that are to go.
	// WantedPreferred, one of them, should lead then.
	Wanted          []NodeID
	WantedPreferred NodeID
	// Settled is Settings, and Stood the number of Members, when no plan was under way before this one, or those that it took the place of; 0
	// if none is.
	Settled, Stood uint64
	// Size is how many members it shall have, while these are fewer; else 0. See Missing.
	Size uint64
	// Generations are parallel to Members; nil: all are 0. See Generation.
	Generations []uint64
	// Founders are the members of generation 0 that the queue was declared with, noted by its first plan; nil: Members are.
	Founders []NodeID
	// DelayOf names the delayed exchange whose messages wait here, "" for the queues of
	// clients. Such a queue has no name of its own: it is found by id only, and no client
	// can reach it.
	DelayOf string
	// Former are the ids of its former lives, the oldest first: it has lost most of its replicas so many times. See RecoverQueue.
	Former []uint64
	// Survivors are the nodes that have a replica of the newest former life while Members[0] takes it over, those with the newest log
	// first, nil at other times.
	Survivors []NodeID
	// Kept is what this life began from, zero for the first one and while it is taken over.
	Kept Kept
	// DeclaredBy is the user who declared it, "" if that was below level 2 of the cluster or by the node itself.
	DeclaredBy string
	// Paused: it hands out nothing. PausedAt is the log index of the newest entry that changed this, 0 if none has.
	Paused   bool
	PausedAt uint64
}

// Node is a node that registered at least once.
type Node struct {
	ID   NodeID
	Name string // the node id of the configuration: ID without the storage uuid
	// Number is small and dense; it is never given to another NodeID.
	Number uint32
	// Incarnation is the log index of the newest registration. It grows with every
	// start of the process.
	Incarnation                                           uint64
	ClusterAddr, GossipAddr, AMQPAddr, HTTPAddr, GRPCAddr string // as last registered
	// Process names the process that registered last, 0 if it did not say.
	Process uint64
	// Since is the log index back to which this process can vouch for the cluster: from
	// there on some process was up at any time, each known to the next. It is Incarnation
	// if the process met no other that was registered.
	Since uint64
	// Superseded: a newer storage has registered under the same name. This one will
	// not come back.
	Superseded bool

	// State is what an operator wants of it.
	State NodeState
	// Zone is what fails together with it, Version that of its program, Level the newest that its program knows, Listeners where clients
	// find it ("amqp host:port"); empty until the node has told.
	Zone, Version string
	Level         int
	Listeners     []string
	// Down is since when it has been dead, in milliseconds since 1970; 0: it is not known to be.
	Down int64
}
