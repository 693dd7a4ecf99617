package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// RaftTransport is one group's view of the mesh. It has no goroutine of its own
// while nothing is asked of the group.
type RaftTransport struct {
	m         *Mesh
	group     GroupID
	self      ReplicaID
	selfBytes []byte    // self; nobody changes them
	check     uint32    // of frames that are meant for this replica
	codec     raftCodec // for what this node sends
	consumer  chan raft.RPC

	mu       sync.Mutex
	closed   bool
	waiting  []*inboundRPC // handed to Raft, in order; not answered yet
	draining bool          // a goroutine waits for their answers
	votes    []*openVote   // requests of this replica's candidacy that are not answered
	followed Following     // who this replica follows
	// supporters are the voters that follow this replica.
	supporters map[ReplicaID]supporter

	appendFailed atomic.Pointer[func(to NodeID)]
	copies       atomic.Bool // see CopiesEntries
	voteHold     time.Duration
	apart        atomic.Pointer[Checksum]
	arrived      []*inboundRPC // appends that Raft has not answered, whose data is apart; guarded by mu
	durable      atomic.Pointer[Durable]
	before       atomic.Pointer[func(*raft.AppendEntriesRequest)]

	done chan struct{} // closed at Close
}

var (
	_ raft.Transport   = (*RaftTransport)(nil)
	_ raft.WithPreVote = (*RaftTransport)(nil)
	_ raft.WithClose   = (*RaftTransport)(nil)
)

// catalogInboxFactor times InboxDepth is the inbox of the catalog's group.
const catalogInboxFactor = 4

// catalogVoteHold is the most that Config.VoteHold is for the catalog's group. It has one election at a time, and a leader whose disk has hung for longer goes
// on when the disk does: a vote that came then would depose it.
const catalogVoteHold = 3 * time.Second

func newRaftTransport(m *Mesh, g GroupID, self ReplicaID) *RaftTransport {
	depth, hold := m.cfg.InboxDepth, m.cfg.VoteHold
	if g == CatalogGroup {
		depth *= catalogInboxFactor // there is one, and what it answers is waited for by all
		hold = min(hold, catalogVoteHold)
	}
	rt := &RaftTransport{
		m: m, group: g, self: self, selfBytes: m.self, check: targetCheck(self, g), codec: raftCodec{self: m.self},
		consumer: make(chan raft.RPC, depth), done: make(chan struct{}), voteHold: hold,
	}
	if string(self) != string(m.self) {
		rt.selfBytes = []byte(self)
	}
	return rt
}

// Consumer implements raft.Transport.
func (rt *RaftTransport) Consumer() <-chan raft.RPC { return rt.consumer }

// LocalAddr implements raft.Transport: the node's identity.
func (rt *RaftTransport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(rt.m.cfg.Local) }

// EncodePeer implements raft.Transport: raft keeps these bytes of whom it has voted for, so
// that they must name the replica.
func (rt *RaftTransport) EncodePeer(id raft.ServerID, _ raft.ServerAddress) []byte {
	if id == raft.ServerID(rt.self) {
		return rt.selfBytes // which Raft asks for with each heartbeat, and does not change
	}
	return []byte(id)
}

// DecodePeer implements raft.Transport.
func (rt *RaftTransport) DecodePeer(b []byte) raft.ServerAddress {
	return rt.m.names.of(b)
}

// names are the nodes of replicas, as Raft asks for the leader's with each heartbeat.
type names struct {
	mu    sync.RWMutex
	known map[string]raft.ServerAddress
}

func (n *names) of(replica []byte) raft.ServerAddress {
	n.mu.RLock()
	addr, ok := n.known[string(replica)]
	n.mu.RUnlock()
	if ok {
		return addr
	}
	id := ReplicaID(replica)
	addr = raft.ServerAddress(id.Node())
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil || len(n.known) >= strangersMax {
		n.known = map[string]raft.ServerAddress{}
	}
	n.known[string(id)] = addr
	return addr
}

// SetHeartbeatHandler does nothing on purpose. Raft's handler would change the
// term beside a main loop that still believes to lead, and the next Apply would be
// written with a term this node does not lead (hashicorp/raft#695). Heartbeats
// arrive through Consumer like every other request.
func (rt *RaftTransport) SetHeartbeatHandler(func(raft.RPC)) {}

// Close unregisters the group and ends every call that waits. It is safe twice.
func (rt *RaftTransport) Close() error {
	rt.m.groups.remove(rt)
	rt.shut()
	rt.turnFromLeader("")
	return nil
}

func (rt *RaftTransport) isClosed() bool {
	select {
	case <-rt.done:
		return true
	default:
		return false
	}
}

// shut marks the transport closed.
func (rt *RaftTransport) shut() {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if !rt.closed {
		rt.closed = true
		close(rt.done)
	}
}

// OnAppendFailed sets a listener for append requests that failed with entries in
// flight. Raft sends those entries again only when something triggers it, so the
// host should issue a Barrier. It is called on Raft's or the link's goroutine and
// must not wait.
func (rt *RaftTransport) OnAppendFailed(f func(to NodeID)) { rt.appendFailed.Store(&f) }

func (rt *RaftTransport) failedAppend(to NodeID, req *raft.AppendEntriesRequest) {
	if f := rt.appendFailed.Load(); f != nil && len(req.Entries) > 0 {
		(*f)(to)
	}
}

// CopiesEntries says that the replica's log keeps nothing of what it is given to store: the memory of a request is used
// again once raft has answered it. The library itself keeps entries in its LogCache and its InmemStore.
func (rt *RaftTransport) CopiesEntries() { rt.copies.Store(true) }

// BeforeAppend has f called with each append that comes for this replica, before raft gets it. f may change it, and must not wait.
func (rt *RaftTransport) BeforeAppend(f func(*raft.AppendEntriesRequest)) { rt.before.Store(&f) }

// InjectTimeoutNow makes the local replica start an election at once, without
// pre-vote, as if a leader had handed over to it. It fails with ErrBusy when the
// replica does not drain its inbox.
func (rt *RaftTransport) InjectTimeoutNow() error {
	id := []byte(rt.self)
	rpc := raft.RPC{
		Command:  &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: id, Addr: id}},
		RespChan: make(chan raft.RPCResponse, 1), // nobody needs the answer
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return ErrClosed
	}
	select {
	case rt.consumer <- rpc:
		return nil
	default:
		return ErrBusy
	}
}

// deliver hands a request to Raft or answers at once why not. It never waits.
func (rt *RaftTransport) deliver(r *inboundRPC) {
	if r.check != rt.check {
		r.refuse(rt.m.misdirected(rt.group))
		return
	}
	if err := rt.enqueue(r); err != nil {
		if errors.Is(err, ErrBusy) {
			rt.m.stats.raftBusy.Add(1)
		}
		r.refuse(err)
	}
}

func (rt *RaftTransport) enqueue(r *inboundRPC) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return &RemoteError{Code: CodeClosed, Text: fmt.Sprintf("group %d is closing on node %s", rt.group, rt.m.cfg.Local)}
	}
	inbox := &rt.m.groups.inboxBytes
	if n := inbox.Add(r.bytes); n > rt.m.cfg.InboxBytesMax && n > r.bytes {
		inbox.Add(-r.bytes)
		return ErrBusy
	}
	rt.follow(r)
	if a, ok := r.cmd.(*raft.AppendEntriesRequest); ok {
		if f := rt.before.Load(); f != nil {
			(*f)(a)
		}
	}
	rt.putData(r)
	select {
	case rt.consumer <- raft.RPC{Command: r.cmd, RespChan: r.resp}:
	default:
		inbox.Add(-r.bytes)
		rt.takeData(r)
		return ErrBusy
	}
	r.cmd = nil
	rt.waiting = append(rt.waiting, r)
	if !rt.draining {
		rt.draining = rt.m.spawn(rt.drain)
	}
	return nil
}

// drain answers requests in the order Raft takes them, and ends when none is left.
// Raft answers one request before it takes the next, so one goroutine is enough.
func (rt *RaftTransport) drain() {
	for {
		rt.mu.Lock()
		if len(rt.waiting) == 0 {
			rt.waiting = nil
			rt.draining = false
			rt.mu.Unlock()
			return
		}
		r := rt.waiting[0]
		rt.waiting[0] = nil
		rt.waiting = rt.waiting[1:]
		rt.mu.Unlock()
		select {
		case resp := <-r.resp:
			if !rt.holds(r, resp) {
				rt.respond(r, resp)
			}
			rt.over(r)
		case <-rt.done:
			r.in.answer(r.call, nil, &RemoteError{Code: CodeClosed, Text: "the group was closed"})
		}
		rt.m.groups.inboxBytes.Add(-r.bytes)
	}
}

func (rt *RaftTransport) respond(r *inboundRPC, resp raft.RPCResponse) {
	if resp.Error != nil {
		r.in.answer(r.call, nil, &RemoteError{Code: CodeRaft, Text: resp.Error.Error()})
		return
	}
	b := make([]byte, 0, 64)
	switch a := resp.Response.(type) {
	case *raft.AppendEntriesResponse:
		r.in.answer(r.call, rt.codec.appendAnswer(b, a, r.turns), nil)
		return
	case *raft.RequestVoteResponse:
		if a.Granted {
			rt.turnFromLeader(r.in.from)
		}
	}
	b, err := rt.codec.response(b, resp.Response)
	r.in.answer(r.call, b, err)
}

// frameFor encodes a request to a replica.
func (rt *RaftTransport) frameFor(to ReplicaID, cmd any) (request, error) {
	f := form{apart: rt.m.Peer(to.Node()).Level >= levelApart}
	if sum := rt.apart.Load(); sum != nil {
		f.sum = *sum
	}
	b, rpc, err := rt.codec.request(cmd, f)
	if err != nil {
		return request{}, err
	}
	catalog := rt.m.cfg.CatalogIndex()
	fields := appendTarget(make([]byte, 0, fieldsBytesMax), to, rt.group)
	return request{kind: frameRaft, body: b, fields: append(binary.AppendUvarint(fields, catalog), rpc)}, nil
}

// AppendEntries implements raft.Transport. It shortens args.Entries in place to
// Config.AppendBytesMax: Raft computes what to send next from the request it gets
// back. While the link is down it waits for it, up to Config.StreamWait, because a
// failure would make Raft back off deaf to everything.
func (rt *RaftTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	err := rt.appendEntries(ReplicaID(id), args, resp)
	if err != nil {
		rt.failedAppend(NodeID(target), args)
	}
	return err
}

func (rt *RaftTransport) appendEntries(to ReplicaID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if !rt.m.cfg.Healthy() {
		rt.m.stats.unhealthy.Add(1)
		return ErrUnhealthy
	}
	if rt.isClosed() {
		return ErrClosed // it could reach a replica that nobody leads from here any more
	}
	n := fit(args.Entries, rt.m.cfg.AppendBytesMax)
	if n < len(args.Entries) {
		rt.m.stats.appendsShortened.Add(1)
		args.Entries = args.Entries[:n]
	}
	req, err := rt.frameFor(to, rt.capped(args))
	if err != nil {
		return err
	}
	var got appendAnswer
	process, err := rt.ask(to.Node(), req, &got)
	if err != nil {
		return err
	}
	*resp = got.AppendEntriesResponse
	if resp.Success {
		rt.supported(to, args.Term, Support{Process: process, Turns: got.turns})
		return rt.awaitDurable(args)
	}
	return nil
}

// SpreadCommit sends a replica an append without entries which says that everything up to index, an
// entry of entryTerm, is committed. The caller must have led the group in term and index must be
// committed: both stay true whatever happens since, so the request may come late, or more than
// once. It travels behind what was sent before and is not waited for. done is called once if and only if
// the error is nil, on the link's goroutine: refused tells that the node does not have the entry or that the term is over; neither,
// that it did not answer.
func (rt *RaftTransport) SpreadCommit(to ReplicaID, term, index, entryTerm uint64, done func(accepted, refused bool)) error {
	if !rt.m.cfg.Healthy() {
		rt.m.stats.unhealthy.Add(1)
		return ErrUnhealthy
	}
	self := []byte(rt.self)
	req, err := rt.frameFor(to, &raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: self, Addr: self},
		Term:      term, Leader: self, PrevLogEntry: index, PrevLogTerm: entryTerm, LeaderCommitIndex: index,
	})
	if err != nil {
		return err
	}
	p, err := rt.m.peer(to.Node())
	if err != nil {
		return err
	}
	sess := p.current()
	if sess == nil {
		return ErrPeerDown
	}
	_, err = sess.send(req, func(b []byte, err error) {
		var got appendAnswer
		answered := err == nil && sess.codec.readResponse(b, &got) == nil
		done(answered && got.Success, answered && !got.Success)
	})
	return err
}

// fit returns how many of the entries make a request of at most limit bytes, one at
// least.
func fit(entries []*raft.Log, limit int) int {
	const header = 256
	size := header
	for i, l := range entries {
		b := entryBytes(l)
		if i > 0 && size+b > limit {
			return i
		}
		size += b
	}
	return len(entries)
}

// capped returns args with the commit index lowered to what the request verifies:
// a follower commits up to its own last index, even where that lies in a tail
// nobody has compared, and a shortened request may end before such a tail.
func (rt *RaftTransport) capped(args *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
	commit := verifiedCommit(args)
	if commit == args.LeaderCommitIndex {
		return args
	}
	rt.m.stats.commitsCapped.Add(1)
	c := *args
	c.LeaderCommitIndex = commit
	return &c
}

// ask sends a request and decodes the answer, waiting for a lost link and for the
// answer within their bounds. It returns which process answered.
func (rt *RaftTransport) ask(to NodeID, req request, resp any) (process uint64, err error) {
	p, err := rt.m.peer(to)
	if err != nil {
		return 0, err
	}
	sess := p.current()
	if sess == nil {
		timer := time.NewTimer(rt.m.cfg.StreamWait)
		sess, err = p.await(rt.done, timer.C, false)
		timer.Stop()
		if err != nil {
			return 0, err
		}
	}
	b, err := sess.roundTripWithin(rt.done, rt.m.cfg.AnswerWait, req)
	if err != nil {
		return 0, err
	}
	return sess.process, sess.codec.readResponse(b, resp)
}

// TimeoutNow implements raft.Transport.
func (rt *RaftTransport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	req, err := rt.frameFor(ReplicaID(id), args)
	if err != nil {
		return err
	}
	_, err = rt.ask(NodeID(target), req, resp)
	return err
}

// InstallSnapshot implements raft.Transport. The data travels on a connection of its
// own.
func (rt *RaftTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	err := rt.sendSnapshot(ReplicaID(id), args, resp, data)
	if err != nil {
		rt.m.stats.snapshotsFailed.Add(1)
		return fmt.Errorf("snapshot of group %d to %s: %w", rt.group, target, err)
	}
	rt.m.stats.snapshotsSent.Add(1)
	return nil
}

// IsHeartbeat tells whether raft sends a request as a heartbeat: it is fenced by its term alone, and carries neither entries nor what was committed.
func IsHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && a.LeaderCommitIndex == 0 && len(a.Entries) == 0
}
