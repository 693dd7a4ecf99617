package leader

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/fsm"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/queue/wire"
)

// Log is the queue's log: a Raft group's, or one in memory.
type Log interface {
	// Propose appends data. done is called if the outcome is unknown or a failure; success
	// shows in Replica.Apply. A log that has its own copy then may also call done(nil), once it does not read data any more:
	// its memory is used again.
	Propose(data []byte, done func(error))
	// Read returns the payload of entry index; shared, read only.
	Read(index uint64) ([]byte, error)
	// HasLease tells whether this node may still act as the leader.
	HasLease() bool
}

// Node is a live node as the roll call sees it.
type Node struct {
	ID     string
	Origin fsm.Origin
}

// Config is what a Leader needs from the node it runs on. All functions are
// safe for concurrent use and quick.
type Config struct {
	Queue uint64
	Log   Log
	// Session is unique among all activations of this queue's leaders.
	Session uint64
	// New: no leader of this queue was before this one, anywhere. If nothing was applied either, no roll is called.
	New bool
	// After, if not nil, is closed when the session before on this node has ended:
	// nothing of it may enter the log behind this one's first entry.
	After <-chan struct{}
	// Flight counts what all leaders of the node have in flight. It may be nil.
	Flight *Flight
	// Send passes a message to a node, in order, at most once, never blocking.
	Send func(node string, m wire.Message)
	// Room tells whether Send takes some MiB more of messages for a node now. nil: it always does.
	Room func(node string) bool
	// LiveNodes lists the nodes that are not known to be dead.
	LiveNodes func() []Node
	// Now is the node's clock in ms; it never runs backwards.
	Now func() int64
	// ClockError is how many ms Now is ahead of what most nodes' clocks show; it is asked
	// once, when the session begins. nil is 0.
	ClockError func() int64
	// Settings gives the queue's effective settings and their catalog revision.
	Settings func() (s queue.Settings, revision uint64, vhost, name string)
	// CatalogRevision is that of the node's catalog copy.
	CatalogRevision func() uint64
	// SourceExists tells whether the catalog knows the queue, closing or not.
	SourceExists func(id uint64) bool
	// Succeeded tells whether the queue goes on under another id, because it had lost most of its replicas; Former returns the id that this
	// queue had in a life that ended so, from 1. Both may be nil if there is no such queue.
	Succeeded func(id uint64) bool
	Former    func(life uint32) uint64
	// Way looks up in the node's catalog copy where the dead letters of a queue with these
	// settings go, whatever the message; it keeps nothing. nil: each has to be looked at.
	Way func(vhost, name string, set *queue.Settings) Way
	// Expires gives the queue's own time to live, 0 for none; Expired is asked when
	// nobody has used it for so long, and again after a while if it says that the queue cannot
	// go now. Both may be nil together.
	Expires func() time.Duration
	Expired func() (goes bool)
	// HeldIsUse: messages that clients hold are use of the queue, for Expires.
	HeldIsUse bool
	// Bursts tells whether every node of the cluster knows what Answer.Pace says. nil: they do.
	Bursts func() bool
	// AutoDelete queues end with their last consumer. Unused is called once the end of one that nobody
	// uses is in its log: it is for the catalog to forget it. A later leader calls it again.
	AutoDelete bool
	Unused     func()
	// Single queues have one active consumer at a time. Lease is how long a node that is
	// cut off may go on to deliver; a new consumer waits for it when nothing is known of the
	// former one's node. ProcessGone tells of processes that have certainly ended, and may
	// be nil.
	Single      bool
	Lease       time.Duration
	ProcessGone func(fsm.Origin) bool
	// Pass runs f and tells so, unless queues of this node may conclude nothing from what others say for the moment. nil: they
	// always may.
	Pass func(f func()) bool
	// Closed is called once the closed queue has nothing left to hand over.
	Closed func()
	// Ended is called when the session is over while this node may still lead: a
	// proposal's outcome is unknown, or a newer session shows in the log.
	Ended func()
	// StartMover begins moving dead letters; it is called when the outbox is
	// first seen non-empty. The mover is stopped with the leader.
	StartMover func(l *Leader) Mover
	// StartRedriver does the same when there is a redrive to carry on. It may be nil.
	StartRedriver func(l *Leader) Redriver
	// Observe, which may be nil, is told what an entry of this session did to dead letters,
	// once, when it is applied here, with the settings of then. An entry that is applied
	// after the session is told to nobody. It keeps neither argument and is quick.
	Observe func(res *fsm.Result, set *queue.Settings)
	// Arrived, which may be nil, is told in the same way what an entry of this session has brought.
	Arrived func(came fsm.Arrivals)
	Logger  *slog.Logger

	acksLinger time.Duration // set by Lead unless a test has set it
}

// Mover moves dead letters out of the queue's outbox.
type Mover interface {
	// Wake tells that the outbox changed.
	Wake()
	// Answer hands over a target's answer.
	Answer(m *wire.TransferAnswer)
	// Stop ends the mover and waits for its goroutine.
	Stop()
}

// EntryBytesMax bounds what one operation may make of an entry. A message between nodes takes 160 MiB, of which this leaves something to what else is in the entry: one
// that no follower can be sent would be the last of its queue.
const EntryBytesMax = 144 << 20

// Bounds of a leader.
const (
	entryBytesMax   = 256 << 10 // payload of one entry, unless one message is larger
	entriesInFlight = 16        // proposed, not yet applied
	bytesInFlight   = 8 << 20
	eagerEntries    = 2 // below this a partial batch is proposed at once
	// eagerBytes is the size of a batch that is proposed while others are in flight: a full one. What an entry costs whatever it
	// carries is most of the cost where many queues share the load, and who waits here waits for an entry in flight at most.
	eagerBytes         = entryBytesMax
	markReserve        = 4096 // messages by which the delivered mark is raised for a backlog
	rollCallTimeout    = time.Second
	rollHoldPatience   = 10 * time.Microsecond // for each delivery that an answer may name
	rollCallMax        = 30 * time.Second
	leaseRetry         = 25 * time.Millisecond
	transferDoneLinger = 10 * time.Millisecond
)

type phase uint8

const (
	phaseOpen phase = iota
	phaseRoll
	phaseActive
)

// Leader runs one queue while this node leads it. See the package comment.
// Everything below inbox is touched by its goroutine only.
type Leader struct {
	cfg     Config
	replica *Replica
	counts  counts
	// blocking is read by others too.
	blocking blocking

	mu    sync.Mutex
	inbox []any
	// resting: atRest, at the end of the last step.
	resting bool
	signal  chan struct{}
	stop    chan struct{}
	once    sync.Once
	done    chan struct{}

	phase   phase
	isOpen  atomic.Bool // phase is beyond phaseOpen, for others
	ordinal uint64      // of the last proposed entry
	epoch   clock
	// clockError is what the node's clock is corrected by in this session, ms.
	clockError int64

	// roll call: nodes still to answer, by node number.
	awaited    map[uint32]uint64
	rollBefore time.Time
	// rollLast: the time is over, and what had come by then is being looked at.
	rollLast bool
	// early came before the first entry was applied. From the nodes in unkept came what is not kept, too.
	early  []received
	unkept map[string]bool
	// missing did not answer in time: until they do, or are gone, a queue that ends without
	// a consumer (auto-delete, x-expires) may have one there.
	missing map[uint32]uint64
	// maybeDelivered is the mark found at activation: what is at or below it
	// may have been delivered by an earlier leader.
	maybeDelivered queue.MessageID
	recounting     recounting

	// seen is the machine right after the newest entry whose result was handled:
	// what counts here, because held and condemned messages belong to it. The
	// machine itself may be further.
	seen seen
	// over: the session has failed, nothing more is done.
	over bool

	peers     map[uint32]*peer
	transfers map[fsm.Source]*inbound
	supply    supply // the transfers that wait for an entry
	consumers consumers
	ready     readyView
	delays    queue.Delays // messages that wait out a retry delay
	held      map[queue.MessageID]hold
	named     int   // how many of held are named,
	namedSize int64 // and the bytes of their bodies
	heldMost  int   // held at once since the map was made
	gets      []*wire.Get
	getsFrom  map[*wire.Get]string
	queries   []parkedQuery
	asks      []parkedAsk
	attaches  []parkedAttach
	taken     map[uint64]uint64 // by target, the highest sequence it has told to be committed
	limits    limits
	flow      flow
	planning  planning
	heldBack  bool // deliver could not go on although somebody can take messages
	pending   batch
	inFlight  []proposal
	flying    int // bytes in flight
	mover     Mover
	redriver  Redriver
	redriving bool // there are messages that a redrive has to decide on
	// stopped is the redrive whose end is proposed: when it ends, all that it has not sent is in reach of everybody.
	stopped  uint64
	single   single
	closing  closing
	forgets  forgetting
	parked   parked
	lease    lease
	out      outbox
	timer    *time.Timer
	wakeAt   time.Time
	pressing bool // something is due at wakeAt or later
	cache    entryCache
}

// Lead starts leading r's queue. The caller ends it with Stop.
func Lead(r *Replica, cfg Config) *Leader {
	l := newLeader(r, cfg)
	go l.run()
	return l
}

// newLeader makes a leader that hears what r applies; run is its goroutine.
func newLeader(r *Replica, cfg Config) *Leader {
	if cfg.acksLinger == 0 {
		cfg.acksLinger = acksLinger
	}
	if cfg.Pass == nil {
		cfg.Pass = func(f func()) bool { f(); return true }
	}
	l := &Leader{
		cfg: cfg, replica: r,
		signal: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		peers:     map[uint32]*peer{},
		transfers: map[fsm.Source]*inbound{},
		held:      map[queue.MessageID]hold{},
		getsFrom:  map[*wire.Get]string{},
		taken:     map[uint64]uint64{},
		timer:     time.NewTimer(time.Hour),
	}
	l.supply.flight = cfg.Flight
	l.consumers.single = cfg.Single
	l.consumers.init()
	l.ready.init()
	l.out.init()
	r.View(func(m *fsm.Machine) { l.counts.delayed.Store(int64(m.Delays().Len())) })
	r.leader.Store(l)
	return l
}

// Opened tells whether the session's first entry is applied, and with it everything that earlier leaders got into the log. It may
// be called by anybody.
func (l *Leader) Opened() bool { return l.isOpen.Load() }

// Session tells this leader's session.
func (l *Leader) Session() uint64 { return l.cfg.Session }

// Stop ends the leader and waits for its goroutine.
func (l *Leader) Stop() {
	l.Retire()
	<-l.done
}

// Retire ends the leader without waiting.
func (l *Leader) Retire() {
	l.replica.leader.CompareAndSwap(l, nil)
	l.once.Do(func() { close(l.stop) })
}

// HasParked tells whether dead letters without a route wait for a change of
// topology.
func (l *Leader) HasParked() (parked bool) {
	l.replica.View(func(m *fsm.Machine) { parked = m.Outbox().Parked(fsm.ParkUnrouted) > 0 })
	return parked
}

// Receive takes a message from a node. It never blocks.
func (l *Leader) Receive(from string, m wire.Message) { l.post(received{from, m}) }

// NodeGone tells that a node is confirmed dead or has a new incarnation.
func (l *Leader) NodeGone(node uint32, incarnation uint64) { l.post(nodeGone{node, incarnation}) }

// NodeUp tells that messages to a node may have been lost, or that it is alive
// again.
func (l *Leader) NodeUp(node string) { l.post(nodeUp{node}) }

// Done is closed when the leader has ended.
func (l *Leader) Done() <-chan struct{} { return l.done }

// CatalogChanged tells that settings or topology may have changed.
func (l *Leader) CatalogChanged() { l.post(catalogChanged{}) }

// BeginClose asks for the queue's end: its entry is proposed and the outbox
// drains.
func (l *Leader) BeginClose() { l.post(beginClose{}) }

// Propose adds a command of the mover to the next entry; lazy ones wait a
// little for company. applied, if not nil, is called on the leader's goroutine once
// the entry is applied here.
func (l *Leader) Propose(c fsm.Command, lazy bool, applied func()) {
	l.post(command{c, lazy, applied})
}
