package catalog

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/cluster/level"
)

// View is the state of the catalog after one log entry. It never changes and is
// safe for any number of goroutines.
type View struct {
	revision   uint64 // log index of the newest command applied
	clusterID  string // "" before the founding
	nodeNumber uint32 // the highest given
	level      int    // 0: the first
	lives      []Life // of the cluster, that have ended
	// definitions is the hash of those that were loaded last.
	definitions string
	name        string // for people; "": it was given none

	vhosts        index[*Vhost]                // name
	users         index[*auth.User]            // name
	permissions   index[*auth.Permission]      // vhost, user
	topics        index[*auth.TopicPermission] // vhost, user, exchange
	shovels       index[*Shovel]               // vhost, name
	exchanges     index[*Exchange]             // vhost, name
	bySource      index[*Binding]              // Binding.sourceKey
	byDestination index[*Binding]              // Binding.destinationKey
	queues        index[*Queue]                // vhost, name; running ones
	queuesByID    index[*Queue]                // id; closing ones too
	nodes         index[*Node]                 // id
	nodesByNumber index[*Node]                 // number
	forgotten     index[*tombstone]            // id

	// What follows is worked out from the above, so that no command walks all queues or exchanges; see tally.go.
	named      index[int]       // vhost: how many running queues clients see
	replicas   index[int]       // node id: how many replicated queues have it as a member
	transients index[*Queue]    // name of the node they live on, id
	fleeting   index[*Exchange] // vhost, name; those that are not durable
	former     index[uint64]    // id of a former life of a queue: its present id
	short      int              // queues of which Missing is not 0

	changes []change // newest last; see QueuesChangedSince
	full    uint64   // changes up to this revision are not in changes
	scratch *routePool
}

// change says that the queue of that id was added, altered or removed by the entry
// at revision.
type change struct{ revision, queue uint64 }

// changesMax bounds View.changes; it is halved when full.
const changesMax = 4096

func emptyView() *View {
	return &View{
		vhosts: newIndex[*Vhost](), users: newIndex[*auth.User](), permissions: newIndex[*auth.Permission](),
		topics: newIndex[*auth.TopicPermission](), shovels: newIndex[*Shovel](),
		exchanges: newIndex[*Exchange](), bySource: newIndex[*Binding](), byDestination: newIndex[*Binding](),
		queues: newIndex[*Queue](), queuesByID: newIndex[*Queue](),
		nodes: newIndex[*Node](), nodesByNumber: newIndex[*Node](), forgotten: newIndex[*tombstone](),
		named: newIndex[int](), replicas: newIndex[int](), transients: newIndex[*Queue](), fleeting: newIndex[*Exchange](), former: newIndex[uint64](),
		scratch: newRoutePool(),
	}
}

// Revision is the log index of the newest command in the view. It only grows.
func (v *View) Revision() uint64 { return v.revision }

// ClusterID is the cluster's uuid, "" before the founding was applied.
func (v *View) ClusterID() string { return v.clusterID }

// Level is the level of the cluster: what it may use; see package cluster/level. It only grows.
func (v *View) Level() int { return max(v.level, level.First) }

// Vhost returns a vhost, nil if there is none.
func (v *View) Vhost(name string) *Vhost {
	var buf [keyBytes]byte
	h, _ := v.vhosts.get(appendKey(buf[:0], name))
	return h
}

// Vhosts walks the vhosts by name.
func (v *View) Vhosts() iter.Seq[*Vhost] { return v.vhosts.all() }

// User returns a user, nil if there is none.
func (v *View) User(name string) *auth.User {
	u, _ := v.users.get(key(name))
	return u
}

// Users walks the users by name.
func (v *View) Users() iter.Seq[*auth.User] { return v.users.all() }

// Permission returns what user may do in vhost, nil (nothing) if no permission was
// given.
func (v *View) Permission(vhost, user string) *auth.Permission {
	var buf [keyBytes]byte
	p, _ := v.permissions.get(appendKey(buf[:0], vhost, user))
	return p
}

// Permissions walks the permissions by vhost and user.
func (v *View) Permissions() iter.Seq[*auth.Permission] { return v.permissions.all() }

// Exchange returns an exchange, nil if there is none. The default exchange is "".
func (v *View) Exchange(vhost, name string) *Exchange {
	var buf [keyBytes]byte
	x, _ := v.exchanges.get(appendKey(buf[:0], vhost, name))
	return x
}

// Exchanges walks the exchanges of a vhost by name.
func (v *View) Exchanges(vhost string) iter.Seq[*Exchange] { return v.exchanges.prefix(key(vhost)) }

// Queue returns a running queue, nil if there is none.
func (v *View) Queue(vhost, name string) *Queue {
	var buf [keyBytes]byte
	q, _ := v.queues.get(appendKey(buf[:0], vhost, name))
	return q
}

// keyBytes is room for keys of common length on the stack.
const keyBytes = 96

// QueueByID returns a queue, running or closing, nil if there is none.
func (v *View) QueueByID(id uint64) *Queue {
	var buf [8]byte
	binary.BigEndian.PutUint64(buf[:], id)
	q, _ := v.queuesByID.get(buf[:])
	return q
}

// Queues walks the running queues of a vhost by name.
func (v *View) Queues(vhost string) iter.Seq[*Queue] { return v.queues.prefix(key(vhost)) }

// AllQueues walks every queue by id, closing ones too.
func (v *View) AllQueues() iter.Seq[*Queue] { return v.queuesByID.all() }

// InMemoryOf walks the queues, closing ones too, that live in a node's memory.
func (v *View) InMemoryOf(id NodeID) iter.Seq[*Queue] {
	return func(yield func(*Queue) bool) {
		for q := range v.transients.prefix(key(nameOf(id))) {
			if q.Members[0] == id && !yield(q) {
				return
			}
		}
	}
}

// QueueCount returns the number of queues, closing ones too.
func (v *View) QueueCount() int { return v.queuesByID.len() }

// Bindings walks the bindings of a vhost by source.
func (v *View) Bindings(vhost string) iter.Seq[*Binding] { return v.bySource.prefix(key(vhost)) }

// BindingsFrom walks the bindings with the given exchange as source.
func (v *View) BindingsFrom(vhost, source string) iter.Seq[*Binding] {
	return v.bySource.prefix(key(vhost, source))
}

// BindingsTo walks the bindings with the given queue or exchange as destination. The
// implicit bindings of the default exchange are not among them.
func (v *View) BindingsTo(vhost, destination string, toExchange bool) iter.Seq[*Binding] {
	return v.byDestination.prefix(key(vhost, destinationKind(toExchange), destination))
}

// Binding returns the stored binding equal to b, nil if there is none.
func (v *View) Binding(b *Binding) *Binding {
	stored, _ := v.bySource.get(b.sourceKey())
	return stored
}

// Node returns a node, nil if it never registered.
func (v *View) Node(id NodeID) *Node {
	n, _ := v.nodes.get(key(string(id)))
	return n
}

// NodeByNumber returns a node, nil if there is none.
func (v *View) NodeByNumber(number uint32) *Node {
	n, _ := v.nodesByNumber.get(numberKey(uint64(number)))
	return n
}

// NodeByName returns the newest node of a node id, nil if there is none.
func (v *View) NodeByName(name string) *Node {
	for n := range v.nodes.all() {
		if n.Name == name && !n.Superseded {
			return n
		}
	}
	return nil
}

// Nodes walks the nodes by id, superseded ones too.
func (v *View) Nodes() iter.Seq[*Node] { return v.nodes.all() }

// NodeState is what an operator wants of a node: regular if nothing else was said.
func (v *View) NodeState(id NodeID) NodeState {
	if n := v.Node(id); n != nil {
		return n.State
	}
	return NodeRegular
}

// Forgotten reports whether a node was taken out of the cluster for good, lately.
func (v *View) Forgotten(id NodeID) bool {
	_, ok := v.forgotten.get(key(string(id)))
	return ok
}

// Replicas is how many replicated queues have a node as a member.
func (v *View) Replicas(id NodeID) int {
	n, _ := v.replicas.get(key(string(id)))
	return n
}

// Hosts is how many nodes are members of replicated queues, those among them that are no nodes of the cluster any more too.
func (v *View) Hosts() int { return v.replicas.len() }

// Short is how many queues miss members; see Queue.Missing.
func (v *View) Short() int { return v.short }

// QueuesChangedSince walks the ids of the queues that were added, altered or
// removed after old, each once. When old is too old to tell (see ChangesKnownSince), it walks the ids of all
// queues in either view.
func (v *View) QueuesChangedSince(old *View) iter.Seq[uint64] {
	ids := make(map[uint64]struct{})
	if !v.ChangesKnownSince(old) {
		for _, view := range []*View{old, v} {
			for q := range view.AllQueues() {
				ids[q.ID] = struct{}{}
			}
		}
	} else {
		from, _ := slices.BinarySearchFunc(v.changes, old.revision+1, func(c change, r uint64) int { return cmp.Compare(c.revision, r) })
		for _, c := range v.changes[from:] {
			ids[c.queue] = struct{}{}
		}
	}
	return func(yield func(uint64) bool) {
		for id := range ids {
			if !yield(id) {
				return
			}
		}
	}
}

// ChangesKnownSince tells whether QueuesChangedSince names all changes after old. If not, queues that were added and removed since are missing.
func (v *View) ChangesKnownSince(old *View) bool { return old.revision >= v.full }

// errNoExchange and errNoQueue are the refusals clients test for.
func errNoExchange(vhost, name string) *amqp.Error {
	return amqp.Errorf(amqp.NotFound, 0, "no exchange '%s' in vhost '%s'", name, vhost)
}

func errNoQueue(vhost, name string) *amqp.Error {
	return amqp.Errorf(amqp.NotFound, 0, "no queue '%s' in vhost '%s'", name, vhost)
}

func errNoVhost(name string) *amqp.Error {
	return amqp.Errorf(amqp.NotFound, 0, "vhost %s not found", name)
}
