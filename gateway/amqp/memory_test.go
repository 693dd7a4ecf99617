package amqp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	wire "github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/fsm"
)

// memBroker is a broker in memory: enough of one for clients to be served, with
// the texts clients see. One mutex guards everything; a goroutine does what the
// real broker's goroutines do, so that confirms and deliveries come from outside.
type memBroker struct {
	mu        sync.Mutex
	exchanges map[string]string // name to type
	queues    map[string]*memQueue
	bindings  []broker.Binding
	conns     map[*memConn]struct{}
	held      map[*broker.Delivery]*memHeld
	names     int
	ids       uint64

	pending []memPublish
	// unreadable is a queue that the user may not read any more, locked that the vhost is.
	unreadable string
	narrow     atomic.Bool
	locked     bool
	// frozen keeps publishes unanswered, for tests of confirms and back-pressure.
	frozen bool
	// channelsFull refuses new channels.
	channelsFull bool
	work         chan struct{}
	done         chan struct{}
	wg           sync.WaitGroup
}

type memPublish struct {
	ch      *memChannel
	tag     uint64
	m       *memMessage
	queues  []*memQueue
	instant bool
}

type memMessage struct {
	id               uint64
	exchange, key    string
	props            wire.RawProperties
	body             []byte
	redelivered      bool
	acquired, failed uint32
}

type memQueue struct {
	name       string
	durable    bool
	autoDelete bool
	owner      *memConn // of an exclusive queue
	ready      []*memMessage
	consumers  []*memConsumer
	maxLength  int64 // reject-publish beyond, -1 for none
}

type memHeld struct {
	m    *memMessage
	q    *memQueue
	ch   *memChannel
	cons *memConsumer
}

type memConn struct {
	b     *memBroker
	info  broker.ConnInfo
	vhost string
}

type memChannel struct {
	c         *memConn
	sink      Sink
	consumers map[*memConsumer]struct{}
	tx        *[]memPublish // nil unless transactional
}

type memConsumer struct {
	ch       *memChannel
	q        *memQueue
	spec     broker.Consume
	unacked  int
	window   int
	finished bool
}

const memWindow = 2048

func newMemBroker(tb testing.TB) *memBroker {
	b := &memBroker{
		exchanges: map[string]string{
			"": "direct", "amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.headers": "headers",
		},
		queues: map[string]*memQueue{}, conns: map[*memConn]struct{}{},
		held: map[*broker.Delivery]*memHeld{},
		work: make(chan struct{}, 1), done: make(chan struct{}),
	}
	b.wg.Go(func() {
		for {
			select {
			case <-b.work:
				b.mu.Lock()
				b.process()
				b.mu.Unlock()
			case <-b.done:
				return
			}
		}
	})
	tb.Cleanup(func() { close(b.done); b.wg.Wait() })
	return b
}

func (b *memBroker) signal() {
	select {
	case b.work <- struct{}{}:
	default:
	}
}

// freeze stops or resumes answering publishes.
func (b *memBroker) freeze(on bool) {
	b.mu.Lock()
	b.frozen = on
	b.mu.Unlock()
	b.signal()
}

// process takes pending publishes into their queues, answers them and delivers.
func (b *memBroker) process() {
	if !b.frozen {
		var batch []broker.Confirm
		var ch *memChannel
		for _, p := range b.pending {
			r := b.enqueue(p)
			if p.tag == 0 {
				continue
			}
			if ch != p.ch && len(batch) > 0 {
				ch.sink.Confirm(batch)
				batch = batch[:0]
			}
			ch = p.ch
			batch = append(batch, r)
		}
		if len(batch) > 0 {
			ch.sink.Confirm(batch)
		}
		clear(b.pending)
		b.pending = b.pending[:0]
	}
	for _, q := range b.queues {
		q.dispatch(b)
	}
}

func (b *memBroker) enqueue(p memPublish) broker.Confirm {
	r := broker.Confirm{Tag: p.tag}
	taken := 0
	for _, q := range p.queues {
		q.dispatch(b)
		switch {
		case q.maxLength >= 0 && int64(len(q.ready)) >= q.maxLength:
			r.Refused = true
		case p.instant && q.next() == nil:
		default:
			m := *p.m
			b.ids++
			m.id = b.ids
			q.ready = append(q.ready, &m)
			taken++
		}
	}
	r.NoConsumers = p.instant && taken == 0 && !r.Refused
	return r
}

// next returns a consumer that can take a message.
func (q *memQueue) next() *memConsumer {
	for i, c := range q.consumers {
		if c.window > 0 && (c.spec.NoAck || c.spec.Prefetch == 0 || c.unacked < int(c.spec.Prefetch)) {
			q.consumers = append(append(q.consumers[:i:i], q.consumers[i+1:]...), c)
			return c
		}
	}
	return nil
}

func (q *memQueue) dispatch(b *memBroker) {
	n := 0
	for n < len(q.ready) {
		c := q.next()
		if c == nil {
			break
		}
		m := q.ready[n]
		n++
		d := m.delivery()
		c.window--
		if !c.spec.NoAck {
			c.unacked++
			b.held[d] = &memHeld{m: m, q: q, ch: c.ch, cons: c}
		}
		c.ch.sink.Deliver(c, d)
	}
	q.ready = q.ready[n:]
	if len(q.ready) == 0 {
		q.ready = nil
	}
}

func (m *memMessage) delivery() *broker.Delivery {
	return &broker.Delivery{
		Redelivered: m.redelivered, Acquired: m.acquired, Failed: m.failed,
		Exchange: m.exchange, Key: m.key, Properties: m.props, Body: m.body,
	}
}

// giveBack puts a message in its place again.
func (q *memQueue) giveBack(m *memMessage) {
	m.redelivered = true
	i, _ := slices.BinarySearchFunc(q.ready, m.id, func(a *memMessage, id uint64) int { return int(int64(a.id) - int64(id)) })
	q.ready = slices.Insert(q.ready, i, m)
}

func (b *memBroker) Login(_ context.Context, mechanism string, response []byte, _ bool) (broker.User, error) {
	if mechanism == "PLAIN" && string(response) == "\x00guest\x00guest" || mechanism == "AMQPLAIN" && strings.Contains(string(response), "guest") {
		return broker.User{Name: "guest"}, nil
	}
	return broker.User{}, broker.Errorf(broker.AccessRefused, "user cannot log in")
}

func (b *memBroker) LoginExternal(_ context.Context, peer string, response []byte, _ bool) (broker.User, error) {
	if name, err := auth.ParseExternal(response, peer); err == nil && name == "CN=client,O=test" {
		return broker.User{Name: name}, nil
	}
	return broker.User{}, broker.Errorf(broker.AccessRefused, "user cannot log in")
}

func (b *memBroker) Narrow(on bool) { b.narrow.Store(on) }

func (b *memBroker) Open(_ context.Context, u broker.User, vhost string, info broker.ConnInfo) (Conn, error) {
	switch vhost {
	case "/":
	case "full":
		return nil, broker.Errorf(broker.NotAllowed, "access to vhost 'full' refused for user '%s': connection limit (3) is reached", u.Name)
	case "locked":
		return nil, broker.Errorf(broker.NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, u.Name)
	default:
		return nil, broker.Errorf(broker.NotAllowed, "vhost %s not found", vhost)
	}
	c := &memConn{b: b, info: info, vhost: vhost}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns[c] = struct{}{}
	return c, nil
}

func (c *memConn) Close(context.Context) {
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
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

func (c *memConn) DeclareQueue(_ context.Context, d broker.QueueDeclare) (broker.QueueOK, error) {
	b := c.b
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

// remove deletes a queue and tells its consumers, but the one that left.
func (b *memBroker) remove(q *memQueue, left *memConsumer) {
	delete(b.queues, q.name)
	b.bindings = slices.DeleteFunc(b.bindings, func(x broker.Binding) bool { return !x.ToExchange && x.Destination == q.name })
	for _, cons := range q.consumers {
		if cons != left && !cons.finished {
			cons.finished = true
			cons.ch.sink.Cancelled(cons)
		}
	}
	q.consumers = nil
}

func (ch *memChannel) Publish(_ context.Context, p *broker.Publish) (bool, error) {
	b := ch.c.b
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

func (ch *memChannel) TxRollback() { *ch.tx = nil }

func (ch *memChannel) TxCommit(_ context.Context, settlements []broker.TxSettlement) error {
	b := ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	list := *ch.tx
	*ch.tx = nil
	for _, p := range list {
		for _, q := range p.queues {
			if q.maxLength >= 0 && int64(len(q.ready)) >= q.maxLength {
				return broker.Errorf(broker.PreconditionFailed, "transaction refused")
			}
		}
	}
	b.pending = append(b.pending, list...)
	for _, s := range settlements {
		b.settle(s.Kind, s.Delivery)
	}
	b.process()
	return nil
}

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

func (c *memConsumer) Written(messages, _ int) {
	b := c.ch.c.b
	b.mu.Lock()
	c.window += messages
	b.mu.Unlock()
	b.signal()
}

func (ch *memChannel) Get(_ context.Context, queue string, noAck bool) (*broker.Delivery, uint32, error) {
	b := ch.c.b
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
	if !noAck {
		b.held[d] = &memHeld{m: m, q: q, ch: ch}
	}
	return d, uint32(len(q.ready)), nil
}

func (ch *memChannel) Settle(kind broker.SettleKind, ds []*broker.Delivery) {
	b := ch.c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range ds {
		b.settle(kind, d)
	}
}

func (b *memBroker) settle(kind broker.SettleKind, d *broker.Delivery) {
	h := b.held[d]
	if h == nil {
		panic("settled twice")
	}
	delete(b.held, d)
	if h.cons != nil {
		h.cons.unacked--
	}
	switch kind {
	case fsm.RequeueFailed:
		h.m.failed++
		h.m.acquired++
		h.q.giveBack(h.m)
	case fsm.RequeueCounted:
		h.m.acquired++
		h.q.giveBack(h.m)
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

// counts returns ready and unacked messages of a queue.
func (b *memBroker) counts(queue string) (ready, unacked int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.process()
	if q := b.queues[queue]; q != nil {
		ready = len(q.ready)
	}
	for _, h := range b.held {
		if h.q.name == queue {
			unacked++
		}
	}
	return ready, unacked
}
