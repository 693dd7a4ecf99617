package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/transport"
)

// memNet is a network in memory for virtual time: links can be cut, nodes killed (their
// port refuses) and frozen (connected but mute).
type memNet struct {
	delay time.Duration
	// lag delays each call between nodes and each answer, once for the raft's; nil: not at all.
	lag func(raft bool) time.Duration
	// pipelined has replication use pipelines, as the real transport does; set before groups run.
	pipelined bool
	// slow is how long pipelines to a node take for each request.
	slow map[transport.NodeID]time.Duration
	// withheld are nodes to which no entries and no snapshots come through; guarded by mu.
	withheld map[transport.NodeID]bool
	// nothings counts appends without entries that are no heartbeats.
	nothings atomic.Int64
	// votes counts those that were asked for.
	votes atomic.Int64

	mu    sync.Mutex
	lives uint64
	nodes map[transport.NodeID]*memNode
	cut   map[[2]transport.NodeID]bool
	// since is when two nodes were last able to talk.
	since map[[2]transport.NodeID]time.Time
}

func newMemNet() *memNet {
	return &memNet{
		delay: time.Millisecond,
		nodes: make(map[transport.NodeID]*memNode),
		cut:   make(map[[2]transport.NodeID]bool),
		since: make(map[[2]transport.NodeID]time.Time),
	}
}

type callHandler func(context.Context, transport.NodeID, []byte) ([]byte, error)

// memNode is one node's end of a memNet. down and frozen are guarded by memNet.mu.
type memNode struct {
	net          *memNet
	id           transport.NodeID
	process      uint64 // numbers the lives of nodes
	down, frozen bool
	handlers     map[uint8]callHandler
	changed      []func(transport.PeerStatus)
	unknown      func(transport.GroupID, transport.NodeID, uint64)
	groups       map[transport.GroupID]*memWire
	noFree       bool // FreeCandidate finds no open vote
}

var _ Network = (*memNode)(nil)

func pair(a, b transport.NodeID) [2]transport.NodeID {
	if a > b {
		a, b = b, a
	}
	return [2]transport.NodeID{a, b}
}

func (n *memNet) join(id transport.NodeID) *memNode {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lives++
	m := &memNode{net: n, id: id, process: n.lives, handlers: make(map[uint8]callHandler), groups: make(map[transport.GroupID]*memWire)}
	n.nodes[id] = m
	for o := range n.nodes {
		n.since[pair(id, o)] = time.Now()
	}
	return m
}

// linked tells whether bytes pass between two nodes. Caller holds mu.
func (n *memNet) linked(a, b transport.NodeID) bool {
	na, nb := n.nodes[a], n.nodes[b]
	return na != nil && nb != nil && !na.down && !nb.down && !n.cut[pair(a, b)]
}

// change applies f to the network and tells every node about its links.
func (n *memNet) change(f func()) {
	n.mu.Lock()
	now := time.Now()
	for p := range n.since {
		if n.linked(p[0], p[1]) && !n.nodes[p[0]].frozen && !n.nodes[p[1]].frozen {
			n.since[p] = now
		}
	}
	f()
	type notice struct {
		f func(transport.PeerStatus)
		s transport.PeerStatus
	}
	var notices []notice
	for _, m := range n.nodes {
		for _, fn := range m.changed {
			for o := range n.nodes {
				if o != m.id {
					notices = append(notices, notice{fn, n.status(m.id, o)})
				}
			}
		}
	}
	n.mu.Unlock()
	for _, x := range notices {
		x.f(x.s)
	}
}

func (n *memNet) isolate(id transport.NodeID, cut bool) {
	n.change(func() {
		for o := range n.nodes {
			if o != id {
				n.cut[pair(id, o)] = cut
			}
		}
	})
}

// status is what a sees of b. Caller holds mu.
func (n *memNet) status(a, b transport.NodeID) transport.PeerStatus {
	s := transport.PeerStatus{Node: b, Up: n.linked(a, b), LastAnswered: n.since[pair(a, b)]}
	peer := n.nodes[b]
	if s.Up && !peer.frozen && !n.nodes[a].frozen {
		s.LastAnswered = time.Now()
		s.Process = peer.process
	}
	s.Refused = peer == nil || peer.down && !n.cut[pair(a, b)]
	return s
}

func (m *memNode) Peer(id transport.NodeID) transport.PeerStatus {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	if m.net.nodes[id] == nil {
		return transport.PeerStatus{Node: id}
	}
	return m.net.status(m.id, id)
}

// Ping does nothing: a node that is linked has always answered just now.
func (m *memNode) Ping(transport.NodeID, time.Time) {}

func (m *memNode) OnPeerChange(f func(transport.PeerStatus)) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.changed = append(m.changed, f)
}

func (m *memNode) HandleCall(method uint8, h func(context.Context, transport.NodeID, []byte) ([]byte, error)) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.handlers[method] = h
}

var errLink = errors.New("link is down")

// reach waits for the delay of one hop and returns the other node. A frozen node keeps
// the caller waiting.
func (m *memNode) reach(ctx context.Context, to transport.NodeID) (*memNode, error) {
	for {
		m.net.mu.Lock()
		ok, peer := m.net.linked(m.id, to), m.net.nodes[to]
		frozen := m.frozen || ok && peer.frozen
		wait := m.net.delay
		m.net.mu.Unlock()
		if !ok {
			return nil, errLink
		}
		if frozen {
			wait = 20 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
		if !frozen {
			return peer, nil
		}
	}
}

// starve waits as a process does that gets no processor.
func (n *memNet) starve(ctx context.Context, raft bool) {
	n.mu.Lock()
	var d time.Duration
	if n.lag != nil {
		d = n.lag(raft)
	}
	n.mu.Unlock()
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}

func (m *memNode) Call(ctx context.Context, to transport.NodeID, method uint8, request []byte) ([]byte, error) {
	peer, err := m.reach(ctx, to)
	if err != nil {
		return nil, err
	}
	m.net.mu.Lock()
	h := peer.handlers[method]
	m.net.mu.Unlock()
	if h == nil {
		return nil, fmt.Errorf("no method %d", method)
	}
	m.net.starve(ctx, false)
	answer, err := h(ctx, m.id, slices.Clone(request))
	if err != nil {
		return nil, err
	}
	m.net.starve(ctx, false)
	if _, err := m.reach(ctx, to); err != nil {
		return nil, err
	}
	return answer, nil
}

func (m *memNode) OnUnknownGroup(f func(transport.GroupID, transport.NodeID, uint64)) {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	m.unknown = f
}

func (m *memNode) Raft(g transport.GroupID, generation uint64) RaftTransport {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	w := &memWire{n: m, g: g, self: transport.Replica(m.id, generation), inbox: make(chan raft.RPC, 64), done: make(chan struct{}), free: make(map[uint64]chan struct{})}
	m.groups[g] = w
	return w
}

func (m *memNode) InjectAt(ctx context.Context, to transport.ReplicaID, g transport.GroupID) error {
	peer, err := m.reach(ctx, to.Node())
	if err != nil {
		return err
	}
	m.net.starve(ctx, true)
	w := peer.wire(g)
	if w == nil {
		return errors.New("unknown group")
	}
	if w.self != to {
		return errMisdirected
	}
	return w.InjectTimeoutNow()
}

func (m *memNode) wire(g transport.GroupID) *memWire {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	return m.groups[g]
}

// memWire is the transport of one replica.
type memWire struct {
	n     *memNode
	g     transport.GroupID
	self  transport.ReplicaID
	inbox chan raft.RPC
	once  sync.Once
	done  chan struct{}

	mu   sync.Mutex
	free map[uint64]chan struct{} // open votes by term
}

func (w *memWire) Consumer() <-chan raft.RPC                                { return w.inbox }
func (w *memWire) LocalAddr() raft.ServerAddress                            { return raft.ServerAddress(w.n.id) }
func (w *memWire) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte { return []byte(id) }
func (w *memWire) DecodePeer(b []byte) raft.ServerAddress {
	return raft.ServerAddress(transport.ReplicaID(b).Node())
}

func (w *memWire) SetHeartbeatHandler(func(raft.RPC)) { panic("the fast path is reachable") }

func (w *memWire) Close() error {
	w.once.Do(func() {
		close(w.done)
		w.n.net.mu.Lock()
		defer w.n.net.mu.Unlock()
		if w.n.groups[w.g] == w {
			delete(w.n.groups, w.g)
		}
	})
	return nil
}

func (w *memWire) InjectTimeoutNow() error {
	rpc := raft.RPC{
		Command:  &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}},
		RespChan: make(chan raft.RPCResponse, 1),
	}
	select {
	case w.inbox <- rpc:
		return nil
	default:
		return errors.New("inbox is full")
	}
}

func (w *memWire) FreeCandidate(term uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.free[term]
	if !ok || w.n.noFree {
		return false
	}
	close(c)
	delete(w.free, term)
	return true
}

// SupportFrom implements RaftTransport: nobody turns away in memory.
func (w *memWire) SupportFrom(voter transport.ReplicaID, _ uint64) (transport.Support, bool) {
	return w.n.Peer(voter.Node()).Support, true
}

func (w *memWire) Leave() {}

func (w *memWire) Rest()                          { _ = w.Close() }
func (w *memWire) Following() transport.Following { return transport.Following{} }
func (w *memWire) Resume(transport.Following)     {}

// SpreadCommit implements RaftTransport.
func (w *memWire) SpreadCommit(to transport.ReplicaID, term, index, entryTerm uint64, done func(accepted, refused bool)) error {
	self := []byte(w.self)
	go func() {
		out, err := w.call(to, &raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self},
			Term:      term, PrevLogEntry: index, PrevLogTerm: entryTerm, LeaderCommitIndex: index,
		}, nil)
		a, ok := out.(*raft.AppendEntriesResponse)
		done(err == nil && ok && a.Success, err == nil && ok && !a.Success)
	}()
	return nil
}

const memRPCTimeout = 10 * time.Second // as transport.Config's AnswerWait and VoteHold

var errMisdirected = errors.New("another replica is meant")

// call sends one RPC and waits for its answer.
func (w *memWire) call(to transport.ReplicaID, cmd any, r io.Reader) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), memRPCTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {})
	defer stop()
	go func() {
		select {
		case <-w.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	peer, err := w.n.reach(ctx, to.Node())
	if err != nil {
		return nil, err
	}
	w.n.net.starve(ctx, true)
	target := peer.wire(w.g)
	peer.net.mu.Lock()
	unknown, withheld := peer.unknown, peer.net.withheld[to.Node()]
	peer.net.mu.Unlock()
	if a, ok := cmd.(*raft.AppendEntriesRequest); withheld && (r != nil || ok && len(a.Entries) > 0) {
		<-ctx.Done()
		return nil, errLink
	}
	if target == nil && unknown != nil {
		unknown(w.g, w.n.id, 0)
		for range 20 {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-w.done:
				return nil, errLink
			}
			if target = peer.wire(w.g); target != nil {
				break
			}
		}
	}
	if target == nil {
		return nil, transport.ErrUnknownGroup
	}
	if target.self != to {
		return nil, errMisdirected
	}
	answer := make(chan raft.RPCResponse, 1)
	select {
	case target.inbox <- raft.RPC{Command: cmd, Reader: r, RespChan: answer}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a := <-answer:
		if a.Error != nil {
			return nil, a.Error
		}
		w.n.net.starve(ctx, true)
		if _, err := w.n.reach(ctx, to.Node()); err != nil {
			return nil, err
		}
		return a.Response, nil
	case <-target.done:
		return nil, errLink
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func clonedAppend(a *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	c := *a
	c.Entries = make([]*raft.Log, len(a.Entries))
	for i, e := range a.Entries {
		l := *e
		l.Data = slices.Clone(e.Data)
		c.Entries[i] = &l
	}
	return &c
}

func (w *memWire) AppendEntries(to raft.ServerID, _ raft.ServerAddress, a *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if len(a.Entries) == 0 && !transport.IsHeartbeat(a) {
		w.n.net.nothings.Add(1)
	}
	out, err := w.call(transport.ReplicaID(to), clonedAppend(a), nil)
	if err != nil {
		return err
	}
	*resp = *out.(*raft.AppendEntriesResponse)
	return nil
}

func (w *memWire) AppendEntriesPipeline(to raft.ServerID, _ raft.ServerAddress) (raft.AppendPipeline, error) {
	if !w.n.net.pipelined {
		return nil, raft.ErrPipelineReplicationNotSupported
	}
	return newMemPipeline(w, transport.ReplicaID(to)), nil
}

func (w *memWire) RequestVote(to raft.ServerID, _ raft.ServerAddress, a *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	w.n.net.votes.Add(1)
	w.mu.Lock()
	freed, ok := w.free[a.Term]
	if !ok {
		freed = make(chan struct{})
		w.free[a.Term] = freed
	}
	w.mu.Unlock()
	req := *a
	out, err := w.call(transport.ReplicaID(to), &req, nil)
	if err == nil {
		*resp = *out.(*raft.RequestVoteResponse)
		if resp.Granted || resp.Term > a.Term {
			return nil
		}
	}
	select {
	case <-freed:
		*resp = raft.RequestVoteResponse{Term: a.Term + 1}
		return nil
	case <-w.done:
		return errLink
	case <-time.After(memRPCTimeout):
		return err
	}
}

func (w *memWire) RequestPreVote(to raft.ServerID, _ raft.ServerAddress, a *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	out, err := w.call(transport.ReplicaID(to), a, nil)
	if err != nil {
		return err
	}
	*resp = *out.(*raft.RequestPreVoteResponse)
	return nil
}

func (w *memWire) InstallSnapshot(to raft.ServerID, _ raft.ServerAddress, a *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, r io.Reader) error {
	out, err := w.call(transport.ReplicaID(to), a, r)
	if err != nil {
		return err
	}
	*resp = *out.(*raft.InstallSnapshotResponse)
	return nil
}

func (w *memWire) TimeoutNow(to raft.ServerID, _ raft.ServerAddress, a *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	_, err := w.call(transport.ReplicaID(to), a, nil)
	return err
}
