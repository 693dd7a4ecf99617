package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/protobuf/proto"

	warrenv1 "github.com/warrenmq/warren/api/warren/v1"
)

// PublisherConfig says how a publisher works. The zero value is good.
type PublisherConfig struct {
	// OutstandingMax is how many messages may be without a result: publishing more waits. Default 1,024, at most 16,384.
	OutstandingMax int
	// OutstandingBytesMax is the same in bytes, of bodies and headers. A single message may be larger. Default 64 MiB.
	OutstandingBytesMax int
	// Deduplicate gives each message without a deduplication id one of its own, so that queues that drop duplicates have one copy of what is sent
	// again after a lost result.
	Deduplicate bool
	// ResultTimeout is how long a stream may bring no result, while messages wait for one and the node does not say that it takes none, until it
	// is given up, and the messages are sent again by another node: this one may be cut off from the others. It is checked in steps of itself, so that twice
	// the time may pass. Default: never. If it is the queue that cannot confirm, then each node that was tried may store the messages later,
	// once for each unless the queue drops duplicates.
	ResultTimeout time.Duration
	// NoResend fails what had no result when the stream broke with ErrResultUnknown, in place of sending it again.
	NoResend bool
}

const (
	outstandingDefault      = 1024
	outstandingMost         = 16 << 10 // a node reads no more
	outstandingBytesDefault = 64 << 20
)

// Publisher publishes messages by one stream, in the order of the calls. It is safe for concurrent use.
type Publisher struct {
	c   *Client
	cfg PublisherConfig
	// prefix begins the ids that it gives.
	prefix      string
	count, size *semaphore.Weighted
	sizeMax     int64
	wake        chan struct{}
	// taking ends when nothing more is published, working when everything is broken off.
	taking, working       context.Context //nolint:containedctx // the publisher's own
	stopTaking, stopWorks context.CancelFunc
	ended                 chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	closed  bool
	numbers uint64     // messages so far
	waiting []*Pending // to be sent, in order
	sent    map[uint64]*Pending
	blocked string
	results uint64 // that came
	// outstanding is how many messages have no result: those above, and those on their way between them.
	outstanding int
}

// Pending is a message whose result is awaited.
type Pending struct {
	pub     *warrenv1.Publication
	number  uint64 // of the publisher's messages
	size    int    // of pub, in bytes
	bytes   int64  // what of size counts
	unknown bool   // it has been sent by a stream that broke
	broke   int    // how many streams it was sent by broke by a fault
	span    *span
	done    chan struct{}
	err     error // set before done is closed
}

// Done is closed when there is a result.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Err is the result, as of Publish, once Done is closed; before that it is nil.
func (p *Pending) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Wait waits for the result. When ctx ends before that the error is ErrResultUnknown and why ctx ended; the message is not taken back.
func (p *Pending) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	select {
	case <-p.done:
		return p.err
	default:
		return fmt.Errorf("%w: %w", ErrResultUnknown, context.Cause(ctx))
	}
}

// Publisher makes a publisher. It opens its stream with the first message, and belongs to whoever made it, who closes it; closing the client does that,
// too.
func (c *Client) Publisher(cfg PublisherConfig) (*Publisher, error) {
	if cfg.OutstandingMax == 0 {
		cfg.OutstandingMax = outstandingDefault
	}
	if cfg.OutstandingBytesMax == 0 {
		cfg.OutstandingBytesMax = outstandingBytesDefault
	}
	if cfg.OutstandingMax < 0 || cfg.OutstandingMax > outstandingMost {
		return nil, fmt.Errorf("warren: OutstandingMax %d is not from 1 to %d", cfg.OutstandingMax, outstandingMost)
	}
	if cfg.OutstandingBytesMax < 0 || cfg.ResultTimeout < 0 {
		return nil, errors.New("warren: OutstandingBytesMax or ResultTimeout is negative")
	}
	p := &Publisher{
		c: c, cfg: cfg, prefix: rand.Text() + "-", count: semaphore.NewWeighted(int64(cfg.OutstandingMax)),
		size: semaphore.NewWeighted(int64(cfg.OutstandingBytesMax)), sizeMax: int64(cfg.OutstandingBytesMax),
		wake: make(chan struct{}, 1), ended: make(chan struct{}), sent: map[uint64]*Pending{},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.publishers[p] = struct{}{}
	p.taking, p.stopTaking = context.WithCancel(context.Background())
	p.working, p.stopWorks = context.WithCancel(context.Background())
	go p.run() // until Close
	return p, nil
}

// Publish publishes a message and waits for its result: nil means that a quorum of every queue that it went to has it on disk. Errors are
//   - ErrUnroutable, ErrRefused, ErrNotFound and the others of nodes: it was not taken, or for ErrRefused not by all queues;
//   - ErrResultUnknown, with why ctx ended or the publisher stopped: it may have been taken;
//   - why ctx ended alone, or ErrClosed alone: it was not sent.
//
// The message's body may not be changed before the result.
func (p *Publisher) Publish(ctx context.Context, m *Message) error {
	pending, err := p.PublishAsync(ctx, m)
	if err != nil {
		return err
	}
	return pending.Wait(ctx)
}

// BatchError is what PublishBatch returns if one of its messages has failed.
type BatchError struct {
	// Errs has the result of each message, nil if it is confirmed.
	Errs []error
}

func (e *BatchError) Error() string {
	failed := e.Unwrap()
	return fmt.Sprintf("%d of %d messages were not published; the first: %v", len(failed), len(e.Errs), failed[0])
}

// Unwrap returns the errors.
func (e *BatchError) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(e.Errs), func(err error) bool { return err == nil })
}

// PublishBatch publishes messages in their order and waits for all results. If one failed the error is a *BatchError.
func (p *Publisher) PublishBatch(ctx context.Context, list []Message) error {
	e := &BatchError{Errs: make([]error, len(list))}
	pending := make([]*Pending, len(list))
	for i := range list {
		pending[i], e.Errs[i] = p.PublishAsync(ctx, &list[i])
	}
	ok := true
	for i := range list {
		if pending[i] != nil {
			e.Errs[i] = pending[i].Wait(ctx)
		}
		ok = ok && e.Errs[i] == nil
	}
	if ok {
		return nil
	}
	return e
}

// PublishAsync publishes a message without waiting for the result. It waits while too many messages have none.
// With an error the message was not sent.
func (p *Publisher) PublishAsync(ctx context.Context, m *Message) (*Pending, error) {
	if err := p.c.checkBody(m.Body); err != nil {
		return nil, err
	}
	m, span := p.c.tracer.publish(ctx, m)
	pending, err := p.enqueue(ctx, m, span)
	if err != nil {
		span.end("not sent", err)
	}
	return pending, err
}

func (p *Publisher) enqueue(ctx context.Context, m *Message, span *span) (*Pending, error) {
	pub, err := m.publication()
	if err != nil {
		return nil, err
	}
	size := proto.Size(pub)
	if more := size - len(m.Body); more > moreBytesMax {
		return nil, invalid("headers and properties of %d bytes are more than %d", more, moreBytesMax)
	}
	item := &Pending{pub: pub, size: size, bytes: min(int64(size), p.sizeMax), span: span, done: make(chan struct{})}
	if err := p.acquire(ctx, item.bytes); err != nil {
		return nil, err
	}
	_, named := m.Headers[headerDedup]
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.release(item.bytes)
		return nil, ErrClosed
	}
	p.numbers++
	item.number = p.numbers
	if p.cfg.Deduplicate && pub.GetDeduplicationId() == "" && !named {
		pub.DeduplicationId = p.prefix + strconv.FormatUint(item.number, 10)
	}
	p.waiting = append(p.waiting, item)
	p.outstanding++
	p.mu.Unlock()
	p.signal()
	return item, nil
}

// acquire waits for room. Those who wait when the publisher is closed get ErrClosed.
func (p *Publisher) acquire(ctx context.Context, bytes int64) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if p.count.TryAcquire(1) {
		if p.size.TryAcquire(bytes) {
			return nil
		}
		p.count.Release(1)
	}
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer context.AfterFunc(p.taking, func() { stop(ErrClosed) })()
	if p.count.Acquire(waiting, 1) != nil {
		return context.Cause(waiting)
	}
	if p.size.Acquire(waiting, bytes) != nil {
		p.count.Release(1)
		return context.Cause(waiting)
	}
	return nil
}

func (p *Publisher) release(bytes int64) {
	p.size.Release(bytes)
	p.count.Release(1)
}

func (p *Publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Blocked is why the node takes no messages at the moment: it is short of memory or disk. Empty: it does.
func (p *Publisher) Blocked() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocked
}

// Close takes no more messages, waits for the results of those that are there and ends the stream. When ctx ends before that, the messages without
// a result fail with ErrResultUnknown, or with ErrClosed if they were not sent, and the error is why ctx ended.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stopTaking()
	p.signal()
	var err error
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.mu.Lock()
		missing := p.outstanding
		p.mu.Unlock()
		err = fmt.Errorf("warren: %d messages without a result: %w", missing, context.Cause(ctx))
		p.stopWorks()
		<-p.ended
	}
	p.stopWorks()
	p.c.mu.Lock()
	delete(p.c.publishers, p)
	p.c.mu.Unlock()
	return err
}

// resolve ends messages.
func (p *Publisher) resolve(err error, items ...*Pending) {
	for _, item := range items {
		item.err = err
		if item.unknown && err != nil && !errors.Is(err, ErrResultUnknown) {
			item.err = fmt.Errorf("%w: %w", ErrResultUnknown, err)
		}
		outcome := "confirmed"
		if item.err != nil {
			outcome = "failed"
		}
		item.span.end(outcome, item.err)
		item.pub = nil
		close(item.done)
		p.release(item.bytes)
	}
	p.mu.Lock()
	p.outstanding -= len(items)
	p.mu.Unlock()
	p.signal()
}
