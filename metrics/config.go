package metrics

import (
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/fsm"
	gateway "github.com/warrenmq/warren/gateway/amqp"
	"github.com/warrenmq/warren/stats"
	"github.com/warrenmq/warren/store"
)

// Node is what does not change while a node runs.
type Node struct {
	Name, Cluster, ClusterID string
	Product, Version         string
	DiskLimit, MemoryLimit   uint64 // bytes; 0: none
}

// Resources are what the node's process uses.
type Resources struct {
	MemoryBytes             uint64
	MemoryAlarm, DiskAlarm  bool
	OpenFiles, OpenFilesMax uint64 // 0: unknown
}

// Raft is the state of one replica.
type Raft struct{ Queue, Term, Commit, Applied, Last uint64 }

// Leaders are the leaderships of a node's replicas.
type Leaders struct {
	// Searching are replicas; WithoutMajority are queues of the cluster of which this node reaches too few replicas.
	Searching, WithoutMajority, Away int
	// Closing are the deleted queues of the cluster that have not ended.
	Closing int
	// Asleep are replicas.
	Asleep int
	// Critical are groups here that need this node for a quorum, Missing those led here with a replica on a node that does not answer,
	// Behind the replicas here that lag, -1 if that is not known yet.
	Critical, Missing, Behind     int
	Elections, Returned, NotGiven uint64
	Fled                          uint64
	// Searches are times by classes, of which class i ends at 2^i ms.
	Searches   []uint64
	SearchesMS float64
}

// Life is what a node is doing as a whole.
type Life struct {
	State  string
	States []string // all there are
	// Unready is the step of /readyz that keeps clients away, "" if none does; Unreadies are all there are.
	Unready   string
	Unreadies []string
	// Steps tell how long the steps of the newest drain took.
	Steps map[string]time.Duration
}

// Repair is about replicas that are moved. Plans and Queues are by reason and by state.
type Repair struct {
	Plans   map[string]uint64
	Refused uint64
	Queues  map[string]int
	// FillBytes were sent to fill replicas, which waited for FillWait.
	FillBytes uint64
	FillWait  time.Duration
}

// Spans are what became of the spans of traces.
type Spans struct {
	On                      bool // messages are traced
	Ended, Exported, Failed uint64
}

// Config is where the figures come from. All functions are safe for concurrent use.
type Config struct {
	Node      func() Node
	Resources func() Resources
	Gateway   func() gateway.Stats
	Store     func() store.Stats
	Raft      func() []Raft
	Leaders   func() Leaders
	// Life, Cluster and Repair may be nil.
	Life    func() Life
	Cluster func() Cluster
	Repair  func() Repair
	// Shovels, GRPC, Certificates, Gossip, Spans, Logins and Passwords may be nil.
	GRPC    func() GRPC
	Shovels func() Shovels
	Logins  func() []Logins
	// Panics are those that were contained, by protocol; it may be nil.
	Panics    func() map[string]uint64
	Passwords func() Passwords
	// Remote may be nil, and return nil: no server is asked about logins.
	Remote       func() *Remote
	Certificates func() []Certificate
	Gossip       func() Gossip
	Spans        func() Spans
	Broker       Broker
	// QueueName finds a replica's queue, named by ObjectName; ok is false if it is being
	// deleted.
	QueueName func(id uint64) (vhost, name string, ok bool)
	// Connections, Channels, Vhosts and Exchanges, of one virtual host, may be nil, the latter two together.
	Connections func() []gateway.ConnectionInfo
	Channels    func() []gateway.ChannelInfo
	Vhosts      func() []string
	Exchanges   func(vhost string) []Exchange
}

// GRPC are the clients of the gRPC API.
type GRPC struct {
	Connections, Streams int    // now
	Accepted             uint64 // connections
}

// Broker is what is read of a [broker.Broker].
type Broker interface {
	Traffic() broker.Traffic
	DeadTotals() broker.DeadTotals
	Arrivals() fsm.Arrivals
	QueueChurn() broker.QueueChurn
	MoveTotals() broker.MoveTotals
	Lives() broker.Lives
	Clients() broker.Clients
	Figures() []broker.QueueFigures
	UsedQueues(yield func(id uint64, s *stats.Set))
	ExchangeCounters(yield func(stats.Key, *stats.Set))
}
