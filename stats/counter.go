package stats

// Counter is something that is counted, of any kind of object.
type Counter uint8

// What is counted. Ready and Unacked are not counts but numbers of now: their rates may be negative.
const (
	Publish Counter = iota // published by clients; of a queue: routed into it
	Confirm
	ReturnUnroutable
	DropUnroutable
	Deliver      // to consumers with acks
	DeliverNoAck // to consumers without
	Get          // by basic.get, to be acked
	GetNoAck
	GetEmpty
	Ack
	Redeliver
	PublishIn  // into an exchange
	PublishOut // copies for queues, out of it
	Received   // bytes
	Sent       // bytes
	Ready      // messages
	Unacked    // messages
	Blocked    // milliseconds in which a queue had consumers and none could take a message
	Counters   // how many there are
)

// Counters of the kind [Churn], in the places of the others.
const (
	ConnectionCreated Counter = iota
	ConnectionClosed
	ChannelCreated
	ChannelClosed
	QueueDeclared
	QueueCreated
	QueueDeleted
	Churns // how many there are
)

// ChurnNames are RabbitMQ's.
var ChurnNames = [Churns]string{
	"connection_created", "connection_closed", "channel_created", "channel_closed", "queue_declared", "queue_created", "queue_deleted",
}

// Numbers of the kind [Process], in the places of the counters.
const (
	MemUsed     Counter = iota // bytes
	DiskFree                   // bytes
	FilesUsed                  // open files
	SocketsUsed                // connections of clients
	ProcUsed                   // goroutines
	Uses                       // how many there are
)

// names are RabbitMQ's.
var names = [Counters]string{
	"publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "ack", "redeliver",
	"publish_in", "publish_out", "recv_oct", "send_oct", "messages_ready", "messages_unacknowledged", "blocked",
}

// String is RabbitMQ's name of the counter.
func (c Counter) String() string { return names[c] }

// Set has a value of each counter.
type Set [Counters]uint64

// Add adds what other has.
func (s *Set) Add(other *Set) {
	for i, n := range other {
		s[i] += n
	}
}

// differs tells whether something happened between two readings. That consumers are as busy as before is nothing.
func (s *Set) differs(other *Set) bool {
	a, b := *s, *other
	a[Blocked], b[Blocked] = 0, 0
	return a != b
}

// DeliverGet is how many messages were handed to clients, by whatever way.
func (s *Set) DeliverGet() uint64 { return s[Deliver] + s[DeliverNoAck] + s[Get] + s[GetNoAck] }

// Rates has a rate of each counter, per second.
type Rates [Counters]float64

// Add adds what other has.
func (r *Rates) Add(other *Rates) {
	for i, n := range other {
		r[i] += n
	}
}

// DeliverGet is the rate of [Set.DeliverGet].
func (r *Rates) DeliverGet() float64 { return r[Deliver] + r[DeliverNoAck] + r[Get] + r[GetNoAck] }
