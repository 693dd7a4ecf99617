package amqp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

func (c *memConn) Close(ctx context.Context) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stuck {
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
	}
	delete(b.conns, c)
	for _, q := range slices.Collect(maps.Values(b.queues)) {
		if q.owner == c {
			b.remove(q, nil)
		}
	}
}

func (c *memConn) UpdateUser(u broker.User) error {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.b.locked {
		return broker.Errorf(broker.NotAllowed, "access to vhost '%s' refused for user '%s'", c.vhost, u.Name)
	}
	return nil
}

func (c *memConn) MayRead(queue string) bool {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return queue != c.b.unreadable
}

func (c *memConn) OpenChannel(_ context.Context, s Sink) (Channel, error) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.channelsFull {
		return nil, broker.Errorf(broker.NotAllowed, "number of channels opened for user 'guest' has reached the maximum allowed user limit of 7")
	}
	return &memChannel{c: c, sink: s, consumers: map[*memConsumer]struct{}{}}, nil
}

func (c *memConn) DeclareExchange(_ context.Context, e broker.ExchangeDeclare) error {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	have, ok := b.exchanges[e.Name]
	switch {
	case e.Name == "":
		return broker.Errorf(broker.AccessRefused, "operation not permitted on the default exchange")
	case !ok && e.Passive:
		return broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '%s'", e.Name, c.vhost)
	case !ok && strings.HasPrefix(e.Name, "amq."):
		return broker.Errorf(broker.AccessRefused, "exchange name '%s' contains reserved prefix 'amq.*'", e.Name)
	case ok && !e.Passive && have != e.Type:
		return broker.Errorf(broker.PreconditionFailed, "inequivalent arg 'type' for exchange '%s' in vhost '%s': received '%s' but current is '%s'", e.Name, c.vhost, e.Type, have)
	}
	if !ok {
		b.exchanges[e.Name] = e.Type
	}
	return nil
}

func (c *memConn) DeleteExchange(_ context.Context, name string, ifUnused bool) error {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	used := func(x broker.Binding) bool { return x.Source == name }
	if ifUnused && slices.ContainsFunc(b.bindings, used) {
		return broker.Errorf(broker.PreconditionFailed, "exchange '%s' in vhost '%s' in use", name, c.vhost)
	}
	delete(b.exchanges, name)
	b.bindings = slices.DeleteFunc(b.bindings, used)
	return nil
}

func (c *memConn) Bind(_ context.Context, x broker.Binding) error {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.exchanges[x.Source]; !ok {
		return broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '%s'", x.Source, c.vhost)
	}
	if x.ToExchange {
		if _, ok := b.exchanges[x.Destination]; !ok {
			return broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '%s'", x.Destination, c.vhost)
		}
	} else if _, err := c.find(x.Destination); err != nil {
		return err
	}
	b.bindings = append(b.bindings, x)
	return nil
}

func (c *memConn) Unbind(_ context.Context, x broker.Binding) error {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bindings = slices.DeleteFunc(b.bindings, func(y broker.Binding) bool {
		return x.Source == y.Source && x.Destination == y.Destination && x.Key == y.Key
	})
	return nil
}

// find returns a queue this connection may use; called with mu held.
func (c *memConn) find(name string) (*memQueue, error) {
	q := c.b.queues[name]
	if q == nil {
		return nil, broker.Errorf(broker.NotFound, "no queue '%s' in vhost '%s'", name, c.vhost)
	}
	if q.owner != nil && q.owner != c {
		return nil, broker.Errorf(broker.ResourceLocked, "cannot obtain exclusive access to locked queue '%s' in vhost '%s'", name, c.vhost)
	}
	return q, nil
}

func (c *memConn) DeclareQueue(ctx context.Context, d broker.QueueDeclare) (broker.QueueOK, error) {
	b := c.b
	b.await(ctx, d.Name, func() {})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.process()
	if d.Name == "" {
		b.names++
		d.Name = fmt.Sprintf("amq.gen-%d", b.names)
	}
	q, err := c.find(d.Name)
	if q == nil && err != nil && b.queues[d.Name] != nil || err != nil && d.Passive {
		return broker.QueueOK{}, err
	}
	if q == nil {
		q = &memQueue{name: d.Name, durable: d.Durable, autoDelete: d.AutoDelete, maxLength: -1}
		if v, ok := d.Arguments.Get("x-max-length"); ok {
			q.maxLength, _ = wire.AsInt64(v)
		}
		if d.Exclusive {
			q.owner = c
		}
		b.queues[d.Name] = q
	} else if !d.Passive && q.durable != d.Durable {
		return broker.QueueOK{}, broker.Errorf(broker.PreconditionFailed, "inequivalent arg 'durable' for queue '%s' in vhost '%s': received '%v' but current is '%v'", d.Name, c.vhost, d.Durable, q.durable)
	}
	return broker.QueueOK{Name: q.name, Messages: uint32(len(q.ready)), Consumers: uint32(len(q.consumers))}, nil
}

func (c *memConn) PurgeQueue(_ context.Context, name string) (uint32, error) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.process()
	q, err := c.find(name)
	if err != nil {
		return 0, err
	}
	n := len(q.ready)
	q.ready = nil
	return uint32(n), nil
}

func (c *memConn) DeleteQueue(_ context.Context, name string, ifUnused, ifEmpty bool) (uint32, error) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.process()
	if b.queues[name] == nil {
		return 0, nil
	}
	q, err := c.find(name)
	switch {
	case err != nil:
		return 0, err
	case ifUnused && len(q.consumers) > 0:
		return 0, broker.Errorf(broker.PreconditionFailed, "queue '%s' in vhost '%s' in use", name, c.vhost)
	case ifEmpty && len(q.ready) > 0:
		return 0, broker.Errorf(broker.PreconditionFailed, "queue '%s' in vhost '%s' not empty", name, c.vhost)
	}
	n := len(q.ready)
	b.remove(q, nil)
	return uint32(n), nil
}
