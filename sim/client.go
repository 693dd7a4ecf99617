package sim

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
)

// client is one connection with one channel. Its run goroutine makes all calls.
type client struct {
	w    *World
	n    *node
	num  uint32 // node number
	life context.Context
	conn *broker.Conn
	ch   *broker.Channel

	mu        sync.Mutex
	publishes map[uint64]*publish
	inbox     []*broker.Delivery
	cancelled bool
	last      map[*broker.Consumer]uint64 // highest first delivery
	prio      bool
	closed    bool
	abandoned bool // nobody waits for its confirms
	wake      chan struct{}
}

// dial opens a client on a node; nil if the node is down.
func (w *World) dial(n *node) *client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.up {
		return nil
	}
	c := &client{
		w: w, n: n, num: n.number, life: n.life, publishes: map[uint64]*publish{},
		last: map[*broker.Consumer]uint64{}, wake: make(chan struct{}, 1),
	}
	conn, err := n.b.Open(n.life, w.admin, "/", broker.ConnInfo{})
	if err != nil {
		w.problem("open on %s: %v", n.id, err)
		return nil
	}
	c.conn = conn
	if c.ch, err = conn.OpenChannel(n.life, c); err != nil {
		w.problem("channel on %s: %v", n.id, err)
		return nil
	}
	return c
}

// Confirm implements broker.Sink.
func (c *client) Confirm(list []broker.Confirm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range list {
		p := c.publishes[x.Tag]
		if c.abandoned {
			continue
		}
		if p == nil {
			c.w.problem("confirm of unknown tag %d on %s", x.Tag, c.n.id)
			continue
		}
		delete(c.publishes, x.Tag)
		if x.Refused || x.NoConsumers {
			c.w.led.end(p, refused)
		} else {
			c.w.led.end(p, confirmed)
		}
	}
}

// Deliver implements broker.Sink.
func (c *client) Deliver(d *broker.Delivery) {
	if c.life.Err() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if s := c.w.led.deliver(c.n.id, d); s != nil {
		q, id, attempt := d.Place()
		c.w.problem("message %d attempt %d (%s) of queue %d delivered again on %s without the redelivered flag; %v", id, attempt, d.Body, q, c.n.id, s)
	}
	q, id, attempt := d.Place()
	if mark, replicated := c.w.oracle.marks.Load(q); replicated && id > mark.(queue.MessageID) {
		c.w.problem("message %d (%s) of queue %d delivered, the delivered mark in its log is %d", id, d.Body, q, mark)
	}
	if !d.Redelivered && attempt == 0 && !c.prio {
		if _, stayed := c.w.oracle.stayed.Load(message{q, id}); uint64(id) <= c.last[d.Consumer] && !stayed {
			c.w.problem("first delivery of message %d (%s) after %d on one consumer of %s", id, d.Body, c.last[d.Consumer], d.Consumer.Queue())
		}
		c.last[d.Consumer] = max(c.last[d.Consumer], uint64(id))
	}
	c.inbox = append(c.inbox, d)
	kick(c.wake)
}

// Cancelled implements broker.Sink.
func (c *client) Cancelled(*broker.Consumer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled = true
	kick(c.wake)
}

// TimedOut implements broker.Sink: nobody asks for it.
func (c *client) TimedOut(*broker.Consumer, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.problem("the broker ended a consumer")
}

// Failed implements broker.Sink: no channel of the simulation earns it.
func (c *client) Failed(err *broker.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.problem("the broker ended a channel: %v", err)
}

func (c *client) take() (list []*broker.Delivery, cancelled bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, c.inbox = c.inbox, nil
	return list, c.cancelled
}

// unanswered counts publishes without a confirm.
func (c *client) unanswered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.publishes)
}

func (c *client) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.life, 10*time.Second)
	defer cancel()
	c.conn.Close(ctx)
}

var emptyProperties = amqp.RawProperties{0, 0}

func withID(id string) amqp.RawProperties {
	raw, err := amqp.Rewrite(emptyProperties, func(p *amqp.Properties) {
		p.SetHeaders(amqp.Table{{Name: "x-deduplication-header", Value: id}})
	})
	if err != nil {
		panic(err)
	}
	return raw
}

func withProperties(expiration, priority, delay int) amqp.RawProperties {
	raw, err := amqp.Rewrite(emptyProperties, func(p *amqp.Properties) {
		if expiration >= 0 {
			p.SetExpiration(strconv.Itoa(expiration))
		}
		if priority >= 0 {
			p.SetPriority(uint8(priority))
		}
		if delay > 0 {
			p.SetHeaders(amqp.Table{{Name: "x-delay", Value: int32(delay)}})
		}
	})
	if err != nil {
		panic(err)
	}
	return raw
}

// publisher publishes to a queue from one node after the other until the load ends.
func (w *World) publisher(name int, q *queueSpec) {
	if q.once {
		w.oncePublisher(name, q)
		return
	}
	for life := 0; w.loading(); life++ {
		n := w.nodes[w.rand(len(w.nodes))]
		c := w.dial(n)
		if c == nil {
			w.sleep(20 * time.Millisecond)
			continue
		}
		n.mu.Lock()
		work := n.work
		work.Add(1)
		n.mu.Unlock()
		w.publishFrom(c, fmt.Sprintf("p%d.%d", name, life), q)
		if c.life.Err() == nil {
			w.settleDown(c)
			c.close()
		}
		work.Done()
	}
}

// settleDown waits until a client's publishes are answered.
func (w *World) settleDown(c *client) {
	for c.unanswered() > 0 && pause(c.life, 5*time.Millisecond) {
	}
}

func (w *World) publishFrom(c *client, name string, q *queueSpec) {
	burst := 1 + w.rand(8)
	for i := 1; w.loading() && c.life.Err() == nil && i < 2000; i++ {
		body := fmt.Sprintf("%s-%d", name, i)
		raw := emptyProperties
		delayed := w.oneIn(3)
		if q.ttl && w.oneIn(2) || q.prio || delayed {
			ttl, prio, delay := -1, -1, 0
			if delayed {
				delay = w.rand(400)
			}
			if q.ttl {
				ttl = w.rand(60)
			}
			if q.prio {
				prio = w.rand(7)
			}
			raw = withProperties(ttl, prio, delay)
		}
		p := w.led.publish(c.n.id, body, q.name)
		c.mu.Lock()
		c.publishes[uint64(i)] = p
		c.mu.Unlock()
		routed, err := c.ch.Publish(c.life, &broker.Publish{
			Key: q.name, Properties: raw, Body: []byte(body), Tag: uint64(i), Immediate: q.immediate && w.oneIn(2),
		})
		if err != nil || !routed {
			c.mu.Lock()
			delete(c.publishes, uint64(i))
			c.mu.Unlock()
			state := unrouted
			if err != nil {
				state = unknown
			}
			w.led.end(p, state)
			if err != nil && c.life.Err() == nil {
				w.problem("publish %s: %v", body, err)
			}
		}
		if w.oneIn(burst) {
			c.ch.Flush()
			pause(c.life, w.between(0, q.pace))
		}
		if w.oneIn(400) {
			break // another node
		}
	}
	c.ch.Flush()
}

// consumer keeps a consumer on a queue until the run ends.
func (w *World) consumer(q *queueSpec, done *atomic.Bool) {
	for !done.Load() && w.ctx.Err() == nil {
		n := w.nodes[w.rand(len(w.nodes))]
		c := w.dial(n)
		if c == nil {
			w.sleep(20 * time.Millisecond)
			continue
		}
		c.prio = q.prio
		n.mu.Lock()
		work := n.work
		work.Add(1)
		n.mu.Unlock()
		w.consumeOn(c, q, done)
		if c.life.Err() == nil {
			c.close()
		}
		work.Done()
		w.sleep(w.between(0, 20*time.Millisecond))
	}
}

// consumeOn works with one client until it has to go elsewhere.
func (w *World) consumeOn(c *client, q *queueSpec, done *atomic.Bool) {
	if w.oneIn(8) && !w.draining() {
		w.getSome(c, q)
		return
	}
	prefetch := []uint16{1, 3, 20, 0}[w.rand(4)]
	draining := w.draining()
	if draining {
		prefetch = 0
	}
	x, err := c.ch.Consume(c.life, broker.Consume{Queue: q.name, Tag: "c", Prefetch: prefetch, NoAck: q.noAck, Exclusive: q.exclusive})
	if err != nil {
		var e *broker.Error
		if q.exclusive && errors.As(err, &e) && e.Kind == broker.AccessRefused {
			pause(c.life, w.between(0, 50*time.Millisecond))
			return
		}
		w.expected(c, err, "consume from "+q.name)
		pause(c.life, w.between(0, 50*time.Millisecond))
		if q.transient || q.autoDelete || q.name == "brief" {
			if err := c.declare(q); err != nil {
				w.expected(c, err, "declare "+q.name)
			}
		}
		return
	}
	started := time.Now()
	stay := w.between(100*time.Millisecond, 3*time.Second)
	var held []*broker.Delivery
	holds := func(n int) {
		w.state.holding.Add(int64(n))
		q.holding.Add(int64(n))
	}
	defer func() { holds(-len(held)) }()
	for !done.Load() {
		select {
		case <-c.wake:
		case <-time.After(20 * time.Millisecond):
		case <-c.life.Done():
			return
		}
		list, cancelled := c.take()
		for _, d := range list {
			if q.noAck {
				w.led.settle(c.num, fsm.Ack, d) // being written settles it
			}
			x.Written(1, d.WindowBytes)
		}
		if q.noAck {
			list = nil
		}
		held = append(held, list...)
		holds(len(list))
		if w.frozen() {
			continue
		}
		if !draining {
			pause(c.life, w.between(0, q.work))
		}
		var rest []*broker.Delivery
		for _, d := range held {
			if !w.draining() && w.oneIn(4) {
				rest = append(rest, d)
				continue
			}
			holds(-1)
			w.settle(c, q, d)
		}
		held = rest
		c.ch.Flush()
		if cancelled || w.draining() != draining {
			return
		}
		if time.Since(started) > stay && !w.draining() {
			if w.oneIn(2) {
				if err := x.Cancel(c.life); err != nil {
					w.expected(c, err, "cancel")
				}
			}
			return // closing the channel returns the rest
		}
	}
}

func (w *World) getSome(c *client, q *queueSpec) {
	for range 1 + w.rand(10) {
		d, _, err := c.ch.Get(c.life, q.name, false)
		if err != nil {
			w.expected(c, err, "get from "+q.name)
			return
		}
		if d == nil {
			if !pause(c.life, 5*time.Millisecond) {
				return
			}
			continue
		}
		if s := w.led.deliver(c.n.id, d); s != nil {
			_, id, attempt := d.Place()
			w.problem("message %d attempt %d (%s) of %s fetched again on %s without the redelivered flag; %v", id, attempt, d.Body, q.name, c.n.id, s)
		}
		if !pause(c.life, w.between(0, 5*time.Millisecond)) {
			return
		}
		if !w.oneIn(5) {
			w.settle(c, q, d)
			c.ch.Flush()
		}
		if w.frozen() {
			return
		}
	}
}

// settle ends a delivery as the queue's consumers do.
func (w *World) settle(c *client, q *queueSpec, d *broker.Delivery) {
	kind := fsm.Ack
	if !w.draining() {
		n := w.rand(100)
		switch {
		case n < q.reject:
			kind = fsm.Discard
		case n < q.reject+q.requeue:
			kind = []fsm.SettleKind{fsm.RequeueFailed, fsm.RequeueCounted}[w.rand(2)]
		}
	}
	w.led.settle(c.num, kind, d)
	c.ch.Settle(kind, []*broker.Delivery{d})
}

// expected reports an error that is not the result of a fault or a deletion.
func (w *World) expected(c *client, err error, what string) {
	var e *broker.Error
	switch {
	case c.life.Err() != nil:
	case errors.As(err, &e) && (e.Kind == broker.NotFound || (e.Kind == broker.Unavailable || e.Kind == broker.TimedOut) && !w.draining()):
	default:
		w.problem("%s on %s: %v", what, c.n.id, err)
	}
}
