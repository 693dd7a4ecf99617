package amqp

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
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
	lost    []broker.TxReturn // what the next commit returns
	// unreadable is a queue that the user may not read any more, locked that the vhost is.
	unreadable string
	locked     bool
	// fetching is called by get, if it is not nil.
	fetching func(ch *memChannel)
	// frozen keeps publishes unanswered, for tests of confirms and back-pressure.
	frozen bool
	// stuck keeps connections from their end until they are not waited for.
	stuck bool
	// heldUp is a queue for which publishes and declarations wait until free is closed.
	heldUp string
	free   chan struct{}
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
		has := func(limit uint16) bool { return limit > 0 && c.unacked >= int(limit) }
		if c.window > 0 && (c.spec.NoAck || !has(c.spec.Prefetch) && !has(c.spec.Limit)) {
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

func (b *memBroker) Login(_ context.Context, mechanism string, response []byte, _ net.Addr) (broker.User, error) {
	if mechanism == "PLAIN" && string(response) == "\x00guest\x00guest" || mechanism == "AMQPLAIN" && strings.Contains(string(response), "guest") {
		return broker.User{Name: "guest"}, nil
	}
	return broker.User{}, broker.Errorf(broker.AccessRefused, "user cannot log in")
}

func (b *memBroker) LoginExternal(_ context.Context, peer string, response []byte, _ net.Addr) (broker.User, error) {
	if name, err := auth.ParseExternal(response, peer); err == nil && name == "CN=client,O=test" {
		return broker.User{Name: name}, nil
	}
	return broker.User{}, broker.Errorf(broker.AccessRefused, "user cannot log in")
}

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
