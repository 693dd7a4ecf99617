package broker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/auth/passwords"
	"github.com/warrenmq/warren/catalog"
	"github.com/warrenmq/warren/dlx/mover"
	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue/leader"
	"github.com/warrenmq/warren/queue/wire"
	"github.com/warrenmq/warren/trace"
)

// MessageKind is the mesh's message kind that carries package wire.
const MessageKind = 1

// Config is what a Broker needs from its node.
type Config struct {
	Node string // this node's id with storage uuid
	// Send passes an encoded message to another node: in order, at most once,
	// never blocking. An error means that it was not taken.
	Send func(node string, payload []byte) error
	// Room tells whether Send takes some MiB and a large message more for a node now, or fails for another reason; nil: it always does.
	Room func(node string) bool
	// Replies carries direct replies; nil reaches no other node.
	Replies ReplyLink
	// Call asks another node; nil reaches none.
	Call func(ctx context.Context, node string, method uint8, req []byte) ([]byte, error)
	// Groups hosts the Raft groups of replicated queues.
	Groups Groups
	// Alive tells whether a node is not confirmed dead.
	Alive func(node string) bool
	// Online tells whether a node can be reached now, for those who ask what is there, and for new queues; nil: Alive.
	Online func(node string) bool
	// Now is the node's clock in ms since 1970, which never runs backwards; nil is the wall
	// time at New, carried on by the monotonic clock.
	Now func() int64
	// ClockOffsets tells how far the clocks of the other nodes are ahead of Now, as far as
	// it is known; nil is nothing known.
	ClockOffsets func() []time.Duration
	// Replicas is how many replicas a queue gets unless it says otherwise.
	Replicas int
	// ConsumerTimeout is how long a client may hold a message of a quorum queue that says
	// nothing else; 0: for ever.
	ConsumerTimeout time.Duration
	// TxBytesMax bounds what the transactions that are open on this node have published; 0: nothing does.
	TxBytesMax int64
	// Backends are where logins are looked for, in this order; empty: in the catalog alone.
	Backends []Backend
	// Passwords checks those of users; nil: with no bound for costly hashes but one at a time.
	Passwords *passwords.Keeper
	// QueueTimeout bounds every operation that waits for a queue's leader.
	QueueTimeout time.Duration
	// Gate is where the queues here tell other queues about dead letters; nil is open.
	Gate *mover.Gate
	// MoveReview is how long a dead letter is under way before its route is looked at again
	// when the topology has changed; 0 stands for one second.
	MoveReview time.Duration
	// Trace continues the traces of messages; nil: none are traced.
	Trace  *trace.Tracer
	Logger *slog.Logger
}

// Catalog is the node's replica of the metadata, a *catalog.Catalog.
type Catalog interface {
	View() *catalog.View
	Propose(ctx context.Context, cmd catalog.Command) (catalog.Result, error)
	ReadIndex(ctx context.Context) error
	WaitEveryone(ctx context.Context, index uint64) error
	Subscribe(f func(old, new *catalog.View))
}

// Broker is the use cases of one node.
type Broker struct {
	cfg    Config
	cat    Catalog
	hub    *hub
	self   atomic.Pointer[fsm.Origin]
	queues *queues
	// replies are the consumers of amq.rabbitmq.reply-to on this node.
	replies replies
	// flight counts what the leaders here have in flight.
	flight leader.Flight
	// dead counts what the leaders here apply.
	dead  deadTotals
	moves mover.Totals
	// txBytes is what open transactions here have published.
	txBytes atomic.Int64
	kept    mover.Kept
	census  *census
	// traffic counts what clients here send and get, churn what happens to queues, arrived what the leaders here take.
	traffics  traffics
	exchanges exchanges
	churn     churn
	arrived   arrivals
	lives     lives
	orphans   orphans
	names     atomic.Pointer[names]

	numbers atomic.Uint64 // consumers, requests and connections
	started time.Time
	// lastFresh is when the last fresh view for routing was asked for, since started.
	lastFresh atomic.Int64

	mu      sync.Mutex
	streams map[uint64]*stream
	conns   map[uint64]*Conn  // by id
	leaders map[uint64]string // last known leaders of queues
	lost    map[lostKey]uint64
	ended   map[uint32]uint64 // by node, the newest incarnation whose process has certainly ended
	trouble map[*stream]struct{}
	watched map[*stream]struct{}
	// timed streams have deliveries that may not be held for ever; the loop looks at
	// timedNext, 0 if there are none.
	timed     map[*stream]struct{}
	timedNext time.Duration
	timedWake chan struct{}
	wake      chan struct{}
	// narrow is set while clients leave too much unread; narrowed wakes the loop.
	narrow   atomic.Bool
	narrowed chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	// following is the goroutine that keeps the hosted replicas in line with the catalog, tasks
	// are the others.
	following sync.WaitGroup
	tasks     tasks
	strays    strays
}

// lostKey names a node that a queue's leader could not reach: it has to call
// the roll there again.
type lostKey struct {
	node  string
	queue uint64
}

var (
	errQueueGone  = errors.New("broker: queue is gone")
	errQueueMoved = errors.New("broker: queue goes on in another life")
)

const (
	retryEvery = 20 * time.Millisecond
	watchEvery = 250 * time.Millisecond
)

// New returns a broker over an open catalog. Start begins its work.
func New(cfg Config, cat Catalog) *Broker {
	b := &Broker{
		cfg: cfg, cat: cat, started: time.Now(), census: newCensus(),
		streams: map[uint64]*stream{}, conns: map[uint64]*Conn{},
		leaders: map[uint64]string{}, lost: map[lostKey]uint64{}, ended: map[uint32]uint64{},
		trouble: map[*stream]struct{}{}, watched: map[*stream]struct{}{}, wake: make(chan struct{}, 1),
		timed: map[*stream]struct{}{}, timedWake: make(chan struct{}, 1), narrowed: make(chan struct{}, 1),
	}
	if b.cfg.Passwords == nil {
		b.cfg.Passwords = passwords.New(passwords.Config{Parallel: 1, Waiting: 64, Wait: cfg.QueueTimeout, Known: 64})
	}
	if b.cfg.Now == nil {
		wall := b.started.UnixMilli()
		b.cfg.Now = func() int64 { return wall + time.Since(b.started).Milliseconds() }
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.hub = &hub{
		origin: b.origin, send: b.send, crowded: func(node string) bool { return !b.room(node) }, locate: b.locate, deleted: b.deleted, strayed: b.strayed, trouble: b.troubled, watch: b.watch, timed: b.timedStream, uptime: b.uptime, trace: cfg.Trace, narrow: b.narrow.Load,
		level: func() int { return b.cat.View().Level() },
	}
	b.queues = newQueues(b)
	b.replies.boxes = map[uint64]*replyBox{}
	return b
}

// Start hosts the queues the catalog places on this node, and follows it. The
// origin is this node's number and the incarnation of its registration.
func (b *Broker) Start(self fsm.Origin) {
	b.self.Store(&self)
	b.tasks.start(b.retryLoop)
	b.tasks.start(b.timeoutLoop)
	b.tasks.start(b.narrowLoop)
	b.following.Go(b.queues.follow)
	b.cat.Subscribe(func(old, now *catalog.View) {
		b.queues.changed()
		b.closeStrangers(old, now)
	})
	b.queues.changed()
}

// Close ends every connection, leader and goroutine of the broker.
func (b *Broker) Close() {
	b.cancel()
	b.following.Wait() // else it could still begin or end replicas
	b.queues.close()
	b.tasks.wait()
}

func (b *Broker) origin() fsm.Origin {
	if o := b.self.Load(); o != nil {
		return *o
	}
	return fsm.Origin{}
}

// stream returns the node's stream for a queue. One made for a queue that has left
// the catalog meanwhile is closed.
func (b *Broker) stream(q *catalog.Queue) *stream {
	s, from := b.findStream(q)
	if from != nil {
		b.lives.resent.Add(s.inheritLocked(from))
		s.mu.Unlock()
	}
	return s
}

// findStream finds or makes the stream. A new one of a queue that goes on in another life is returned locked, with the stream of the
// former one: what was said to that goes before what is said to this one.
func (b *Broker) findStream(q *catalog.Queue) (s, from *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.streams[q.ID]; s != nil {
		return s, nil
	}
	v := b.cat.View()
	if now, _ := v.Successor(q.ID); now != nil {
		if q = now; b.streams[q.ID] != nil {
			return b.streams[q.ID], nil
		}
	}
	s = newStream(b.hub, q.ID, q.Name)
	s.kind = typeOf(q)
	s.durable = q.Kind == catalog.Replicated
	// A later removal finds the stream; an earlier one shows in the view.
	if v.Revision() >= q.ID && v.QueueByID(q.ID) == nil {
		s.gone = true
		return s, nil
	}
	b.streams[q.ID] = s
	// From here on it is told of changes.
	b.refit(s, b.inEffect(q))
	if from = b.formerOf(q); from != nil {
		s.mu.Lock()
	}
	return s, from
}

func (b *Broker) streamByID(id uint64) *stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.streams[id]
}

// closeStream ends the stream of a queue that is gone.
func (b *Broker) closeStream(id uint64) {
	b.mu.Lock()
	s := b.streams[id]
	delete(b.streams, id)
	delete(b.leaders, id)
	b.mu.Unlock()
	if s == nil {
		return
	}
	s.close()
	b.mu.Lock()
	delete(b.timed, s) // it would be looked at when the first of its deliveries had been held for too long
	b.mu.Unlock()
}

// locate names a node to try as a queue's leader: what is known of it at even
// attempts, the members in turn at odd ones, because what is known may be wrong.
func (b *Broker) locate(queue uint64, attempt int) string {
	b.mu.Lock()
	known := b.leaders[queue]
	b.mu.Unlock()
	if attempt%2 == 0 {
		if node := b.queues.leaderOf(queue); node != "" {
			return node
		}
		if known != "" && b.cfg.Alive(known) {
			return known
		}
	}
	q := b.cat.View().QueueByID(queue)
	if q == nil || len(q.Members) == 0 {
		return ""
	}
	if attempt == 0 && b.cfg.Alive(string(q.Preferred)) {
		return string(q.Preferred)
	}
	for i := range q.Members {
		node := string(q.Members[(attempt/2+i)%len(q.Members)])
		if b.cfg.Alive(node) {
			return node
		}
	}
	return ""
}

func (b *Broker) forgetLeader(queue uint64) {
	b.mu.Lock()
	delete(b.leaders, queue)
	b.mu.Unlock()
}

// troubled asks the retry loop to look after a stream.
func (b *Broker) troubled(s *stream) {
	b.mu.Lock()
	b.trouble[s] = struct{}{}
	b.mu.Unlock()
	b.poke()
}

// watch asks the retry loop to look for overdue answers of a stream.
func (b *Broker) watch(s *stream) {
	b.mu.Lock()
	b.watched[s] = struct{}{}
	first := len(b.watched) == 1
	b.mu.Unlock()
	if first {
		b.poke()
	}
}

// lookAfter calls overdue of every watched stream and reports whether any is left.
func (b *Broker) lookAfter() bool {
	b.mu.Lock()
	list := make([]*stream, 0, len(b.watched))
	for s := range b.watched {
		list = append(list, s)
		delete(b.watched, s)
	}
	b.mu.Unlock()
	for _, s := range list {
		if s.overdue() {
			b.mu.Lock()
			b.watched[s] = struct{}{}
			b.mu.Unlock()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.watched) > 0
}

func (b *Broker) poke() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// retryLoop looks after streams without a leader or an answer and nodes that missed
// a message; it sleeps while there are none.
func (b *Broker) retryLoop() {
	var watching bool
	var tried, looked time.Time
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.wake:
		case <-timer.C:
		}
		// Trouble that is new may be helped at once, but each try pokes again.
		if left := retryEvery - time.Since(tried); left > 0 {
			timer.Reset(left)
			continue
		}
		again := b.retryAll()
		tried = time.Now()
		if tried.Sub(looked) >= watchEvery {
			watching = b.lookAfter()
			looked = tried
		} else {
			watching = true
		}
		switch {
		case again:
			timer.Reset(retryEvery)
		case watching:
			timer.Reset(watchEvery)
		default:
			timer.Stop()
		}
	}
}

func (b *Broker) retryAll() (again bool) {
	b.mu.Lock()
	list := make([]*stream, 0, len(b.trouble))
	for s := range b.trouble {
		list = append(list, s)
		delete(b.trouble, s)
	}
	lost := make(map[lostKey]uint64, len(b.lost))
	maps.Copy(lost, b.lost)
	clear(b.lost)
	b.mu.Unlock()
	for _, s := range list {
		if s.retry() {
			b.mu.Lock()
			b.trouble[s] = struct{}{}
			b.mu.Unlock()
			again = true
		}
	}
	for k, session := range lost {
		if l := b.queues.leader(k.queue); l != nil && l.Session() == session && b.cfg.Alive(k.node) {
			again = true
			b.fromLeader(session, k.node, &wire.RollCall{Queue: k.queue, Session: session})
		}
	}
	return again
}

func (b *Broker) allStreams() []*stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]*stream, 0, len(b.streams))
	for _, s := range b.streams {
		list = append(list, s)
	}
	return list
}

// fresh returns a view that is at least as new as the catalog leader's state
// when it was called. The error is an *Error with TimedOut.
func (b *Broker) fresh(ctx context.Context) (*catalog.View, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QueueTimeout)
	defer cancel()
	if err := b.cat.ReadIndex(ctx); err != nil {
		b.cfg.Logger.Warn("catalog cannot be read up to date", "err", err)
		return nil, &Error{Kind: TimedOut, Text: "the catalog cannot be reached", Unasked: true}
	}
	return b.cat.View(), nil
}

// freshEnough is how old the last fresh view may be for concluding that a
// message has no route. A bind is answered only after the living nodes have
// applied it (or a second has passed), so this is a second line of defence.
const freshEnough = 100 * time.Millisecond

// freshForRoute is fresh for the routing path: a stream of messages without a
// route does not ask the catalog's leader for each.
func (b *Broker) freshForRoute(ctx context.Context) (*catalog.View, error) {
	now := time.Since(b.started)
	if last := time.Duration(b.lastFresh.Load()); last > 0 && now-last < freshEnough {
		return b.cat.View(), nil
	}
	view, err := b.fresh(ctx)
	if err == nil {
		b.lastFresh.Store(int64(now))
	}
	return view, err
}
