package transport

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// heldShare is the part of InboxBytesMax that held frames may take: the groups that run have the rest to themselves.
const heldShare = 2

// groupTable finds the Raft transport of a group and keeps the frames of groups that
// do not run here yet.
type groupTable struct {
	m          *Mesh
	inboxBytes atomic.Int64 // bytes of requests held or waiting for Raft, over all groups

	mu     sync.RWMutex
	open   map[GroupID]*RaftTransport
	held   map[GroupID]*heldFrames
	frames int   // in held
	bytes  int64 // of these
	closed bool

	hookMu sync.Mutex
	hook   func(g GroupID, from NodeID, catalogIndex uint64)
	asks   map[GroupID]groupAsk // waiting for the hook, of groups that are held
	asking bool                 // its goroutine runs
}

// heldFrames are the requests waiting for one group, in order of arrival.
type heldFrames struct {
	timer *time.Timer
	rpcs  []*inboundRPC
}

type groupAsk struct {
	from    NodeID
	catalog uint64
}

// inboundRPC is a Raft request on its way through Raft.
type inboundRPC struct {
	in    *inbound
	call  uint64
	check uint32 // says which replica is meant
	cmd   any
	bytes int64
	data  *arrived              // of an append with entries
	lent  []byte                // what cmd's bytes lie in
	held  held                  // the same
	turns uint64                // of this node from the sender when Raft was given an append
	last  uint64                // index of the last entry of an append, 0 if it has none
	resp  chan raft.RPCResponse // capacity 1: Raft never waits
}

func (t *groupTable) init(m *Mesh) {
	t.m = m
	t.open, t.held, t.asks = map[GroupID]*RaftTransport{}, map[GroupID]*heldFrames{}, map[GroupID]groupAsk{}
}

func (t *groupTable) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.open)
}

// OnUnknownGroup sets the hook for requests of groups that do not run here. The host may
// open the group: the request waits up to Config.GroupHold and is answered "unknown
// group" then. The hook runs on one goroutine of the mesh, once per group while
// requests are held, and not for those that expire before their turn; it must not wait long.
func (m *Mesh) OnUnknownGroup(f func(g GroupID, from NodeID, catalogIndex uint64)) {
	m.groups.hookMu.Lock()
	defer m.groups.hookMu.Unlock()
	m.groups.hook = f
}

// Raft opens the transport of this node's replica of a group, of the generation that it has. Requests held for the group are delivered to
// it first. An open transport of the same group is closed: the newest instance is
// the group's only one.
func (m *Mesh) Raft(g GroupID, generation uint64) *RaftTransport {
	t := &m.groups
	rt := newRaftTransport(m, g, Replica(m.cfg.Local, generation))
	t.mu.Lock()
	old := t.open[g]
	if t.closed {
		close(rt.done)
		rt.closed = true
	} else {
		t.open[g] = rt
		if h := t.held[g]; h != nil {
			t.release(g, h)
			for _, r := range h.rpcs {
				rt.deliver(r)
			}
		}
	}
	t.mu.Unlock()
	if old != nil {
		m.cfg.Logger.Warn("raft transport opened twice, closing the older", "group", uint64(g))
		old.shut()
	}
	return rt
}

// release takes the held frames of g, and the question for it, out of the table, once; t.mu is held. Raft's inbox counts
// those frames that it gets anew.
func (t *groupTable) release(g GroupID, h *heldFrames) {
	h.timer.Stop()
	delete(t.held, g)
	t.frames -= len(h.rpcs)
	for _, r := range h.rpcs {
		t.bytes -= r.bytes
		t.inboxBytes.Add(-r.bytes)
	}
	t.hookMu.Lock()
	delete(t.asks, g)
	t.hookMu.Unlock()
}

// remove takes rt out of the table unless a newer one has its place.
func (t *groupTable) remove(rt *RaftTransport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[rt.group] == rt {
		delete(t.open, rt.group)
	}
}

// close shuts every transport and forgets what is held.
func (t *groupTable) close() {
	t.mu.Lock()
	t.closed = true
	open := t.open
	t.open = map[GroupID]*RaftTransport{}
	for g, h := range t.held {
		t.release(g, h)
	}
	t.mu.Unlock()
	for _, rt := range open {
		rt.shut()
	}
}

// inject starts an election of a local replica, if it is the one that is meant.
func (t *groupTable) inject(g GroupID, check uint32) error {
	t.mu.RLock()
	rt := t.open[g]
	t.mu.RUnlock()
	switch {
	case rt == nil:
		return ErrUnknownGroup
	case rt.check != check:
		return t.m.misdirected(g)
	}
	return rt.InjectTimeoutNow()
}

// appendTarget appends what follows the call's id in raft and inject frames.
func appendTarget(b []byte, to ReplicaID, g GroupID) []byte {
	b = binary.AppendUvarint(b, uint64(g))
	return binary.BigEndian.AppendUint32(b, targetCheck(to, g))
}

// readTarget reads them. Only the group's open transport knows which replica is here.
func readTarget(d *decoder) (call uint64, g GroupID, check uint32) {
	return d.uvarint(), GroupID(d.uvarint()), d.u32()
}

// misdirected counts a frame for another node, or for another replica of this one, and returns its answer.
func (m *Mesh) misdirected(g GroupID) error {
	m.stats.framesMisdirected.Add(1)
	return &RemoteError{Code: CodeTarget, Text: fmt.Sprintf("frame of group %d is not meant for the replica of node %s", g, m.cfg.Local)}
}

func (in *inbound) receiveInject(body []byte) error {
	d := decoder{b: body}
	call, g, check := readTarget(&d)
	if err := d.end(); err != nil {
		return err
	}
	in.answer(call, nil, in.m.groups.inject(g, check))
	return nil
}

// receiveRaft delivers a Raft request to its group, holds it, or answers why not.
func (m *Mesh) receiveRaft(in *inbound, f frame) error {
	p := f.held.pieces
	if f.held.bytes == 0 {
		p = pieces{f.body}
	}
	size := p.bytes()
	d := decoder{b: p.first(min(size, frameOverheadMax))}
	before := len(d.b)
	call, g, check := readTarget(&d)
	catalog, rpc := d.uvarint(), d.u8()
	if d.err != nil {
		return d.err
	}
	r := &inboundRPC{in: in, call: call, check: check, bytes: int64(size), lent: f.lent, held: f.held, resp: make(chan raft.RPCResponse, 1)}
	if err := r.decode(rpc, p.skip(before-len(d.b))); err != nil || rpc == rpcSnapshot {
		m.stats.badRequests.Add(1)
		r.held.free()
		in.answer(call, nil, &RemoteError{Code: CodeMalformed, Text: fmt.Sprintf("raft request of type %d: %v", rpc, err)})
		return nil
	}
	m.groups.route(g, catalog, r)
	return nil
}

// refuse answers a request that Raft has not seen.
func (r *inboundRPC) refuse(err error) {
	r.held.free()
	r.in.answer(r.call, nil, err)
}

// decode reads the request, which is p.
func (r *inboundRPC) decode(rpc uint8, p pieces) error {
	if rpc != rpcAppendApart {
		cmd, err := r.in.codec.readRequest(rpc, p.join())
		r.cmd, r.lent = cmd, nil
		r.held.free()
		switch c := cmd.(type) {
		case *raft.AppendEntriesRequest:
			c.LeaderCommitIndex = verifiedCommit(c)
		case *raft.RequestVoteRequest:
			c.ID = nil // who may be voted for is not the voter's to say (ADR 48)
		}
		return err
	}
	a, err := r.in.codec.readApart(p)
	if err != nil {
		return err
	}
	a.req.LeaderCommitIndex = verifiedCommit(a.req)
	r.cmd = a.req
	if len(a.bodies) > 0 {
		r.data = a
	}
	return nil
}

// route delivers r to group g or holds it.
func (t *groupTable) route(g GroupID, catalog uint64, r *inboundRPC) {
	t.mu.RLock()
	rt := t.open[g]
	if rt != nil {
		rt.deliver(r)
		t.mu.RUnlock()
		return
	}
	t.mu.RUnlock()
	t.hold(g, catalog, r)
}

// hold keeps r for a group that does not run here and asks the host to start it.
func (t *groupTable) hold(g GroupID, catalog uint64, r *inboundRPC) {
	t.hookMu.Lock()
	hooked := t.hook != nil
	t.hookMu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if rt := t.open[g]; rt != nil {
		rt.deliver(r)
		return
	}
	h := t.held[g]
	switch {
	case t.closed || !hooked:
		t.m.stats.raftUnknown.Add(1)
		r.refuse(t.unknown(g))
		return
	case t.frames >= t.m.cfg.HeldFramesMax || (h != nil && len(h.rpcs) >= t.m.cfg.InboxDepth) ||
		t.bytes+r.bytes > t.m.cfg.InboxBytesMax/heldShare || t.inboxBytes.Load()+r.bytes > t.m.cfg.InboxBytesMax:
		t.m.stats.raftBusy.Add(1)
		r.refuse(ErrBusy)
		return
	case h == nil:
		h = new(heldFrames)
		h.timer = time.AfterFunc(t.m.cfg.GroupHold, func() { t.expire(g, h) })
		t.held[g] = h
		t.ask(g, groupAsk{from: r.in.from, catalog: catalog})
	}
	t.m.stats.raftHeld.Add(1)
	h.rpcs = append(h.rpcs, r)
	t.frames++
	t.bytes += r.bytes
	t.inboxBytes.Add(r.bytes)
}

func (t *groupTable) unknown(g GroupID) *RemoteError {
	return &RemoteError{Code: CodeUnknownGroup, Text: fmt.Sprintf("group %d does not run on node %s", g, t.m.cfg.Local)}
}

// expire answers what was held in vain.
func (t *groupTable) expire(g GroupID, h *heldFrames) {
	t.mu.Lock()
	mine := t.held[g] == h
	if mine {
		t.release(g, h)
	}
	t.mu.Unlock()
	if !mine {
		return
	}
	t.m.stats.raftUnknown.Add(uint64(len(h.rpcs)))
	for _, r := range h.rpcs {
		r.refuse(t.unknown(g))
	}
}

// ask queues a question for the hook, one for each group that is held; t.mu is held.
func (t *groupTable) ask(g GroupID, a groupAsk) {
	t.hookMu.Lock()
	defer t.hookMu.Unlock()
	t.asks[g] = a
	if !t.asking {
		t.asking = t.m.spawn(t.askAll)
	}
}

func (t *groupTable) askAll() {
	for {
		g, a, hook := t.nextAsk()
		if hook == nil {
			return
		}
		hook(g, a.from, a.catalog)
	}
}

// nextAsk takes any of the questions: in order of arrival those whose senders are quickest to come back would always be
// first if the hook is slower than holds expire. Without a question there is no hook, and the goroutine is over.
func (t *groupTable) nextAsk() (g GroupID, a groupAsk, hook func(GroupID, NodeID, uint64)) {
	t.hookMu.Lock()
	defer t.hookMu.Unlock()
	if t.hook != nil {
		for g, a := range t.asks {
			delete(t.asks, g)
			return g, a, t.hook
		}
	}
	t.asking = false
	return 0, groupAsk{}, nil
}
