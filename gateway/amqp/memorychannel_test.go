package amqp

import (
	"context"
	"slices"
	"strings"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/stats"
)

func (ch *memChannel) Publish(ctx context.Context, p *broker.Publish) (bool, error) {
	b := ch.c.b
	b.await(ctx, p.Key, p.Waits)
	b.mu.Lock()
	defer b.mu.Unlock()
	kind, ok := b.exchanges[p.Exchange]
	if !ok {
		return false, broker.Errorf(broker.NotFound, "no exchange '%s' in vhost '%s'", p.Exchange, ch.c.vhost)
	}
	if ttl, ok := p.Properties.Expiration(); ok && strings.Trim(ttl, "0123456789") != "" {
		return false, broker.Errorf(broker.PreconditionFailed, "invalid expiration '%s'", ttl)
	}
	var queues []*memQueue
	if p.Exchange == "" {
		if q := b.queues[p.Key]; q != nil {
			queues = []*memQueue{q}
		}
	}
	for _, x := range b.bindings {
		q := b.queues[x.Destination]
		if q != nil && !x.ToExchange && x.Source == p.Exchange && (kind == "fanout" || x.Key == p.Key) && !slices.Contains(queues, q) {
			queues = append(queues, q)
		}
	}
	if len(queues) == 0 {
		return false, nil
	}
	m := &memMessage{exchange: strings.Clone(p.Exchange), key: strings.Clone(p.Key), props: p.Properties.Clone(), body: slices.Clone(p.Body)}
	list := &b.pending
	if ch.tx != nil {
		list = ch.tx
	}
	*list = append(*list, memPublish{ch: ch, tag: p.Tag, m: m, queues: queues, instant: p.Immediate})
	return true, nil
}

func (ch *memChannel) TxSelect() {
	if ch.tx == nil {
		ch.tx = &[]memPublish{}
	}
}

func (ch *memChannel) TxSettles(...*broker.Delivery) {}

func (ch *memChannel) TxRollback([]*broker.Delivery) { *ch.tx = nil }

func (ch *memChannel) TxCommit(_ context.Context, settlements []broker.TxSettlement) ([]broker.TxReturn, error) {
	b := ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	list := *ch.tx
	*ch.tx = nil
	for _, p := range list {
		for _, q := range p.queues {
			if q.maxLength >= 0 && int64(len(q.ready)) >= q.maxLength {
				return nil, broker.Errorf(broker.PreconditionFailed, "transaction refused")
			}
		}
	}
	b.pending = append(b.pending, list...)
	for _, s := range settlements {
		b.settle(s.Kind, s.Delivery)
	}
	b.process()
	lost := b.lost
	b.lost = nil
	return lost, nil
}

func (ch *memChannel) Counted() (uint64, stats.Set) { return 7, stats.Set{stats.Ack: 3} }

func (ch *memChannel) Flush() { ch.c.b.signal() }

func (ch *memChannel) Consume(_ context.Context, spec broker.Consume) (Consumer, error) {
	b := ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	q, err := ch.c.find(spec.Queue)
	if err != nil {
		return nil, err
	}
	if len(q.consumers) > 0 && (spec.Exclusive || q.consumers[0].spec.Exclusive) {
		return nil, broker.Errorf(broker.AccessRefused, "queue '%s' in vhost '%s' in exclusive use", spec.Queue, ch.c.vhost)
	}
	cons := &memConsumer{ch: ch, q: q, spec: spec, window: memWindow}
	q.consumers = append(q.consumers, cons)
	ch.consumers[cons] = struct{}{}
	b.process() // deliveries come before Consume returns
	return cons, nil
}

func (c *memConsumer) Tag() string { return c.spec.Tag }

func (c *memConsumer) Cancel(context.Context) error {
	b := c.ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	c.leave()
	return nil
}

// leave takes the consumer from its queue; called with mu held.
func (c *memConsumer) leave() {
	b := c.ch.c.b
	delete(c.ch.consumers, c)
	if c.finished {
		return
	}
	c.finished = true
	c.q.consumers = slices.DeleteFunc(c.q.consumers, func(x *memConsumer) bool { return x == c })
	if c.q.autoDelete && len(c.q.consumers) == 0 {
		b.remove(c.q, c)
	}
}

func (c *memConsumer) SetLimit(n uint16) {
	b := c.ch.c.b
	b.mu.Lock()
	c.spec.Limit = n
	b.mu.Unlock()
	b.signal()
}

func (c *memConsumer) Written(messages, _ int) {
	b := c.ch.c.b
	b.mu.Lock()
	c.window += messages
	b.mu.Unlock()
	b.signal()
}

func (ch *memChannel) Get(_ context.Context, queue string, _ bool) (*broker.Delivery, uint32, error) {
	b := ch.c.b
	if b.fetching != nil {
		b.fetching(ch)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.process()
	q, err := ch.c.find(queue)
	if err != nil || len(q.ready) == 0 {
		return nil, 0, err
	}
	m := q.ready[0]
	q.ready = q.ready[1:]
	d := m.delivery()
	b.held[d] = &memHeld{m: m, q: q, ch: ch}
	return d, uint32(len(q.ready)), nil
}

func (ch *memChannel) Took(d *broker.Delivery) {
	b := ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settle(fsm.Ack, d)
}

func (ch *memChannel) Settle(kind broker.SettleKind, ds []*broker.Delivery) {
	b := ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range ds {
		b.settle(kind, d)
	}
}

func (ch *memChannel) GiveBack(ds []*broker.Delivery) {
	b := ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range ds {
		h := b.held[d]
		was := h.m.redelivered
		b.settle(fsm.RequeueCounted, d)
		h.m.acquired, h.m.redelivered = h.m.acquired-1, was
	}
}

func (ch *memChannel) Close(context.Context) {
	b := ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range ch.consumers {
		c.leave()
	}
	for d, h := range b.held {
		if h.ch == ch {
			b.settle(fsm.RequeueFailed, d)
		}
	}
	b.signal()
}
