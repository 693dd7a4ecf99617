package broker

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/auth"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
	"github.com/warrenmq/warren/stats"
)

// Channel is one channel of a client: its publishes, consumers and unsettled
// deliveries. Publish, Flush, Consume, Get, Settle and Close are called by one
// goroutine at a time.
type Channel struct {
	conn *Conn
	sink Sink
	// number is what the client calls it, 0 if it does not.
	number uint16
	id     uint64 // its own on this node

	// Reused between publishes.
	targets  []*catalog.Queue
	headers  amqp.Table
	badDedup error // why the header of the message in hand is no deduplication id
	scratch  fsm.Message
	routed   catalog.Message
	wroteTo  string // exchange whose permission was checked last,
	wroteRev uint64 // at this catalog revision,
	wroteAs  uint64 // and after so many logins of the connection
	// topics limits the keys to publish to wroteTo with; nil allows any.
	topics auth.Keys

	// waits is passOn; callerWaits is what the caller of Publish wants to be called then.
	waits, callerWaits func()

	tally  tally
	counts counts
	tx     *transaction // nil unless the channel is transactional
	closed atomic.Bool

	dirty     []*stream            // streams with something to flush
	used      map[*stream]struct{} // streams that delivered to this channel
	consumers map[string]*Consumer
	// usedMax and consumersMax are how many of these make it worthwhile to look for those that have ended.
	usedMax, consumersMax int
	replies               *replyBox // the consumer of direct replies, nil if there is none
}

// OpenChannel begins a channel whose events go to s. The error is an *Error with
// NotAllowed: the user has as many as it may have.
func (c *Conn) OpenChannel(ctx context.Context, s Sink) (*Channel, error) {
	if err := c.b.admitChannel(ctx, c.vhost, c.user.Name); err != nil {
		return nil, err
	}
	ch := &Channel{conn: c, sink: s, id: c.b.numbers.Add(1), used: map[*stream]struct{}{}, consumers: map[string]*Consumer{}, usedMax: pruneMin, consumersMax: pruneMin}
	ch.routed.Leads = c.b.leadsHere
	ch.waits = ch.passOn
	c.mu.Lock()
	c.channels[ch] = struct{}{}
	c.mu.Unlock()
	return ch, nil
}

// Names tells what the client calls the channel. It is called before anything is done with that.
func (ch *Channel) Names(number uint16) { ch.number = number }

// Counted tells the channel's own number on this node and what it has counted. It may be called on any goroutine.
func (ch *Channel) Counted() (id uint64, s stats.Set) {
	ch.counts.read(&s)
	return ch.id, s
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
	ch.tally.flush(ch.conn.traffic, &ch.counts)
}

// Place names what was delivered: the queue's id, the message's place in it and the
// attempt. It is for logs and tests.
func (d *Delivery) Place() (queueID uint64, id queue.MessageID, attempt uint32) {
	return d.queue.id, d.id, d.attempt
}

// Behind tells whether both are of one queue, and d is behind o there.
func (d *Delivery) Behind(o *Delivery) bool {
	return d.queue != nil && d.queue == o.queue && d.id > o.id
}

// Get fetches one message; d is nil if nothing is ready. What is fetched without acks the caller is to settle by Took; until then it is the channel's, and goes
// back with that.
func (ch *Channel) Get(ctx context.Context, name string, noAck bool) (d *Delivery, remaining uint32, err error) {
	q, err := ch.conn.queue(ctx, name, auth.Read)
	if err != nil {
		return nil, 0, err
	}
	err = ch.conn.asks(ctx, q, func(q *catalog.Queue) (err error) {
		d, remaining, err = ch.getFrom(ctx, q, noAck)
		return err
	})
	return d, remaining, err
}

func (ch *Channel) getFrom(ctx context.Context, q *catalog.Queue, noAck bool) (d *Delivery, remaining uint32, err error) {
	b := ch.conn.b
	if isQuorum(q.Arguments) && singleActive(q.Arguments) {
		return nil, 0, Errorf(ResourceLocked, "cannot obtain access to locked queue '%s' in vhost '%s'. basic.get operations are not supported by quorum queues with single active consumer", q.Name, ch.conn.vhost)
	}
	s := b.stream(q)
	ch.use(s)
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	no := b.numbers.Add(1)
	reply, err := s.ask(ctx, no, func(after uint64) wire.Message {
		// The node acknowledges what it has got, so that nothing is lost on the way.
		return &wire.Get{Queue: s.id, Origin: s.hub.origin(), Req: no, After: after}
	})
	if err != nil {
		return nil, 0, err
	}
	got, ok := reply.(*wire.Got)
	if !ok {
		return nil, 0, errQueueGone
	}
	if !got.Found {
		ch.fetched(s, nil, noAck)
		return nil, 0, nil
	}
	d = new(Delivery)
	err = s.delivery(d, nil, &got.Item)
	if err == nil && s.hub.trace != nil {
		s.traceGot(ch, d)
	}
	if err != nil {
		return nil, 0, Errorf(Internal, "message of queue '%s' cannot be read", q.Name)
	}
	s.mu.Lock()
	if h := s.held[got.Item.ID]; h != nil && h.attempt == got.Item.Attempt {
		s.ownLocked(h, ch)
		if h.noAck = noAck; !noAck {
			s.ageLocked(h, s.getting)
		}
	}
	s.mu.Unlock()
	ch.fetched(s, d, noAck)
	return d, got.Remaining, nil
}

// Took settles what Get has fetched without acks, when its client is to be sent it. It may be called on any goroutine.
func (ch *Channel) Took(d *Delivery) {
	s := d.queue
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked(fsm.Ack, d.id, d.attempt)
	s.flushLocked()
}

// Settle ends deliveries of this channel; Flush sends it.
func (ch *Channel) Settle(kind fsm.SettleKind, ds []*Delivery) {
	ch.tally.settled(kind, ds)
	for _, d := range ds {
		d.queue.settle(kind, d.id, d.attempt)
		ch.touch(d.queue)
	}
}

// Close cancels the consumers and returns every delivery that was not settled.
func (ch *Channel) Close(ctx context.Context) {
	ch.closed.Store(true)
	if ch.tx != nil {
		ch.tx.reset(ch.conn.b)
	}
	for _, c := range ch.consumers {
		ch.useOf(c)
		// What is on its way to a cancelled consumer of a closed channel is
		// returned when it arrives.
		if !c.endsQueue() {
			c.detach()
			continue
		}
		// When the close is answered, an auto-delete queue is gone.
		s := c.lock()
		c.cancelling = true
		s.mu.Unlock()
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
	_, open := ch.conn.channels[ch]
	delete(ch.conn.channels, ch)
	ch.conn.mu.Unlock()
	if open {
		ch.conn.b.census.channelEnds(ch.conn.user.Name)
	}
}

// returnAll requeues what the channel holds. What its client has not seen is no failed attempt.
func (s *stream) returnAll(ch *Channel) {
	s.order.Lock() // what is on its way to the gateway is there, which says what it keeps back
	defer s.order.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids, unsent []queue.MessageID
	for h := s.heldBy[ch]; h != nil; h = h.behind {
		switch {
		case h.settled > 0 || h.tx:
		case h.unsent:
			unsent = append(unsent, h.id)
		default:
			ids = append(ids, h.id)
		}
	}
	s.giveBackLocked(unsent)
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

// deliveriesAtOnce are made by one allocation: one that is never settled keeps the memory of so many.
const deliveriesAtOnce = 16

// deliver takes deliveries from the leader and hands them to their channels.
func (s *stream) deliver(from string, m *wire.Deliver) {
	out := make([]*Delivery, 0, len(m.Items))
	var strange wire.ConsumerNo
	var unseen []queue.MessageID
	var made struct {
		holdings   []holding
		deliveries []Delivery
	}
	s.order.Lock()
	defer s.order.Unlock()
	s.mu.Lock()
	if !s.validLocked(from, m.Session, m.Resync) {
		s.mu.Unlock()
		return // the leader is told that these are not here
	}
	for i := range m.Items {
		it := &m.Items[i]
		c := s.consumers[it.No]
		if c != nil {
			c.roomMessages--
			c.roomBytes -= int64(len(it.Message))
			s.takeBackLocked(c)
		}
		if len(made.holdings) == 0 {
			made.holdings = make([]holding, min(len(m.Items)-i, deliveriesAtOnce))
		}
		h := &made.holdings[0]
		made.holdings = made.holdings[1:]
		h.no, h.attempt = it.No, it.Attempt
		s.holdLocked(it.ID, h)
		if c == nil {
			// Its channel is closed. A delivery nobody saw is not a failed attempt.
			unseen = append(unseen, it.ID)
			strange = it.No
			continue
		}
		h.noAck = c.spec.NoAck
		s.ownLocked(h, c.ch)
		s.used.delivered(c.spec.NoAck, it.Redelivered)
		c.delivered++
		s.ageLocked(h, c.aging)
		if len(made.deliveries) == 0 {
			made.deliveries = make([]Delivery, min(len(m.Items)-i, deliveriesAtOnce))
		}
		d := &made.deliveries[0]
		if err := s.delivery(d, c, it); err != nil {
			s.settleLocked(fsm.RequeueFailed, it.ID, it.Attempt)
			continue
		}
		made.deliveries = made.deliveries[1:]
		if s.hub.trace != nil {
			h.span = s.beginDelivery(c.ch.conn.vhost, d.Redelivered, d.Exchange, d.Key, d.Properties, len(d.Body))
		}
		if c.spec.NoAck {
			c.unwritten = append(c.unwritten, d)
		}
		out = append(out, d)
	}
	s.giveBackLocked(unseen)
	s.flushLocked()
	if strange != 0 && s.leader != "" {
		// Its end has not reached the leader, or did so behind these.
		s.detachLocked(strange, false)
	}
	s.mu.Unlock()
	s.delivered(out)
	for _, d := range out {
		d.Consumer.ch.sink.Deliver(d)
	}
}

// holdLocked notes a delivery, in place of an earlier one of the message.
func (s *stream) holdLocked(id queue.MessageID, h *holding) {
	if old := s.held[id]; old != nil {
		s.unageLocked(old)
		old.span.ended("lost") // with a leader that had handed it out
		s.letGoLocked(old)
	}
	h.id = id
	s.held[id] = h
	s.heldMost = max(s.heldMost, len(s.held))
}

// ownLocked notes the channel of a delivery.
func (s *stream) ownLocked(h *holding, ch *Channel) {
	s.disownLocked(h)
	h.ch, h.behind = ch, s.heldBy[ch]
	if h.behind != nil {
		h.behind.before = h
	}
	s.heldBy[ch] = h
}

// disownLocked takes a delivery out of the list of its channel.
func (s *stream) disownLocked(h *holding) {
	if h.behind != nil {
		h.behind.before = h.before
	}
	switch {
	case h.ch == nil:
	case h.before != nil:
		h.before.behind = h.behind
	case h.behind != nil:
		s.heldBy[h.ch] = h.behind
	default:
		delete(s.heldBy, h.ch)
	}
	h.before, h.behind = nil, nil
}

// letGoLocked forgets a delivery.
func (s *stream) letGoLocked(h *holding) {
	delete(s.held, h.id)
	s.disownLocked(h)
}

// heldKept is how many deliveries a stream keeps room for, however few are held now.
const heldKept = 1024

// spareRoom lets go of the room that very many deliveries have taken: the map keeps it. mu is held.
func (s *stream) spareRoom() {
	if n := len(s.held); s.heldMost > heldKept && n < s.heldMost/8 {
		held := make(map[queue.MessageID]*holding, n)
		maps.Copy(held, s.held)
		s.held, s.heldMost = held, n
	}
}

// delivery fills in d. The strings and bytes of it are those of it's message.
func (s *stream) delivery(d *Delivery, c *Consumer, it *wire.Item) error {
	m, err := fsm.DecodeOutline(it.Message)
	if err != nil {
		return err
	}
	*d = Delivery{
		Consumer: c, Redelivered: it.Redelivered,
		Exchange: m.Exchange, Key: m.Key, Properties: m.Properties, Body: m.Body,
		WindowBytes: len(it.Message),
		queue:       s, id: it.ID, attempt: it.Attempt,
	}
	if s.counts.Load() {
		d.Acquired, d.Failed = it.Attempt, it.Failed
	}
	return nil
}

// got takes the answer to a get; a message nobody waits for goes back.
func (s *stream) got(from string, m *wire.Got) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.validLocked(from, m.Session, m.Resync) {
		return // the leader is told that it is not here, and asked again
	}
	if m.Found {
		s.holdLocked(m.Item.ID, &holding{attempt: m.Item.Attempt})
	}
	if !s.repliedLocked(m.Req, m) && m.Found {
		s.settleLocked(fsm.RequeueCounted, m.Item.ID, m.Item.Attempt)
		s.flushLocked()
	}
}

// status asks the leader for the queue's counts. use renews its lease.
func (b *Broker) status(ctx context.Context, q *catalog.Queue, use bool) (*wire.Status, error) {
	return b.query(ctx, q, wire.Query{Use: use})
}

// query asks the leader what m says, for the queue's counts. errQueueGone means that it has ended.
func (b *Broker) query(ctx context.Context, q *catalog.Queue, m wire.Query) (*wire.Status, error) {
	s := b.stream(q)
	no := b.numbers.Add(1)
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	reply, err := s.ask(ctx, no, func(after uint64) wire.Message {
		m.Queue, m.Origin, m.Req, m.After = s.id, s.hub.origin(), no, after
		return &m
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
		return 0, s.why()
	}
	s.append(pendingOp{op: fsm.Purge{}, bytes: 64, result: result})
	s.flushLocked()
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case o := <-result:
		if o.Kind == fsm.Gone {
			return 0, errQueueGone // another queue may have its name
		}
		return o.Count, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
