package client

import (
	"context"

	"google.golang.org/grpc"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// Queue is a queue as it is declared. Queues are durable unless they are Transient.
type Queue struct {
	// Name; empty: the node makes one up.
	Name string
	// Type is classic or quorum, empty what the virtual host says. Both are replicated.
	Type       string
	Transient  bool
	AutoDelete bool
	// Exclusive is only for ConsumerConfig.Declare.
	Exclusive bool
	// Arguments are AMQP's, as x-message-ttl, x-dead-letter-exchange, x-deduplication-window.
	Arguments Table
}

func (q *Queue) proto() (*warrenv1.QueueDeclaration, error) {
	p := &warrenv1.QueueDeclaration{Name: q.Name, Durable: !q.Transient, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive}
	var err error
	if p.Arguments, err = q.Arguments.proto(); err != nil {
		return nil, err
	}
	if q.Type != "" {
		p.Arguments.Fields["x-queue-type"] = &warrenv1.Value{Kind: &warrenv1.Value_StringValue{StringValue: q.Type}}
	}
	return p, nil
}

// Declared is a queue that was declared.
type Declared struct {
	Name string
	// Messages that are ready, and Consumers.
	Messages, Consumers uint64
}

// Exchange is an exchange as it is declared. Exchanges are durable unless they are Transient.
type Exchange struct {
	Name string
	// Type is direct, fanout, topic, headers, x-consistent-hash, x-delayed-message and so on.
	Type       string
	Transient  bool
	AutoDelete bool
	// Internal: nobody publishes to it, only other exchanges lead to it.
	Internal  bool
	Arguments Table
}

// Binding leads messages from the exchange Source to a Queue, or to another Exchange.
type Binding struct {
	Source          string
	Queue, Exchange string
	RoutingKey      string
	Arguments       Table
}

func (b *Binding) proto() (*warrenv1.Binding, error) {
	p := &warrenv1.Binding{Source: b.Source, Destination: b.Queue, DestinationKind: warrenv1.DestinationKind_DESTINATION_KIND_QUEUE, RoutingKey: b.RoutingKey}
	if b.Exchange != "" {
		if b.Queue != "" {
			return nil, invalid("a binding leads to a queue or to an exchange, not to both")
		}
		p.Destination, p.DestinationKind = b.Exchange, warrenv1.DestinationKind_DESTINATION_KIND_EXCHANGE
	}
	var err error
	p.Arguments, err = b.Arguments.proto()
	return p, err
}

// topology makes a call that may be made twice.
func (c *Client) topology(ctx context.Context, f func(warrenv1.TopologyServiceClient) error) error {
	return c.call(ctx, func(conn *grpc.ClientConn) error { return f(warrenv1.NewTopologyServiceClient(conn)) })
}

// DeclareQueue declares a queue; ErrPreconditionFailed if there is another one of that name. A queue without a name may be declared
// twice if an answer is lost.
//
// This call and those below are tried again at other nodes while none can do it, eight times at most.
func (c *Client) DeclareQueue(ctx context.Context, q Queue) (Declared, error) {
	p, err := q.proto()
	if err != nil {
		return Declared{}, err
	}
	var resp *warrenv1.DeclareQueueResponse
	err = c.topology(ctx, func(t warrenv1.TopologyServiceClient) (err error) {
		resp, err = t.DeclareQueue(ctx, &warrenv1.DeclareQueueRequest{Vhost: c.cfg.VHost, Queue: p})
		return err
	})
	return Declared{Name: resp.GetQueue(), Messages: resp.GetMessages(), Consumers: resp.GetConsumers()}, err
}

// LookQueue tells of a queue that is there; ErrNotFound if it is not.
func (c *Client) LookQueue(ctx context.Context, name string) (Declared, error) {
	var resp *warrenv1.DeclareQueueResponse
	err := c.topology(ctx, func(t warrenv1.TopologyServiceClient) (err error) {
		resp, err = t.DeclareQueue(ctx, &warrenv1.DeclareQueueRequest{Vhost: c.cfg.VHost, Queue: &warrenv1.QueueDeclaration{Name: name}, Passive: true})
		return err
	})
	return Declared{Name: resp.GetQueue(), Messages: resp.GetMessages(), Consumers: resp.GetConsumers()}, err
}

// DeleteQueue deletes a queue and returns how many ready messages went with it. It is no error if there is none.
func (c *Client) DeleteQueue(ctx context.Context, name string) (messages uint64, err error) {
	err = c.topology(ctx, func(t warrenv1.TopologyServiceClient) error {
		resp, err := t.DeleteQueue(ctx, &warrenv1.DeleteQueueRequest{Vhost: c.cfg.VHost, Queue: name})
		messages = resp.GetMessages()
		return err
	})
	return messages, err
}

// ForceDeleteQueue is DeleteQueue by an administrator, of a queue that has no leader, too, and of those that were deleted under its name, with their vhost or by themselves, and have not ended: up to
// 20 s after the call they end, if they have none until then. Dead letters on their way out of them are lost, and their messages if deleting them was to dead-letter them.
// ErrNotFound if there is none, also when an answer is lost and the call is tried again; ErrPreconditionFailed if one has a leader and still waits for its dead
// letters; ErrAccessRefused if the user is no administrator. A node with an older program deletes as DeleteQueue does.
func (c *Client) ForceDeleteQueue(ctx context.Context, name string) (messages uint64, err error) {
	err = c.topology(ctx, func(t warrenv1.TopologyServiceClient) error {
		resp, err := t.DeleteQueue(ctx, &warrenv1.DeleteQueueRequest{Vhost: c.cfg.VHost, Queue: name, Force: true})
		messages = resp.GetMessages()
		return err
	})
	return messages, err
}

// PurgeQueue removes the ready messages of a queue and returns how many.
func (c *Client) PurgeQueue(ctx context.Context, name string) (messages uint64, err error) {
	err = c.topology(ctx, func(t warrenv1.TopologyServiceClient) error {
		resp, err := t.PurgeQueue(ctx, &warrenv1.PurgeQueueRequest{Vhost: c.cfg.VHost, Queue: name})
		messages = resp.GetMessages()
		return err
	})
	return messages, err
}

// DeclareExchange declares an exchange; ErrPreconditionFailed if there is another one of that name.
func (c *Client) DeclareExchange(ctx context.Context, x Exchange) error {
	args, err := x.Arguments.proto()
	if err != nil {
		return err
	}
	return c.topology(ctx, func(t warrenv1.TopologyServiceClient) error {
		_, err := t.DeclareExchange(ctx, &warrenv1.DeclareExchangeRequest{Vhost: c.cfg.VHost, Exchange: &warrenv1.Exchange{
			Name: x.Name, Type: x.Type, Durable: !x.Transient, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: args,
		}})
		return err
	})
}

// DeleteExchange deletes an exchange with its bindings. It is no error if there is none.
func (c *Client) DeleteExchange(ctx context.Context, name string) error {
	return c.topology(ctx, func(t warrenv1.TopologyServiceClient) error {
		_, err := t.DeleteExchange(ctx, &warrenv1.DeleteExchangeRequest{Vhost: c.cfg.VHost, Exchange: name})
		return err
	})
}

// Bind makes a binding. It is no error if there is one like it.
func (c *Client) Bind(ctx context.Context, b Binding) error {
	p, err := b.proto()
	if err != nil {
		return err
	}
	return c.topology(ctx, func(t warrenv1.TopologyServiceClient) error {
		_, err := t.Bind(ctx, &warrenv1.BindRequest{Vhost: c.cfg.VHost, Binding: p})
		return err
	})
}

// Unbind removes a binding. It is no error if there is none like it.
func (c *Client) Unbind(ctx context.Context, b Binding) error {
	p, err := b.proto()
	if err != nil {
		return err
	}
	return c.topology(ctx, func(t warrenv1.TopologyServiceClient) error {
		_, err := t.Unbind(ctx, &warrenv1.UnbindRequest{Vhost: c.cfg.VHost, Binding: p})
		return err
	})
}

// Get takes up to count messages, 1 to 1,000, from the head of a queue, and settles them in the same step. It is not tried again:
// messages of a lost answer are settled all the same, and are gone if how is Ack. A consumer loses none.
func (c *Client) Get(ctx context.Context, queue string, count int, how Settle) ([]*Delivery, error) {
	if count < 1 || count > 1000 || how < Ack || how > Release {
		return nil, invalid("%d messages, %v: the count is from 1 to 1000", count, how)
	}
	resp, err := warrenv1.NewConsumeServiceClient(c.Conn()).Get(ctx, &warrenv1.GetRequest{Vhost: c.cfg.VHost, Queue: queue, Count: uint32(count), Settle: how.proto()})
	if err != nil {
		return nil, errorOf(ctx, err)
	}
	var list []*Delivery
	for _, p := range resp.GetDeliveries() {
		list = append(list, deliveryOf(queue, p))
	}
	return list, nil
}
