package load

import (
	"context"
	"errors"
)

// A Driver speaks the protocol of a broker.
type Driver interface {
	// Dial connects a client to the server at url.
	Dial(url string) (Conn, error)
}

// Drivers are those that a program has, by the names of --protocol.
type Drivers map[string]Driver

// ErrUnsupported is what a driver answers to what its broker does not have.
var ErrUnsupported = errors.New("the broker cannot do this")

// A Conn is one client. It publishes or consumes or declares, from one goroutine.
type Conn interface {
	// Declare makes a durable queue, with RabbitMQ's arguments.
	Declare(queue string, args map[string]any) error
	// Delete deletes a queue, if it is there.
	Delete(queue string) error
	// Confirms has the broker confirm what is published from now on. settled is called for
	// each message, the first of which has number 0, from one goroutine; lost, if
	// the connection ends. At most window messages are unconfirmed at any time.
	Confirms(window int, settled func(number int, taken bool), lost func(error)) error
	// Publish sends a persistent message. The body is the caller's again afterwards.
	Publish(ctx context.Context, queue string, body []byte) error
	// Consume calls handle for each delivery of a queue, from one goroutine for the queue, with at most prefetch
	// that are not settled, or without acks if it is 0; ended, when there will be no more.
	Consume(queue string, prefetch int, handle func(Delivery), ended func(error)) error
	// Ready counts the messages of a queue that wait for a consumer.
	Ready(queue string) (int, error)
	// Leader names the server that leads a queue, as the settings name it.
	Leader(queue string) (string, error)
	// Close ends the connection. It returns when none of the functions above is running and
	// none will be called any more.
	Close()
}

// A Fanner is a Conn that can publish to all queues at once.
type Fanner interface {
	// Join has a queue get what PublishAll publishes.
	Join(queue string) error
	// PublishAll is Publish to all queues that have joined. One confirm tells that all have the message.
	PublishAll(ctx context.Context, body []byte) error
}

// A Prober is a Conn whose confirms can be waited for one by one, in any order.
type Prober interface {
	// Probe publishes as Publish does, after Confirms. confirmed waits for the confirm of this message.
	Probe(ctx context.Context, queue string, body []byte) (confirmed func(context.Context) (bool, error), err error)
}

// A Delivery is valid until the function that it was handed to returns.
type Delivery interface {
	Body() []byte
	Redelivered() bool
	// Ack settles it, with all before it if they are multiple.
	Ack(multiple bool)
	// Nack has it dead-lettered, with all before it if they are multiple.
	Nack(multiple bool)
	// Fail puts it back as a failed attempt, which counts for a delivery limit: basic.reject, because basic.nack does not
	// count since RabbitMQ 4.3.
	Fail()
}
