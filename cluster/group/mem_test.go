package group

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/warrenmq/warren/cluster/detector"
	"github.com/warrenmq/warren/store"
	"github.com/warrenmq/warren/transport"
)

// memNet is a network in memory for virtual time: links can be cut, nodes killed (their
// port refuses) and frozen (connected but mute).
type memNet struct {
	delay time.Duration

	mu    sync.Mutex
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
	m := &memNode{net: n, id: id, handlers: make(map[uint8]callHandler), groups: make(map[transport.GroupID]*memWire)}
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
		m.net.mu.Unlock()
		if !ok {
			return nil, errLink
		}
		wait := m.net.delay
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
	answer, err := h(ctx, m.id, slices.Clone(request))
	if err != nil {
		return nil, err
	}
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

func (m *memNode) Raft(g transport.GroupID) RaftTransport {
	m.net.mu.Lock()
	defer m.net.mu.Unlock()
	w := &memWire{n: m, g: g, inbox: make(chan raft.RPC, 64), done: make(chan struct{}), free: make(map[uint64]chan struct{})}
	m.groups[g] = w
	return w
}

func (m *memNode) InjectAt(ctx context.Context, to transport.NodeID, g transport.GroupID) error {
	peer, err := m.reach(ctx, to)
	if err != nil {
		return err
	}
	w := peer.wire(g)
	if w == nil {
		return errors.New("unknown group")
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
	inbox chan raft.RPC
	once  sync.Once
	done  chan struct{}

	mu   sync.Mutex
	free map[uint64]chan struct{} // open votes by term
}

func (w *memWire) Consumer() <-chan raft.RPC                               { return w.inbox }
func (w *memWire) LocalAddr() raft.ServerAddress                           { return raft.ServerAddress(w.n.id) }
func (w *memWire) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }
func (w *memWire) DecodePeer(b []byte) raft.ServerAddress                  { return raft.ServerAddress(b) }
func (w *memWire) SetHeartbeatHandler(func(raft.RPC))                      { panic("the fast path is reachable") }

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

const memRPCTimeout = time.Second

// call sends one RPC and waits for its answer.
func (w *memWire) call(to raft.ServerAddress, cmd any, r io.Reader) (any, error) {
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
	peer, err := w.n.reach(ctx, transport.NodeID(to))
	if err != nil {
		return nil, err
	}
	target := peer.wire(w.g)
	if target == nil && peer.unknown != nil {
		peer.unknown(w.g, w.n.id, 0)
		for range 20 {
			time.Sleep(5 * time.Millisecond)
			if target = peer.wire(w.g); target != nil {
				break
			}
		}
	}
	if target == nil {
		return nil, errors.New("unknown group")
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
		if _, err := w.n.reach(ctx, transport.NodeID(to)); err != nil {
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

func (w *memWire) AppendEntries(_ raft.ServerID, to raft.ServerAddress, a *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	out, err := w.call(to, clonedAppend(a), nil)
	if err != nil {
		return err
	}
	*resp = *out.(*raft.AppendEntriesResponse)
	return nil
}

func (w *memWire) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (w *memWire) RequestVote(_ raft.ServerID, to raft.ServerAddress, a *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	w.mu.Lock()
	freed, ok := w.free[a.Term]
	if !ok {
		freed = make(chan struct{})
		w.free[a.Term] = freed
	}
	w.mu.Unlock()
	req := *a
	out, err := w.call(to, &req, nil)
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
	case <-time.After(3 * time.Second):
		return err
	}
}

func (w *memWire) RequestPreVote(_ raft.ServerID, to raft.ServerAddress, a *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	out, err := w.call(to, a, nil)
	if err != nil {
		return err
	}
	*resp = *out.(*raft.RequestPreVoteResponse)
	return nil
}

func (w *memWire) InstallSnapshot(_ raft.ServerID, to raft.ServerAddress, a *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, r io.Reader) error {
	out, err := w.call(to, a, r)
	if err != nil {
		return err
	}
	*resp = *out.(*raft.InstallSnapshotResponse)
	return nil
}

func (w *memWire) TimeoutNow(_ raft.ServerID, to raft.ServerAddress, a *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	_, err := w.call(to, a, nil)
	return err
}

// memStore keeps a node's replicas in memory; it survives the host.
type memStore struct {
	mu     sync.Mutex
	groups map[transport.GroupID]*memLog
}

func newMemStore() *memStore { return &memStore{groups: make(map[transport.GroupID]*memLog)} }

func (s *memStore) Group(id transport.GroupID) Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.groups[id]
	if !ok {
		l = &memLog{InmemStore: raft.NewInmemStore(), entries: make(map[uint64]raft.Log)}
		s.groups[id] = l
	}
	return l
}

func (s *memStore) DeleteGroup(id transport.GroupID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, id)
	return nil
}

func (s *memStore) ReadManifest(r io.Reader) ([]byte, error) { return io.ReadAll(r) }

// memLog is a replica in memory with the promises of the segment log: a snapshot is
// visible when it is closed, never replaces a newer one, and one that was sent by a leader
// removes every entry up to its index but the term there.
type memLog struct {
	*raft.InmemStore // only its StableStore half

	mu          sync.Mutex
	entries     map[uint64]raft.Log
	first, last uint64 // 0 while there are no entries
	meta        *raft.SnapshotMeta
	data        []byte
}

func (l *memLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, nil
}

func (l *memLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, nil
}

func (l *memLog) GetLog(index uint64, to *raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[index]; ok {
		*to = e
		return nil
	}
	if l.meta != nil && l.meta.Index == index {
		*to = raft.Log{Index: index, Term: l.meta.Term, Type: raft.LogNoop}
		return nil
	}
	return raft.ErrLogNotFound
}

func (l *memLog) StoreLog(e *raft.Log) error { return l.StoreLogs([]*raft.Log{e}) }

func (l *memLog) StoreLogs(es []*raft.Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range es {
		l.entries[e.Index] = *e
	}
	l.bounds()
	return nil
}

func (l *memLog) DeleteRange(from, to uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.entries {
		if i >= from && i <= to {
			delete(l.entries, i)
		}
	}
	l.bounds()
	return nil
}

func (l *memLog) bounds() {
	l.first, l.last = 0, 0
	for i := range l.entries {
		l.last = max(l.last, i)
		if l.first == 0 || i < l.first {
			l.first = i
		}
	}
}

func (l *memLog) Snapshots() raft.SnapshotStore { return l }

// Create implements raft.SnapshotStore.
func (l *memLog) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, ci uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &memSink{l: l, meta: raft.SnapshotMeta{
		Version: v, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term, Configuration: c, ConfigurationIndex: ci,
	}}, nil
}

// List implements raft.SnapshotStore.
func (l *memLog) List() ([]*raft.SnapshotMeta, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta == nil {
		return nil, nil
	}
	return []*raft.SnapshotMeta{l.meta}, nil
}

// Open implements raft.SnapshotStore.
func (l *memLog) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta == nil || l.meta.ID != id {
		return nil, nil, fmt.Errorf("no snapshot %s", id)
	}
	return l.meta, io.NopCloser(bytes.NewReader(l.data)), nil
}

type memSink struct {
	l    *memLog
	meta raft.SnapshotMeta
	data []byte
}

func (s *memSink) ID() string    { return s.meta.ID }
func (s *memSink) Cancel() error { return nil }

func (s *memSink) Write(b []byte) (int, error) {
	s.data = append(s.data, b...)
	return len(b), nil
}

func (s *memSink) Close() error {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.meta != nil && l.meta.Index > s.meta.Index {
		return fmt.Errorf("snapshot %d is older than %d", s.meta.Index, l.meta.Index)
	}
	if e, ok := l.entries[s.meta.Index]; !ok || e.Term != s.meta.Term {
		for i := range l.entries {
			if i <= s.meta.Index {
				delete(l.entries, i)
			}
		}
		l.bounds()
	}
	s.meta.Size = int64(len(s.data))
	l.meta, l.data = &s.meta, s.data
	return nil
}

func (l *memLog) Read(index uint64) ([]byte, error) {
	var e raft.Log
	if err := l.GetLog(index, &e); err != nil {
		return nil, err
	}
	return e.Data, nil
}

// ledger is a machine that remembers the indexes and texts it applied.
type ledger struct {
	mu    sync.Mutex
	items []string
	last  uint64
}

func (l *ledger) Apply(e Entry) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Index <= l.last {
		panic(fmt.Sprintf("entry %d after %d", e.Index, l.last))
	}
	l.last = e.Index
	l.items = append(l.items, string(e.Data))
	return len(l.items)
}

func (l *ledger) Snapshot() (func() ([]byte, []store.Range), error) {
	l.mu.Lock()
	items, last := slices.Clone(l.items), l.last
	l.mu.Unlock()
	return func() ([]byte, []store.Range) {
		b := binary.AppendUvarint(nil, last)
		for _, it := range items {
			b = binary.AppendUvarint(b, uint64(len(it)))
			b = append(b, it...)
		}
		return b, nil
	}, nil
}

func (l *ledger) Restore(b []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = nil
	v, n := binary.Uvarint(b)
	l.last, b = v, b[n:]
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		l.items = append(l.items, string(b[n:n+int(v)]))
		b = b[n+int(v):]
	}
	return nil
}

func (l *ledger) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.items)
}

// memCluster is a set of hosts in one process over memNet and memStore.
type memCluster struct {
	t     testing.TB
	net   *memNet
	ids   []transport.NodeID
	open  opener
	nodes map[transport.NodeID]*clusterNode
	tune  func(*HostConfig)
}

type clusterNode struct {
	id   transport.NodeID
	link *memNode
	det  *detector.Detector
	host *Host
	disk io.Closer

	mu       sync.Mutex
	machines map[transport.GroupID]*ledger
}

func testLogger() *slog.Logger {
	level := slog.LevelError
	if os.Getenv("GROUP_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func newMemCluster(t testing.TB, size int, tune func(*HostConfig)) *memCluster {
	return newClusterOver(t, memStorage(t), size, tune)
}

func newClusterOver(t testing.TB, open opener, size int, tune func(*HostConfig)) *memCluster {
	c := &memCluster{t: t, net: newMemNet(), tune: tune, open: open, nodes: make(map[transport.NodeID]*clusterNode)}
	for i := range size {
		id := transport.NodeID(fmt.Sprintf("n%d", i))
		c.ids = append(c.ids, id)
	}
	for _, id := range c.ids {
		c.boot(id)
	}
	return c
}

// boot starts a node over its store.
func (c *memCluster) boot(id transport.NodeID) *clusterNode {
	c.t.Helper()
	n := &clusterNode{id: id, link: c.net.join(id), machines: make(map[transport.GroupID]*ledger)}
	log := testLogger().With("on", id)
	var err error
	n.det, err = detector.New(detector.Config{Local: id, Net: n.link, Logger: log})
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := HostConfig{Local: id, Mesh: n.link, Detector: n.det, Logger: log}
	cfg.Store, n.disk = c.open(id)
	if c.tune != nil {
		c.tune(&cfg)
	}
	n.host = NewHost(cfg)
	n.det.SetPeers(c.ids)
	c.nodes[id] = n
	c.net.change(func() {})
	return n
}

// kill takes a node off the network, as SIGKILL would, and frees its resources.
func (c *memCluster) kill(id transport.NodeID) {
	n := c.nodes[id]
	c.net.change(func() { n.link.down = true })
	delete(c.nodes, id)
	n.close(c.t)
}

func (n *clusterNode) close(t testing.TB) {
	if err := n.host.Close(); err != nil {
		t.Errorf("close host %s: %v", n.id, err)
	}
	n.det.Close()
	if err := n.disk.Close(); err != nil {
		t.Errorf("close store of %s: %v", n.id, err)
	}
}

func (c *memCluster) close() {
	for _, n := range c.nodes {
		n.close(c.t)
	}
}

func (n *clusterNode) start(t testing.TB, s Spec) *Group {
	t.Helper()
	m := &ledger{}
	g, err := n.host.Start(s, m, nil)
	if err != nil {
		t.Fatalf("start group %d on %s: %v", s.ID, n.id, err)
	}
	n.mu.Lock()
	if n.machines[s.ID] == nil {
		n.machines[s.ID] = m
	}
	n.mu.Unlock()
	return g
}

// found starts a group on all nodes.
func (c *memCluster) found(s Spec) {
	c.t.Helper()
	s.Members, s.Bootstrap = c.ids, true
	for _, id := range c.ids {
		if n, ok := c.nodes[id]; ok {
			n.start(c.t, s)
		}
	}
}

// leader returns the group's replica that leads in the newest term and that a majority
// of the running nodes follows, or nil.
func (c *memCluster) leader(id transport.GroupID) *Group {
	var best *Group
	var bestTerm uint64
	for _, n := range c.nodes {
		g, ok := n.host.Group(id)
		if !ok || !g.IsLeader() {
			continue
		}
		if _, term, _ := g.Leader(); best == nil || term > bestTerm {
			best, bestTerm = g, term
		}
	}
	return best
}

// waitFor polls a condition; in a bubble it costs no real time.
func waitFor(t testing.TB, limit time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !cond() {
		if time.Since(began) > limit {
			t.Fatalf("after %v: %s", limit, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(began)
}

func (c *memCluster) waitLeader(id transport.GroupID, limit time.Duration, not ...transport.NodeID) *Group {
	c.t.Helper()
	var g *Group
	waitFor(c.t, limit, fmt.Sprintf("no leader for group %d", id), func() bool {
		g = c.leader(id)
		return g != nil && !slices.Contains(not, g.host.cfg.Local)
	})
	return g
}

// propose commits one command and returns its outcome.
func propose(g *Group, text string) (any, error) {
	type outcome struct {
		v   any
		err error
	}
	done := make(chan outcome, 1)
	g.Propose([]byte(text), func(v any, err error) { done <- outcome{v, err} })
	o := <-done
	return o.v, o.err
}

func difference(got, want []string) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	part := func(s []string) []string { return s[min(at, len(s)):min(at+3, len(s))] }
	return fmt.Sprintf("has %d items, want %d; from item %d on %v, want %v", len(got), len(want), at, part(got), part(want))
}

// agree waits until every running node has applied exactly want.
func (c *memCluster) agree(id transport.GroupID, want []string) {
	c.t.Helper()
	for _, n := range c.nodes {
		n.mu.Lock()
		m := n.machines[id]
		n.mu.Unlock()
		began := time.Now()
		for !slices.Equal(m.all(), want) {
			if time.Since(began) > 30*time.Second {
				c.t.Fatalf("node %s: %s", n.id, difference(m.all(), want))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
