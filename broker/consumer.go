package broker

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/wire"
)

// Consumer is a running consumer.
type Consumer struct {
	ch   *Channel
	spec Consume
	// stream is replaced when the queue goes on in another life, with the mutexes of both held; see lock.
	stream atomic.Pointer[stream]
	no     wire.ConsumerNo
	reply  *replyBox // of a consumer of direct replies, which has no stream

	displaced atomic.Bool

	// Guarded by stream.mu.
	attached, cancelling bool
	limit                uint16 // of its channel
	delivered            uint64
	turn                 wire.Turn // from the leader that attached it
	roomMessages         int64     // granted to the leader and not used up
	roomBytes            int64
	owedMessages         int64 // written to the client, not granted again yet
	owedBytes            int64
	// unwritten are the deliveries of a consumer without acks that have not been written
	// to the client, in order. Being written settles them.
	unwritten []*Delivery
	aging     *aging // what it holds, nil if it may for ever
	// ownTimeout: it asked for its timeout itself.
	ownTimeout bool
}

// Tag is the consumer's tag.
func (c *Consumer) Tag() string { return c.spec.Tag }

// lock returns the consumer's stream with its mutex held.
func (c *Consumer) lock() *stream {
	for {
		s := c.stream.Load()
		s.mu.Lock()
		if c.stream.Load() == s {
			return s
		}
		s.mu.Unlock()
	}
}

// NoAck tells whether its deliveries need no acknowledgement.
func (c *Consumer) NoAck() bool { return c.spec.NoAck }

// Displaced tells what ended it, if it is not nil: another consumer, of which one wants to be alone, was let in while this one's node was
// taken for dead or was not heard.
func (c *Consumer) Displaced() error {
	if !c.displaced.Load() {
		return nil
	}
	return c.ch.conn.inExclusiveUse(c.spec.Queue)
}

// Queue is the name of its queue.
func (c *Consumer) Queue() string { return c.spec.Queue }

// describe is what a leader is told; called with stream.mu held.
func (c *Consumer) describe() wire.Consumer {
	c.settleRoom()
	return wire.Consumer{
		No: c.no, Prefetch: c.prefetch(), Priority: c.spec.Priority, Exclusive: c.spec.Exclusive,
		WindowMessages: c.roomMessages, WindowBytes: c.roomBytes, Turn: c.turn,
	}
}

// prefetch is what the leader sees to, 0: nothing. A consumer under a limit of its channel gets no more than that
// from its queue, so that others find messages there; called with stream.mu held.
func (c *Consumer) prefetch() uint32 {
	own, limit := uint32(c.spec.Prefetch), uint32(c.limit)
	switch {
	case c.spec.NoAck:
		return 0 // the window bounds what is on its way
	case own == 0 || limit > 0 && limit < own:
		return limit
	}
	return own
}

// SetLimit tells the limit that the channel has now for all of its consumers, 0: none. The gateway sees to it; the leader
// learns what this consumer may have at most. One of an older program answers and keeps to what it knew.
func (c *Consumer) SetLimit(n uint16) {
	if c.reply != nil {
		return
	}
	s := c.lock()
	defer s.mu.Unlock()
	before := c.prefetch()
	c.limit = n
	if c.prefetch() == before || !c.attached || c.cancelling || s.consumers[c.no] != c || s.leader == "" {
		return // the next Resync tells it
	}
	again := wire.Consumer{No: c.no, Prefetch: c.prefetch(), Priority: c.spec.Priority, Exclusive: c.spec.Exclusive, Turn: c.turn}
	if !s.sendLocked(&wire.Attach{Queue: s.id, Origin: s.hub.origin(), Consumer: again}) {
		s.lostLocked()
	}
}

// Consume starts a consumer. Deliveries may reach the Sink before it returns.
func (ch *Channel) Consume(ctx context.Context, spec Consume) (*Consumer, error) {
	if spec.Queue == ReplyQueue {
		return ch.consumeReplies(spec)
	}
	q, err := ch.conn.queue(ctx, spec.Queue, auth.Read)
	if err != nil {
		return nil, err
	}
	var c *Consumer
	err = ch.conn.asks(ctx, q, func(q *catalog.Queue) (err error) {
		c, err = ch.attach(ctx, q, spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	ch.adds(c)
	return c, nil
}

// attach asks a queue's leader to take a consumer.
func (ch *Channel) attach(ctx context.Context, q *catalog.Queue, spec Consume) (*Consumer, error) {
	b := ch.conn.b
	if spec.Exclusive && singleActive(q.Arguments) {
		return nil, ch.conn.inExclusiveUse(spec.Queue)
	}
	if err := checkConsumer(spec.Arguments, q.Name, q.Vhost, q.Arguments); err != nil {
		return nil, err
	}
	s := b.stream(q)
	c := &Consumer{
		ch: ch, spec: spec, no: wire.ConsumerNo(b.numbers.Add(1)), limit: spec.Limit,
		roomMessages: consumerMessages, roomBytes: consumerBytes,
	}
	if spec.Credit {
		c.roomMessages = 0
	}
	c.stream.Store(s)
	_, c.ownTimeout = spec.Arguments.Get(consumerTimeoutArg)
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	s.mu.Lock()
	if !spec.NoAck {
		// From here on it is told of changes.
		timeout := consumerTimeout(spec.Arguments, b.inEffect(q).arguments, b.cfg.ConsumerTimeout)
		c.aging = newAging(timeout, c)
	}
	s.consumers[c.no] = c
	s.mu.Unlock()
	ch.use(s)
	reply, err := s.ask(ctx, uint64(c.no), func(uint64) wire.Message {
		return &wire.Attach{Queue: s.id, Origin: s.hub.origin(), Consumer: c.describe()}
	})
	if err == nil {
		if a, ok := reply.(*wire.Attached); ok && a.Refusal != "" {
			err = ch.conn.inExclusiveUse(spec.Queue)
		} else if !ok {
			err = errQueueGone
		}
	}
	if err != nil {
		s.leave(c.no, false, err)
		return nil, err
	}
	return c, nil
}

// inExclusiveUse refuses a consumer that can not have the queue with or without others.
func (c *Conn) inExclusiveUse(queue string) error {
	return Errorf(AccessRefused, "queue '%s' in vhost '%s' in exclusive use", queue, c.vhost)
}

// Cancel ends the consumer. After it returns no delivery for it comes; what was
// delivered stays unacked. What was published before comes before: as in RabbitMQ, the consumer
// may still be given it.
func (c *Consumer) Cancel(ctx context.Context) error {
	delete(c.ch.consumers, c.spec.Tag)
	if c.reply != nil {
		c.reply.close()
		return nil
	}
	c.ch.useOf(c)
	ctx, cancel := context.WithTimeout(ctx, c.ch.conn.b.cfg.QueueTimeout)
	defer cancel()
	c.awaitPublished(ctx)
	s := c.lock()
	_, running := s.consumers[c.no]
	c.cancelling = true
	s.mu.Unlock()
	if !running {
		return nil
	}
	err := c.askDetach(ctx, false)
	if errors.Is(err, errQueueGone) || errors.Is(err, errQueueMoved) || isTimeout(err) {
		return nil // a leader that still knows it hears otherwise when it delivers
	}
	return err
}

// awaitPublished waits, while the consumer runs, until its queue has what this node has sent to it so far. If ctx ends first,
// the consumer may miss some of that.
func (c *Consumer) awaitPublished(ctx context.Context) {
	s := c.lock()
	_, running := s.consumers[c.no]
	s.mu.Unlock()
	if !running {
		return
	}
	c.ch.Flush()
	_ = s.awaitAnswers(ctx)
}

// askDetach ends the consumer at the leader and waits for its word, and for the end of an
// auto-delete queue whose last consumer this was.
func (c *Consumer) askDetach(ctx context.Context, returns bool) error {
	s := c.stream.Load()
	reply, err := s.ask(ctx, uint64(c.no), func(uint64) wire.Message {
		return &wire.Detach{Queue: s.id, Origin: s.hub.origin(), No: c.no, Returns: returns}
	})
	s.leave(c.no, returns, err)
	if d, ok := reply.(*wire.Detached); ok && d.Unused {
		c.ch.conn.endUnused(ctx, s.id)
	}
	return err
}

// endUnused takes a queue out of the catalog whose leader says that it has ended by itself, so that no node
// shows it any more when the client goes on. The leader's node does so too; who is
// second changes nothing.
func (c *Conn) endUnused(ctx context.Context, id uint64) {
	q := c.b.cat.View().QueueByID(id)
	if q == nil || q.State != catalog.Running {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, everyoneWait)
	defer cancel()
	if res, err := c.change(ctx, &catalog.DeleteQueue{Vhost: q.Vhost, Name: q.Name, ID: q.ID}); err == nil {
		_ = c.b.cat.WaitEveryone(ctx, res.Index) // a slow node is no reason to wait longer
	}
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Written tells that deliveries were written to the client; the leader gets
// room for as many more once it is worth a message.
func (c *Consumer) Written(messages, bytes int) {
	if c.reply != nil {
		c.reply.written(messages, bytes)
		return
	}
	s := c.lock()
	defer s.mu.Unlock()
	if c.spec.NoAck {
		s.ackWrittenLocked(c, messages)
	}
	if !c.spec.Credit {
		c.owedMessages += int64(messages)
	}
	c.owedBytes += int64(bytes)
	s.grantLocked(c)
}

// Grant lets a consumer by credit have so many more messages.
func (c *Consumer) Grant(messages int) {
	if c.reply != nil {
		return
	}
	s := c.lock()
	defer s.mu.Unlock()
	c.owedMessages += int64(messages)
	s.grantLocked(c)
}

// ackWrittenLocked settles the oldest deliveries of a consumer without acks. It is this
// node that does: what the leader sent and nobody got must not be lost.
func (s *stream) ackWrittenLocked(c *Consumer, messages int) {
	n := min(messages, len(c.unwritten))
	for i, d := range c.unwritten[:n] {
		if d.queue == s { // else the queue goes on in another life
			s.settleLocked(fsm.Ack, d.id, d.attempt)
		}
		c.unwritten[i] = nil
	}
	if c.unwritten = c.unwritten[n:]; len(c.unwritten) == 0 {
		c.unwritten = nil
	}
	s.flushLocked()
}

// leave takes a consumer out. If err is that its leader did not answer in time, that may have it, or wait for it, and did perhaps not hear
// of its end: the request for an answer is no more.
func (s *stream) leave(no wire.ConsumerNo, returns bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.consumers, no)
	if isTimeout(err) {
		s.detachLocked(no, returns)
	}
}

// endsQueue tells whether the queue may go with the consumer.
func (c *Consumer) endsQueue() bool {
	if c.reply != nil {
		return false
	}
	q := c.ch.conn.b.cat.View().QueueByID(c.stream.Load().id)
	return q != nil && q.AutoDelete && !q.Exclusive && q.State == catalog.Running
}

// detach ends the consumer without waiting.
func (c *Consumer) detach() {
	if c.reply != nil {
		c.reply.close()
		return
	}
	s := c.lock()
	defer s.mu.Unlock()
	c.cancelling = true
	delete(s.consumers, c.no)
	s.detachLocked(c.no, true)
}

// detachLocked tells the leader that a consumer has ended, now or with the next Resync.
func (s *stream) detachLocked(no wire.ConsumerNo, returns bool) {
	if s.leader != "" && s.sendLocked(&wire.Detach{Queue: s.id, Origin: s.hub.origin(), No: no, Returns: returns}) {
		return
	}
	s.undetached = true
	s.lostLocked()
}

// attachedMsg takes the answer to an attach, or the end of a consumer that another one has replaced.
func (s *stream) attachedMsg(m *wire.Attached) {
	if m.Refusal != "" && s.turnedAway(m.No) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.consumers[m.No]; c != nil && m.Refusal == "" {
		c.attached, c.turn = true, m.Turn
	}
	if r := s.requests[uint64(m.No)]; r != nil {
		if _, asked := r.m.(*wire.Attach); asked { // else it answers SetLimit, and a Detach of the same number is under way
			s.repliedLocked(uint64(m.No), m)
		}
	}
}

// turnedAway ends a consumer that is attached as far as this node knows, and that the leader refuses: another client had the queue when a Resync named it, or, if a Resync
// from before the node knew had dropped it there, when its Attach came once more.
func (s *stream) turnedAway(no wire.ConsumerNo) bool {
	s.order.Lock() // deliveries that came before are with the client
	s.mu.Lock()
	s.order.Unlock()
	c := s.consumers[no]
	if c == nil || !c.attached || c.cancelling {
		s.mu.Unlock()
		return false
	}
	delete(s.consumers, no)
	s.detachLocked(no, false) // a later Resync may have named it
	s.giveBackLocked(s.unsentLocked(c))
	s.mu.Unlock()
	c.displaced.Store(true)
	c.ch.sink.Cancelled(c)
	return true
}

// detachedMsg takes the answer to a detach, or the end of a consumer by the
// leader. The catalog says when the queue is really gone.
func (s *stream) detachedMsg(m *wire.Detached) {
	s.order.Lock() // deliveries that came before are with the client
	answered := s.replied(uint64(m.No), m)
	s.order.Unlock()
	if answered || !m.Gone {
		return
	}
	s.mu.Lock()
	c := s.consumers[m.No]
	delete(s.consumers, m.No)
	ended := c != nil && !c.cancelling
	s.mu.Unlock()
	if ended {
		c.ch.sink.Cancelled(c)
	}
}
