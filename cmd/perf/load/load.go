package load

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// load is one run's clients and what they measure.
type load struct {
	cfg    *settings
	driver Driver
	began  time.Time
	books  []*books // one for each publisher and each copy of what it publishes, and the probe's

	confirmLatency, arrivalLatency histogram
	confirmGap, arrivalGap         gap

	stopping atomic.Bool   // publishers stop
	closed   chan struct{} // the clients end
	failed   chan error    // the first failure of a client
	conns    []Conn
	group    sync.WaitGroup
}

func newLoad(cfg *settings, d Driver) *load {
	l := &load{cfg: cfg, driver: d, began: time.Now(), closed: make(chan struct{}), failed: make(chan error, 1)}
	for range cfg.Publishers * cfg.copies() {
		l.books = append(l.books, &books{})
	}
	if cfg.Mode == "failover" {
		l.books = append(l.books, &books{}) // of the probe
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

// connect makes a client, which lives as long as the load.
func (l *load) connect(i int) (Conn, error) {
	c, err := l.driver.Dial(l.cfg.URLs[i%len(l.cfg.URLs)])
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// close ends all clients.
func (l *load) close() {
	l.stopping.Store(true)
	close(l.closed)
	for _, c := range l.conns {
		c.Close()
	}
	l.group.Wait()
}

// queue returns the name of queue i of this run.
func (l *load) queue(i int) string { return fmt.Sprintf("%s-%d", l.cfg.Prefix, i%l.cfg.Queues) }

// declare declares the queues with these arguments, each over the next server; label
// makes other queues than the usual ones.
func (l *load) declare(label string, args func(i int) map[string]any) error {
	conns := make([]Conn, min(l.cfg.Queues, len(l.cfg.URLs)))
	for i := range conns {
		var err error
		if conns[i], err = l.driver.Dial(l.cfg.URLs[i]); err != nil {
			return err
		}
		defer conns[i].Close()
	}
	for i := range l.cfg.Queues {
		table := l.cfg.queueArgs()
		if args != nil {
			maps.Copy(table, args(i))
		}
		if err := declareAnew(conns[i%len(conns)], l.queue(i)+label, table); err != nil {
			return err
		}
		if l.cfg.Fanout {
			if err := join(conns[i%len(conns)], l.queue(i)+label); err != nil {
				return err
			}
		}
	}
	return nil
}

func join(c Conn, queue string) error {
	f, ok := c.(Fanner)
	if !ok {
		return fmt.Errorf("fan-out: %w", ErrUnsupported)
	}
	return f.Join(queue)
}

func declareAnew(c Conn, name string, args map[string]any) error {
	if err := c.Delete(name); err != nil {
		return fmt.Errorf("delete the queue of an earlier run: %w", err)
	}
	if err := c.Declare(name, args); err != nil {
		return fmt.Errorf("declare: %w", err)
	}
	return nil
}

// publish starts all publishers, publisher i on queue i, or if there are more queues on several in turn. limit bounds the number of
// messages of each; 0 is no bound.
func (l *load) publish(ctx context.Context, limit int) error {
	for i := range l.cfg.Publishers {
		c, err := l.connect(i)
		if err != nil {
			return err
		}
		p := &publisher{load: l, index: i, conn: c, limit: limit, slots: make(chan struct{}, l.cfg.Window), sent: make([]time.Duration, l.cfg.Window)}
		err = c.Confirms(l.cfg.Window, p.settled, func(err error) {
			l.fail(fmt.Errorf("a publisher was disconnected: %w", err))
		})
		if err != nil {
			return err
		}
		l.group.Go(func() { p.run(ctx) })
	}
	return nil
}

// publisher publishes over one connection with at most cap(slots) unconfirmed
// messages.
type publisher struct {
	load  *load
	index int
	conn  Conn
	limit int
	slots chan struct{}
	sent  []time.Duration // time of sending of message n at n % window
}

func (p *publisher) run(ctx context.Context) {
	l := p.load
	books, queues := p.books(), []string{l.queue(p.index)}
	for q := p.index + l.cfg.Publishers; len(queues) < l.cfg.Queues && l.cfg.Queues > l.cfg.Publishers; q += l.cfg.Publishers {
		queues = append(queues, l.queue(q))
	}
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
		case <-l.closed:
			return
		case <-ctx.Done():
			return
		}
		number, at := 0, l.now()
		for _, b := range books {
			number = b.send()
		}
		p.sent[number%len(p.sent)] = at
		stamp(body, p.index, number, at)
		l.confirmGap.await(at)
		if err := p.publish(ctx, queues[n%len(queues)], body); err != nil {
			l.fail(fmt.Errorf("publish: %w", err))
			return
		}
	}
}

// books are those of its messages, one for each copy.
func (p *publisher) books() []*books {
	n := p.load.cfg.copies()
	return p.load.books[p.index*n : (p.index+1)*n]
}

func (p *publisher) publish(ctx context.Context, queue string, body []byte) error {
	if p.load.cfg.Fanout {
		return p.conn.(Fanner).PublishAll(ctx, body) // join has asked
	}
	return p.conn.Publish(ctx, queue, body)
}

// settled notes a confirm.
func (p *publisher) settled(number int, taken bool) {
	l, at := p.load, p.load.now()
	l.confirmLatency.add(at - p.sent[number%len(p.sent)])
	for _, b := range p.books() {
		b.confirm(number, taken)
	}
	if taken {
		l.confirmGap.came(at)
	}
	<-p.slots
}

// consume starts the consumers on the queues with this label: one on each, or more, or each on
// several if there are more queues. settle is called for each delivery, the nth of its queue's here, which is which of a message's copies.
func (l *load) consume(label string, prefetch int, settle func(d Delivery, nth, copied int)) error {
	for i := range l.cfg.Consumers {
		c, err := l.connect(i)
		if err != nil {
			return err
		}
		for q := i; q < max(l.cfg.Queues, i+1); q += l.cfg.Consumers {
			n := 0
			handle := func(d Delivery) {
				n++
				settle(d, n, q%l.cfg.copies())
			}
			if err := c.Consume(l.queue(q)+label, prefetch, handle, l.fail); err != nil {
				return err
			}
		}
	}
	return nil
}

// arrived notes a delivery at the end of the way of a message's copy.
func (l *load) arrived(d Delivery, copied int) {
	at := l.now()
	publisher, number, sent, err := readStamp(d.Body())
	book := publisher*l.cfg.copies() + copied
	if err != nil || book >= len(l.books) {
		l.fail(errors.New("a delivery that is a message of somebody else"))
		return
	}
	if l.books[book].receive(number, d.Redelivered()) {
		l.arrivalLatency.add(at - sent)
	}
	l.arrivalGap.came(at)
}

// ack acks every AckEvery-th delivery with all before it.
func (l *load) ack(d Delivery, nth int) {
	if nth%l.cfg.AckEvery == 0 {
		d.Ack(l.cfg.AckEvery > 1)
	}
}

// arriveAndAck is what a plain consumer does.
func (l *load) arriveAndAck(d Delivery, nth, copied int) {
	l.arrived(d, copied)
	if !l.cfg.NoAck {
		l.ack(d, nth)
	}
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
