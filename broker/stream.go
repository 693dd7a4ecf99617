package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
	"github.com/warrenmq/warren/trace"
)

// Bounds of a stream.
const (
	streamBytesMax = 8 << 20 // unanswered operations, before publishers wait
	streamOpsMax   = 16384
	batchBytesMax  = 256 << 10
	answerPatience = time.Second // without an answer the leader is looked for again
	// holdPatience is added for each delivery that a Resync names: a leader that takes longer for one than until the next would never come to anything else.
	holdPatience     = 5 * time.Microsecond
	stallPatience    = 200 * time.Millisecond // until a link that is still crowded is tried again
	rewindQuiet      = 50 * time.Millisecond
	consumerMessages = 2048    // deliveries a node buffers for one consumer
	consumerBytes    = 1 << 20 // and their bytes, exceeded by one message at most
)

// stream is this node's sequence of operations on one queue, with everything
// that has to be said again when the queue's leader changes: operations not
// answered, requests not answered, consumers and what they hold. It lives as
// long as the queue: its sequence must never start over within one incarnation.
type stream struct {
	hub  *hub
	id   uint64
	name string
	kind QueueType
	// counts: deliveries show how often the message came back.
	counts atomic.Bool
	// dedups: the queue drops duplicates.
	dedups atomic.Bool
	// durable: the queue's log is replicated.
	durable bool

	// order is held while deliveries are taken and handed on, before mu, so that those
	// of two leaders do not overtake each other.
	order sync.Mutex

	mu     sync.Mutex
	leader string // node that is believed to lead, "" unknown
	next   uint64 // sequence of the next operation
	// ops[i] has sequence answered+1+i.
	ops      []pendingOp
	answered uint64
	sent     uint64 // highest sequence passed to the leader
	ever     uint64 // highest sequence passed to any leader: these never change again
	bytes    int
	burst    burst
	room     chan struct{} // closed and replaced when operations were answered
	way      chan struct{} // closed and replaced for publishes that wait, when they may go on
	blocked  int           // how many wait for it
	progress time.Time     // last answer, or first operation after idleness
	rewound  uint64        // Next of the last rewind obeyed, and when
	rewindAt time.Time

	consumers map[wire.ConsumerNo]*Consumer
	// ungranted, undetached: the link to the leader had no room for what consumers are granted, or for the end of one.
	ungranted, undetached bool
	// stalled: the link to the leader had no room for operations or requests. Nothing overtakes them, and the retry loop sends them when there is.
	stalled   bool
	stalledAt time.Time

	held     map[queue.MessageID]*holding
	heldMost int // at once since the map was made
	// heldBy begins the list of what a channel holds: there may be thousands of channels, each of which ends one day.
	heldBy   map[*Channel]*holding
	requests map[uint64]*request
	gone     bool
	heir     *stream // of one that is gone: the stream of the queue's next life, nil if the queue has ended
	tried    int     // members tried in vain
	// resyncs numbers the Resyncs sent: deliveries that answer an older one are not
	// this node's any more.
	resyncs uint64
	session uint64 // the newest that is known
	used    used
	// incoming are those of used.publish by exchange.
	incoming []Incoming
	watched  bool // the broker looks for a missing answer

	// getting counts what was fetched by get, nil if that may be held for ever; agings are
	// all that count something. timed: the broker looks at them at timedAt.
	getting *aging
	agings  map[*aging]struct{}
	timed   bool
	timedAt time.Duration
}

// pendingOp is an operation whose outcome is not known.
type pendingOp struct {
	op    fsm.Op
	bytes int
	// publish is set for publishes that somebody waits for.
	publish *publishing
	// result is set for a purge, for a transaction, for a publish that asks for its number and for a cancellation; but for the purge's it is closed if the outcome will
	// never be known.
	result chan fsm.Outcome
}

// holding is a delivery a client has, or whose settlement is not answered.
type holding struct {
	no      wire.ConsumerNo
	attempt uint32
	noAck   bool // to be settled when it is written to the client
	unsent  bool // the gateway keeps it back; it does not age
	tx      bool // a transaction settles it, whose outcome is not known or not everywhere
	ch      *Channel
	id      queue.MessageID
	// Neighbours in the list of what the channel holds.
	before, behind *holding
	settled        uint64 // sequence of the operation that settles it, 0: none
	aging          *aging // counts it while the client may not hold it for ever
	since          time.Duration
	span           *deliverySpan // nil if it is not traced
}

// request waits for one answer of whatever node leads.
type request struct {
	m     wire.Message
	reply chan wire.Message
	sent  bool // to the leader that is believed in, behind the newest Resync
}

// hub passes messages between the streams and leaders of a node. Broker
// implements it.
type hub struct {
	origin func() fsm.Origin
	send   func(node string, m wire.Message) bool
	// crowded tells whether send fails for a node because too much waits for it, and nothing is lost.
	crowded func(node string) bool
	// locate names a node to try: the leader if this node knows it, else a
	// member, a different one for each attempt. "" if there is none.
	locate func(queue uint64, attempt int) string
	// deleted tells whether the catalog has the queue no more, or is about to have it no more.
	deleted func(queue uint64) bool
	// strayed takes publishes that have no answer and whose queue is gone.
	strayed func(list []stray)
	// trouble asks for retry to be called soon, watch for overdue now and then, both
	// until they report false.
	trouble func(*stream)
	watch   func(*stream)
	// timed asks for endOverdue to be called at due on the clock of uptime.
	timed  func(s *stream, due time.Duration)
	uptime func() time.Duration
	// trace traces messages, nil none.
	trace *trace.Tracer
	// narrow tells whether clients leave too much unread on this node.
	narrow func() bool
	// level is the cluster's: it says what leaders know.
	level func() int
}

func newStream(h *hub, id uint64, name string) *stream {
	return &stream{
		hub: h, id: id, name: name, next: 1, room: make(chan struct{}), way: make(chan struct{}),
		consumers: map[wire.ConsumerNo]*Consumer{},
		held:      map[queue.MessageID]*holding{},
		heldBy:    map[*Channel]*holding{},
		requests:  map[uint64]*request{},
		agings:    map[*aging]struct{}{},
	}
}

// append adds an operation; it is sent by the next flush.
func (s *stream) append(p pendingOp) (seq uint64) {
	s.expectLocked()
	s.ops = append(s.ops, p)
	s.bytes += p.bytes
	if p.publish != nil {
		s.burst.published()
	}
	seq = s.next
	s.next++
	return seq
}

// expectLocked is called before something begins to wait for an answer: every wait is
// watched, because an answer can get lost with a leader that nobody misses.
func (s *stream) expectLocked() {
	if !s.waiting() {
		s.progress = time.Now()
	}
	if !s.watched {
		s.watched = true
		s.hub.watch(s)
	}
}

// publish appends one publish, waiting for room. It fails only with ctx. Before it waits it calls waits, unless that is nil.
func (s *stream) publish(ctx context.Context, exchange string, op fsm.Publish, p *publishing, waits func()) error {
	for {
		s.mu.Lock()
		if s.gone {
			heir := s.heir
			s.mu.Unlock()
			if heir != nil {
				defer heir.flush() // the caller knows this one only
				return heir.publish(ctx, exchange, op, p, waits)
			}
			s.finish([]ended{{op: pendingOp{publish: p}, outcome: fsm.Outcome{Kind: fsm.Gone}}})
			return nil
		}
		if !s.full() && !s.burst.full {
			s.append(pendingOp{op: op, bytes: len(op.Message) + 48, publish: p})
			s.published(exchange)
			full := s.bytesUnsent() >= batchBytesMax
			if full {
				s.flushLocked()
			}
			s.mu.Unlock()
			return nil
		}
		s.blocked++
		way := s.way
		s.flushLocked()
		s.mu.Unlock()
		if waits != nil {
			waits()
		}
		select {
		case <-way:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wakeLocked wakes who waits for answers, and publishes that wait if they may go on.
func (s *stream) wakeLocked() {
	close(s.room)
	s.room = make(chan struct{})
	if s.blocked > 0 && (s.gone || !s.full() && !s.burst.full) {
		close(s.way)
		s.way, s.blocked = make(chan struct{}), 0
	}
}

// freeLocked ends what the last leader has asked for.
func (s *stream) freeLocked() {
	held := s.burst.full
	if s.burst.say(0); held {
		s.wakeLocked()
	}
}

// burstIsDue lets the next burst go.
func (s *stream) burstIsDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.burst.pace > 0 {
		s.burst.renew(s.burstIsDue)
		s.wakeLocked()
	}
}

// full tells whether so much is unanswered that nothing but settlements may be added.
func (s *stream) full() bool { return s.bytes >= streamBytesMax || len(s.ops) >= streamOpsMax }

func (s *stream) bytesUnsent() (n int) {
	for i := len(s.ops) - 1; i >= 0 && s.answered+1+uint64(i) > s.sent; i-- {
		n += s.ops[i].bytes
		if n >= batchBytesMax {
			break
		}
	}
	return n
}

// settle appends a settlement of one delivery, joined to the one before it
// where it can be.
func (s *stream) settle(kind fsm.SettleKind, id queue.MessageID, attempt uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settleLocked(kind, id, attempt) && kind == fsm.Ack {
		s.used.ack++
	}
}

// settleLocked reports whether the delivery was still to be settled.
func (s *stream) settleLocked(kind fsm.SettleKind, id queue.MessageID, attempt uint32) bool {
	return s.endLocked(kind, "", id, attempt)
}

// endLocked is settleLocked with what the client says of why, of a Discard.
func (s *stream) endLocked(kind fsm.SettleKind, detail string, id queue.MessageID, attempt uint32) bool {
	h := s.held[id]
	if h == nil || h.settled > 0 || h.tx || h.attempt != attempt {
		return false
	}
	s.unageLocked(h)
	h.span.settled(s, kind)
	if n := len(s.ops); n > 0 && s.ever < s.next-1 {
		if last, ok := s.ops[n-1].op.(fsm.Settle); ok && last.Kind == kind && last.Detail == detail && len(last.Runs) < 256 {
			// A run that only grew is the same memory; the operation is stored anew, which allocates, for another one.
			if runs := appendRun(last.Runs, id, attempt); len(runs) != len(last.Runs) {
				last.Runs = runs
				s.ops[n-1].op = last
			}
			h.settled = s.next - 1
			return true
		}
	}
	h.settled = s.append(pendingOp{op: fsm.Settle{Kind: kind, Runs: []fsm.Run{{First: id, Count: 1, Attempt: attempt}}, Detail: detail}, bytes: 64 + len(detail)})
	return true
}

func appendRun(runs []fsm.Run, id queue.MessageID, attempt uint32) []fsm.Run {
	if n := len(runs); n > 0 {
		last := &runs[n-1]
		if last.Attempt == attempt && last.First+queue.MessageID(last.Count) == id {
			last.Count++
			return runs
		}
	}
	return append(runs, fsm.Run{First: id, Count: 1, Attempt: attempt})
}

// flush sends what was appended.
func (s *stream) flush() {
	s.mu.Lock()
	s.flushLocked()
	s.mu.Unlock()
}

func (s *stream) flushLocked() {
	if s.gone || s.stalled || s.sent+1 >= s.next {
		return
	}
	if s.leader == "" && !s.findLocked() {
		return
	}
	for s.sent+1 < s.next {
		from := int(s.sent - s.answered)
		n, size := 0, 0
		for from+n < len(s.ops) && (n == 0 || size < batchBytesMax) {
			size += s.ops[from+n].bytes
			n++
		}
		ops := make([]fsm.Op, n)
		for i := range ops {
			op := &s.ops[from+i]
			if ops[i] = op.op; op.publish != nil && s.sent+1+uint64(i) <= s.ever {
				op.publish.again.Store(true)
			}
		}
		b := &wire.Batch{Queue: s.id, Stream: fsm.Stream{
			Origin: s.hub.origin(), First: s.sent + 1, AnsweredUpTo: s.answered, Ops: ops,
		}}
		if !s.hub.send(s.leader, b) {
			s.failedLocked()
			return
		}
		s.sent += uint64(n)
		s.ever = max(s.ever, s.sent)
	}
}

// ask sends a request to the leader and waits for the answer, over changes of
// leader, until ctx ends.
func (s *stream) ask(ctx context.Context, no uint64, build func(after uint64) wire.Message) (wire.Message, error) {
	r := &request{reply: make(chan wire.Message, 1)}
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return nil, s.why()
	}
	s.expectLocked()
	s.flushLocked()
	r.m = build(s.next - 1)
	s.requests[no] = r
	switch {
	case s.leader == "":
		s.findLocked()
	case !s.stalled:
		s.requestLocked()
	}
	s.mu.Unlock()
	select {
	case m, ok := <-r.reply:
		if !ok {
			return nil, s.why()
		}
		return m, nil
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.requests, no)
		s.mu.Unlock()
		select {
		case m, ok := <-r.reply: // it came at the last moment, and may bring a message
			if ok {
				return m, nil
			}
		default:
		}
		return nil, ctx.Err()
	}
}

// replied hands an answer to the one who asked; false if nobody waits.
func (s *stream) replied(no uint64, m wire.Message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repliedLocked(no, m)
}

func (s *stream) repliedLocked(no uint64, m wire.Message) bool {
	r := s.requests[no]
	if r == nil {
		return false
	}
	delete(s.requests, no)
	s.progress, s.tried = time.Now(), 0
	r.reply <- m
	return true
}

// close ends the stream because the queue is gone: what waits is answered.
func (s *stream) close() {
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return
	}
	s.gone = true
	done := make([]ended, 0, len(s.ops))
	for i, op := range s.ops {
		if _, purge := op.op.(fsm.Purge); op.result != nil && !purge && s.answered+1+uint64(i) <= s.ever {
			close(op.result) // it may have been done before the queue ended
			continue
		}
		done = append(done, ended{op, fsm.Outcome{Kind: fsm.Gone}})
	}
	s.ops = nil
	s.burst.say(0)
	for no, r := range s.requests {
		delete(s.requests, no)
		close(r.reply)
	}
	var cancelled []*Consumer
	for no, c := range s.consumers {
		delete(s.consumers, no)
		if c.attached && !c.cancelling {
			cancelled = append(cancelled, c)
		}
	}
	s.endSpansLocked("queue ended")
	clear(s.held)
	clear(s.heldBy)
	clear(s.agings)
	s.wakeLocked()
	s.mu.Unlock()
	s.finish(done)
	for _, c := range cancelled {
		c.ch.sink.Cancelled(c)
	}
}
