package broker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// Channel is one channel of a client: its publishes, consumers and unsettled
// deliveries. Publish, Flush, Consume, Get, Settle and Close are called by one
// goroutine at a time.
type Channel struct {
	conn *Conn
	sink Sink

	// Reused between publishes.
	targets  []*catalog.Queue
	headers  amqp.Table
	scratch  fsm.Message
	routed   catalog.Message
	wroteTo  string // exchange whose permission was checked last,
	wroteRev uint64 // at this catalog revision
	// topics limits the keys to publish to wroteTo with; nil allows any.
	topics *auth.TopicPermission

	tx     *transaction // nil unless the channel is transactional
	closed atomic.Bool

	dirty     []*stream            // streams with something to flush
	used      map[*stream]struct{} // streams that delivered to this channel
	consumers map[string]*Consumer
	replies   *replyBox // the consumer of direct replies, nil if there is none
}

// OpenChannel begins a channel whose events go to s.
func (c *Conn) OpenChannel(s Sink) *Channel {
	ch := &Channel{conn: c, sink: s, used: map[*stream]struct{}{}, consumers: map[string]*Consumer{}}
	ch.routed.Leads = c.b.leadsHere
	c.mu.Lock()
	c.channels[ch] = struct{}{}
	c.mu.Unlock()
	return ch
}

func (ch *Channel) touch(s *stream) {
	if !slices.Contains(ch.dirty, s) {
		ch.dirty = append(ch.dirty, s)
	}
}

// Flush sends what Publish and Settle appended. The gateway calls it at the end
// of each burst of input.
func (ch *Channel) Flush() {
	for i, s := range ch.dirty {
		s.flush()
		ch.dirty[i] = nil
	}
	ch.dirty = ch.dirty[:0]
}

// Consumer is a running consumer.
type Consumer struct {
	ch     *Channel
	spec   Consume
	stream *stream
	no     wire.ConsumerNo
	reply  *replyBox // of a consumer of direct replies, which has no stream

	// Guarded by stream.mu.
	attached, cancelling bool
	turn                 wire.Turn // from the leader that attached it
	roomMessages         int64     // granted to the leader and not used up
	roomBytes            int64
	owedMessages         int64 // written to the client, not granted again yet
	owedBytes            int64
	// unwritten are the deliveries of a consumer without acks that have not been written
	// to the client, in order. Being written settles them.
	unwritten []*Delivery
	aging     *aging // what it holds, nil if it may for ever
}

// Tag is the consumer's tag.
func (c *Consumer) Tag() string { return c.spec.Tag }

// NoAck tells whether its deliveries need no acknowledgement.
func (c *Consumer) NoAck() bool { return c.spec.NoAck }

// Queue is the name of its queue.
func (c *Consumer) Queue() string { return c.spec.Queue }

// describe is what a leader is told; called with stream.mu held.
func (c *Consumer) describe() wire.Consumer {
	c.roomMessages += c.owedMessages
	c.roomBytes += c.owedBytes
	c.owedMessages, c.owedBytes = 0, 0
	prefetch := uint32(c.spec.Prefetch)
	if c.spec.NoAck {
		prefetch = 0 // the window bounds what is on its way
	}
	return wire.Consumer{
		No: c.no, Prefetch: prefetch, Priority: c.spec.Priority, Exclusive: c.spec.Exclusive,
		WindowMessages: c.roomMessages, WindowBytes: c.roomBytes, Turn: c.turn,
	}
}

// Place names what was delivered: the queue's id, the message's place in it and the
// attempt. It is for logs and tests.
func (d *Delivery) Place() (queueID uint64, id queue.MessageID, attempt uint32) {
	return d.queue.id, d.id, d.attempt
}

// Consume starts a consumer. Deliveries may reach the Sink before it returns.
func (ch *Channel) Consume(ctx context.Context, spec Consume) (*Consumer, error) {
	if spec.Queue == ReplyQueue {
		return ch.consumeReplies(spec)
	}
	b := ch.conn.b
	q, err := ch.conn.queue(ctx, spec.Queue, auth.Read)
	if err != nil {
		return nil, err
	}
	if spec.Exclusive && singleActive(q.Arguments) {
		return nil, ch.conn.inExclusiveUse(spec.Queue)
	}
	timeout, err := consumerTimeout(spec.Arguments, q, b.cfg.ConsumerTimeout)
	if err != nil {
		return nil, err
	}
	s := b.stream(q)
	c := &Consumer{
		ch: ch, spec: spec, stream: s, no: wire.ConsumerNo(b.numbers.Add(1)),
		roomMessages: consumerMessages, roomBytes: consumerBytes,
	}
	if !spec.NoAck {
		c.aging = newAging(timeout, c)
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	s.mu.Lock()
	s.consumers[c.no] = c
	s.mu.Unlock()
	ch.used[s] = struct{}{}
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
		s.mu.Lock()
		delete(s.consumers, c.no)
		s.mu.Unlock()
		if isTimeout(err) {
			s.tell(&wire.Detach{Queue: s.id, Origin: s.hub.origin(), No: c.no})
		}
		return nil, ch.conn.queueError(err, spec.Queue)
	}
	ch.consumers[spec.Tag] = c
	return c, nil
}

// inExclusiveUse refuses a consumer that can not have the queue with or without others.
func (c *Conn) inExclusiveUse(queue string) error {
	return Errorf(AccessRefused, "queue '%s' in vhost '%s' in exclusive use", queue, c.vhost)
}

// Cancel ends the consumer. After it returns no delivery for it comes; what was
// delivered stays unacked.
func (c *Consumer) Cancel(ctx context.Context) error {
	delete(c.ch.consumers, c.spec.Tag)
	if c.reply != nil {
		c.reply.close()
		return nil
	}
	s := c.stream
	s.mu.Lock()
	_, running := s.consumers[c.no]
	c.cancelling = true
	s.mu.Unlock()
	if !running {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.ch.conn.b.cfg.QueueTimeout)
	defer cancel()
	err := c.askDetach(ctx, false)
	if errors.Is(err, errQueueGone) || isTimeout(err) {
		return nil // a leader that still knows it hears otherwise when it delivers
	}
	return err
}

// askDetach ends the consumer at the leader and waits for its word, and for the end of an
// auto-delete queue whose last consumer this was.
func (c *Consumer) askDetach(ctx context.Context, returns bool) error {
	s := c.stream
	reply, err := s.ask(ctx, uint64(c.no), func(uint64) wire.Message {
		return &wire.Detach{Queue: s.id, Origin: s.hub.origin(), No: c.no, Returns: returns}
	})
	s.mu.Lock()
	delete(s.consumers, c.no)
	s.mu.Unlock()
	if d, ok := reply.(*wire.Detached); ok && d.Unused {
		c.ch.conn.endUnused(ctx, s.id)
	}
	return err
}

// endUnused deletes an auto-delete queue whose last consumer has gone, so that no node
// shows it any more when the client goes on. The queue's leader deletes it too; who is
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
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.spec.NoAck {
		s.ackWrittenLocked(c, messages)
	}
	c.owedMessages += int64(messages)
	c.owedBytes += int64(bytes)
	if c.owedMessages < consumerMessages/4 && c.owedBytes < consumerBytes/4 || s.leader == "" || !c.attached {
		return
	}
	w := &wire.Window{Queue: s.id, Origin: s.hub.origin(), No: c.no, Messages: c.owedMessages, Bytes: c.owedBytes}
	if s.hub.send(s.leader, w) {
		c.roomMessages += c.owedMessages
		c.roomBytes += c.owedBytes
		c.owedMessages, c.owedBytes = 0, 0
	}
}

// ackWrittenLocked settles the oldest deliveries of a consumer without acks. It is this
// node that does: what the leader sent and nobody got must not be lost.
func (s *stream) ackWrittenLocked(c *Consumer, messages int) {
	n := min(messages, len(c.unwritten))
	for i, d := range c.unwritten[:n] {
		s.settleLocked(fsm.Ack, d.id, d.attempt)
		c.unwritten[i] = nil
	}
	if c.unwritten = c.unwritten[n:]; len(c.unwritten) == 0 {
		c.unwritten = nil
	}
	s.flushLocked()
}

// tell sends a message to the leader if there is one known.
func (s *stream) tell(m wire.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader != "" && !s.hub.send(s.leader, m) {
		s.lostLocked()
	}
}

// Get fetches one message; d is nil if nothing is ready.
func (ch *Channel) Get(ctx context.Context, name string, noAck bool) (d *Delivery, remaining uint32, err error) {
	if isReplyName(name) {
		return nil, 0, Errorf(NotImplemented, "basic.get is not supported by queue '%s'", ReplyQueue)
	}
	b := ch.conn.b
	q, err := ch.conn.queue(ctx, name, auth.Read)
	if err != nil {
		return nil, 0, err
	}
	if isQuorum(q.Arguments) && singleActive(q.Arguments) {
		return nil, 0, Errorf(ResourceLocked, "cannot obtain access to locked queue '%s' in vhost '%s'. basic.get operations are not supported by quorum queues with single active consumer", name, ch.conn.vhost)
	}
	s := b.stream(q)
	ch.used[s] = struct{}{}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	no := b.numbers.Add(1)
	reply, err := s.ask(ctx, no, func(after uint64) wire.Message {
		// The node acknowledges what it has got, so that nothing is lost on the way.
		return &wire.Get{Queue: s.id, Origin: s.hub.origin(), Req: no, After: after}
	})
	if err != nil {
		return nil, 0, ch.conn.queueError(err, name)
	}
	got, ok := reply.(*wire.Got)
	if !ok || !got.Found {
		return nil, 0, nil
	}
	if noAck {
		s.settle(fsm.Ack, got.Item.ID, got.Item.Attempt)
		s.flush()
	}
	d, err = s.delivery(nil, &got.Item)
	if err != nil {
		return nil, 0, Errorf(Internal, "message of queue '%s' cannot be read", name)
	}
	if !noAck {
		s.mu.Lock()
		if h := s.held[got.Item.ID]; h != nil && h.attempt == got.Item.Attempt {
			h.ch = ch
			s.ageLocked(h, s.getting)
		}
		s.mu.Unlock()
	}
	return d, got.Remaining, nil
}

// Settle ends deliveries of this channel; Flush sends it.
func (ch *Channel) Settle(kind fsm.SettleKind, ds []*Delivery) {
	for _, d := range ds {
		d.queue.settle(kind, d.id, d.attempt)
		ch.touch(d.queue)
	}
}

// Close cancels the consumers and returns every delivery that was not settled.
func (ch *Channel) Close(ctx context.Context) {
	ch.closed.Store(true)
	for _, c := range ch.consumers {
		// What is on its way to a cancelled consumer of a closed channel is
		// returned when it arrives.
		if !c.endsQueue() {
			c.detach()
			continue
		}
		// When the close is answered, an auto-delete queue is gone.
		c.stream.mu.Lock()
		c.cancelling = true
		c.stream.mu.Unlock()
		wait, cancel := context.WithTimeout(ctx, everyoneWait)
		if c.askDetach(wait, true) != nil {
			c.detach()
		}
		cancel()
	}
	clear(ch.consumers)
	for s := range ch.used {
		s.returnAll(ch)
	}
	ch.Flush()
	ch.conn.mu.Lock()
	delete(ch.conn.channels, ch)
	ch.conn.mu.Unlock()
}

// endsQueue tells whether the queue may go with the consumer.
func (c *Consumer) endsQueue() bool {
	if c.reply != nil {
		return false
	}
	q := c.ch.conn.b.cat.View().QueueByID(c.stream.id)
	return q != nil && q.AutoDelete && !q.Exclusive && q.State == catalog.Running
}

// detach ends the consumer without waiting.
func (c *Consumer) detach() {
	if c.reply != nil {
		c.reply.close()
		return
	}
	s := c.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	c.cancelling = true
	delete(s.consumers, c.no)
	if s.leader != "" {
		s.hub.send(s.leader, &wire.Detach{Queue: s.id, Origin: s.hub.origin(), No: c.no, Returns: true})
	}
}

// returnAll requeues what the channel holds.
func (s *stream) returnAll(ch *Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []queue.MessageID
	for id, h := range s.held {
		if h.ch == ch && h.settled == 0 && !h.tx {
			ids = append(ids, id)
		}
	}
	sortIDs(ids)
	for _, id := range ids {
		kind := fsm.RequeueFailed
		if s.held[id].noAck {
			kind = fsm.RequeueCounted // the client has not seen it
		}
		s.settleLocked(kind, id, s.held[id].attempt)
	}
	s.flushLocked()
}

// deliver takes deliveries from the leader and hands them to their channels.
func (s *stream) deliver(m *wire.Deliver) {
	out := make([]*Delivery, 0, len(m.Items))
	var strange wire.ConsumerNo
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	if !s.validLocked(m.Session, m.Resync) {
		s.mu.Unlock()
		return // the leader was told that these are not here
	}
	for i := range m.Items {
		it := &m.Items[i]
		c := s.consumers[it.No]
		if c != nil {
			c.roomMessages--
			c.roomBytes -= int64(len(it.Message))
		}
		h := &holding{no: it.No, attempt: it.Attempt}
		s.holdLocked(it.ID, h)
		if c == nil {
			// Its channel is closed. A delivery nobody saw is not a failed attempt.
			s.settleLocked(fsm.RequeueCounted, it.ID, it.Attempt)
			strange = it.No
			continue
		}
		h.ch, h.noAck = c.ch, c.spec.NoAck
		s.ageLocked(h, c.aging)
		d, err := s.delivery(c, it)
		if err != nil {
			s.settleLocked(fsm.RequeueFailed, it.ID, it.Attempt)
			continue
		}
		if c.spec.NoAck {
			c.unwritten = append(c.unwritten, d)
		}
		out = append(out, d)
	}
	s.flushLocked()
	if strange != 0 && s.leader != "" {
		// Its end has not reached the leader, or did so behind these.
		s.hub.send(s.leader, &wire.Detach{Queue: s.id, Origin: s.hub.origin(), No: strange})
	}
	s.mu.Unlock()
	for _, d := range out {
		d.Consumer.ch.sink.Deliver(d)
	}
}

// holdLocked notes a delivery, in place of an earlier one of the message.
func (s *stream) holdLocked(id queue.MessageID, h *holding) {
	if old := s.held[id]; old != nil {
		s.unageLocked(old)
	}
	s.held[id] = h
}

func (s *stream) delivery(c *Consumer, it *wire.Item) (*Delivery, error) {
	m, err := fsm.DecodeMessage(it.Message)
	if err != nil {
		return nil, err
	}
	d := &Delivery{
		Consumer: c, Redelivered: it.Redelivered,
		Exchange: m.Exchange, Properties: m.Properties, Body: m.Body,
		WindowBytes: len(it.Message),
		queue:       s, id: it.ID, attempt: it.Attempt,
	}
	if s.counts {
		d.Acquired, d.Failed = it.Attempt, it.Failed
	}
	if len(m.RoutingKeys) > 0 {
		d.Key = m.RoutingKeys[0]
	}
	return d, nil
}

// got takes the answer to a get; a message nobody waits for goes back.
func (s *stream) got(m *wire.Got) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.validLocked(m.Session, m.Resync) {
		return // the leader was told that it is not here, and asked again
	}
	if m.Found {
		s.holdLocked(m.Item.ID, &holding{attempt: m.Item.Attempt})
	}
	if !s.repliedLocked(m.Req, m) && m.Found {
		s.settleLocked(fsm.RequeueCounted, m.Item.ID, m.Item.Attempt)
		s.flushLocked()
	}
}

// attachedMsg takes the answer to an attach.
func (s *stream) attachedMsg(m *wire.Attached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.consumers[m.No]; c != nil && m.Refusal == "" {
		c.attached, c.turn = true, m.Turn
	}
	s.repliedLocked(uint64(m.No), m)
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
	s.mu.Unlock()
	if c != nil && !c.cancelling {
		c.ch.sink.Cancelled(c)
	}
}

// status asks the leader for the queue's counts. use renews its lease.
func (b *Broker) status(ctx context.Context, q *catalog.Queue, use bool) (*wire.Status, error) {
	s := b.stream(q)
	no := b.numbers.Add(1)
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	reply, err := s.ask(ctx, no, func(after uint64) wire.Message {
		return &wire.Query{Queue: s.id, Origin: s.hub.origin(), Req: no, After: after, Use: use}
	})
	if err != nil {
		return nil, err
	}
	st, ok := reply.(*wire.Status)
	if !ok {
		return nil, errQueueGone
	}
	return st, nil
}

// purge appends a purge and waits for its count.
func (s *stream) purge(ctx context.Context, timeout time.Duration) (uint64, error) {
	result := make(chan fsm.Outcome, 1)
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return 0, errQueueGone
	}
	s.append(pendingOp{op: fsm.Purge{}, bytes: 64, result: result})
	s.flushLocked()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case o := <-result:
		return o.Count, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
