package retryjob

import (
	"context"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Kinds of awaited events in the ledger.
const (
	confirmsPrimary = "confirms of primary"
	confirmsWait    = "confirms of wait"
)

const (
	headerHop     = "hop"
	headerAttempt = "attempt"
	windowPublish = 200 // unconfirmed publishes of one publisher
	windowConsume = 200 // prefetch of one consumer
)

// pending is a publish that waits for its confirm.
type pending struct {
	id      hopID
	job     int
	confirm *amqp.DeferredConfirmation
	source  *amqp.Delivery // consumers: what to ack then
}

// publisher publishes its share of the jobs at a fixed rate, each until it is
// confirmed.
type publisher struct {
	cfg    *Config
	ledger *Ledger
	index  int // which of cfg.Publishers
}

func (p *publisher) run(ctx context.Context) error {
	todo := make([]int, 0, p.cfg.Jobs/p.cfg.Publishers+1)
	for job := p.index; job < p.cfg.Jobs; job += p.cfg.Publishers {
		todo = append(todo, job)
	}
	tried := map[int]bool{}
	interval := time.Duration(p.cfg.Publishers) * time.Second / time.Duration(p.cfg.Rate)
	due := time.Now()
	for at := p.index; len(todo) > 0; at++ {
		l, err := connect(ctx, p.cfg.URLs, at, nil)
		if err != nil {
			return fmt.Errorf("publisher %d: %w", p.index, err)
		}
		todo, due = p.session(ctx, l, todo, tried, due, interval)
		l.close()
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("publisher %d: %d jobs are not confirmed: %w", p.index, len(todo), err)
		}
	}
	return nil
}

// session publishes todo over one connection and returns what is not confirmed
// when everything is sent or the connection is lost, and when the next publish
// is due.
func (p *publisher) session(ctx context.Context, l *link, todo []int, tried map[int]bool, due time.Time, interval time.Duration) ([]int, time.Time) {
	window := make(chan pending, windowPublish)
	failed := make(chan []int, 1)
	go func() { // ends when window is closed
		var jobs []int
		for w := range window {
			if settled(ctx, p.cfg, p.ledger, confirmsPrimary, l, w) {
				p.ledger.confirm(w.id)
			} else {
				jobs = append(jobs, w.job)
			}
		}
		failed <- jobs
	}()
	sent := 0
	for _, job := range todo {
		if !sleepUntil(ctx, due) || l.conn.IsClosed() {
			break
		}
		due = maxTime(due.Add(interval), time.Now().Add(-time.Second)) // catch up, but not with everything at once
		id := p.ledger.publish(job, 1, false, tried[job])
		tried[job] = true
		sent++
		w := pending{id: id, job: job}
		p.ledger.await(confirmsPrimary, 1)
		var err error
		w.confirm, err = l.ch.PublishWithDeferredConfirmWithContext(ctx, ExchangePrimary, routingKey, false, false, p.cfg.message(job, id, 1))
		window <- w // w.confirm is nil after an error: not confirmed
		if err != nil {
			break
		}
	}
	close(window)
	return append(<-failed, todo[sent:]...), due
}

// settled waits for the confirm of w and returns whether the broker has it.
// false means that nobody knows, or that it was refused.
func settled(ctx context.Context, cfg *Config, ledger *Ledger, what string, l *link, w pending) bool {
	ok := false
	if w.confirm != nil {
		wait, cancel := context.WithTimeout(ctx, cfg.Patience)
		var err error
		if ok, err = w.confirm.WaitContext(wait); err != nil {
			l.cut() // a confirm that never comes: the client gives the node up
		}
		cancel()
	}
	if ok {
		ledger.came(what)
	} else {
		ledger.await(what, -1)
	}
	return ok
}

// consumer takes messages from primary and works on them until ctx ends.
type consumer struct {
	cfg    *Config
	ledger *Ledger
	index  int
}

func (c *consumer) run(ctx context.Context) error {
	for at := c.index; ctx.Err() == nil; at++ {
		var deliveries <-chan amqp.Delivery
		l, err := connect(ctx, c.cfg.URLs, at, func(l *link) error {
			if err := l.ch.Qos(windowConsume, 0, false); err != nil {
				return err
			}
			var err error
			deliveries, err = l.ch.Consume(QueuePrimary, "", false, false, false, false, nil)
			return err
		})
		if err != nil {
			return nil // ctx has ended
		}
		err = c.session(ctx, l, deliveries)
		l.close()
		if err != nil {
			return fmt.Errorf("consumer %d: %w", c.index, err)
		}
	}
	return nil
}

// session works on deliveries until the connection is lost or ctx ends.
func (c *consumer) session(ctx context.Context, l *link, deliveries <-chan amqp.Delivery) error {
	window := make(chan pending, windowConsume)
	ended := make(chan struct{})
	go func() { // ends when window is closed
		defer close(ended)
		for w := range window {
			if !settled(ctx, c.cfg, c.ledger, confirmsWait, l, w) {
				w.source.Reject(true) // refused; when the connection is gone, this does nothing
				continue
			}
			c.ledger.confirm(w.id)
			source, _, _ := hopOf(*w.source)
			c.ledger.finish(source, false)
			w.source.Ack(false)
		}
	}()
	defer func() {
		close(window)
		<-ended
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, ok := <-deliveries:
			if !ok {
				return nil
			}
			w, err := c.work(ctx, l, d)
			if err != nil {
				return err
			}
			if w.source != nil {
				window <- w
			}
		}
	}
}

// work handles one delivery. The result has no source when the delivery is
// settled already. Errors of the connection are left to the caller's next read.
func (c *consumer) work(ctx context.Context, l *link, d amqp.Delivery) (pending, error) {
	id, attempt, err := hopOf(d)
	if err != nil {
		return pending{}, err
	}
	again := d.Redelivered
	if !c.ledger.deliver(id, d.Redelivered) {
		d.Ack(false)
		return pending{}, nil
	}
	job, err := strconv.Atoi(d.MessageId)
	if err != nil {
		return pending{}, fmt.Errorf("message id %q: %w", d.MessageId, err)
	}
	last := originalExpiration(d)
	if last != c.cfg.delay(attempt-1) {
		c.ledger.wrongDelay()
	}
	switch {
	case succeeds(job, attempt):
		c.ledger.finish(id, true)
		d.Ack(false)
		return pending{}, nil
	case attempt >= c.cfg.Failures:
		c.ledger.reject(id)
		d.Reject(false)
		return pending{}, nil
	}
	next := c.ledger.publish(job, attempt+1, true, again)
	m := c.cfg.message(job, next, attempt+1)
	for name, value := range d.Headers { // all of them, as the recipe has it
		if _, own := m.Headers[name]; !own {
			m.Headers[name] = value
		}
	}
	expiration := c.cfg.Delay
	if last > 0 {
		expiration = 3 * last
	}
	m.Expiration = strconv.FormatInt(expiration.Milliseconds(), 10)
	c.ledger.await(confirmsWait, 1)
	w := pending{id: next, job: job, source: &d}
	// After an error w.confirm is nil: not confirmed.
	w.confirm, _ = l.ch.PublishWithDeferredConfirmWithContext(ctx, ExchangeWait, routingKey, false, false, m)
	return w, nil
}

// succeeds says at which attempt a job works: one in ten at once, four in ten
// never.
func succeeds(job, attempt int) bool {
	needs := [10]int{1, 2, 2, 3, 3, 4, 0, 0, 0, 0}[job%10]
	return needs > 0 && attempt >= needs
}

// message returns what is published for a job.
func (c *Config) message(job int, id hopID, attempt int) amqp.Publishing {
	body := make([]byte, c.BodyBytes)
	copy(body, "job "+strconv.Itoa(job))
	return amqp.Publishing{
		MessageId: strconv.Itoa(job), ContentType: "text/plain", DeliveryMode: amqp.Persistent, Body: body,
		Headers: amqp.Table{headerHop: int64(id), headerAttempt: int32(attempt)},
	}
}

// delay returns the expiration of the message that begins attempt+1; none for 0.
func (c *Config) delay(attempt int) time.Duration {
	if attempt < 1 {
		return 0
	}
	d := c.Delay
	for range attempt - 1 {
		d *= 3
	}
	return d
}

func hopOf(d amqp.Delivery) (id hopID, attempt int, err error) {
	n, ok1 := d.Headers[headerHop].(int64)
	a, ok2 := d.Headers[headerAttempt].(int32)
	if !ok1 || !ok2 {
		return 0, 0, fmt.Errorf("message %q has headers %v", d.MessageId, d.Headers)
	}
	return hopID(n), int(a), nil
}

// originalExpiration returns x-death[0].original-expiration, or 0.
func originalExpiration(d amqp.Delivery) time.Duration {
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) == 0 {
		return 0
	}
	newest, _ := deaths[0].(amqp.Table)
	text, _ := newest["original-expiration"].(string)
	millis, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(millis) * time.Millisecond
}

func sleepUntil(ctx context.Context, when time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(when)):
		return true
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
