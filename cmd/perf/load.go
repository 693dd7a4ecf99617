package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// load is one run's clients and what they measure.
type load struct {
	cfg   *settings
	began time.Time
	books []*books // one for each publisher

	confirmLatency, arrivalLatency histogram
	confirmGap, arrivalGap         gap

	stopping atomic.Bool // publishers stop
	failed   chan error  // the first failure of a client
	conns    []*amqp.Connection
	group    sync.WaitGroup
}

func newLoad(cfg *settings) *load {
	l := &load{cfg: cfg, began: time.Now(), failed: make(chan error, 1)}
	for range cfg.Publishers {
		l.books = append(l.books, &books{})
	}
	return l
}

// now is the time on the clock of the run, which all stamps use.
func (l *load) now() time.Duration { return time.Since(l.began) }

func (l *load) fail(err error) {
	select {
	case l.failed <- err:
	default: // an earlier failure says more
	}
}

func (l *load) totals() totals {
	var t totals
	for _, b := range l.books {
		b.addTo(&t)
	}
	return t
}

// connect opens a channel over a connection of its own.
func (l *load) connect(i int) (*amqp.Channel, error) {
	url := l.cfg.URLs[i%len(l.cfg.URLs)]
	conn, err := amqp.DialConfig(url, amqp.Config{Heartbeat: 30 * time.Second})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	l.conns = append(l.conns, conn)
	return conn.Channel()
}

// close ends all clients.
func (l *load) close() {
	l.stopping.Store(true)
	for _, c := range l.conns {
		c.Close()
	}
	l.group.Wait()
}

// queue returns the name of queue i of this run.
func (l *load) queue(i int) string { return fmt.Sprintf("%s-%d", l.cfg.Prefix, i%l.cfg.Queues) }

// declare declares the queues with these arguments; label makes other queues
// than the usual ones.
func (l *load) declare(label string, args func(i int) amqp.Table) error {
	for i := range l.cfg.Queues {
		ch, err := l.connect(i)
		if err != nil {
			return err
		}
		table := amqp.Table{}
		maps.Copy(table, l.cfg.queueArgs())
		if args != nil {
			maps.Copy(table, args(i))
		}
		name := l.queue(i) + label
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			return fmt.Errorf("delete the queue of an earlier run: %w", err)
		}
		if _, err := ch.QueueDeclare(name, true, false, false, false, table); err != nil {
			return fmt.Errorf("declare: %w", err)
		}
	}
	return nil
}

// publish starts all publishers, each on queue i. limit bounds the number of
// messages of each; 0 is no bound.
func (l *load) publish(ctx context.Context, limit int) error {
	for i := range l.cfg.Publishers {
		ch, err := l.connect(i)
		if err != nil {
			return err
		}
		if err := ch.Confirm(false); err != nil {
			return err
		}
		p := &publisher{load: l, index: i, ch: ch, limit: limit, slots: make(chan struct{}, l.cfg.Window), sent: make([]time.Duration, l.cfg.Window)}
		confirms := ch.NotifyPublish(make(chan amqp.Confirmation, l.cfg.Window))
		closed := ch.NotifyClose(make(chan *amqp.Error, 1))
		l.group.Go(func() { p.confirms(confirms, closed) })
		l.group.Go(func() { p.run(ctx) })
	}
	return nil
}

// publisher publishes over one channel with at most cap(slots) unconfirmed
// messages.
type publisher struct {
	load  *load
	index int
	ch    *amqp.Channel
	limit int
	slots chan struct{}
	sent  []time.Duration // time of sending of message n at n % window
}

func (p *publisher) run(ctx context.Context) {
	l := p.load
	books, queue := l.books[p.index], l.queue(p.index)
	body := make([]byte, l.cfg.Size)
	var interval time.Duration
	if l.cfg.Rate > 0 {
		interval = time.Second * time.Duration(l.cfg.Publishers) / time.Duration(l.cfg.Rate)
	}
	due := time.Now()
	for n := 0; (p.limit == 0 || n < p.limit) && !l.stopping.Load(); n++ {
		if interval > 0 {
			time.Sleep(time.Until(due))
			due = due.Add(interval)
		}
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		number, at := books.send(), l.now()
		p.sent[number%len(p.sent)] = at
		stamp(body, p.index, number, at)
		l.confirmGap.await(at)
		// The client has written the body when Publish returns.
		err := p.ch.PublishWithContext(ctx, "", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
		if err != nil {
			l.fail(fmt.Errorf("publish: %w", err))
			return
		}
	}
}

// confirms handles confirms, which the client hands over in order.
func (p *publisher) confirms(confirms <-chan amqp.Confirmation, closed <-chan *amqp.Error) {
	l := p.load
	books := l.books[p.index]
	for c := range confirms {
		number, at := int(c.DeliveryTag-1), l.now()
		l.confirmLatency.add(at - p.sent[number%len(p.sent)])
		books.confirm(number, c.Ack)
		l.confirmGap.came(at)
		<-p.slots
	}
	if err := <-closed; err != nil && !l.stopping.Load() {
		l.fail(fmt.Errorf("a publisher was disconnected: %w", err))
	}
}

// consume starts the consumers on the queues with this label. settle is called
// for each delivery.
func (l *load) consume(label string, prefetch int, settle func(d amqp.Delivery, nth int)) error {
	for i := range l.cfg.Consumers {
		ch, err := l.connect(i)
		if err != nil {
			return err
		}
		if err := ch.Qos(prefetch, 0, false); err != nil {
			return err
		}
		deliveries, err := ch.Consume(l.queue(i)+label, "", false, false, false, false, nil)
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		l.group.Go(func() {
			for n := 1; ; n++ {
				d, ok := <-deliveries
				if !ok {
					if !l.stopping.Load() {
						l.fail(errors.New("a consumer was disconnected"))
					}
					return
				}
				settle(d, n)
			}
		})
	}
	return nil
}

// arrived notes a delivery at the end of a message's way.
func (l *load) arrived(d amqp.Delivery) {
	at := l.now()
	publisher, number, sent, err := readStamp(d.Body)
	if err != nil || publisher >= len(l.books) {
		l.fail(fmt.Errorf("delivery from %q: a message of somebody else", d.RoutingKey))
		return
	}
	if l.books[publisher].receive(number, d.Redelivered) {
		l.arrivalLatency.add(at - sent)
	}
	l.arrivalGap.came(at)
}

// ack acks every AckEvery-th delivery with all before it.
func (l *load) ack(d amqp.Delivery, nth int) {
	if nth%l.cfg.AckEvery == 0 {
		d.Ack(l.cfg.AckEvery > 1)
	}
}

// arriveAndAck is what a plain consumer does.
func (l *load) arriveAndAck(d amqp.Delivery, nth int) {
	l.arrived(d)
	l.ack(d, nth)
}

// until waits until done, a client fails, ctx ends, or no message moves for
// longer than the drain time; then it returns nil as well.
func (l *load) until(ctx context.Context, done func(totals) bool) error {
	last, since := totals{}, time.Now()
	for {
		t := l.totals()
		if done(t) {
			return nil
		}
		if t != last {
			last, since = t, time.Now()
		} else if time.Since(since) > l.cfg.Drain {
			return nil
		}
		select {
		case err := <-l.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// rest waits for d.
func (l *load) rest(ctx context.Context, d time.Duration) error {
	select {
	case err := <-l.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// gap measures the longest time between two events.
type gap struct {
	mu      sync.Mutex
	last    time.Duration
	longest time.Duration
	on      bool
}

// await begins the measuring at the first event's cause.
func (g *gap) await(at time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.on {
		g.on, g.last = true, at
	}
}

func (g *gap) came(at time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.on {
		g.longest = max(g.longest, at-g.last)
	}
	g.on, g.last = true, at
}

func (g *gap) value() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.longest
}

// reset begins anew: what was before does not count.
func (g *gap) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest, g.on = 0, false
}
