package broker

import (
	"net"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// User is an authenticated user.
type User struct {
	Name string
	Tags []string
	// Until is when a token that they logged in with ends, zero if there was none.
	Until time.Time
	// Rights are what they may do, if the login says so itself, as the scopes of a token do, or another server. Such a user need not be in the catalog, and of one
	// of that name there only the limits count. Nil: what the catalog says.
	Rights auth.Rights
	// lent are tags that another server gives to a user whose rights are in the catalog.
	lent []string
	// entry is what the catalog said of them when they logged in, nil if that was elsewhere.
	entry *auth.User
}

// ConnInfo describes a client's connection to tools and checks.
type ConnInfo struct {
	Protocol         string // "AMQP 0-9-1"
	Name             string // the client's connection_name, or ""
	Peer, Local      net.Addr
	ClientProperties amqp.Table
	// Kick ends the connection on an operator's or the broker's order. It must
	// not block and may be called once from any goroutine.
	Kick func(*Error)
}

// ExchangeDeclare are the parts of exchange.declare.
type ExchangeDeclare struct {
	Name, Type                             string
	Passive, Durable, AutoDelete, Internal bool
	Arguments                              amqp.Table
}

// Binding connects Source to a queue, or to an exchange if ToExchange.
type Binding struct {
	Source, Destination string
	ToExchange          bool
	Key                 string
	Arguments           amqp.Table
}

// QueueDeclare are the parts of queue.declare. An empty name asks for a
// server-made one.
type QueueDeclare struct {
	Name                                    string
	Passive, Durable, Exclusive, AutoDelete bool
	Arguments                               amqp.Table
}

// QueueOK is what queue.declare-ok tells.
type QueueOK struct {
	Name      string
	Messages  uint32 // ready ones
	Consumers uint32
}

// Publish is one message to route.
type Publish struct {
	Exchange, Key string
	// Mandatory: the publisher wants to know when nobody gets it. Publish asks for
	// more certainty where that has a price.
	Mandatory, Immediate bool
	Properties           amqp.RawProperties // shared until Publish returns, never kept
	Body                 []byte             // shared until Publish returns, never kept
	// Tag comes back in Sink.Confirm once every queue has answered; 0 asks for
	// no confirm.
	Tag uint64
	// Waits, if it is not nil, is called by Publish before it waits for room: what the caller has collected for other channels is not to wait with it.
	Waits func()
}

// Confirm is the end of a publish.
type Confirm struct {
	Tag uint64
	// Refused: at least one queue did not take it (AMQP nack).
	Refused bool
	// Deleted: it is refused, and none was full: all that did not take it were deleted, and declared anew as far as is known.
	Deleted bool
	// NoConsumers: immediate was set and no queue had a consumer able to take
	// it (AMQP return 313, before the confirm).
	NoConsumers bool
}

// Sink receives what happens on a channel without being asked. Calls come from
// the broker's goroutines, in order for each consumer, and must not block or
// call back into the broker.
type Sink interface {
	Confirm(results []Confirm) // results is reused after the call
	Deliver(d *Delivery)
	// Cancelled says that the broker ended the consumer (its queue is gone).
	Cancelled(c *Consumer)
	// TimedOut says that the broker ended the consumer, because its client has not settled
	// a message after so long; all it held has gone back. c is nil for messages that the
	// channel fetched by get: then the channel is to end.
	TimedOut(c *Consumer, after time.Duration)
	// Failed says that the broker ended the channel or, with a kind that is hard in
	// the gateway's protocol, the connection. The gateway closes the channel (or
	// the connection) at the broker in its own time.
	Failed(err *Error)
}

// Consume are the parts of basic.consume.
type Consume struct {
	Queue, Tag       string // the tag is not empty: the gateway makes one up
	NoAck, Exclusive bool
	Prefetch         uint16 // 0: unlimited
	Limit            uint16 // of all consumers of the channel together, see Consumer.SetLimit
	// Credit: deliveries come for what Consumer.Grant gives, and none before.
	Credit    bool
	Priority  int32
	Arguments amqp.Table
}

// Delivery is one message handed to a consumer or fetched by get.
type Delivery struct {
	Consumer    *Consumer // nil for get
	Redelivered bool
	// Acquired and Failed are the counts of earlier attempts (x-acquired-count,
	// x-delivery-count); a quorum queue shows them when above zero.
	Acquired, Failed uint32
	Exchange, Key    string
	Properties       amqp.RawProperties // read only
	Body             []byte             // read only
	// WindowBytes is what the delivery took of its consumer's transfer window:
	// the gateway gives it back by Consumer.Written, to the byte.
	WindowBytes int

	queue   *stream // where it is to be settled
	id      queue.MessageID
	attempt uint32
}

// Shed lets go of the message, once the client has it or what is to be written refers to it by itself. A client may hold deliveries for long, and
// what a message consists of may be a part of much more: of what came from another node with it, or of a stretch of the log.
func (d *Delivery) Shed() { d.Exchange, d.Key, d.Properties, d.Body = "", "", nil, nil }

// SettleKind says how deliveries end.
type SettleKind = fsm.SettleKind
