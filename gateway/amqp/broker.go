package amqp

import (
	"context"
	"net"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/stats"
)

// Broker is what the server needs of the broker.
type Broker interface {
	// Login checks a SASL response; from is the client's address. A refusal is a *broker.Error with AccessRefused.
	Login(ctx context.Context, mechanism string, response []byte, from net.Addr) (broker.User, error)
	// LoginExternal is Login for EXTERNAL: peer is the identity that TLS verified.
	LoginExternal(ctx context.Context, peer string, response []byte, from net.Addr) (broker.User, error)
	// Open begins a connection to a vhost.
	Open(ctx context.Context, u broker.User, vhost string, info broker.ConnInfo) (Conn, error)
}

// Conn is an open connection at the broker. All calls come from one goroutine.
type Conn interface {
	// Close deletes the exclusive queues and closes what is still open. When ctx ends it does the rest without waiting.
	Close(ctx context.Context)
	DeclareExchange(ctx context.Context, e broker.ExchangeDeclare) error
	DeleteExchange(ctx context.Context, name string, ifUnused bool) error
	Bind(ctx context.Context, b broker.Binding) error
	Unbind(ctx context.Context, b broker.Binding) error
	DeclareQueue(ctx context.Context, q broker.QueueDeclare) (broker.QueueOK, error)
	PurgeQueue(ctx context.Context, name string) (uint32, error)
	DeleteQueue(ctx context.Context, name string, ifUnused, ifEmpty bool) (uint32, error)
	// OpenChannel may refuse with NotAllowed, for the user's limit.
	OpenChannel(ctx context.Context, s Sink) (Channel, error)
	// UpdateUser takes what the user's new login tells. A refusal is a *broker.Error with
	// NotAllowed. MayRead tells whether the user may still consume from a queue.
	UpdateUser(u broker.User) error
	MayRead(queue string) bool
}

// Channel is an open channel at the broker. All calls come from one goroutine.
type Channel interface {
	// Publish routes p, which it does not keep. It may block for back-pressure. If
	// routed is false no confirm will come.
	Publish(ctx context.Context, p *broker.Publish) (routed bool, err error)
	// Flush sends what Publish and Settle collected.
	Flush()
	// Consume starts a consumer; deliveries may reach the Sink before it returns.
	Consume(ctx context.Context, c broker.Consume) (Consumer, error)
	// Get fetches one message; d is nil if there is none. One without acks goes back with the channel unless Took is called for it.
	Get(ctx context.Context, queue string, noAck bool) (d *broker.Delivery, remaining uint32, err error)
	// Took settles what was fetched without acks. It does not block.
	Took(d *broker.Delivery)
	// Settle ends deliveries. It does not keep ds.
	Settle(kind broker.SettleKind, ds []*broker.Delivery)
	// GiveBack returns deliveries that were not sent to the client, at once. It does not keep ds.
	GiveBack(ds []*broker.Delivery)
	// TxSelect makes Publish collect messages, TxCommit carries them out together with the
	// settlements, TxRollback forgets them.
	TxSelect()
	TxCommit(ctx context.Context, settlements []broker.TxSettlement) ([]broker.TxReturn, error)
	TxSettles(ds ...*broker.Delivery)
	TxRollback(back []*broker.Delivery)
	// Counted tells the channel's own number on the node and what it has counted, on any goroutine.
	Counted() (id uint64, s stats.Set)
	// Close cancels the consumers and returns what was not settled.
	Close(ctx context.Context)
}

// Consumer is a running consumer at the broker.
type Consumer interface {
	Tag() string
	// Cancel ends it; no delivery comes after it returns.
	Cancel(ctx context.Context) error
	// SetLimit tells the limit that its channel has now for all consumers together, 0: none.
	SetLimit(n uint16)
	// Written tells what has left for the client: it refills the transfer window.
	// It is called by the connection's writer.
	Written(messages, bytes int)
}

// Sink receives what happens on a channel without being asked. It has the methods
// of [broker.Sink] with the consumer as an interface. The calls neither block nor
// call back; they may come from any goroutine.
type Sink interface {
	// Number is what the client calls the channel.
	Number() uint16
	// Confirm ends publishes; results is the caller's again after the call.
	Confirm(results []broker.Confirm)
	Deliver(c Consumer, d *broker.Delivery)
	// Cancelled says that the broker ended the consumer.
	Cancelled(c Consumer)
	// TimedOut says that the broker ended the consumer, whose client has not settled a
	// message after so long. Without a consumer the channel is to end.
	TimedOut(c Consumer, after time.Duration)
	// Failed says that the broker ended the channel, or with a hard error the
	// connection. The gateway closes the broker's channel at once, not when the
	// client answers.
	Failed(err *broker.Error)
}
