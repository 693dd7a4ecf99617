package broker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/leader"
	"github.com/warrenmq/warren/queue/wire"
)

// commit is a transaction on its way. Its goroutine goes on when the client has given up.
type commit struct {
	ch        *Channel
	b         *Broker
	publishes []txPublish
	mandatory []mandatoryPart
	queues    []*txQueue
	order     bool // earlier operations have to be applied first
	looked    bool // since the commit began this node's copy of the catalog was brought up to date
	parts     int  // of the operation sent last
	done      chan error
	lost      []TxReturn // mandatory messages that no queue has, once done has an answer

	mu        sync.Mutex
	sent      bool // the outcome is no longer in this node's hands
	abandoned bool
}

// txQueue is what a transaction does in one queue.
type txQueue struct {
	s         *stream
	q         *catalog.Queue // set if it gets messages
	publishes int64
	bytes     int64 // bodies
	settles   []fsm.Settle
	gone      bool
	free      bool // it is gone, and no other queue had its name
}

func (c *commit) queue(s *stream) *txQueue {
	for _, x := range c.queues {
		if x.s == s {
			return x
		}
	}
	x := &txQueue{s: s}
	c.queues = append(c.queues, x)
	return x
}

// settle adds a settlement and returns how many runs that made.
func (x *txQueue) settle(t TxSettlement) int {
	n := len(x.settles)
	if n == 0 || x.settles[n-1].Kind != t.Kind || len(x.settles[n-1].Runs) >= txSettleRunsMax {
		x.settles = append(x.settles, fsm.Settle{Kind: t.Kind})
		n++
	}
	s := &x.settles[n-1]
	before := len(s.Runs)
	s.Runs = appendRun(s.Runs, t.Delivery.id, t.Delivery.attempt)
	return len(s.Runs) - before
}

// run brings the transaction to its end.
func (c *commit) run() {
	coordinator, o, err := c.decide()
	if err != nil {
		c.release(fsm.RequeueFailed, c.queues...)
		c.done <- err
		return
	}
	if coordinator == nil {
		c.release(fsm.RequeueFailed, c.queues...)
		c.done <- nil
		return
	}
	coordinator.forget()
	others := slices.DeleteFunc(slices.Clone(c.queues), func(x *txQueue) bool { return x == coordinator })
	if o.Kind == fsm.Relayed {
		c.awaitParts(coordinator, o.Count)
	} else {
		c.done <- nil
	}
	for _, x := range others {
		x.forget()
	}
}

// awaitParts answers the client when every part has reached its targets, or when it has
// waited long enough, and returns when there is nothing left to wait for.
func (c *commit) awaitParts(coordinator *txQueue, last uint64) {
	first := max(last-min(last, uint64(c.parts))+1, 1)
	ctx, cancel := context.WithTimeout(c.b.ctx, txTakenWait)
	taken := c.partsTaken(ctx, coordinator.s, first, last)
	c.findLost(ctx, coordinator)
	cancel()
	c.done <- nil
	if !taken && c.b.ctx.Err() == nil {
		c.b.cfg.Logger.Warn("parts of a transaction take long", "queue", coordinator.s.id, "name", coordinator.s.name)
		c.partsTaken(c.b.ctx, coordinator.s, first, last)
	}
}

// partsTaken waits until the outbox items from first to last have reached their targets;
// false if ctx ends first.
func (c *commit) partsTaken(ctx context.Context, s *stream, first, last uint64) bool {
	err := c.b.askTx(ctx, s, &wire.TxAsk{First: first, Last: last}, nil)
	if err == nil || isTimeout(err) {
		return err == nil
	}
	// The queue is being deleted. It leaves the catalog when its outbox is empty.
	for c.b.cat.View().QueueByID(s.id) != nil {
		select {
		case <-time.After(txGonePause):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// decide finds a coordinator and gets its outcome, which is Done or Relayed if err is
// nil. Without a coordinator every queue is gone.
func (c *commit) decide() (x *txQueue, o fsm.Outcome, err error) {
	catalogTries := 0
	for {
		x := c.coordinator()
		if x != nil && !c.looked && c.publishesBeyond(x) {
			if err := c.look(x); err != nil {
				return x, o, err
			}
			continue
		}
		if err := c.replaced(); err != nil {
			return x, o, err
		}
		if err := c.unroutable(); err != nil {
			return x, o, err
		}
		if x == nil {
			return nil, o, nil
		}
		if err := c.fits(x); err != nil {
			return x, o, err
		}
		if err := c.prepare(x); err != nil {
			return x, o, err
		}
		o, known := c.send(x)
		switch {
		case !known:
			return x, o, Errorf(Internal, "the outcome of the transaction is not known: queue '%s' in vhost '%s' has ended", x.s.name, c.ch.conn.vhost)
		case o.Kind == fsm.Done || o.Kind == fsm.Relayed:
			return x, o, nil
		case o.Kind == fsm.Gone:
			x.gone = true
		case o.Kind == fsm.RefusedCatalog && catalogTries < txCatalogTries:
			catalogTries++
			select {
			case <-time.After(txCatalogPause):
			case <-c.b.ctx.Done():
			}
		default:
			return x, o, c.refused(x, o.Kind)
		}
	}
}

func (c *commit) refused(x *txQueue, k fsm.OutcomeKind) error {
	why := "is full"
	switch k {
	case fsm.RefusedOutbox:
		why = "has too many messages on their way to other queues"
	case fsm.RefusedCatalog:
		why = "does not know the others yet"
	}
	return Errorf(PreconditionFailed, "transaction refused, nothing was done: queue '%s' in vhost '%s' %s", x.s.name, c.ch.conn.vhost, why)
}

// coordinator chooses: a durable queue before one in memory, then the one that gets most.
func (c *commit) coordinator() *txQueue {
	var best *txQueue
	for _, x := range c.queues {
		x.gone = x.gone || x.s.isGone()
		if x.gone {
			continue
		}
		if best == nil || cmp.Or(
			-compareBool(x.s.durable, best.s.durable), -cmp.Compare(x.bytes, best.bytes), cmp.Compare(x.s.id, best.s.id)) < 0 {
			best = x
		}
	}
	return best
}

// publishesBeyond tells whether messages are for other queues than the coordinator.
func (c *commit) publishesBeyond(coordinator *txQueue) bool {
	return slices.ContainsFunc(c.queues, func(x *txQueue) bool { return x != coordinator && !x.gone && x.publishes > 0 })
}

// look brings the copy of the catalog up to date. What is for the coordinator does not depend on that copy: its leader answers. But a part for
// another queue vanishes if that one was deleted before the commit began, and nobody would be told.
func (c *commit) look(coordinator *txQueue) error {
	if _, err := c.b.fresh(c.b.ctx); err != nil {
		return Errorf(PreconditionFailed, "transaction refused, nothing was done: whether its queues beside '%s' in vhost '%s' are still there is not known", coordinator.s.name, c.ch.conn.vhost)
	}
	c.looked = true
	return nil
}

// fits refuses what would be too large for one entry of the coordinator's log, which has everything: a message for its own queue, and once more for the others.
func (c *commit) fits(coordinator *txQueue) error {
	size := 0
	for i := range c.publishes {
		p := &c.publishes[i]
		if slices.Contains(p.to, coordinator) {
			size += len(p.op.Message)
		}
		if slices.ContainsFunc(p.to, func(x *txQueue) bool { return x != coordinator && !x.gone }) {
			size += len(p.op.Message)
		}
	}
	if most := leader.EntryBytesMax - txBytesMax; size > most {
		return Errorf(PreconditionFailed, "transaction refused, nothing was done: it takes %d bytes, and %d are the most; a message for several queues counts twice", size, most)
	}
	return nil
}

// replaced refuses what would publish to a queue that is gone while another one has its name (see strays).
func (c *commit) replaced() error {
	for _, x := range c.queues {
		if !x.gone || x.free || x.publishes == 0 {
			continue
		}
		view, err := c.b.fresh(c.b.ctx)
		if err != nil {
			return Errorf(PreconditionFailed, "transaction refused, nothing was done: whether queue '%s' in vhost '%s' is another one now is not known", x.s.name, c.ch.conn.vhost)
		}
		if view.Queue(c.ch.conn.vhost, x.s.name) != nil {
			return Errorf(PreconditionFailed, "transaction refused, nothing was done: queue '%s' in vhost '%s' is another one now", x.s.name, c.ch.conn.vhost)
		}
		x.free = true
	}
	return nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// prepare asks the queues that may refuse whether they would, and lets the channel's
// earlier operations go first. The coordinator's leader decides for itself.
func (c *commit) prepare(coordinator *txQueue) error {
	ctx, cancel := context.WithTimeout(c.b.ctx, c.b.cfg.QueueTimeout)
	defer cancel()
	errs := make([]error, len(c.queues))
	var wg sync.WaitGroup
	for i, x := range c.queues {
		if x == coordinator || x.gone {
			continue
		}
		wg.Go(func() { errs[i] = c.prepareOne(ctx, x) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *commit) prepareOne(ctx context.Context, x *txQueue) error {
	if c.order && !x.s.applied(ctx) {
		return c.unreachable(x)
	}
	if x.publishes == 0 || !mayRefuse(settingsOf(x.q, c.b.inEffect(x.q).arguments)) {
		return nil
	}
	var told wire.TxTold
	err := c.b.askTx(ctx, x.s, &wire.TxAsk{Publishes: uint64(x.publishes), Bytes: uint64(x.bytes)}, &told)
	switch {
	case err == nil && told.Refusal != fsm.Done:
		return c.refused(x, told.Refusal)
	case err != nil && isTimeout(err):
		return c.unreachable(x)
	}
	return nil // or it is gone, and its part with it
}

func (c *commit) unreachable(x *txQueue) error {
	return Errorf(PreconditionFailed, "transaction refused, nothing was done: queue '%s' in vhost '%s' has no leader within reach", x.s.name, c.ch.conn.vhost)
}

// mayRefuse tells whether a queue with these settings refuses publishes.
func mayRefuse(s queue.Settings) bool {
	return s.DeadLetter || s.Overflow != queue.DropHead && (s.MaxLength >= 0 || s.MaxLengthBytes >= 0)
}

// send passes the operation to the coordinator and waits for its outcome; known is
// false if there is none.
func (c *commit) send(x *txQueue) (o fsm.Outcome, known bool) {
	c.mu.Lock()
	c.sent = !c.abandoned
	c.mu.Unlock()
	if !c.sent {
		return o, false
	}
	op, size := c.build(x)
	c.parts = len(op.Parts)
	result := make(chan fsm.Outcome, 1)
	if !x.s.commit(c.b.ctx, op, size, result) {
		// A queue that goes on in another life takes nothing under its former name; its deliveries are no more.
		return fsm.Outcome{Kind: fsm.Gone}, c.b.ctx.Err() == nil && !x.s.went()
	}
	select {
	case o, known = <-result:
		return o, known
	case <-c.b.ctx.Done():
		return o, false
	}
}

// build makes the operation of a coordinator: messages before settlements, as they
// would be one by one.
func (c *commit) build(coordinator *txQueue) (t fsm.Tx, size int) {
	size = 64
	for _, p := range c.publishes {
		var others []uint64
		for _, x := range p.to {
			switch {
			case x == coordinator:
				t.Ops = append(t.Ops, p.op)
				size += fsm.PublishSize(&p.op)
			case !x.gone:
				others = append(others, x.s.id)
			}
		}
		if len(others) > 0 {
			slices.Sort(others)
			t.Parts = append(t.Parts, fsm.TxPart{Targets: others, Part: fsm.EncodePart(nil, p.op)})
		}
	}
	for _, x := range c.queues {
		for _, s := range x.settles {
			switch {
			case x == coordinator:
				t.Ops = append(t.Ops, s)
				size += 16 + 16*len(s.Runs)
			case !x.gone:
				t.Parts = append(t.Parts, fsm.TxPart{Targets: []uint64{x.s.id}, Part: fsm.EncodePart(nil, s)})
			}
		}
	}
	for _, p := range t.Parts {
		size += len(p.Part) + 16*len(p.Targets)
	}
	return t, size
}

// abandon is called when the client waits no longer.
func (c *commit) abandon() error {
	c.mu.Lock()
	c.abandoned = true
	sent := c.sent
	c.mu.Unlock()
	if !sent {
		return Errorf(Internal, "the transaction was not committed in time")
	}
	select {
	case err := <-c.done: // it came at the last moment
		return err
	default:
		return Errorf(Internal, "the outcome of the transaction is not known: it was not committed in time")
	}
}

// hold marks the deliveries that the transaction settles.
func (c *commit) hold() {
	for _, x := range c.queues {
		x.eachHold(func(_ queue.MessageID, h *holding) {
			h.tx = h.settled == 0
			x.s.unageLocked(h) // the client has done its work
		})
	}
}

// forget ends the deliveries that the transaction has settled.
func (x *txQueue) forget() {
	x.eachHold(func(id queue.MessageID, h *holding) {
		if h.tx {
			h.span.ended("transaction")
			x.s.letGoLocked(h)
		}
	})
}

// release gives deliveries back to their channel, or to the queue if that is gone.
func (c *commit) release(kind fsm.SettleKind, queues ...*txQueue) {
	for _, x := range queues {
		x.eachHold(func(id queue.MessageID, h *holding) {
			h.tx = false
			if h.ch == nil || h.ch.closed.Load() {
				x.s.settleLocked(kind, id, h.attempt)
			}
		})
		x.s.flush()
	}
}

// eachHold calls f for what the node still holds of the settlements, with the stream's
// mutex held.
func (x *txQueue) eachHold(f func(queue.MessageID, *holding)) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	for _, s := range x.settles {
		for _, r := range s.Runs {
			for i := range r.Count {
				id := r.First + queue.MessageID(i)
				if h := x.s.held[id]; h != nil && h.attempt == r.Attempt {
					f(id, h)
				}
			}
		}
	}
}

// askTx asks the leader of a queue; told may be nil.
func (b *Broker) askTx(ctx context.Context, s *stream, q *wire.TxAsk, told *wire.TxTold) error {
	no := b.numbers.Add(1)
	reply, err := s.ask(ctx, no, func(uint64) wire.Message {
		ask := *q
		ask.Queue, ask.Origin, ask.Req = s.id, s.hub.origin(), no
		return &ask
	})
	if err != nil {
		return err
	}
	if m, ok := reply.(*wire.TxTold); ok && told != nil {
		*told = *m
	}
	return nil
}

// isGone tells whether the queue has ended or is being deleted. The catalog knows that before the stream does, and what is sent
// on a stream that ends has no known outcome.
func (s *stream) isGone() bool {
	s.mu.Lock()
	gone := s.gone && s.heir == nil
	s.mu.Unlock()
	return gone || s.hub.deleted(s.id)
}

// commit appends a transaction, waiting for room, and sends it. false means that the
// queue is gone and nothing was done. result gets the outcome; it is closed without
// one if the queue ends first.
func (s *stream) commit(ctx context.Context, t fsm.Tx, bytes int, result chan fsm.Outcome) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.gone && s.full() {
		if !s.waitLocked(ctx) {
			return false
		}
	}
	if s.gone {
		return false
	}
	s.append(pendingOp{op: t, bytes: bytes, result: result})
	s.flushLocked()
	return true
}

// waitLocked waits until operations were answered; false if ctx has ended.
func (s *stream) waitLocked(ctx context.Context) bool {
	room := s.room
	s.flushLocked()
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-room:
		return true
	case <-ctx.Done():
		return false
	}
}

// applied waits until everything appended so far is answered; false if ctx ends first.
func (s *stream) applied(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.next - 1
	for !s.gone && s.answered < last {
		if !s.waitLocked(ctx) {
			return false
		}
	}
	return true
}
