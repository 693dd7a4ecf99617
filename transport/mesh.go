package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
)

// Sizes of gRPC's buffers for each connection.
const (
	streamWindowBytes = 4 << 20
	connWindowBytes   = 8 << 20
	readBufferBytes   = 64 << 10
	// writeBufferBytes is what goes out at once. Of 64 KiB the loopback's largest packet (an MTU of 65,536) holds all but 53 bytes, which travel
	// alone: a twelfth more processor time for large messages. A network's packets are smaller and do not care.
	writeBufferBytes = 60 << 10
	grpcBytesMax     = 4 << 20 // largest gRPC message, of which a link's and a snapshot's are smaller
	guestsMax        = 256     // connections on which no node of the cluster has shown itself
	// streamsMax are the concurrent streams of one connection, of which nodes open one on each. So many on as many connections as strangers
	// may have are all that can wait for a greeting: they leave none without a place.
	streamsMax     = 4
	greetingsMax   = 2 * streamsMax // handshakes at a time, times Config.GuestsMax: some of connections that were just closed are not over yet
	headerBytesMax = 16 << 10       // what gRPC says beside messages; it has 16 MiB by itself, for each stream of anybody
	strangersMax   = 4096           // different node incarnations met in a lifetime
)

type (
	appHandler  = func(from NodeID, payload []byte)
	callHandler = func(ctx context.Context, from NodeID, req []byte) ([]byte, error)
)

// Mesh is one node's end of all links. Its methods may be called from any
// goroutine.
type Mesh struct {
	cfg     Config
	began   time.Time    // origin of ping stamps
	wall    atomic.Int64 // ms since 1970 then
	self    []byte       // cfg.Local; nobody changes them
	process uint64       // drawn at random: tells runs of the process apart
	pool    mem.BufferPool
	server  *grpc.Server

	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	done   <-chan struct{}

	wg sync.WaitGroup // every goroutine started by spawn

	// mu guards the tables of peers. Nothing waits while holding it.
	mu          sync.Mutex
	closed      bool
	peers       map[NodeID]*peer
	inbound     map[NodeID]*inbound    // newest active stream of each node
	dispatchers map[NodeID]*dispatcher // never removed: order outlives a link
	ran         map[NodeID]runs        // no more nodes than dispatchers
	listeners   []func(PeerStatus)
	refusal     time.Time          // of the newest logged refusal
	told        time.Time          // of the newest line about twins
	renewing    context.CancelFunc // ends the work of RenewLinks, nil before the first
	renewHard   bool               // authorities were replaced, and not every link has been ended since

	appHandlers  [256]atomic.Pointer[appHandler]
	callHandlers [256]atomic.Pointer[callHandler]
	epochs       atomic.Uint64
	supports     supports
	workers      workers
	local        dispatcher
	groups       groupTable
	greetings    chan struct{} // slots of handshakes
	snapOut      snapshotSlots // of snapshots being sent
	snapIn       snapshotSlots // and received
	unary        chan struct{} // slots of calls by address
	waiters      sync.Pool     // of *waiter
	names        names
	stats        counters
}

// New starts a mesh: it serves the listener and dials nobody until told to.
func New(cfg Config) (*Mesh, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	m := &Mesh{
		cfg: cfg, self: []byte(cfg.Local), began: time.Now(), process: rand.Uint64() | 1, pool: new(bufferPool),
		peers: map[NodeID]*peer{}, inbound: map[NodeID]*inbound{}, ran: map[NodeID]runs{}, dispatchers: map[NodeID]*dispatcher{},
		greetings: make(chan struct{}, greetingsMax*cfg.GuestsMax),
		snapOut:   newSnapshotSlots(cfg.Snapshots), snapIn: newSnapshotSlots(cfg.Snapshots), unary: make(chan struct{}, cfg.Workers),
	}
	m.wall.Store(m.began.UnixMilli())
	if !cfg.Began.IsZero() {
		m.wall.Store(cfg.Began.UnixMilli())
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.done = m.ctx.Done()
	m.workers.m = m
	m.local.m, m.local.from = m, cfg.Local
	m.groups.init(m)
	for kind, h := range cfg.Handlers {
		m.Handle(kind, h)
	}
	m.server = grpc.NewServer(m.serverOptions()...)
	m.server.RegisterService(service(), m)
	m.spawn(func() {
		if err := m.server.Serve(newGuests(cfg.Listener, cfg.GuestsMax, m.dismissed)); err != nil && m.ctx.Err() == nil {
			cfg.Logger.Error("node listener failed", "err", err)
		}
	})
	return m, nil
}

func (m *Mesh) serverOptions() []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}), experimental.BufferPool(m.pool),
		grpc.StaticStreamWindowSize(streamWindowBytes), grpc.StaticConnWindowSize(connWindowBytes),
		grpc.ReadBufferSize(readBufferBytes), grpc.WriteBufferSize(writeBufferBytes),
		grpc.MaxRecvMsgSize(grpcBytesMax), grpc.MaxSendMsgSize(grpcBytesMax),
		grpc.MaxConcurrentStreams(streamsMax), grpc.MaxHeaderListSize(headerBytesMax),
		grpc.ConnectionTimeout(m.cfg.DialTimeout),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if m.cfg.Secure != nil {
		opts = append(opts, grpc.Creds(newServerCreds(m.cfg.Secure, m.refusedTLS)))
	}
	return opts
}

// spawn starts a goroutine of the mesh; it reports false when the mesh is closed.
func (m *Mesh) spawn(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.wg.Go(f)
	return true
}

// Close ends every link, every waiting call and every goroutine of the mesh and
// closes the listener. Handlers must return for it to return. It is safe twice.
func (m *Mesh) Close() error {
	m.mu.Lock()
	already := m.closed
	m.closed = true
	m.mu.Unlock()
	if !already {
		m.cancel()
		m.groups.close()
	}
	m.server.Stop()
	m.wg.Wait()
	return nil
}

// SetPeers keeps links, and pings, to exactly these nodes. Links to others are made
// on demand and dropped when idle. A node that is not linked and whose address is another one than at the
// newest attempt is dialled at once.
func (m *Mesh) SetPeers(nodes []NodeID) {
	want := make(map[NodeID]bool, len(nodes))
	for _, n := range nodes {
		want[n] = n != m.cfg.Local
	}
	for _, p := range m.pin(want) {
		p.readdress()
	}
}

// pin marks and makes the wanted peers. It returns those that were there.
func (m *Mesh) pin(want map[NodeID]bool) (there []*peer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, p := range m.peers {
		p.mu.Lock()
		p.pinned = want[id]
		p.mu.Unlock()
		there = append(there, p)
	}
	for id, ok := range want {
		if ok && m.peers[id] == nil && !m.closed {
			m.addPeer(id, true)
		}
	}
	return there
}

// addPeer starts the goroutine of a new peer; m.mu is held.
func (m *Mesh) addPeer(id NodeID, pinned bool) *peer {
	p := newPeer(m, id)
	p.pinned = pinned
	m.peers[id] = p
	m.wg.Go(func() { p.run(m.ctx) })
	return p
}

// peer returns the peer of that name, making it when needed.
func (m *Mesh) peer(id NodeID) (*peer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch p := m.peers[id]; {
	case m.closed:
		return nil, ErrClosed
	case p != nil:
		return p, nil
	case id == m.cfg.Local:
		return nil, fmt.Errorf("transport: node %s is this node", id)
	case id == "" || len(id) > nodeIDBytesMax:
		return nil, fmt.Errorf("%w: %q", ErrUnresolved, id)
	default:
		return m.addPeer(id, false), nil
	}
}

// dropIdle removes p if it is still idle; its goroutine ends then.
func (m *Mesh) dropIdle(p *peer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !p.idle() {
		return false
	}
	delete(m.peers, p.id)
	return true
}

// forgetPeer is the end of a peer's goroutine.
func (m *Mesh) forgetPeer(p *peer) {
	m.mu.Lock()
	if m.peers[p.id] == p {
		delete(m.peers, p.id)
	}
	m.mu.Unlock()
	p.mu.Lock()
	p.gone = true
	close(p.tried)
	p.tried = make(chan struct{})
	close(p.up) // down since its link ended, so it is open: wake those who wait
	p.mu.Unlock()
}

// Clock is the node's clock in milliseconds since 1970: the wall time at the start of the
// mesh, carried on by the monotonic clock. A step of the wall clock does not move it.
func (m *Mesh) Clock() int64 { return m.clockAt(time.Now()) }

func (m *Mesh) clockAt(t time.Time) int64 { return m.wall.Load() + t.Sub(m.began).Milliseconds() }

// clockMax keeps what a peer says about its clock far from overflow (year 5138).
const clockMax = 1e14

// Peer returns what is known about the way to a node. The local node is always up.
func (m *Mesh) Peer(n NodeID) PeerStatus {
	if n == m.cfg.Local {
		return PeerStatus{Node: n, Up: true, LastAnswered: time.Now(), Process: m.process, Level: m.cfg.Level, Support: Support{Process: m.process}}
	}
	m.mu.Lock()
	p := m.peers[n]
	m.mu.Unlock()
	if p == nil {
		return PeerStatus{Node: n}
	}
	s := p.status()
	s.LastHeard = m.lastHeard(n)
	return s
}

// Ping sends a ping to a node that is linked unless one was sent after since, so that whoever waits for an answer to such a ping need not wait for
// the next PingInterval. It does not wait.
func (m *Mesh) Ping(n NodeID, since time.Time) {
	m.mu.Lock()
	p := m.peers[n]
	m.mu.Unlock()
	if p == nil {
		return
	}
	if s := p.current(); s != nil && m.began.Add(time.Duration(s.pinged.Load())).Before(since) {
		s.ping()
	}
}

// lastHeard is when anything last came over the newest stream of a node, zero if it has none.
func (m *Mesh) lastHeard(n NodeID) time.Time {
	m.mu.Lock()
	in := m.inbound[n]
	m.mu.Unlock()
	if in == nil {
		return time.Time{}
	}
	return m.began.Add(time.Duration(in.heard.Load()))
}

// OnPeerChange adds a listener for changes of PeerStatus.Up and Refused. It runs on
// the peer's goroutine, in order for each peer, and must be quick.
func (m *Mesh) OnPeerChange(f func(PeerStatus)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listeners = append(m.listeners, f)
}

func (m *Mesh) peerChanged(s PeerStatus) {
	m.mu.Lock()
	listeners := m.listeners
	m.mu.Unlock()
	for _, f := range listeners {
		f(s)
	}
}

// activate makes in the stream of its node. The older one, if any, delivers nothing
// after activate has returned.
func (m *Mesh) activate(in *inbound) error {
	m.mu.Lock()
	old := m.inbound[in.from]
	if m.closed || in.gone || (old != nil && old.epoch > in.epoch) {
		m.mu.Unlock()
		return &RemoteError{Code: CodeStale, Text: "a newer stream of the node has taken over"}
	}
	m.inbound[in.from] = in
	p, twins := m.peers[in.from], m.twins(in)
	m.mu.Unlock()
	if twins {
		m.cfg.Logger.Warn("two processes run as the same node, with copies of one data folder: end one of them and wipe its folder", "peer", string(in.from))
	}
	if old != nil {
		old.kill(&RemoteError{Code: CodeStale, Text: "a newer stream of the node has taken over"})
	}
	if p != nil {
		p.hurry()
	}
	return nil
}

func (m *Mesh) unregister(in *inbound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	in.gone = true
	if m.inbound[in.from] == in {
		delete(m.inbound, in.from)
	}
}

// inboundEpoch returns the epoch of a node's active stream, 0 if there is none.
func (m *Mesh) inboundEpoch(from NodeID) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if in := m.inbound[from]; in != nil {
		return in.epoch
	}
	return 0
}

// dispatcherOf returns the dispatcher of a node, which outlives its links.
func (m *Mesh) dispatcherOf(from NodeID) (*dispatcher, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.dispatchers[from]
	if d == nil {
		if len(m.dispatchers) >= strangersMax {
			return nil, false
		}
		d = &dispatcher{m: m, from: from}
		m.dispatchers[from] = d
	}
	return d, true
}

// refused logs a refusal, at most one a second.
func (m *Mesh) refused(h hello, e *RemoteError) {
	m.stats.hellosRefused.Add(1)
	if m.mayLogRefusal() {
		m.cfg.Logger.Warn("refused a link", "peer", string(h.from), "cluster", h.cluster, "err", error(e))
	}
}

// dismissed logs that there were too many connections of strangers, at most once a second.
func (m *Mesh) dismissed(oldest net.Addr) {
	m.stats.hellosRefused.Add(1)
	if m.mayLogRefusal() {
		m.cfg.Logger.Warn("too many connections to the cluster address come from no node of the cluster, the oldest is closed", "peer", oldest.String(), "limit", m.cfg.GuestsMax)
	}
}

// mayLogRefusal is true once a second at most.
func (m *Mesh) mayLogRefusal() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.refusal) < time.Second {
		return false
	}
	m.refusal = time.Now()
	return true
}

// InjectAt asks a replica of group g to start an election, as
// RaftTransport.InjectTimeoutNow does here.
func (m *Mesh) InjectAt(ctx context.Context, to ReplicaID, g GroupID) error {
	if to.Node() == m.cfg.Local {
		return m.groups.inject(g, targetCheck(to, g))
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.cfg.CallTimeout)
		defer cancel()
	}
	_, err := m.ask(ctx, to.Node(), func() request { return request{kind: frameInject, fields: appendTarget(nil, to, g)} })
	return err
}

// counters are the totals behind Stats.
type counters struct {
	framesIn, framesOut, framesFenced, framesMisdirected   atomic.Uint64
	messagesIn, messagesOut                                atomic.Uint64
	linksMade, linksLost, hellosRefused                    atomic.Uint64
	raftBusy, raftUnknown, raftHeld, appendsShortened      atomic.Uint64
	appUnhandled, appBacklog, callsBusy                    atomic.Uint64
	snapshotsSent, snapshotsReceived, snapshotsFailed      atomic.Uint64
	candidatesFreed, commitsCapped, unhealthy, badRequests atomic.Uint64
}

// Stats are totals since the start, for metrics.
type Stats struct {
	FramesIn, FramesOut uint64
	// MessagesIn and MessagesOut are the gRPC messages that carried them.
	MessagesIn, MessagesOut uint64
	FramesFenced            uint64 // dropped because a newer stream had taken over
	FramesMisdirected       uint64 // refused because they named another target
	LinksMade               uint64
	LinksLost               uint64
	HellosRefused           uint64
	RaftBusy                uint64 // Raft requests answered "busy"
	RaftUnknown             uint64 // answered "unknown group"
	RaftHeld                uint64 // held for a group that was not running yet
	AppendsShortened        uint64
	CommitsCapped           uint64 // appends whose commit index was lowered to what they verify
	AppUnhandled            uint64 // application messages without a handler
	AppBacklog              uint64 // Send refused with ErrBacklog
	CallsBusy               uint64
	SnapshotsSent           uint64
	SnapshotsReceived       uint64
	SnapshotsFailed         uint64
	CandidatesFreed         uint64
	Unhealthy               uint64 // appends withheld while the local log was stuck
	BadRequests             uint64 // requests that could not be decoded
	Groups                  int    // Raft transports open
	InboxBytes              int64  // Raft requests waiting or held
	QueuedBytes             int    // waiting to be sent, over all peers
}

// Stats returns the totals.
func (m *Mesh) Stats() Stats {
	c := &m.stats
	s := Stats{
		FramesIn: c.framesIn.Load(), FramesOut: c.framesOut.Load(),
		MessagesIn: c.messagesIn.Load(), MessagesOut: c.messagesOut.Load(), FramesFenced: c.framesFenced.Load(),
		FramesMisdirected: c.framesMisdirected.Load(), LinksMade: c.linksMade.Load(), LinksLost: c.linksLost.Load(),
		HellosRefused: c.hellosRefused.Load(), RaftBusy: c.raftBusy.Load(), RaftUnknown: c.raftUnknown.Load(),
		RaftHeld: c.raftHeld.Load(), AppendsShortened: c.appendsShortened.Load(), CommitsCapped: c.commitsCapped.Load(),
		AppUnhandled: c.appUnhandled.Load(), AppBacklog: c.appBacklog.Load(), CallsBusy: c.callsBusy.Load(),
		SnapshotsSent: c.snapshotsSent.Load(), SnapshotsReceived: c.snapshotsReceived.Load(), SnapshotsFailed: c.snapshotsFailed.Load(),
		CandidatesFreed: c.candidatesFreed.Load(), Unhealthy: c.unhealthy.Load(), BadRequests: c.badRequests.Load(),
		Groups: m.groups.count(), InboxBytes: m.groups.inboxBytes.Load(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		p.mu.Lock()
		if p.sess != nil {
			s.QueuedBytes += p.sess.out.queued()
		}
		p.mu.Unlock()
	}
	return s
}
